"""The records on disk: one file a claim, read again wherever another process may have written.

    <data dir>/claims/<uid>.json               a record
    <data dir>/claims/<uid>.json.corrupt-<n>   a record that could not be read, kept for people
    <data dir>/<name>                          a text of the node, such as the health of its cards

A record's name is durable before a step that outlives a power cut, and its removal always; else the sync of the next
file on that file system carries it, the kubelet's own checkpoint at the latest. What must stay true: the
disk is the truth and memory a copy of it, a bad file costs one claim and its bytes are never lost, and the cost of one
claim does not grow with the number of claims.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from api import errors, resource
from driver import disk, records

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RECORD = ".json"
_CORRUPT = ".corrupt-"
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the disk told: the record of a claim, records that were not known, claims that are gone.

    `bad`: claims whose record cannot be read.
    """

    own: records.Record | None = None
    appeared: tuple[records.Record, ...] = ()
    gone: frozenset[resource.ClaimUID] = frozenset()
    bad: tuple[resource.ClaimUID, ...] = ()


class Checkpoint:
    """The one writer and reader of the data directory. Two processes may share it, one at a time per claim and card."""

    def __init__(self, data_dir: Path, writer: disk.Disk) -> None:
        self._data_dir = data_dir
        self._claims = data_dir / "claims"
        self._disk = writer

    async def boot_id(self) -> str:
        """Another one after each boot of the machine."""
        return (await self._disk.run(_BOOT_ID, _BOOT_ID.read_text)).strip()

    async def look(self, uid: resource.ClaimUID | None, known: Collection[resource.ClaimUID]) -> Look:
        """Reads the record of `uid`, and those that other processes added or removed beside the `known` ones."""
        return await self._disk.run(self._claims, _look, self._claims, uid, known)

    async def write(self, record: records.Record) -> None:
        await self._disk.replace(self._path(record.uid), records.encode(record), follow_up=bool(record.steps))

    async def remove(self, uid: resource.ClaimUID) -> None:
        """A claim without a record is fine."""
        await self._disk.remove(self._path(uid), durable=True)

    async def set_aside(self, uid: resource.ClaimUID) -> records.Record | None:
        """Keeps the bad record of a claim under another name, and puts in its place what it still tells, if anything.

        The caller guards the claim: else another process may have written a good one by now.
        """
        path = self._path(uid)
        text = await self._disk.run(path, _read, path)
        rest = records.salvaged(text, uid)
        _log.error("record set aside", path=str(path), reason=_why(text, uid), cards_still_held=rest is not None)
        try:
            await self._disk.run(path, _put_aside, path)
            await (self.remove(uid) if rest is None else self.write(rest))
        except errors.Unavailable as error:
            _log.warning("bad record left in its place", path=str(path), reason=str(error))
        return rest

    async def quarantined(self) -> frozenset[resource.ClaimUID]:
        """The claims whose record was unreadable once: their CDI files are not orphans."""
        return await self._disk.run(self._claims, _quarantined, self._claims)

    async def read_text(self, name: str) -> str:
        """A text of the node; empty if there is none."""
        path = self._data_dir / name
        return (await self._disk.run(path, _read, path)).decode(errors="replace")

    async def set_text_aside(self, name: str) -> None:
        """Keeps an unreadable text under another name."""
        await self._disk.run(self._data_dir / name, _put_aside, self._data_dir / name)
        await self._disk.remove(self._data_dir / name)

    async def write_text(self, name: str, text: str) -> None:
        await self._disk.replace(self._data_dir / name, text.encode())

    def _path(self, uid: resource.ClaimUID) -> Path:
        return self._claims / f"{uid}{_RECORD}"


def _look(claims: Path, uid: resource.ClaimUID | None, known: Collection[resource.ClaimUID]) -> Look:
    claims.mkdir(parents=True, exist_ok=True)
    present = {resource.ClaimUID(path[: -len(_RECORD)]) for path in _names(claims) if path.endswith(_RECORD)}
    fresh = sorted(present - set(known) - {uid})
    found: dict[resource.ClaimUID, records.Record] = {}
    bad = []
    for item in [*fresh, *([uid] if uid in present else [])]:
        path = claims / f"{item}{_RECORD}"
        text = _read(path)
        try:
            if text or path.exists():
                found[item] = records.decode(text, item)
        except errors.Corrupt:
            bad.append(item)
    return Look(
        own=found.get(uid) if uid else None,
        appeared=tuple(found[item] for item in fresh if item in found),
        gone=frozenset(set(known) - present),
        bad=tuple(bad),
    )


def _put_aside(path: Path) -> None:
    """Gives a bad file a second name that nothing else has: a link fails where a rename would overwrite."""
    number = 1
    while True:
        try:
            path.with_name(f"{path.name}{_CORRUPT}{number}").hardlink_to(path)
        except FileExistsError:
            number += 1
        else:
            return


def _why(text: bytes, uid: resource.ClaimUID) -> str:
    try:
        records.decode(text, uid)
    except errors.Corrupt as error:
        return str(error)
    return "it can be read now"


def _quarantined(claims: Path) -> frozenset[resource.ClaimUID]:
    return frozenset(
        resource.ClaimUID(name.partition(_RECORD)[0]) for name in _names(claims) if f"{_RECORD}{_CORRUPT}" in name
    )


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  at each claim, over all claims: a Path for each name is the larger part
    except FileNotFoundError:
        return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
