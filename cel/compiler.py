"""The checked tree -> one closure. A frame is a list: [0] what work is left, [1] the device, then the variables.

Errors are exceptions, except where CEL carries them on: the other side of && and || may still decide, and so may the
next element of all() and exists().
"""

from collections.abc import Callable, Mapping
from typing import Any

from cel import checker, environment, macros, standard, tree, values
from cel.values import Closure, Failed, Frame

_WORK, _DEVICE = 0, 1
_BUDGET = 1_000_000


class _Later:
    """The value of a bind that nobody has read yet."""

    def __init__(self, run: Closure) -> None:
        self.run = run


class Expression:
    """A closure with the frame that it needs."""

    def __init__(self, run: Closure, size: int) -> None:
        self._run, self._size = run, size

    def value(self, device: Any) -> Any:
        frame: Frame = [_BUDGET, device, *[None] * self._size]
        return self._run(frame)


def compile_(found: checker.Checked) -> Expression:
    compiler = _Compiler(found)
    run = compiler.closure(found.root)
    return Expression(run, compiler.size)


class _Compiler:
    def __init__(self, found: checker.Checked) -> None:
        self._found = found
        self._slots: list[dict[str, int]] = [{environment.DEVICE: _DEVICE}]
        self.size = 0

    def closure(self, node: tree.Node) -> Closure:  # noqa: PLR0911  one a kind of node
        if node in self._found.names:
            type_ = values.Type(self._found.names[node].kind)
            return lambda _: type_
        match node:
            case tree.Literal():
                value = node.value
                return lambda _: value
            case tree.Ident():
                return self._ident(node)
            case tree.Select():
                return self._select(node)
            case tree.Call():
                return self._call(node)
            case tree.List():
                return self._list(node)
            case tree.Map():
                return self._map(node)
            case tree.Bind():
                return self._bind(node)
            case tree.Loop():
                return self._loop(node)
            case _:
                raise TypeError(node)

    def _slot(self) -> int:
        self.size += 1
        return _DEVICE + self.size

    def _ident(self, node: tree.Ident) -> Closure:
        slot = next(scope[node.name] for scope in reversed(self._slots) if node.name in scope)
        if node.name == environment.DEVICE and slot == _DEVICE:
            return lambda frame: frame[slot]

        def read(frame: Frame) -> Any:
            value = frame[slot]
            if isinstance(value, Failed):
                raise value
            if type(value) is _Later:
                value = frame[slot] = value.run(frame)
            return value

        return read

    def _select(self, node: tree.Select) -> Closure:
        operand, field, test = self.closure(node.operand), node.field, node.test

        def select(frame: Frame) -> Any:
            value = operand(frame)
            if type(value) is values.Optional and not test:
                return standard.look(value, field)
            if test:
                return standard.look(value, field).held != ()
            try:
                return value[field] if isinstance(value, Mapping) else standard.index(value, field)
            except KeyError:
                raise Failed(f"no such key: {field}") from None

        return select

    def _call(self, node: tree.Call) -> Closure:
        meant = self._found.calls[node]
        operands = [self.closure(one) for one in ((meant.target, *meant.args) if meant.target else meant.args)]
        special = _SPECIAL.get((meant.function.name, len(operands)))
        if node.function == "@in" and isinstance(node.args[1], tree.List):
            special = _among(node.args[1])
        if special is not None:
            return special(operands)
        call, member = meant.function.call, meant.member
        if node.function == "_+_" and _grows(node):
            return _append(operands, node)
        if len(operands) == 1:
            only = operands[0]
            return lambda frame: call(member, (only(frame),))
        if len(operands) == 2:  # noqa: PLR2004  nearly all of them
            one, other = operands
            return lambda frame: call(member, (one(frame), other(frame)))
        return lambda frame: call(member, tuple([operand(frame) for operand in operands]))

    def _list(self, node: tree.List) -> Closure:
        elements = [self.closure(one) for one in node.elements]
        if not node.optional:
            return lambda frame: [element(frame) for element in elements]
        optional = node.optional

        def some(frame: Frame) -> list[Any]:
            made: list[Any] = []
            for at, element in enumerate(elements):
                value = element(frame)
                made += _held(value) if at in optional else [value]
            return made

        return some

    def _map(self, node: tree.Map) -> Closure:
        entries = [(self.closure(entry.key), self.closure(entry.value), entry.optional) for entry in node.entries]

        def entries_(frame: Frame) -> dict[Any, Any]:
            made = values.Made()
            for name, value, optional in entries:
                key, found = values.key(name(frame)), value(frame)
                for one in _held(found) if optional else (found,):
                    made[key] = one
            return made

        return entries_

    def _bind(self, node: tree.Bind) -> Closure:
        value, slot = self.closure(node.value), self._slot()
        self._slots.append({node.name: slot})
        result = self.closure(node.result)
        self._slots.pop()

        later = _Later(value)

        def bind(frame: Frame) -> Any:
            frame[slot] = later
            return result(frame)

        return bind

    def _loop(self, node: tree.Loop) -> Closure:
        over, start = self.closure(node.over), self.closure(node.start)
        total, first, second = self._slot(), self._slot(), self._slot() if node.second else 0
        self._slots.append({node.total: total})
        result = self.closure(node.result)
        self._slots.append({node.first: first} | ({node.second: second} if node.second else {}))
        going, step = self.closure(node.going), self.closure(node.step)
        del self._slots[-2:]

        def loop(frame: Frame) -> Any:
            elements = _elements(over(frame), pairs=bool(second))
            frame[total] = start(frame)
            for element in elements:
                frame[_WORK] -= 1
                if frame[_WORK] < 0:
                    raise Failed("operation cancelled: actual cost limit exceeded")
                if second:
                    frame[first], frame[second] = element
                else:
                    frame[first] = element
                if not going(frame):
                    break
                try:
                    frame[total] = step(frame)
                except Failed as error:
                    frame[total] = error
            return result(frame)

        return loop


