"""Macros -> the calls and loops that they stand for."""

from collections.abc import Callable, Mapping

from cel import tree

TOTAL = "@result"
"""The running value of a loop: no text can name it."""
_SORTED = "@sorted"
Arguments = tuple[tree.Node, ...]


class Misused(Exception):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at, self.message = at, message


def expand(at: int, function: str, target: tree.Node | None, args: Arguments) -> tree.Node | None:
    """None where that is a call like any other."""
    if target is None:
        return _has(args[0]) if function == "has" and len(args) == 1 else None
    if function == "bind" and len(args) == 3 and isinstance(target, tree.Ident) and target.name == "cel":  # noqa: PLR2004
        return tree.Bind(at, _variable(args[0], "cel.bind() variable name must be a simple identifier"), *args[1:])
    made = _MEMBERS.get((function, len(args)))
    return None if made is None else made(at, target, args)


def _has(argument: tree.Node) -> tree.Node:
    if isinstance(argument, tree.Select) and not argument.test:
        return tree.Select(argument.at, argument.operand, argument.field, test=True)
    raise Misused(argument.at, "invalid argument to has() macro")


def _variable(node: tree.Node, words: str = "argument must be a simple name") -> str:
    if isinstance(node, tree.Ident):
        return node.name
    raise Misused(node.at, words)


def _two(args: Arguments) -> tuple[str, str]:
    first, second = _variable(args[0]), _variable(args[1])
    if first == second:
        raise Misused(args[1].at, f"duplicate variable name: {first}")
    return first, second


class _At:
    """Makes nodes of one macro, all at its place."""

    def __init__(self, at: int) -> None:
        self._at = at

    def literal(self, value: object) -> tree.Node:
        return tree.Literal(self._at, value)

    def call(self, function: str, *args: tree.Node) -> tree.Node:
        return tree.Call(self._at, function, None, args)

    def member(self, target: tree.Node, function: str, *args: tree.Node) -> tree.Node:
        return tree.Call(self._at, function, target, args)

    def total(self) -> tree.Node:
        return tree.Ident(self._at, TOTAL)

    def list(self, *elements: tree.Node) -> tree.Node:
        return tree.List(self._at, elements)

    def loop(
        self,
        over: tree.Node,
        names: tuple[str, str],
        start: tree.Node,
        step: tree.Node,
        going: tree.Node | None = None,
        result: tree.Node | None = None,
    ) -> tree.Node:
        going, result = going or self.literal(True), result or self.total()
        return tree.Loop(self._at, over, *names, TOTAL, start, going, step, result)


def _all(at: int, target: tree.Node, names: tuple[str, str], test: tree.Node) -> tree.Node:
    new = _At(at)
    step = new.call("_&&_", new.total(), test)
    return new.loop(target, names, new.literal(True), step, new.call("@not_strictly_false", new.total()))


def _exists(at: int, target: tree.Node, names: tuple[str, str], test: tree.Node) -> tree.Node:
    new = _At(at)
    going = new.call("@not_strictly_false", new.call("!_", new.total()))
    return new.loop(target, names, new.literal(False), new.call("_||_", new.total(), test), going)


def _exists_one(at: int, target: tree.Node, names: tuple[str, str], test: tree.Node) -> tree.Node:
    new = _At(at)
    step = new.call("_?_:_", test, new.call("_+_", new.total(), new.literal(1)), new.total())
    result = new.call("_==_", new.total(), new.literal(1))
    return new.loop(target, names, new.literal(0), step, result=result)


def _kept(new: _At, test: tree.Node | None, step: tree.Node) -> tree.Node:
    return step if test is None else new.call("_?_:_", test, step, new.total())


def _list(at: int, target: tree.Node, names: tuple[str, str], test: tree.Node | None, made: tree.Node) -> tree.Node:
    new = _At(at)
    step = _kept(new, test, new.call("_+_", new.total(), new.list(made)))
    return new.loop(target, names, new.list(), step)


def _filter(at: int, target: tree.Node, args: Arguments) -> tree.Node:
    name = _variable(args[0])
    return _list(at, target, (name, ""), args[1], tree.Ident(args[0].at, name))


def _map(at: int, target: tree.Node, args: Arguments) -> tree.Node:
    return _list(at, target, (_variable(args[0]), ""), args[1] if len(args) > 2 else None, args[-1])  # noqa: PLR2004


def _to_map(at: int, target: tree.Node, args: Arguments, *, whole: bool) -> tree.Node:
    new, names = _At(at), _two(args)
    made = (args[-1],) if whole else (tree.Ident(args[0].at, names[0]), args[-1])
    step = new.call("cel.@mapInsert", new.total(), *made)
    test = args[2] if len(args) > 3 else None  # noqa: PLR2004  two names, a test, what is made
    return new.loop(target, names, tree.Map(at, ()), _kept(new, test, step))


def _opt_map(at: int, target: tree.Node, args: Arguments, *, flat: bool) -> tree.Node:
    new = _At(at)
    word = "optFlatMap" if flat else "optMap"
    name = _variable(args[0], f"{word}() variable name must be a simple identifier")
    bound: tree.Node = tree.Bind(at, name, new.member(target, "value"), args[1])
    then = bound if flat else new.call("optional.of", bound)
    return new.call("_?_:_", new.member(target, "hasValue"), then, new.call("optional.none"))


def _sort_by(at: int, target: tree.Node, args: Arguments) -> tree.Node:
    new, found = _At(at), tree.Ident(at, _SORTED)
    keys = _map(at, found, args)
    return tree.Bind(at, _SORTED, target, new.member(found, "@sortByAssociatedKeys", keys))


def _one_name(make: Callable[[int, tree.Node, tuple[str, str], tree.Node], tree.Node]) -> "_Macro":
    return lambda at, target, args: make(at, target, (_variable(args[0]), ""), args[1])


def _two_names(make: Callable[[int, tree.Node, tuple[str, str], tree.Node], tree.Node]) -> "_Macro":
    return lambda at, target, args: make(at, target, _two(args), args[2])


def _transform_list(at: int, target: tree.Node, args: Arguments) -> tree.Node:
    return _list(at, target, _two(args), args[2] if len(args) > 3 else None, args[-1])  # noqa: PLR2004


_Macro = Callable[[int, tree.Node, Arguments], tree.Node]
_MEMBERS: Mapping[tuple[str, int], _Macro] = {
    ("all", 2): _one_name(_all),
    ("exists", 2): _one_name(_exists),
    ("exists_one", 2): _one_name(_exists_one),
    ("all", 3): _two_names(_all),
    ("exists", 3): _two_names(_exists),
    ("exists_one", 3): _two_names(_exists_one),
    ("existsOne", 3): _two_names(_exists_one),
    ("filter", 2): _filter,
    ("map", 2): _map,
    ("map", 3): _map,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): lambda at, target, args: _to_map(at, target, args, whole=False),
    ("transformMap", 4): lambda at, target, args: _to_map(at, target, args, whole=False),
    ("transformMapEntry", 3): lambda at, target, args: _to_map(at, target, args, whole=True),
    ("transformMapEntry", 4): lambda at, target, args: _to_map(at, target, args, whole=True),
    ("optMap", 2): lambda at, target, args: _opt_map(at, target, args, flat=False),
    ("optFlatMap", 2): lambda at, target, args: _opt_map(at, target, args, flat=True),
    ("sortBy", 2): _sort_by,
}
