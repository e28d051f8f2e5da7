"""The file in which HAMi-core keeps the account of one container, as the library itself would begin it.

    limits of the share -> begun -> the bytes of the file

The first process that finds no account takes the limits from its own environment, and so for all that follow: one that
was started without any freezes "no limit" (HAMi#2125). So where the layout of the library's version is known, the file is
there before the container is. The numbers are those of the library's own structure on 64-bit Linux with glibc; where a
field is not named here, it begins as 0, as in a file that is new.
"""

import enum
import struct

_MAGIC = 19920718
_CARDS = 16
_RECENT_KERNEL = 2
_SEMAPHORE = struct.pack("<QII", 1, 128, 0)
"""Free, and shared between processes, as glibc's sem_init leaves it; the rest of its 32 bytes is 0."""


class Layout(enum.StrEnum):
    """By the version that the library writes into the file."""

    V1_2 = "1.2"


_SIZE = 2008952
_AT = {
    "version": 4,
    "semaphore": 24,
    "limit": 1600,
    "cores": 1728,
    "switch": 2008900,
    "priority": 2008908,
    "second": 2008920,
}


MEMORY_AT = _AT["limit"]
"""Where the memory limit of the container's card lies: the library reads it anew for each allocation."""
HEAD = 4096
"""Bytes at the beginning of an account in which its limits are."""


def memory_limit(limit_bytes: int) -> bytes:
    """What has to be written at `MEMORY_AT`."""
    return struct.pack("<Q", limit_bytes)


def limits(account: bytes) -> tuple[int, int] | None:
    """Bytes and percent that an account holds its container to; None for what is no account."""
    if len(account) < HEAD or struct.unpack_from("<i", account, 0)[0] != _MAGIC:
        return None
    return struct.unpack_from("<Q", account, _AT["limit"])[0], struct.unpack_from("<Q", account, _AT["cores"])[0]


def begun(layout: Layout, *, memory_bytes: int, cores: int) -> bytes:
    """The account of a container with one card, which is number 0 there; 0: no limit."""
    major, minor = map(int, layout.value.split("."))
    text = bytearray(_SIZE + 1)  # the library writes one byte behind its structure to give the file its size
    struct.pack_into("<II", text, _AT["version"], major, minor)
    for semaphore in ("semaphore", "second"):
        struct.pack_into(f"{len(_SEMAPHORE)}s", text, _AT[semaphore], _SEMAPHORE)
    struct.pack_into("<Q", text, _AT["limit"], memory_bytes)
    struct.pack_into(f"<{_CARDS}Q", text, _AT["cores"], cores or 100, *[100] * (_CARDS - 1))
    struct.pack_into("<ii", text, _AT["switch"], 1, _RECENT_KERNEL)
    struct.pack_into("<i", text, _AT["priority"], 1)
    struct.pack_into("<i", text, 0, _MAGIC)  # by which the library knows that the rest is there
    return bytes(text)
