"""Our own look at the driver's files, for hosts without NVIDIA's toolkit.

Device nodes, the libraries of the driver's version with the links that programs load them by, its programs, firmware and
sockets. Where the toolkit's hook is on the host, it makes the links and the linker's cache; where it is not, each link
becomes a mount of its own, which serves any image that searches the usual library directory.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver import cdi, inventory

LIBRARY_DIRS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",  # Debian: what is above it are links to absolute paths, which lead nowhere here
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib64",
    "usr/lib",
)
"""Under the driver root, the directories where distributions put the driver's libraries."""
_FILES = (
    "usr/bin/nvidia-smi",
    "usr/bin/nvidia-debugdump",
    "usr/bin/nvidia-persistenced",
    "usr/bin/nvidia-cuda-mps-control",
    "usr/bin/nvidia-cuda-mps-server",
)
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_FIRMWARE = "lib/firmware/nvidia"
_CONTROL = (*cdi.CONTROL_NODES, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]

Nodes = Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where to look, and what is known already: the nodes with major, minor and mode, the version of the driver."""

    root: Path
    devices: Path
    sysfs: Path
    version: str
    nodes: Nodes
    hook: str


async def edits(host: Host, cards: tuple[inventory.Card, ...]) -> cdi.HostEdits:
    """What containers need, in the paths under the driver root."""
    return await asyncio.to_thread(_edits, host, cards)


def _edits(host: Host, cards: tuple[inventory.Card, ...]) -> cdi.HostEdits:
    root, version = host.root, host.version
    libraries = list(_libraries(root, version))
    links = [link for library in libraries for link in _links(library)]
    files = [root / path for path in (*_FILES, *_SOCKETS)] + sorted((root / _FIRMWARE / version).glob("*.bin"))
    mounts = [_mount(root, path) for path in (*libraries, *files) if path.exists()]
    hooks: list[dict[str, Any]] = []
    if host.hook:
        hooks = _hooks(root, host.hook, links, sorted({str(library.parent) for library in libraries}))
    else:
        mounts += [_mount(root, link) for link, _ in links]
    common = cdi.Edits(device_nodes=_nodes(host, _CONTROL), mounts=tuple(mounts), hooks=tuple(hooks))
    per_card: dict[str, cdi.Edits] = {
        card.uuid: cdi.Edits(device_nodes=_nodes(host, (f"/dev/nvidia{card.minor}", *_drm(host.sysfs, card))))
        for card in cards
    }
    return cdi.HostEdits(common=common, cards=per_card, source="the driver's files")


def _libraries(root: Path, version: str) -> Iterator[Path]:
    """Each once, though directories are linked to each other; a link that leads nowhere is passed over."""
    seen = set()
    for directory in LIBRARY_DIRS:
        for pattern in (f"*.so.{version}", f"vdpau/*.so.{version}"):
            for path in sorted((root / directory).glob(pattern)):
                if version and path.exists() and (file := path.resolve()) not in seen:
                    seen.add(file)
                    yield path


def _links(library: Path) -> Iterator[tuple[Path, str]]:
    """The names beside a library that lead to it, such as libcuda.so.1, each with what it points to."""
    stem = library.name.partition(".so.")[0]
    for path in sorted(library.parent.glob(f"{stem}.so*")):
        if path.is_symlink() and path.exists() and path.resolve() == library.resolve():
            yield path, str(path.readlink())


def _nodes(host: Host, wanted: Iterable[str]) -> tuple[cdi.JSON, ...]:
    """Fully told, since some runtimes do not look themselves (gvisor#13621)."""
    found = []
    for path in wanted:
        if path in host.nodes:
            major, minor, mode = host.nodes[path]
            node = {"path": path, "hostPath": str(host.devices / path[1:]), "type": "c", "major": major, "minor": minor}
            found.append({**node, "fileMode": mode, "permissions": "rwm"})
    return tuple(found)


def _drm(sysfs: Path, card: inventory.Card) -> list[str]:
    try:
        listed = sorted((sysfs / "bus/pci/devices" / (card.pci_bus_id or "-") / "drm").iterdir())
    except OSError:
        return []
    return [f"/dev/dri/{path.name}" for path in listed]


def _mount(root: Path, path: Path) -> cdi.JSON:
    return {"hostPath": str(path), "containerPath": f"/{path.relative_to(root)}", "options": _OPTIONS}


def _hooks(root: Path, hook: str, links: list[tuple[Path, str]], directories: list[str]) -> list[dict[str, Any]]:
    pairs = [text for link, target in links for text in ("--link", f"{target}::/{link.relative_to(root)}")]
    folders = [text for path in directories for text in ("--folder", f"/{Path(path).relative_to(root)}")]
    calls = [("create-symlinks", pairs), ("update-ldcache", folders)]
    return [
        {"hookName": "createContainer", "path": hook, "args": [Path(hook).name, verb, *arguments]}
        for verb, arguments in calls
        if arguments
    ]
