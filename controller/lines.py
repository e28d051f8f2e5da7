"""Who waits, in the order in which it should be served; who asks alike stands in one line.

    put, drop --> Lines --march--> the first of all, then the next; a line that the caller passes over is left at once

What must stay true: a march costs what it looks at and not what waits, so that a hundred thousand that ask the same in vain
are one look; nothing is put or dropped while somebody marches; the order of one that waits never changes.
"""

import heapq
from collections.abc import Container, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

Order = tuple[int, str, str]


class Waiting(Protocol):
    """`order` ends with the key. `line`: equal for those that ask alike. `together`: a line is served as a whole."""

    @property
    def key(self) -> str: ...
    @property
    def order(self) -> Order: ...
    @property
    def line(self) -> Hashable: ...
    @property
    def together(self) -> bool: ...


W = TypeVar("W", bound=Waiting)


class _Line:
    """Orders, sorted when somebody looks: many come at once, mostly behind those that are there."""

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._gone: set[str] = set()
        self._sorted = True

    def __len__(self) -> int:
        return len(self._orders) - len(self._gone)

    def enter(self, order: Order) -> None:
        if order[-1] in self._gone:
            self._gone.discard(order[-1])
            return
        self._orders.append(order)
        self._sorted = False

    def leave(self, key: str) -> None:
        self._gone.add(key)

    def orders(self) -> list[Order]:
        if self._gone:
            self._orders = [order for order in self._orders if order[-1] not in self._gone]
            self._gone.clear()
        if not self._sorted:
            self._orders.sort()
            self._sorted = True
        return self._orders


class Lines(Generic[W]):
    """All that wait."""

    def __init__(self) -> None:
        self._wants: dict[str, W] = {}
        self._lines: dict[Hashable, _Line] = {}

    def put(self, want: W) -> None:
        """In place of the one with its key."""
        line, before = want.line, self._wants.get(want.key)
        if before is None or before.line != line:
            self.drop(want.key)
            self._lines.setdefault(line, _Line()).enter(want.order)
        self._wants[want.key] = want

    def drop(self, key: str) -> None:
        before = self._wants.pop(key, None)
        if before is not None:
            line = self._lines[before.line]
            line.leave(key)
            if not len(line):
                del self._lines[before.line]

    def __contains__(self, line: Hashable) -> bool:
        return line in self._lines

    def keys(self, line: Hashable) -> tuple[str, ...]:
        return tuple(order[-1] for order in self._lines[line].orders())

    def first(self, line: Hashable, most: int) -> tuple[W, ...]:
        return tuple(self._wants[order[-1]] for order in self._lines[line].orders()[:most])

    def march(self, passed: Container[Hashable]) -> Iterator[tuple[Hashable, tuple[W, ...]]]:
        """(line, those to be served now), the next one by order each. The caller adds lines to `passed` as it goes."""
        heads = [(line.orders()[0], 0, name) for name, line in self._lines.items()]
        heapq.heapify(heads)
        while heads:
            order, place, name = heads[0]
            orders, want = self._lines[name].orders(), self._wants[order[-1]]
            if name not in passed:
                yield name, (self.first(name, len(orders)) if want.together else (want,))
            if name in passed or want.together or place + 1 == len(orders):
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (orders[place + 1], place + 1, name))
