"""Control groups of an instance: one for the control plane and one a node, with all that runs in them.

A node's group is the root the kubelet makes its pods' groups under; the node's own programs sit in the leaf `daemons`
beside them. So everything that belongs to an instance, shims and containers included, is found from its groups, and
nothing else is. The machine's mounts are used as they are: one unified hierarchy, or one a controller, or both.
"""

import errno
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from hack.cluster import errors, processes

_ROOT = Path("/sys/fs/cgroup")
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_GONE = {errno.ENOENT, errno.ENODEV}
"""Of a group that goes away while we look: before its file was opened, and after."""


def hierarchies() -> tuple[Path, ...]:
    """Each mounted hierarchy once, co-mounted controllers (`cpu,cpuacct`) under one name."""
    if (_ROOT / "cgroup.controllers").exists():
        return (_ROOT,)
    mounted = {path.resolve() for path in _ROOT.iterdir() if (path / "cgroup.procs").exists()}
    return tuple(sorted(mounted))


def unified() -> Path:
    """Where the groups of version 2 are: on a machine with both, beside the others."""
    beside = _ROOT / "unified"
    return beside if (beside / "cgroup.controllers").exists() else _ROOT


def make(name: str) -> Path:
    """Make the group of a node or control plane everywhere; return the leaf that its own programs join."""
    for hierarchy in hierarchies():
        _make(hierarchy, name)
        _make(hierarchy, f"{name}/daemons")
    return _home() / name / "daemons"


def check_free(names: Iterable[str]) -> None:
    """Refuse names in use, say by an instance of another state directory: what is in such a group is not ours to end."""
    for path in (hierarchy / name for name in names for hierarchy in hierarchies()):
        if path.exists():
            raise errors.ClusterError(
                f"the cgroup {path} exists already: choose another name, or take down what owns it"
            )


def leaf(name: str) -> Path:
    return _home() / name / "daemons"


def kill(names: Iterable[str]) -> None:
    """End everything in these groups, deepest included, and return when nothing is left."""
    names = tuple(names)
    deadline = time.monotonic() + 120
    while pids := {pid for name in names for pid in _members(name)}:
        for pid in pids:
            started = processes.start_time(pid)
            # Read again after the start time: a pid that was reused in between is in no group of ours.
            if started and _is_in(pid, names):
                processes.end(pid, started, signal.SIGKILL, 1.0)
        time.sleep(0.01)
        if time.monotonic() > deadline:
            raise errors.ClusterError(f"processes {sorted(pids)} do not end, not even when killed: see dmesg")


def remove(names: Iterable[str]) -> None:
    """Remove the empty groups; a group is busy for a moment after its last process ended."""
    deadline = time.monotonic() + 60
    while busy := [str(group) for name in names for group in _groups(name) if not _removed(group)]:
        if time.monotonic() > deadline:
            raise errors.ClusterError(f"cgroups cannot be removed: {', '.join(busy[:4])}")
        time.sleep(0.05)


def _home() -> Path:
    """The hierarchy that programs are told apart by: the unified one, or the smallest of the separate ones."""
    return next((path for path in hierarchies() if path.name == "pids"), hierarchies()[0])


def _make(hierarchy: Path, name: str) -> None:
    group = hierarchy / name
    if hierarchy == _ROOT:
        available = set((group.parent / "cgroup.controllers").read_text(encoding="utf-8").split())
        for controller in sorted(available & {"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}):
            (group.parent / "cgroup.subtree_control").write_text(f"+{controller}", encoding="utf-8")
    group.mkdir()
    for file in _CPUSET:
        # The separate cpuset hierarchy takes no process before these are set; the unified one inherits them.
        if (group / file).exists() and not (group / "cgroup.controllers").exists():
            (group / file).write_text((group.parent / file).read_text(encoding="utf-8"), encoding="utf-8")


def _groups(name: str) -> Iterable[Path]:
    for hierarchy in hierarchies():
        # os.walk passes over a group that goes away while we look, as those of ending pods do
        yield from (Path(folder) for folder, _, _ in os.walk(hierarchy / name, topdown=False))


def _members(name: str) -> Iterable[int]:
    for group in _groups(name):
        try:
            yield from map(int, (group / "cgroup.procs").read_text(encoding="utf-8").split())
        except OSError as error:
            if error.errno not in _GONE:
                raise


def _is_in(pid: int, names: tuple[str, ...]) -> bool:
    try:
        paths = [line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(path == f"/{name}" or path.startswith(f"/{name}/") for path in paths for name in names)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
