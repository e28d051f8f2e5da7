"""What is different among the objects of a watch since the last look. Objects are compared by identity."""

from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Seen(Generic[T]):
    """The objects of one watch as they were at the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, T] = {}

    def news(self, objects: Mapping[str, T]) -> tuple[list[tuple[str, T]], list[tuple[str, T]]]:
        """(key, object) of those that are new or changed, and of those that are gone."""
        changed = [(key, found) for key, found in objects.items() if self._seen.get(key) is not found]
        gone = (
            []
            if len(self._seen) + len(changed) == len(objects)
            else [(key, found) for key, found in self._seen.items() if key not in objects]
        )
        self._seen.update(changed)
        for key, _ in gone:
            del self._seen[key]
        return changed, gone
