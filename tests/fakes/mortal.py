"""A disk under which the process dies: before or after its nth write, as kill -9 would have it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from driver import disk


class Death(BaseException):
    """No handler of ours may catch it; nothing of the process runs after it."""


class MortalDisk(disk.Disk):
    """Counts what changes the disk. `dies_at`: the number of the change, from 1; `before`: it is not made any more."""

    def __init__(self, *, dies_at: int, before: bool) -> None:
        super().__init__()
        self.changes = 0
        self._dies_at = dies_at
        self._before = before
        self._dead = False

    async def run(self, path: Path, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        changes = function.__name__ in {"_replace", "_remove"} and path.suffix == ".json" and path.name != "health.json"
        self.changes += changes
        if self._dead or (changes and self.changes == self._dies_at and self._before):
            self._dead = True
            raise Death
        result = await super().run(path, function, *args, **kwargs)
        if changes and self.changes == self._dies_at:
            self._dead = True
            raise Death
        return result
