"""Long-running programs of an instance: started apart from the caller, found again later, never mistaken for others.

Every program writes its own pid and start time before it begins, so a crash of the caller loses none. A pid counts
only together with its start time, and signals go through a pidfd, so a reused pid is never hit.
"""

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import errors, paths

# $1 is the pid file, $2 the cgroup.procs file to join, the rest the program.
_ANNOUNCE = """
echo $$ > "$2"
read -r status < /proc/$$/stat
echo "$status" > "$1.new" && mv "$1.new" "$1"
shift 2
exec "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program under a name: where it writes, which cgroup it joins, the words that take it into its namespaces."""

    directory: Path
    name: str
    argv: tuple[str, ...]
    group: Path
    wrapper: tuple[str, ...] = ()
    path: Path | None = None

    @property
    def log(self) -> Path:
        return self.directory / "logs" / f"{self.name}.log"


def start(program: Program) -> int:
    """Start a program in a session of its own and return its pid once it has announced itself."""
    file = _file(program.directory, program.name)
    program.log.parent.mkdir(exist_ok=True)
    file.parent.mkdir(exist_ok=True)
    if pid := running(program.directory, program.name):
        return pid
    file.unlink(missing_ok=True)
    announce = ("sh", "-c", _ANNOUNCE, "sh", str(file), str(program.group / "cgroup.procs"), *program.argv)
    command = (*program.wrapper, "setsid", "--fork", *announce)
    search = f"{program.path}:/usr/sbin:/usr/bin:/sbin:/bin" if program.path else None
    environment = paths.environment(**({"PATH": search} if search else {}))
    with program.log.open("ab") as log:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, check=True)
    return _announced(program)


def entering(pid: int, *, mounts: bool) -> tuple[str, ...]:
    """The words before a command that take it into the namespaces of a process; /sys stays as it is, for the kubelet."""
    return ("nsenter", f"--net=/proc/{pid}/ns/net", *((f"--mount=/proc/{pid}/ns/mnt",) if mounts else ()), "--")


def running(directory: Path, name: str) -> int | None:
    """The pid of a program that is alive under this name."""
    identity = _identity(directory, name)
    return identity[0] if identity and _started(identity[0]) == identity[1] else None


def known(directory: Path) -> tuple[str, ...]:
    """Names of all programs that were ever started here, in the order of their start."""
    files = [file for file in (directory / "pids").glob("*") if file.suffix != ".new"]
    return tuple(file.name for file in sorted(files, key=lambda file: file.stat().st_mtime_ns))


def stop(directory: Path, name: str, *, patience_s: float = 10.0, by: signal.Signals = signal.SIGTERM) -> None:
    """End a program and wait until it is gone; after the patience it is killed. Repeatable."""
    identity = _identity(directory, name)
    if identity is not None:
        pid, started = identity
        if not end(pid, started, by, patience_s) and not end(pid, started, signal.SIGKILL, 10.0):
            raise errors.ClusterError(f"{name} (pid {pid}) does not end, not even when killed: see dmesg")
    _file(directory, name).unlink(missing_ok=True)


def end(pid: int, started: str, by: signal.Signals, patience_s: float) -> bool:
    """Signal the process that has this pid since this time; true when it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if _started(pid) != started:
            return True
        signal.pidfd_send_signal(handle, by)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(patience_s * 1000))
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def start_time(pid: int) -> str | None:
    return _started(pid)


def tail(log: Path, lines: int = 12) -> str:
    """The end of a log, errors first if it has any: what explains a failure."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]
    except FileNotFoundError:
        return f"{log} does not exist"
    telling = [
        line for line in text if line.startswith(("E", "F", "panic")) or "level=error" in line or "level=fatal" in line
    ]
    return "\n".join(line[:400] for line in (telling or text)[-lines:])


def _announced(program: Program) -> int:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if identity := _identity(program.directory, program.name):
            return identity[0]
        time.sleep(0.005)
    raise errors.ClusterError(f"{program.name} did not start:\n{tail(program.log)}")


def _file(directory: Path, name: str) -> Path:
    return directory / "pids" / name


def _identity(directory: Path, name: str) -> tuple[int, str] | None:
    try:
        text = _file(directory, name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return int(text.split(" ", 1)[0]), _start_field(text)


def _started(pid: int) -> str | None:
    """When a living process began, in clock ticks since boot; None when it is gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if text.rpartition(")")[2].split()[0] == "Z" else _start_field(text)


def _start_field(stat: str) -> str:
    return stat.rpartition(")")[2].split()[19]
