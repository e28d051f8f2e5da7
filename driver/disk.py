"""Files of ours: written whole or not at all, in threads of their own.

A file is written under another name, synced and renamed: a reader, and a process killed at any point, finds the old
bytes or the new ones. What must stay true: nothing waits for a disk on the event loop, and an error of the disk is
Unavailable with the path and the remedy, for the caller may repeat the same call.
"""

import asyncio
import concurrent.futures
import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from api import errors

P = ParamSpec("P")
T = TypeVar("T")

TEMPORARY = ".tmp"
"""The end of a name that is not finished yet. CDI runtimes and our own readers look at .json only."""
_THREADS = 16
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Disk:
    """The threads that wait for the disk: as many writes at a time as kubelets ask for."""

    def __init__(self) -> None:
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")

    async def run(self, path: Path, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a blocking function that works on `path`, and gives its errors a text."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))
        except OSError as error:
            raise _explained(path, error) from error

    async def replace(self, path: Path, text: bytes, *, follow_up: bool = False) -> os.stat_result:
        """Writes the whole file; the old one stays if that fails. `follow_up`: the name too must survive a power cut."""
        return await self.run(path, _replace, path, text, follow_up=follow_up)

    async def remove(self, path: Path, *, durable: bool = False) -> None:
        """Removes a file, which may be gone already. `durable`: it must not come back after a power cut."""
        await self.run(path, _remove, path, durable=durable)


def _replace(path: Path, text: bytes, *, follow_up: bool) -> os.stat_result:
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with os.fdopen(_opened(temporary), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if follow_up:
        _sync(path.parent)
    return path.stat()


def _opened(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


def _remove(path: Path, *, durable: bool) -> None:
    path.with_name(path.name + TEMPORARY).unlink(missing_ok=True)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    if durable:
        _sync(path.parent)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _explained(path: Path, error: OSError) -> errors.Unavailable:
    if error.errno in _FULL:
        return errors.Unavailable(f"no space left for {path}: free some; nothing is lost, the same call will do then")
    return errors.Unavailable(f"{path}: {error.strerror or error}; nothing is lost, the same call will be tried again")
