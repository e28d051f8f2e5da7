"""What is different among the objects of a watch since the last look. Objects are compared by identity."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

T = TypeVar("T")


class Seen(Generic[T]):
    """`now`: the objects of one watch as they were at the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, T] = {}
        self.now: Mapping[str, T] = MappingProxyType(self._seen)

    def news(self, objects: Mapping[str, T]) -> tuple[list[tuple[str, T | None, T]], list[tuple[str, T]]]:
        """(key, what it was, what it is) of those that are new or changed, and (key, what it was) of those that are gone."""
        changed = [(key, was, found) for key, found in objects.items() if (was := self._seen.get(key)) is not found]
        gone = (
            []
            if len(self._seen) + len(changed) == len(objects)
            else [(key, found) for key, found in self._seen.items() if key not in objects]
        )
        self._seen.update((key, found) for key, _, found in changed)
        for key, _ in gone:
            del self._seen[key]
        return changed, gone
