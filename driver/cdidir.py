"""The CDI directory: one spec file a claim, kept as it shall be.

Runtimes look here whenever a container starts, also for a claim that was prepared long ago and for which no Prepare
call comes any more. So a file that vanished or was changed has to be put back by whoever asks `broken` from time to
time. What must stay true: a runtime sees a whole file or none, and no file of ours outlives its claim.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from api import names, resource
from driver import disk

_SUFFIX = ".json"
_Print = tuple[int, int, int, int]


class CDIDir:
    """The one writer of a vendor's files there; it remembers how each looked when it was right."""

    def __init__(self, directory: Path, writer: disk.Disk, vendor: str = names.CDI_VENDOR) -> None:
        self._directory = directory
        self._prefix = f"{vendor}-{names.CDI_CLASS}_"
        self._disk = writer
        self._right: dict[resource.ClaimUID, _Print] = {}

    async def write(self, uid: resource.ClaimUID, text: str) -> None:
        """The file holds `text` when this returns; one that does already is left alone."""
        path, wanted = self._path(uid), text.encode()
        if uid in self._right and await self._disk.run(path, _holds, path, wanted):
            return
        self._right.pop(uid, None)
        self._right[uid] = _print(await self._disk.replace(path, wanted))

    async def remove(self, uid: resource.ClaimUID) -> None:
        """A claim without a file is fine."""
        await self._disk.remove(self._path(uid))
        self._right.pop(uid, None)

    async def broken(self, wanted: Mapping[resource.ClaimUID, str]) -> tuple[resource.ClaimUID, ...]:
        """The claims whose file is missing or is not the wanted text. One stat a file while nothing changes."""
        files, right = dict(wanted), dict(self._right)
        found, seen = await self._disk.run(self._directory, _compare, f"{self._directory / self._prefix}", files, right)
        self._right |= seen
        return found

    async def orphans(self, known: Collection[resource.ClaimUID]) -> tuple[resource.ClaimUID, ...]:
        """The claims that have a file of ours and are not known."""
        return await self._disk.run(self._directory, _orphans, self._directory, self._prefix, known)

    def _path(self, uid: resource.ClaimUID) -> Path:
        return self._directory / f"{self._prefix}{uid}{_SUFFIX}"


def _holds(path: Path, wanted: bytes) -> bool:
    try:
        return path.read_bytes() == wanted
    except FileNotFoundError:
        return False


def _print(found: os.stat_result) -> _Print:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _compare(
    start: str, wanted: Mapping[resource.ClaimUID, str], right: Mapping[resource.ClaimUID, _Print]
) -> tuple[tuple[resource.ClaimUID, ...], dict[resource.ClaimUID, _Print]]:
    """Of the files whose path begins with `start`: each of them each second, so a Path is made only where one has changed."""
    broken, seen = [], {}
    for uid, text in wanted.items():
        path = f"{start}{uid}{_SUFFIX}"
        try:
            now = _print(os.stat(path))  # noqa: PTH116  a Path for each would be the larger part of what an idle node costs
            if now != right.get(uid):
                if Path(path).read_bytes() != text.encode():
                    broken.append(uid)
                else:
                    seen[uid] = now
        except FileNotFoundError:
            broken.append(uid)
    return tuple(broken), seen


def _orphans(directory: Path, prefix: str, known: Collection[resource.ClaimUID]) -> tuple[resource.ClaimUID, ...]:
    try:
        listed = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return ()
    ours = {
        resource.ClaimUID(name.removesuffix(disk.TEMPORARY)[len(prefix) : -len(_SUFFIX)])
        for name in listed
        if name.startswith(prefix) and name.removesuffix(disk.TEMPORARY).endswith(_SUFFIX)
    }
    return tuple(sorted(ours - set(known)))
