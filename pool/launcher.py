"""Starts one server apart from everything else, watches over it, and ends it as a tree. A program of its own.

    argv[1]: {"command", "environment", "uid", "pid_fd", "keep": [fds], "cgroup"}    stdin: open while the agent lives

It stands outside the namespaces that it makes; the server is process 1 inside them, so that the kernel ends everything
the server ever started when the server ends, and reports its end only after that. What must stay true: when this program
is gone, so is the tree; it keeps `keep` open (the agent's lock) until then.
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from typing import Any

_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
_PRIVATE, _REC, _NOSUID, _NODEV, _NOEXEC = 1 << 18, 1 << 14, 2, 4, 8
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_PROCESSES = 1024
_CANNOT = 125

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(door, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(door, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _become(given: dict[str, Any]) -> None:
    """In the child: the server's group and user, and then the server."""
    if given["cgroup"]:
        with open(f"{given['cgroup']}/cgroup.procs", "w") as file:  # noqa: PTH123  no pathlib: it doubles the start
            file.write("0")
    _call("mount", b"proc", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None)
    os.setgroups([])
    os.setresgid(given["uid"], given["uid"], given["uid"])
    os.setresuid(given["uid"], given["uid"], given["uid"])
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    signal.set_wakeup_fd(-1)
    os.execvpe(given["command"][0], given["command"], given["environment"])  # noqa: S606  no shell between us and it


def main() -> int:
    given = json.loads(sys.argv[1])
    for fd in (*given["keep"], given["pid_fd"]):
        os.set_inheritable(fd, False)
    if given["cgroup"]:
        os.makedirs(given["cgroup"], exist_ok=True)  # noqa: PTH103  no pathlib: it doubles the start
    _call("unshare", _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET)
    _call("mount", None, b"/", None, _REC | _PRIVATE, None)
    _loopback_up()
    child = os.fork()
    if child == 0:
        try:
            _become(given)
        except OSError as error:
            os.write(2, f"{given['command'][0]}: {error}\n".encode())
            os._exit(_CANNOT)
    watched = os.pidfd_open(child)
    os.write(given["pid_fd"], f"{child}\n".encode())
    os.close(given["pid_fd"])
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    waiting.register(watched, select.POLLIN)
    if watched not in dict(waiting.poll()):
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if given["cgroup"]:
        os.rmdir(given["cgroup"])  # noqa: PTH106  as above
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.exit(main())
    except OSError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(_CANNOT)
