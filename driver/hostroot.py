"""The host's driver: device nodes, libraries and programs, as this process sees them under the driver root.

    cards -> nvidia-ctk's spec, or our own look at the files -> paths turned into the host's -> HostEdits

Made once per driver version and set of device nodes, and off the road of a claim. What must stay true: a look that
lacked a node is never kept (NV#1144, NV#1380), and paths in the result are the host's, for the runtime opens them there.
"""

import asyncio
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from api import errors
from driver import cdi, driverfiles, inventory, toolkit

_HOOKS = ("usr/bin/nvidia-cdi-hook", "usr/local/bin/nvidia-cdi-hook", "usr/local/nvidia/toolkit/nvidia-cdi-hook")
_PROGRAMS = ("usr/bin/nvidia-ctk", "usr/local/bin/nvidia-ctk", "usr/local/nvidia/toolkit/nvidia-ctk")
_KEPT = 4
_NODE_DIRS = ("dev", "dev/nvidia-caps", "dev/dri")
_log = structlog.get_logger()

Nodes = Mapping[str, tuple[int, int, int]]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things are. `driver_root` and `dev_root` as seen from here, `host_root` is the driver root on the host."""

    driver_root: Path
    dev_root: Path | None
    host_root: str
    sysfs: Path
    toolkit: Path | None
    hook: str

    @property
    def devices(self) -> Path:
        """The directory that has `dev`: the driver root if it does, as in a driver container, else this machine's."""
        if self.dev_root is not None:
            return self.dev_root
        return self.driver_root if (self.driver_root / "dev").is_dir() else Path("/")


class HostRoot:
    """Holds the last complete looks: a card that comes back finds its edits. `refresh` is cheap while nothing changes."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kept: dict[Key, cdi.HostEdits] = {}
        self._problems: Mapping[str, str] = {}
        self._hook: tuple[object, str] = (None, "")

    async def limits_hook(self) -> tuple[str, str]:
        """The CDI hook's path on the host, if it can set memory limits, and why not, if it cannot. Tried once a file."""
        seen, stamp = await asyncio.to_thread(_hook_file, self._places)
        if seen is None:
            return "", f"NVIDIA's nvidia-cdi-hook, which is not below {self._places.driver_root}"
        if stamp != self._hook[0]:
            self._hook = stamp, await toolkit.lacks(seen, cdi.MEMORY_LIMITS_HOOK)
        problem = self._hook[1]
        return ("", problem) if problem else (_host_path(str(seen), self._places), "")

    async def refresh(self, seen: inventory.Inventory) -> cdi.HostEdits:
        """What this host gives to a container of each card that answers."""
        nodes = await asyncio.to_thread(_nodes, self._places.devices)
        program, hook = await asyncio.to_thread(_programs, self._places)
        key: Key = (seen.driver_version, seen.cards, tuple(sorted(nodes.items())), program, hook)
        if key in self._kept:
            return self._kept[key]
        edits = await self._look(seen, nodes, program, hook)
        if not edits.problems:
            newest = list(self._kept.items())[1 - _KEPT :]
            self._kept = {**dict(newest), key: edits}
        if edits.problems != self._problems or not edits.problems:
            self._problems = edits.problems
            _log.info("host looked at", source=edits.source, cards=len(edits.cards), problems=dict(edits.problems))
        return edits

    async def _look(self, seen: inventory.Inventory, nodes: Nodes, program: Path | None, hook: str) -> cdi.HostEdits:
        missing: dict[str, str] = {card.uuid: lack for card in seen.cards if (lack := _lack(nodes, card))}
        whole = tuple(card for card in seen.cards if card.uuid not in missing)
        edits = cdi.HostEdits()
        if whole and program is not None and hook:
            try:
                edits = await self._by_toolkit(program, hook, whole)
            except (errors.Unavailable, errors.Invalid) as error:
                _log.warning("nvidia-ctk is of no use here, own edits instead", reason=str(error))
        if whole and not edits.cards:
            host = driverfiles.Host(
                root=self._places.driver_root,
                devices=self._places.devices,
                sysfs=self._places.sysfs,
                version=seen.driver_version or "",
                nodes=nodes,
                hook=hook,
            )
            edits = self._on_host(await driverfiles.edits(host, whole))
        missing |= {
            card.uuid: lack
            for card in whole
            if (lack := cdi.lacking(edits.common, edits.cards.get(card.uuid, cdi.Edits()), card.minor))
        }
        return replace(
            edits, cards={uuid: card for uuid, card in edits.cards.items() if uuid not in missing}, problems=missing
        )

    async def _by_toolkit(self, program: Path, hook: str, cards: tuple[inventory.Card, ...]) -> cdi.HostEdits:
        spec = await toolkit.generate(
            program,
            driver_root=self._places.driver_root,
            dev_root=self._places.devices,
            hook=hook,
            cards=[card.uuid for card in cards],
        )
        common, devices = cdi.split(spec)
        return self._on_host(cdi.HostEdits(common=common, cards=devices, source=str(program)))

    def _on_host(self, edits: cdi.HostEdits) -> cdi.HostEdits:
        return replace(
            edits,
            common=_moved(edits.common, self._places),
            cards={name: _moved(card, self._places) for name, card in edits.cards.items()},
        )


