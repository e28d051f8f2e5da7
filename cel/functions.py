"""Functions: their signatures as text, what they do, and which one is meant by values of these types.

    table of an extension --> Overload (signature, id, Python) --> Function (all overloads of one name)

One table says it all: the checker reads the types, the cost estimate the id, the compiler the Python.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cel import types, values

Row = tuple[str, str, Callable[..., Any]]
"""A signature, upstream's id of it (costs go by that), and what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    id: str
    member: bool
    params: tuple[types.Type, ...]
    result: types.Type
    call: Callable[..., Any]


class Function:
    """All overloads of one name. `chosen` by the values' types, remembered for those that differ by type alone."""

    def __init__(self, name: str, overloads: tuple[Overload, ...]) -> None:
        self.name, self.overloads = name, overloads
        self._known: dict[tuple[bool, tuple[type, ...]], Callable[..., Any] | None] = {}

    def call(self, member: bool, arguments: tuple[Any, ...]) -> Any:  # noqa: FBT001  called at each evaluation
        """Raises Failed where no overload takes these."""
        key = (member, tuple(map(type, arguments)))
        found = self._known.get(key)
        if found is None:
            fitting = [one for one in self.overloads if one.member is member and _take(one.params, arguments)]
            if not fitting:
                raise values.Failed(f"no such overload: {self.name}({', '.join(map(values.type_of, arguments))})")
            found = fitting[0].call
            if not any(param.params for one in self.overloads for param in one.params):
                self._known[key] = found
        return found(*arguments)


def table(rows: Iterable[Row]) -> Mapping[str, Function]:
    found: dict[str, list[Overload]] = {}
    for signature, id_, call in rows:
        name, overload = _overload(signature, id_, call)
        found.setdefault(name, []).append(overload)
    return {name: Function(name, tuple(overloads)) for name, overloads in found.items()}


def _overload(signature: str, id_: str, call: Callable[..., Any]) -> tuple[str, Overload]:
    """`list(A).slice(int, int) -> list(A)` is a member; `sets.contains: (list(A), list(A)) -> bool` is not."""
    head, result = signature.split(" -> ")
    if ": " in head:
        name, inner = head.split(": ", 1)
        target: tuple[str, ...] = ()
    else:
        at = _opening(head)
        owner, name = head[:at].rsplit(".", 1)
        inner, target = head[at:], (owner,)
    params = tuple(types.read(text) for text in (*target, *_split(inner[1:-1])))
    return name, Overload(id=id_, member=bool(target), params=params, result=types.read(result), call=call)


def _opening(head: str) -> int:
    """Where the last balanced parenthesis of the text opens."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[at], 0)
        if depth == 0:
            return at
    raise ValueError(head)


def _split(inner: str) -> list[str]:
    found, depth = [""], 0
    for letter in inner:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [text.strip() for text in found if text.strip()]


def _take(params: tuple[types.Type, ...], arguments: tuple[Any, ...]) -> bool:
    return len(params) == len(arguments) and all(map(_takes, params, arguments))


def _takes(param: types.Type, value: Any) -> bool:
    """As upstream: of a list the first element is looked at."""
    if param.kind in ("param", "dyn"):
        return True
    if values.type_of(value) != param.kind:
        return False
    if param.kind == "list":
        return not value or _takes(param.params[0], value[0])
    if param.kind == "map" and value:
        name, found = next(iter(value.items()))
        return _takes(param.params[0], values.unkey(name)) and _takes(param.params[1], found)
    return True
