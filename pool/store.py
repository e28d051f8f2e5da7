"""The lease table on the disk, and the lock that says whose it is.

    <state dir>/lock             held by the agent and by whatever watches over its servers
    <state dir>/leases.journal   one line a change, each with its checksum; the first one is a whole table
    <state dir>/leases.journal.damaged-<n>   a journal with lines that could not be read, kept for people

A change is on the disk before anybody hears of it. What must stay true: a line that was cut off by a crash or a full
disk never happened; a line that is damaged costs what it says and no more, for every server is dead after a start and
tokens begin above all older ones.
"""

import asyncio
import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from api import errors, lease
from pool import leases

T = TypeVar("T")
_log = structlog.get_logger("pool")
_JOURNAL = "leases.journal"
_LARGEST = 16 * 2**20
_SUM = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a line says: what became of the table, at a time of the pool's clock. `forgotten`: ids and cancelled keys."""

    at: int
    incarnation: int
    revision: int
    leases: tuple[lease.Lease, ...] = ()
    tokens: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    forgotten: tuple[str, ...] = ()


class Store:
    """One agent's. Reads once, then only writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = folder / _JOURNAL
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._fd = -1
        self._size = 0
        self.lock = -1
        """Handed to whatever must be gone before another agent may begin."""

    async def open(self, *, patience_s: float) -> tuple[leases.Table, int]:
        """The table as it was, and the pool's time then.

        Raises Conflict where another agent works here, or servers of an earlier one do not die.
        """
        await self._run(lambda: self._folder.mkdir(mode=0o700, parents=True, exist_ok=True))
        self.lock = await self._run(
            lambda: os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )
        await self._seize(patience_s)
        return await self._run(self._read)

    async def _seize(self, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while True:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        return
                    await asyncio.sleep(0.05)
        raise errors.Conflict(
            f"{self._folder} belongs to another agent that works, or to servers of an earlier one that do not die: "
            "end it, or give this one another EGPU_STATE_DIR and other cards"
        )

    async def save(self, before: leases.Table, after: leases.Table, at: int) -> None:
        """Returns when the difference is durable. Raises Unavailable, and then it never happened."""
        change = difference(before, after, at)
        if change is not None:
            await self._run(lambda: self._append(change, after))

    async def close(self) -> None:
        await self._run(self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        for fd in (self._fd, self.lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self.lock = -1

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            what = "no space left: free some" if full else f"{error.strerror or error}"
            raise errors.Unavailable(
                f"{self._journal}: {what}; nothing was changed, the same call will do then"
            ) from error

    def _read(self) -> tuple[leases.Table, int]:
        text = self._journal.read_bytes() if self._journal.exists() else b""
        lines, cut, damaged = decode(text)
        if damaged:
            self._set_aside()
            _log.error("lines of the journal are damaged", file=str(self._journal), lines=damaged)
        if cut:
            _log.warning("the last change was cut off and never happened", file=str(self._journal), bytes=cut)
        table = leases.Table()
        for change in lines:
            table = applied(table, change)
        at = max((change.at for change in lines), default=0)
        table = leases.rebuilt(table)
        self._rewrite(table, at)
        return table, at

    def _set_aside(self) -> None:
        number = 1
        while (kept := self._journal.with_name(f"{_JOURNAL}.damaged-{number}")).exists():
            number += 1
        kept.hardlink_to(self._journal)

    def _append(self, change: Change, after: leases.Table) -> None:
        if self._fd < 0 or self._size > _LARGEST:
            self._rewrite(after, change.at)
            return
        text = encode(change)
        try:
            _write(self._fd, text)
            os.fdatasync(self._fd)
        except OSError:
            self._take_back()
            raise
        self._size += len(text)

    def _take_back(self) -> None:
        """What may be half there must not be there. Where even that fails, the next change writes all anew."""
        try:
            os.ftruncate(self._fd, self._size)
            os.fdatasync(self._fd)
        except OSError as error:
            _log.error("the journal cannot be cut", reason=str(error))
            os.close(self._fd)
            self._fd = -1

    def _rewrite(self, table: leases.Table, at: int) -> None:
        """The whole table as the first line of a new journal."""
        whole = difference(leases.Table(), table, at)
        text = b"" if whole is None else encode(whole)
        fresh = self._journal.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write(fd, text)
            os.fsync(fd)
            fresh.replace(self._journal)
            directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, len(text)


def _write(fd: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(fd, rest) :]


def difference(before: leases.Table, after: leases.Table, at: int) -> Change | None:
    """None: nothing that has to outlive a crash. Renewals have not: after a start all leases begin their time anew."""
    changed = tuple(found for found in after.leases.values() if found.revision > before.revision)
    gone = [id_ for id_ in before.leases if id_ not in after.leases] if before.leases is not after.leases else []
    forgotten = (*gone, *(word for word in before.cancelled if word not in after.cancelled))
    tokens, epochs = _fresh(before.tokens, after.tokens), _fresh(before.epochs, after.epochs)
    cancelled = _fresh(before.cancelled, after.cancelled)
    if not (changed or forgotten or tokens or epochs or cancelled) and before.incarnation == after.incarnation:
        return None
    return Change(
        at=at,
        incarnation=after.incarnation,
        revision=after.revision,
        leases=changed,
        tokens=tokens,
        epochs=epochs,
        cancelled=cancelled,
        forgotten=forgotten,
    )


def _fresh(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {} if before is after else {name: value for name, value in after.items() if before.get(name) != value}


def applied(table: leases.Table, change: Change) -> leases.Table:
    """The table after a change; `leases.rebuilt` is due at the end."""
    known = {**table.leases, **{found.id: found for found in change.leases}}
    cancelled = {**table.cancelled, **change.cancelled}
    for name in change.forgotten:
        known.pop(name, None)
        cancelled.pop(name, None)
    return replace(
        table,
        leases=known,
        tokens={**table.tokens, **change.tokens},
        epochs={**table.epochs, **change.epochs},
        cancelled=cancelled,
        incarnation=max(table.incarnation, change.incarnation),
        revision=max(table.revision, change.revision),
    )


def encode(change: Change) -> bytes:
    text = msgspec.json.encode(change)
    return hashlib.sha256(text).hexdigest()[:_SUM].encode() + b" " + text + b"\n"


def decode(journal: bytes) -> tuple[list[Change], int, list[int]]:
    """The changes, how many bytes at the end were cut off, and the numbers of the lines that are damaged."""
    *lines, rest = journal.split(b"\n")
    found: list[Change] = []
    damaged = []
    for number, line in enumerate(lines, 1):
        head, _, text = line.partition(b" ")
        try:
            change = msgspec.json.decode(text, type=Change)
        except (UnicodeDecodeError, msgspec.MsgspecError):
            change = None
        if change is None or hashlib.sha256(text).hexdigest()[:_SUM].encode() != head:
            damaged.append(number)
        else:
            found.append(change)
    return found, len(rest), damaged