def _lack(nodes: Nodes, card: inventory.Card) -> str:
    missing = [path for path in (f"/dev/nvidia{card.minor}", *cdi.CONTROL_NODES) if path not in nodes]
    return f"the host has no {', '.join(missing)}" if missing else ""


def _nodes(root: Path) -> Nodes:
    """Every node of NVIDIA's and of DRI: its path in a container, and its major, minor and mode."""
    found = {}
    for directory in _NODE_DIRS:
        try:
            listed = list(os.scandir(root / directory))
        except OSError:
            continue
        for entry in listed:
            if directory == "dev" and not entry.name.startswith("nvidia"):
                continue
            try:
                status = entry.stat()
            except OSError:
                continue
            if stat.S_ISCHR(status.st_mode):
                device = status.st_rdev
                found[f"/{directory}/{entry.name}"] = os.major(device), os.minor(device), status.st_mode & 0o777
    return found


def _programs(places: Places) -> tuple[Path | None, str]:
    """nvidia-ctk as we can run it, and the CDI hook as the host's runtime can: no hook, no use for nvidia-ctk's spec."""
    program = places.toolkit or next(
        (places.driver_root / path for path in _PROGRAMS if os.access(places.driver_root / path, os.X_OK)), None
    )
    seen, _ = _hook_file(places)
    return program, places.hook or ("" if seen is None else _host_path(str(seen), places))


def _hook_file(places: Places) -> tuple[Path | None, object]:
    """The hook as seen from here, and what tells it from another one."""
    inside = Path(places.hook)
    if places.hook and inside.is_relative_to(places.host_root):
        inside = places.driver_root / inside.relative_to(places.host_root)
    for path in (inside,) if places.hook else tuple(places.driver_root / one for one in _HOOKS):
        try:
            found = path.stat()
        except OSError:
            continue
        return path, (path, found.st_ino, found.st_size, found.st_mtime_ns)
    return None, None


def _moved(edits: cdi.Edits, places: Places) -> cdi.Edits:
    return replace(
        edits,
        device_nodes=tuple(_node_on_host(node, places) for node in edits.device_nodes),
        mounts=tuple({**mount, "hostPath": _host_path(mount["hostPath"], places)} for mount in edits.mounts),
    )


def _node_on_host(node: cdi.JSON, places: Places) -> dict[str, Any]:
    """A host path is written only where it differs: older runtimes do not know the field."""
    path = _host_path(str(node.get("hostPath") or node["path"]), places)
    rest = {key: value for key, value in node.items() if key != "hostPath"}
    return rest if path == node["path"] else {**rest, "hostPath": path}


def _host_path(path: str, places: Places) -> str:
    inside = Path(path)
    if places.driver_root != Path("/") and inside.is_relative_to(places.driver_root):
        return str(Path(places.host_root) / inside.relative_to(places.driver_root))
    return path
