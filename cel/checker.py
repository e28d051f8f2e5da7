"""The syntax tree -> the type of each node, and the overloads that each call may mean.

Gradual: what hangs on an attribute is only known at run time (`any`), and fits everything. The texts that this refuses
are those that the API server refuses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cel import environment, functions, lexer, standard, text, tree, types, values
from cel.types import Type

_CONVERSIONS = frozenset(["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"])
_PATTERNS = frozenset(("matches", "find", "findAll"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What a call is. `ids`: of the overloads that its types allow."""

    function: functions.Function
    member: bool
    target: tree.Node | None
    args: tuple[tree.Node, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    root: tree.Node
    types: Mapping[tree.Node, Type]
    calls: Mapping[tree.Call, Meant]
    names: Mapping[tree.Node, Type]
    """Nodes that name a type."""


def check(root: tree.Node, source: str, *, stored: bool = False) -> Checked:
    """Raises Invalid with the place of what fits nothing. `stored`: an API server has taken it, maybe a newer one."""
    checker = _Checker(source, stored=stored)
    checker.check(root)
    found = checker.settled(root)
    checker.literals(found.types)
    return found


class _Checker:
    def __init__(self, source: str, *, stored: bool) -> None:
        self._text, self._stored = source, stored
        self._fields = environment.fields(types.DYN if stored else types.ANY)
        self._bindings = types.Bindings()
        self._types: dict[tree.Node, Type] = {}
        self._calls: dict[tree.Call, Meant] = {}
        self._names: dict[tree.Node, Type] = {}
        self._scopes: list[dict[str, Type]] = [{environment.DEVICE: types.DEVICE}]
        self._aggregates: list[tuple[tree.List | tree.Map, bool]] = []
        self._formats = 0

    def settled(self, root: tree.Node) -> Checked:
        found = {node: self._bindings.settled(type_, closed=True) for node, type_ in self._types.items()}
        return Checked(root=root, types=found, calls=self._calls, names=self._names)

    def check(self, node: tree.Node) -> Type:
        match node:
            case tree.Literal():
                found = _literal(node.value)
            case tree.Ident():
                found = self._ident(node)
            case tree.Select():
                found = self._select(node)
            case tree.Call():
                found = self._call(node)
            case tree.List():
                found = self._list(node)
            case tree.Map():
                found = self._map(node)
            case tree.Bind():
                value = self.check(node.value)
                found = self._within({node.name: value}, lambda: self.check(node.result))
            case tree.Loop():
                found = self._loop(node)
            case _:
                raise TypeError(node)
        self._types[node] = found
        return found

    def _wrong(self, at: int, message: str) -> Exception:
        return lexer.wrong(self._text, at, message)

    def _within(self, names: dict[str, Type], inner: Callable[[], Type]) -> Type:
        self._scopes.append(names)
        try:
            return inner()
        finally:
            self._scopes.pop()

    def _known(self, name: str) -> Type | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _ident(self, node: tree.Ident) -> Type:
        known = self._known(node.name)
        if known is not None:
            return known
        if node.name in environment.TYPE_NAMES:
            return self._type_name(node, node.name)
        raise self._wrong(node.at, f"undeclared reference to {node.name!r}")

    def _type_name(self, node: tree.Node, name: str) -> Type:
        self._names[node] = environment.TYPE_NAMES[name]
        return Type("type", (environment.TYPE_NAMES[name],))

    def _select(self, node: tree.Select) -> Type:
        name = _qualified(node)
        if name is not None and name in environment.TYPE_NAMES:
            return self._type_name(node, name)
        found = self._field(node.at, node.operand, node.field)
        return types.BOOL if node.test else self._bindings.settled(found)

    def _field(self, at: int, operand: tree.Node, field: str, *, optional: bool = False) -> Type:
        of = self._bindings.settled(self.check(operand))
        inner = of.params[0] if of.kind == "optional_type" else of
        if inner.kind == "map":
            found = inner.params[1]
        elif inner == types.DEVICE:
            if field not in self._fields:
                raise self._wrong(at, f"undefined field {field!r}")
            found = self._fields[field]
        elif inner.kind == "param":
            self._bindings.fits((types.DYN,), (inner,))
            found = types.DYN
        elif inner.open:
            found = types.DYN
        else:
            raise self._wrong(at, f"type {inner} does not support field selection")
        return types.optional(found) if optional or inner is not of else found

    def _call(self, node: tree.Call) -> Type:
        if node.function == "_?._":
            return self._opt_select(node)
        exempt = node.function == "format"
        self._formats += exempt
        given = tuple(map(self.check, node.args))
        target, name = node.target, node.function
        if target is not None:
            prefix = _qualified(target)
            if prefix is not None and f"{prefix}.{name}" in environment.FUNCTIONS:
                target, name = None, f"{prefix}.{name}"
            else:
                given = (self.check(target), *given)
        self._formats -= exempt
        function = environment.FUNCTIONS.get(name)
        if function is None or (name in environment.NEWER and not self._stored):
            raise self._wrong(node.at, f"undeclared reference to {name!r}")
        found, ids = self._resolved(function, given, member=target is not None)
        if found is None:
            shown = ", ".join(str(self._bindings.settled(one, closed=True)) for one in given)
            raise self._wrong(node.at, f"found no matching overload for {name!r} applied to ({shown})")
        self._calls[node] = Meant(function=function, member=target is not None, target=target, args=node.args, ids=ids)
        return found

    def _opt_select(self, node: tree.Call) -> Type:
        operand, field = node.args
        assert isinstance(field, tree.Literal)
        self._types[field] = types.STRING
        function = environment.FUNCTIONS["_?._"]
        found = self._field(node.at, operand, field.value, optional=True)
        self._calls[node] = Meant(
            function=function, member=False, target=None, args=node.args, ids=("select_optional_field",)
        )
        return self._bindings.settled(found)

    def _resolved(
        self, function: functions.Function, given: tuple[Type, ...], *, member: bool
    ) -> tuple[Type | None, tuple[str, ...]]:
        result: Type | None = None
        ids: list[str] = []
        for overload in function.overloads:
            if overload.member is not member:
                continue
            params, returned = self._fresh(overload)
            if not self._bindings.fits(given, params):
                continue
            ids.append(overload.id)
            found = self._bindings.settled(returned)
            if result is None:
                result = found
            elif not result.open and found != result:
                result = types.DYN
        return result, tuple(ids)

    def _fresh(self, overload: functions.Overload) -> tuple[tuple[Type, ...], Type]:
        new: dict[str, Type] = {}
        params = tuple(self._renamed(param, new) for param in overload.params)
        return params, self._renamed(overload.result, new)

    def _renamed(self, type_: Type, new: dict[str, Type]) -> Type:
        if type_.kind == "param":
            if type_.name not in new:
                new[type_.name] = self._bindings.fresh()
            return new[type_.name]
        if not type_.params:
            return type_
        return Type(type_.kind, tuple(self._renamed(param, new) for param in type_.params))

    def _list(self, node: tree.List) -> Type:
        self._aggregates.append((node, self._formats > 0))
        common: Type | None = None
        for at, element in enumerate(node.elements):
            common = self._joined(common, self._maybe_optional(element, optional=at in node.optional))
        return types.listed(common or self._bindings.fresh())

    def _map(self, node: tree.Map) -> Type:
        self._aggregates.append((node, self._formats > 0))
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._joined(key, self.check(entry.key))
            value = self._joined(value, self._maybe_optional(entry.value, optional=entry.optional))
        return types.mapped(key or self._bindings.fresh(), value or self._bindings.fresh())

    def _maybe_optional(self, node: tree.Node, *, optional: bool) -> Type:
        found = self.check(node)
        if not optional:
            return found
        if found.kind == "optional_type":
            return found.params[0]
        if found.open:
            return found
        raise self._wrong(node.at, f"expected type 'optional_type({found})' but found '{found}'")

    def _joined(self, before: Type | None, found: Type) -> Type:
        if before is None:
            return found
        if self._bindings.fits((before,), (found,)):
            return types.more_general(before, found)
        return types.DYN

    def _loop(self, node: tree.Loop) -> Type:
        self.check(node.over)
        total = self.check(node.start)
        names = self._element(node)
        return self._within({node.total: total}, lambda: self._body(node, names, total))

    def _element(self, node: tree.Loop) -> dict[str, Type]:
        over = self._bindings.settled(self._types[node.over])
        if over.kind == "list":
            return {node.first: types.INT, node.second: over.params[0]} if node.second else {node.first: over.params[0]}
        if over.kind == "map":
            return {node.first: over.params[0]} | ({node.second: over.params[1]} if node.second else {})
        if over.kind not in ("dyn", "error", "param"):
            raise self._wrong(
                node.over.at,
                f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
        self._bindings.fits((types.DYN,), (over,))
        return {node.first: types.DYN} | ({node.second: types.DYN} if node.second else {})

    def _body(self, node: tree.Loop, names: dict[str, Type], total: Type) -> Type:
        def inner() -> Type:
            self._asserted(node.going, types.BOOL)
            self._asserted(node.step, total)
            return total

        self._within(names, inner)
        return self._bindings.settled(self.check(node.result))

    def _asserted(self, node: tree.Node, wanted: Type) -> None:
        found = self.check(node)
        if not self._bindings.fits((wanted,), (found,)):
            raise self._wrong(node.at, f"expected type '{wanted}' but found '{found}'")

    def literals(self, found: Mapping[tree.Node, Type]) -> None:
        """What upstream checks after the types: literals that can never work, and mixed lists and maps."""
        for node, meant in self._calls.items():
            self._tried(node, meant)
        for node_, exempt in self._aggregates:
            if exempt:
                continue
            if isinstance(node_, tree.List):
                self._alike([(one, at in node_.optional) for at, one in enumerate(node_.elements)], found)
            else:
                self._alike([(entry.key, False) for entry in node_.entries], found)
                self._alike([(entry.value, entry.optional) for entry in node_.entries], found)

    def _tried(self, node: tree.Call, meant: Meant) -> None:
        name, args = meant.function.name, meant.args
        try:
            if name in _CONVERSIONS and len(args) == 1:
                self._constant(node)
            if name in ("_[_]", "_[?_]"):
                _key(self._constant(args[1]))
            patterns = args[: 1 if meant.member else 2] if name in _PATTERNS else ()
            for pattern in patterns:
                if isinstance(pattern, tree.Literal) and isinstance(pattern.value, str):
                    standard.pattern(pattern.value)
            if name == "format" and isinstance(meant.target, tree.Literal) and isinstance(args[0], tree.List):
                text.fitting(meant.target.value, [tuple(self._kinds(one)) for one in args[0].elements])
        except values.Failed as error:
            raise self._wrong(node.at, f"invalid {name} argument: {error}") from error

    def _kinds(self, node: tree.Node) -> Iterator[str]:
        """The type of a node, and of all that it lists."""
        yield self._bindings.settled(self._types[node], closed=True).kind
        inner = node.elements if isinstance(node, tree.List) else ()
        if isinstance(node, tree.Map):
            inner = tuple(one for entry in node.entries for one in (entry.key, entry.value))
        for one in inner:
            yield from self._kinds(one)

    def _constant(self, node: tree.Node) -> tuple[Any, ...]:
        """The value of what does not hang on the device, as far as upstream works it out before: else nothing.

        Of a list or a map an empty one stands for all: what asks looks at the kind alone.
        """
        if isinstance(node, tree.Literal):
            return (node.value,)
        if isinstance(node, tree.List):
            return ([],) if all(map(self._constant, node.elements)) else ()
        if isinstance(node, tree.Map):
            held = (one for entry in node.entries for one in (entry.key, entry.value))
            return ({},) if all(map(self._constant, held)) else ()
        if isinstance(node, tree.Call) and self._calls[node].function.name in _CONVERSIONS and len(node.args) == 1:
            inner = self._constant(node.args[0])
            return (self._calls[node].function.call(False, inner),) if inner else ()
        return ()

    def _alike(self, nodes: Iterable[tuple[tree.Node, bool]], found: Mapping[tree.Node, Type]) -> None:
        first: Type | None = None
        for node, optional in nodes:
            type_ = found[node]
            if optional and not type_.params:
                raise self._wrong(
                    node.at, "an optional element has to have a type that is known; the API server panics"
                )
            type_ = type_.params[0] if optional else type_
            first = first or type_
            if first != type_:
                raise self._wrong(node.at, f"expected type '{first}' but found '{type_}'")


def _key(constant: tuple[Any, ...]) -> None:
    if constant and not isinstance(constant[0], (str, int, float)):
        raise values.Failed(f"invalid qualifier type: {values.type_of(constant[0])}")


def _literal(value: object) -> Type:
    return types.NAMED[values.type_of(value)]


def _qualified(node: tree.Node) -> str | None:
    """The name with dots that a chain of fields spells."""
    parts = []
    while isinstance(node, tree.Select) and not node.test:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, tree.Ident):
        return None
    return ".".join((node.name, *reversed(parts)))
