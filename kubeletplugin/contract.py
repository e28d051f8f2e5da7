"""What a driver author reads: the contract between a DRA driver and this library.

You write a class with the methods of `Driver` and call `plugin.serve(driver, options, api)`. The library does the rest
of a kubelet plugin: registration, the gRPC services of all versions that kubelets speak, the claim's GET and its checks,
one call per claim at a time, ResourceSlices, `status.devices`, the health stream, the sweep of claims that are gone.
Nothing here knows what a device is.

The road of one claim:

    kubelet -> NodePrepareResources -> the claim is read and checked -> Driver.prepare(claim) -> PreparedDevice values
            -> answer to the kubelet, `status.devices` written behind it
    kubelet -> NodeUnprepareResources -> Driver.unprepare(ref), without any API call

What the library promises to a driver:
- For one claim UID, at most one `prepare` or `unprepare` runs at a time, over all plugin processes of this node.
  Calls for different claims run side by side: guard what they share.
- A call is never cancelled because the kubelet lost patience (45 s): it runs to its end, and a repeat of the kubelet
  gets the result of the running one. Only a stop cuts it, after 5 s, which to you is like a crash.
- `prepare` sees a claim that exists, has the UID the kubelet named, and is allocated. It may hold results of other
  drivers: `claim.of_driver(name)` are yours.

What a driver promises:
- `prepare` and `unprepare` may be repeated at any time, also after a crash in the middle, and give the same answer.
- `prepare` makes sure that what its CDI ids name exists when it returns, also when it prepared the claim long ago:
  /var/run/cdi is empty after a reboot (KK#141433).
- It refuses a device that another claim still holds (KK: "the DRA driver is the last line of defense").
- `unprepare` of an unknown claim succeeds.
- Nothing blocks the event loop: registration must answer within 1 s, whatever a device does.
- `pools` and `health` may be called anew, after the iterator or what feeds on it has failed.
- An error is one of `api.errors`; its message reaches the pod's events. Any other exception is a defect of the driver:
  it fails this claim, is logged with its stack, and the plugin goes on.
"""

import enum
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from api import resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """What the kubelet says of a claim: enough to find it and to tell it from a later one of the same name."""

    uid: resource.ClaimUID
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of a device in the claim's status. `since` is RFC 3339."""

    type: str
    status: bool
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device of a prepared claim, in the order of the claim's results.

    `requests` are base request names (`req`, never `req/sub`). `data` is written to the claim's
    `status.devices[].data` (a JSON object, 10 KiB at most), with the conditions (8 at most); no data leaves the status alone.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Health(enum.Enum):
    """The states that a kubelet knows. The values are those of the wire."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """`since_s`: unix time of the last change. Longer messages than 1024 characters are cut."""

    pool: str
    device: str
    health: Health
    message: str = ""
    since_s: int = 0


class Driver(Protocol):
    """What you write."""

    async def prepare(self, claim: resource.Claim) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices of this driver usable by containers. Repeatable."""
        ...

    async def unprepare(self, ref: ClaimRef) -> None:
        """Undo `prepare`, from your own records: the claim object may be gone. Repeatable."""
        ...

    async def prepared(self) -> tuple[ClaimRef, ...]:
        """All claims you hold something for, half-prepared ones included: the sweep asks the API for each."""
        ...

    async def devices(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """What `prepare` answers for this claim now; nothing where it is not wholly prepared, or not kept.

        Asked in turns, and `status.devices` is written again where `data` is another one than what is stored: change it
        seldom.
        """
        ...

    async def seen(self, claim: resource.Claim) -> None:
        """A prepared claim as the API server has it now: other pods may use it since, its annotations may be others.

        Told in turns, each time the claims are looked up.
        """
        ...

    def pools(self) -> AsyncIterator[tuple[resource.Pool, ...]]:
        """All pools of this node: at once, then again whenever they change. An empty pool says "up, no devices"."""
        ...

    def health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """All devices: at once, then again whenever one changes. The library repeats the last one in time."""
        ...

    async def dropped(self, fields: frozenset[str]) -> None:
        """The API server stored a slice without these fields (names as in the API: `taints`, ...).

        The library already publishes a reduced set that is safe; this is for conditions, metrics and Prepare.
        An empty set means that all is stored again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where and as whom the plugin runs."""

    driver_name: str
    node_name: str
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    plugin_dir: Path = Path("/var/lib/kubelet/plugins")
    """The driver's own directory is `<plugin_dir>/<driver_name>`; the path must be the same on the host."""
    pod_uid: str = ""
    """Set: rolling update. Socket names carry it, so that the old and the new pod can run side by side."""
    health_repeat_s: float = 10
    """The kubelet takes a device as unknown that it has not heard of for 30 s."""
    sweep_period_s: float = 60
    """How often each prepared claim is looked up; one that is gone twice in a row is unprepared."""

    @property
    def data_dir(self) -> Path:
        return self.plugin_dir / self.driver_name
