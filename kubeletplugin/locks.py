"""One holder a key, over all processes that share a file and over all tasks of this one.

A key is a byte of the lock file, found by hashing; the kernel locks that byte for the open file (an OFD lock), so the
lock goes with the process, also by kill -9, and any number of keys costs one descriptor. Tasks of this process share
the open file and so are told apart by a lock in memory first. Without contention that is one system call and no wait.

What must stay true: a task that holds one key may ask for another only in an order that all agree on.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path

from api import errors

_FLOCK = "hhqqixxxx"
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


class Locks:
    """Keys of one lock file. The file is made when it is first needed and never removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._local: dict[int, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Waits for its turn and holds `key` inside the block. Not reentrant."""
        place = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 2
        async with self._hold_locally(place):
            wait_s = _FIRST_WAIT_S
            while not self._try(place):
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            try:
                yield
            finally:
                self._set(fcntl.F_UNLCK, place)

    @contextlib.asynccontextmanager
    async def _hold_locally(self, place: int) -> AsyncIterator[None]:
        lock, users = self._local.get(place) or (asyncio.Lock(), 0)
        self._local[place] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._local[place]
            if users == 1:
                del self._local[place]
            else:
                self._local[place] = lock, users - 1

    def _try(self, place: int) -> bool:
        if self._fd < 0:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise errors.Unavailable(
                    f"lock file {self._path}: {error.strerror}; the same call will do later"
                ) from error
        try:
            self._set(fcntl.F_WRLCK, place)
        except BlockingIOError:
            return False
        return True

    def _set(self, kind: int, place: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
