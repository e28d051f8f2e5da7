"""Network namespaces of pods: which process is in a pod, and a listening socket on the loopback of its namespace.

    pod uid -> a process whose control group names it -> its network namespace -> socket, used from here

A socket belongs to the namespace that its maker was in: a thread goes there, makes it, and ends. Nothing of ours runs
inside the pod, and what it may reach there is one socket.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Collection
from pathlib import Path

from api import errors

_PROC = Path("/proc")
_NEW_NET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def pods(wanted: Collection[str]) -> dict[str, int]:
    """Pod uid -> one of its processes that is in the pod's own network, of those that are there now. Blocks.

    A process that a runtime has just begun is in the pod's control group before it is in its network: it has the node's
    until then, like its parent. A pod on the host's network never has another one.
    """
    spellings = {spelling: uid for uid in wanted for spelling in (f"pod{uid}", f"pod{uid.replace('-', '_')}")}
    found: dict[str, int] = {}
    for entry in _PROC.iterdir() if spellings else ():
        if not entry.name.isdigit():
            continue
        try:
            groups = (entry / "cgroup").read_text()
        except OSError:  # it has ended meanwhile
            continue
        for spelling, uid in spellings.items():
            if spelling in groups and uid not in found and apart(int(entry.name)):
                found[uid] = int(entry.name)
    return found


def apart(process: int) -> bool:
    """Whether it is in another network than its parent, as the first process of a pod's sandbox is. Blocks."""
    try:
        status = (_PROC / str(process) / "status").read_text()
        parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        own, parents = ((_PROC / who / "ns/net").readlink() for who in (str(process), parent))
    except (OSError, StopIteration):  # one of them has ended
        return False
    return own != parents


def listening(process: int, port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1 in the network namespace of this process. Blocks.

    Raises NotReady where the namespace is gone, Conflict where the port is taken there.
    """
    outcome: list[socket.socket | OSError] = []
    thread = threading.Thread(target=_made, args=(process, port, outcome), name="pod network")
    thread.start()
    thread.join()
    match outcome[0]:
        case socket.socket() as made:
            return made
        case OSError() as error if isinstance(error.filename, str):
            raise errors.NotReady(f"the network of process {process} cannot be entered: {error}") from error
        case error:
            raise errors.Conflict(f"port {port} of the pod cannot be listened on: {error}")


def _made(process: int, port: int, outcome: list[socket.socket | OSError]) -> None:
    """The thread ends in the other namespace, so nobody else is ever there."""
    try:
        there = os.open(_PROC / str(process) / "ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _libc.setns(there, _NEW_NET):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), f"/proc/{process}/ns/net")
        finally:
            os.close(there)
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", port))
            made.listen(128)
        except OSError:
            made.close()
            raise
        made.setblocking(False)
        outcome.append(made)
    except OSError as error:
        outcome.append(error)
