"""CDI as values: what a container gets, and the spec file of one claim.

    nvidia-ctk's spec, or our own edits -> HostEdits (common and per card) -> of_claim -> the text of one file

A claim has one file of its own. Its device names carry the claim's uid, so that a name never means two things: runtimes
keep specs in memory. Which parts of a device node or a mount there are is the toolkit's business; they pass unread.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from api import errors, names, resource
from driver import records

KIND = f"{names.CDI_VENDOR}/{names.CDI_CLASS}"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Without these no CUDA program starts, and the container would find out by itself (NV#1380)."""
MEMORY_LIMITS_HOOK = "apply-cuda-memory-limits"
"""The toolkit's hook that holds a share to its memory: it needs a limit to apply, and NVML on the host for every start of
a container. So it is for those shares alone that are held by it."""

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """CDI's containerEdits. `rest` holds the fields that we never look into."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[JSON, ...] = ()
    mounts: tuple[JSON, ...] = ()
    hooks: tuple[JSON, ...] = ()
    rest: JSON = field(default_factory=dict)

    def __add__(self, other: "Edits") -> "Edits":
        return Edits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            mounts=self.mounts + other.mounts,
            hooks=self.hooks + other.hooks,
            rest={**self.rest, **other.rest},
        )

    @property
    def paths(self) -> frozenset[str]:
        """The device nodes that a container will see."""
        return frozenset(node["path"] for node in self.device_nodes)

    def without_hook(self, word: str) -> "Edits":
        """The same without the hooks that have this argument."""
        return replace(self, hooks=tuple(hook for hook in self.hooks if word not in (hook.get("args") or ())))

    def to_json(self) -> dict[str, Any]:
        lists = {"env": self.env, "deviceNodes": self.device_nodes, "mounts": self.mounts, "hooks": self.hooks}
        return {key: value for key, value in lists.items() if value} | dict(self.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEdits:
    """What this host gives to a container: to every one, and per card. `problems`: why a card has no edits."""

    common: Edits = Edits()
    cards: Mapping[str, Edits] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def of_card(self, card: str) -> Edits:
        """Raises NotReady while the host lacks something that the card needs."""
        if card not in self.cards:
            why = self.problems.get(card, "the host's driver files have not been looked at yet")
            raise errors.NotReady(f"card {card} cannot be given to a container yet: {why}")
        return self.cards[card]


def split(spec: JSON) -> tuple[Edits, dict[str, Edits]]:
    """A generated spec -> its common edits and those of each device by name.

    Raises Invalid for what is no CDI spec.
    """
    try:
        devices = {item["name"]: _edits(item.get("containerEdits") or {}) for item in spec.get("devices") or ()}
        return _edits(spec.get("containerEdits") or {}), devices
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.Invalid(f"the generated CDI spec has an unexpected shape: {error!r}") from error


def lacking(common: Edits, card: Edits, minor: int) -> str:
    """What a container with these edits would miss, in words; empty if nothing."""
    wanted = (f"/dev/nvidia{minor}", *CONTROL_NODES)
    missing = [path for path in wanted if path not in common.paths | card.paths]
    return f"the host has no {', '.join(missing)}" if missing else ""


def device_name(uid: resource.ClaimUID, request: str, device: str, share_id: str) -> str:
    """The CDI name of one result: unique on the node, for ever."""
    return "-".join(part for part in (uid, request.partition("/")[0], device, share_id) if part)


def qualified(uid: resource.ClaimUID, holding: records.Holding) -> str:
    """What a container runtime is told."""
    return f"{KIND}={device_name(uid, holding.request, holding.device, holding.share_id)}"


def of_claim(uid: resource.ClaimUID, common: Edits, devices: Iterable[tuple[records.Holding, Edits]]) -> str:
    """The text of a claim's spec file. Raises NotReady where a device would give nothing: runtimes refuse such a spec."""
    other = tuple(text for text in common.env if not text.startswith(f"{names.VISIBLE_DEVICES_ENV}="))
    shared = replace(common, env=(f"{names.VISIBLE_DEVICES_ENV}=void", *other)).to_json()
    items: list[dict[str, Any]] = []
    for holding, edits in devices:
        if not edits.device_nodes:
            raise errors.NotReady(f"card {holding.card}: empty device edits; the host has no node for it")
        card = Edits(env=(f"{names.CARD_ENV_PREFIX}{holding.minor}={holding.card}",))
        name = device_name(uid, holding.request, holding.device, holding.share_id)
        items.append({"name": name, "containerEdits": (card + edits).to_json()})
    version = _version([shared, *(item["containerEdits"] for item in items)])
    spec = {"cdiVersion": version, "kind": KIND, "devices": items, "containerEdits": shared}
    return msgspec.json.encode(spec).decode()


def _version(edits: Iterable[JSON]) -> str:
    """The lowest version that knows all fields: older runtimes read on. 0.5.0 is due to names that begin with a digit."""
    fields = {key for item in edits for key in item}
    if "netDevices" in fields:
        return "1.1.0"
    return "0.7.0" if fields & {"additionalGids", "intelRdt"} else "0.5.0"


def _edits(data: JSON) -> Edits:
    known = {"env", "deviceNodes", "mounts", "hooks"}
    return Edits(
        env=tuple(data.get("env") or ()),
        device_nodes=tuple({"path": node["path"], **node} for node in data.get("deviceNodes") or ()),
        mounts=tuple(data.get("mounts") or ()),
        hooks=tuple(data.get("hooks") or ()),
        rest={key: value for key, value in data.items() if key not in known and value},
    )