def _elements(value: Any, *, pairs: bool) -> list[Any]:
    if isinstance(value, list):
        return list(enumerate(value)) if pairs else value
    if isinstance(value, Mapping):
        return [(values.unkey(key), one) for key, one in value.items()] if pairs else [*map(values.unkey, value)]
    raise Failed(f"no such overload: {values.type_of(value)} is no range")


def _held(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, values.Optional):
        raise Failed("cannot initialize optional entry from non-optional value")
    return value.held


def _grows(node: tree.Call) -> bool:
    """The running list of map() and filter(), which nobody else has: it grows in place."""
    return (
        isinstance(node.args[0], tree.Ident)
        and node.args[0].name == macros.TOTAL
        and isinstance(node.args[1], tree.List)
    )


def _append(operands: list[Closure], node: tree.Call) -> Closure:
    total, more = operands
    plus = environment.FUNCTIONS[node.function].call

    def append(frame: Frame) -> Any:
        before, added = total(frame), more(frame)
        if type(before) is not list:
            return plus(False, (before, added))
        before += added
        return before

    return append


def _decided(operand: Closure, frame: Frame, word: bool) -> tuple[bool, Failed | None]:  # noqa: FBT001
    """Whether this side alone decides, or what is wrong with it."""
    try:
        value = operand(frame)
    except Failed as error:
        return False, error
    if type(value) is not bool:
        return False, Failed("no such overload")
    return value is word, None


def _either(word: bool) -> Any:  # noqa: FBT001
    """&& is decided by a False, || by a True, on whichever side."""

    def made(operands: list[Closure]) -> Closure:
        one, other = operands

        def run(frame: Frame) -> bool:
            decided, wrong = _decided(one, frame, word)
            if decided:
                return word
            decided, also = _decided(other, frame, word)
            if decided:
                return word
            if wrong or also:
                raise wrong or also  # type: ignore[misc]  # one of them is
            return not word

        return run

    return made


def _conditional(operands: list[Closure]) -> Closure:
    test, then, other = operands

    def run(frame: Frame) -> Any:
        value = test(frame)
        if type(value) is not bool:
            raise Failed("no such overload")
        return then(frame) if value else other(frame)

    return run


def _not_strictly_false(operands: list[Closure]) -> Closure:
    (operand,) = operands

    def run(frame: Frame) -> bool:
        try:
            return operand(frame) is not False
        except Failed:
            return True

    return run


def _or(unwrap: bool) -> Any:  # noqa: FBT001
    def made(operands: list[Closure]) -> Closure:
        one, other = operands

        def run(frame: Frame) -> Any:
            found = one(frame)
            if not isinstance(found, values.Optional):
                raise Failed("no such overload")
            if not found.held:
                return other(frame)
            return found.held[0] if unwrap else found

        return run

    return made


def _among(sought: tree.List) -> Callable[[list[Closure]], Closure] | None:
    """Where upstream looks something up in a list that stands there otherwise than it looks through lists."""
    if not sought.elements:
        return lambda _: lambda _: False  # it does not even look at what is sought
    plain = not sought.optional and all(map(_literal, sought.elements))
    return _plain(standard.contains_plain) if plain else None


def _literal(node: tree.Node) -> bool:
    """A number, text or truth value that stands there, also as `dyn(1)`."""
    while isinstance(node, tree.Call) and node.function == "dyn":
        (node,) = node.args
    return isinstance(node, tree.Literal) and isinstance(node.value, (bool, int, float, str))


def _plain(call: Callable[[Any, Any], Any]) -> Callable[[list[Closure]], Closure]:
    """Looking into a value goes by what it is, and not by an overload."""

    def made(operands: list[Closure]) -> Closure:
        one, other = operands
        return lambda frame: call(one(frame), other(frame))

    return made


def _index(value: Any, at: Any) -> Any:
    return standard.look(value, at) if type(value) is values.Optional else standard.index(value, at)


_SPECIAL: Mapping[tuple[str, int], Callable[[list[Closure]], Closure]] = {
    ("_&&_", 2): _either(False),
    ("_||_", 2): _either(True),
    ("_?_:_", 3): _conditional,
    ("@not_strictly_false", 1): _not_strictly_false,
    ("_[_]", 2): _plain(_index),
    ("_[?_]", 2): _plain(standard.look),
    ("_?._", 2): _plain(standard.look),
    ("or", 2): _or(False),
    ("orValue", 2): _or(True),
}
