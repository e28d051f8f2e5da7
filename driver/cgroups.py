"""Control groups of pods and their containers, as the kubelet and the runtime lay them out: found by the pod's uid.

    pod uid -> its group -> the groups of its containers      process -> the group it is in

Only looked at: whatever is set on a group goes through the card's driver. Both layouts are known, that of the cgroupfs
driver (`kubepods/burstable/pod<uid>`) and that of systemd (`kubepods-burstable-pod<uid>.slice`), under any root that a
kubelet may have been given. A limit needs the unified hierarchy (v2): there a process is in one group, and no more.
"""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

_DEEPEST = 6
_POD = re.compile(r"(?:^pod|-pod)([0-9a-f]{8}[-_][0-9a-f_-]+?)(?:\.slice)?$")
_CONTAINER = re.compile(r"(?:^|-)([0-9a-f]{64})(?:\.scope)?$")
_NO_PODS = (".service", ".scope", ".mount", ".socket")


class Cgroups:
    """`root`: where the unified hierarchy is mounted, by the same path as on the host. `proc`: the host's processes."""

    def __init__(self, root: Path, proc: Path) -> None:
        self._root = root
        self._proc = proc
        self._parents: tuple[Path, ...] = ()
        """Where pods were found before."""

    async def problem(self) -> str:
        """Why no group can be limited here; empty where they can."""
        if await asyncio.to_thread((self._root / "cgroup.controllers").exists):
            return ""
        return f"control groups of version 2: {self._root} has no cgroup.controllers"

    async def of_pod(self, uid: str) -> Path | None:
        return await asyncio.to_thread(self._of_pod, uid)

    async def within(self, group: Path) -> tuple[Path, ...]:
        """The groups right below, such as a pod's containers; none of a group that is gone."""
        return await asyncio.to_thread(lambda: tuple(_below(group)))

    async def of_processes(self, pids: tuple[int, ...]) -> dict[int, str]:
        """The group of each process, as a path below the root; those that have ended are left out."""
        return await asyncio.to_thread(
            lambda: {pid: group for pid in pids if (group := _of_process(self._proc, pid)) is not None}
        )

    def _of_pod(self, uid: str) -> Path | None:
        wanted = (f"pod{uid}", f"-pod{uid.replace('-', '_')}.slice")
        for parent in (*self._parents, *_parents(self._root)):
            for group in _below(parent):
                if group.name == wanted[0] or group.name.endswith(wanted[1]):
                    if parent not in self._parents:
                        self._parents += (parent,)
                    return group
        return None


def pod_of(group: str) -> str:
    """The uid of the pod whose group this is or lies in; empty where it is nobody's."""
    for part in reversed(group.split("/")):
        if found := _POD.search(part):
            return found[1].replace("_", "-")
    return ""


def container_of(name: str) -> str:
    """The runtime's id of the container whose group has this name; empty where it is none's."""
    found = _CONTAINER.search(name)
    return found[1] if found else ""


def _parents(root: Path, depth: int = 0) -> Iterator[Path]:
    """Every group in which pods may be; none below a pod."""
    yield root
    if depth < _DEEPEST:
        for group in _below(root):
            if not _POD.search(group.name) and not group.name.endswith(_NO_PODS):
                yield from _parents(group, depth + 1)


def _below(group: Path) -> Iterator[Path]:
    try:
        with os.scandir(group) as found:
            yield from sorted(Path(one.path) for one in found if one.is_dir(follow_symlinks=False))
    except OSError:  # it went away, or is no group
        return


def _of_process(proc: Path, pid: int) -> str | None:
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((line[3:] for line in lines if line.startswith("0::")), None)
