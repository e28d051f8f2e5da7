"""The syntax tree of a CEL text: what the parser makes, the checker types, and the compiler turns into closures.

Nodes are told apart by identity, not by content: types and sizes are kept beside them. `at` is the offset in the text.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Node):
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Ident(Node):
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Select(Node):
    """`test`: only whether the field is there."""

    operand: Node
    field: str
    test: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(Node):
    """Operators are calls of functions such as `_+_`. `target` is None for a function that is not a member."""

    function: str
    target: Node | None
    args: tuple[Node, ...]

    @property
    def operands(self) -> tuple[Node, ...]:
        return self.args if self.target is None else (self.target, *self.args)


@dataclass(frozen=True, slots=True, eq=False)
class List(Node):
    """`optional`: which elements are left out where they have no value."""

    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    key: Node
    value: Node
    optional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Map(Node):
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Node):
    """A comprehension: `total` starts as `start`, becomes `step` for each element while `going`, and `result` is told.

    `second` is empty where the macro has one variable: the element of a list or the key of a map.
    """

    over: Node
    first: str
    second: str
    total: str
    start: Node
    going: Node
    step: Node
    result: Node


@dataclass(frozen=True, slots=True, eq=False)
class Bind(Node):
    """`name` stands for `value` in `result`. The value is computed when it is first needed."""

    name: str
    value: Node
    result: Node


def place(text: str, at: int) -> str:
    """Where that is, as an editor counts."""
    before = text[:at]
    return f"line {before.count(chr(10)) + 1}, column {at - (before.rfind(chr(10)) + 1) + 1}"
