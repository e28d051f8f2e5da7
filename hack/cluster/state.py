"""What is remembered of an instance, and the locks around it.

One directory an instance: `instance.json` is written before anything else is made, so whatever a crash leaves behind
can be found from it. The directory is its own lock, and the directory above is the lock for giving out numbers: a
lock dies with the process that holds it.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import addresses, errors, paths, progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node; `index` counts from 1 and gives it its addresses."""

    name: str
    index: int
    cards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """All that was decided when the instance was asked for, and whether it has come up."""

    name: str
    number: int
    kubernetes: str
    bin: Path
    nodes: tuple[Node, ...]
    feature_gates: str = ""
    """As Kubernetes' programs take them, `DRAConsumableCapacity=true,...`; empty for what the version has on by itself."""
    ready: bool = False

    @property
    def directory(self) -> Path:
        return paths.clusters() / self.name

    @property
    def addresses(self) -> addresses.Addresses:
        return addresses.Addresses(number=self.number)

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    def node_directory(self, node: Node) -> Path:
        return self.directory / node.name

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise errors.ClusterError(f"{self.name} has no node {name}, only {', '.join(node.name for node in self.nodes)}")


def save(instance: Instance) -> None:
    """Store the instance so that a reader sees the old text or the new one."""
    instance.directory.mkdir(parents=True, exist_ok=True)
    path = instance.directory / "instance.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(dataclasses.asdict(instance), default=str, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def load(name: str) -> Instance | None:
    try:
        stored = json.loads((paths.clusters() / name / "instance.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    nodes = tuple(Node(**node) for node in stored.pop("nodes"))
    return Instance(**{**stored, "bin": Path(stored["bin"]), "nodes": nodes})


def names() -> tuple[str, ...]:
    """All instances that left a directory, complete or not."""
    if not paths.clusters().is_dir():
        return ()
    return tuple(sorted(path.name for path in paths.clusters().iterdir() if path.is_dir()))


def forget(name: str) -> None:
    """Empty the instance's directory; whoever holds it removes it on letting go."""
    for path in (paths.clusters() / name).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a directory against every other process that does so; it is made where missing and goes when left empty."""
    while (handle := _hold(directory)) is None:
        continue
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()
        os.close(handle)


def _hold(directory: Path) -> int | None:
    """Open and lock the directory; None where the former holder removed it meanwhile, so that nothing was locked."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    waited_s = 0.0
    while not _locks(handle):
        if waited_s % 10 == 0:
            progress.say(f"waiting for another command that holds {directory}")
        time.sleep(0.25)
        waited_s += 0.25
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), directory.stat()):
            return handle
    os.close(handle)
    return None


def _locks(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
