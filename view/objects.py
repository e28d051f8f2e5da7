"""The API's objects as far as the picture of the cluster needs them: values alone, each kind with what is not known of it.

gc=False here and in `picture`: no cycle can go through these values, and a large cluster has hundreds of thousands, each of
which would be larger by two words, and be looked through again and again.
"""

import functools
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
Reference = tuple[str, str]
"""(namespace, name)"""
NOT_ASKED = "not asked for"


@functools.lru_cache(maxsize=16384)
def alike(value: T) -> T:
    """The same object for equal values: for such as many objects of a cluster have in common."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """All objects of one kind. `unknown`: why they could not be read; empty where they could.

    namespace: the only one that could be read, empty for all of them.
    partial: a filter left some out, so that nobody may be taken for gone.
    unreadable: objects that made no sense, each with the reason.
    """

    items: tuple[T, ...] = ()
    unknown: str = ""
    namespace: str = ""
    partial: bool = False
    unreadable: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Who is not in it does not exist."""
        return not (self.unknown or self.namespace or self.partial or self.unreadable)


class Taint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    key: str
    value: str
    effect: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule:
    """A taint that somebody put on devices beside the driver: empty `driver`, `pool` and `device` stand for all.

    retained_for: UIDs of claims; while all of them hold the device, the rule only remembers them.
    """

    name: str
    pool: str
    device: str
    taint: Taint
    retained_for: tuple[str, ...] = ()
    version: str = field(default="", compare=False)
    driver: str = ""

    def concerns(self, driver: str) -> bool:
        return self.driver in ("", driver)


class Device(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`capacity` in whole units: bytes, percent, pieces. `shared`: several claims may hold parts of it."""

    name: str
    uuid: str | None = None
    model: str | None = None
    bus_id: str | None = None
    driver_version: str | None = None
    capacity: tuple[tuple[str, int], ...] = ()
    shared: bool = False
    taints: tuple[Taint, ...] = ()


class Slice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`remote`: of cards that are reached over the network; its pool is a remote pool, and no node's."""

    name: str
    pool: str
    generation: int
    of: int
    """How many slices the pool has at this generation."""
    node: str
    created: str
    devices: tuple[Device, ...]
    remote: bool = False


class Result(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One device of an allocation. `consumed` is empty where the server stored no capacity for it.

    awaited: why the pod may not have it yet, of a remote card that is not attached.
    """

    request: str
    pool: str
    device: str
    admin: bool = False
    share_id: str = ""
    consumed: tuple[tuple[str, int], ...] = ()
    enforcement: str = ""
    remote: bool = False
    awaited: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`classes`: request -> class, a subrequest under `request/subrequest`. `results`: devices of our drivers alone.

    node: the one that the allocation is good for, where it is one.
    """

    namespace: str
    name: str
    uid: str
    created: str
    classes: tuple[tuple[str, str], ...] = ()
    allocated: bool = False
    since: str = ""
    results: tuple[Result, ...] = ()
    reserved_for: tuple[tuple[str, str], ...] = ()
    """(name, uid) of pods."""
    other_users: int = 0
    deleting: bool = False
    node: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Use(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A container that uses a request of a claim; no request means all of them. `word`: the pod's own for the claim, so
    that pods of a template have the same uses.
    """

    container: str
    word: str
    request: str = ""


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that names claims. `words`: what it calls them itself. `claims`: the claim object of each, empty where it is not
    made yet. `templates`: word -> template.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created: str
    workload_type: str = ""
    words: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    templates: tuple[tuple[str, str], ...] = ()
    scheduler_says: str = ""
    waits_since: str = ""
    container_says: str = ""

    @property
    def settled(self) -> bool:
        """It waits for nothing: a row of it says only what it has."""
        return self.phase != "Pending"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str
    message: str
    since: str


class GPUClass(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created: str
    backend: str = ""
    workload_types: tuple[str, ...] = ()
    matching: int | None = None
    conditions: tuple[Condition, ...] = ()


class DeviceClass(msgspec.Struct, frozen=True, kw_only=True):
    """`ours`: its selectors name our driver, or it has none and takes every device."""

    name: str
    ours: bool


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    ready: bool
    since: str


class DriverPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod of the node driver: whether someone answers for the node's cards.

    port: where it tells its series, 0 where it does not say. version: of its chart. account: whose rights it has.
    """

    node: str
    name: str
    namespace: str
    ready: bool
    since: str
    port: int = 0
    version: str = ""
    account: str = ""


class RemotePool(msgspec.Struct, frozen=True, kw_only=True):
    """Where cards can be had over the network. `reachable` is None where `reason` says why it is not known.

    version: of the agent that answers. cards, leases: as the pool itself counts them.
    """

    name: str
    created: str
    endpoint: str = ""
    reachable: bool | None = None
    reason: str = ""
    since: str = ""
    version: str = ""
    cards: int = 0
    leases: int = 0


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claim's hold on a remote card. `uid`: of the claim. `since`: when the phase began."""

    name: str
    pool: str
    device: str
    namespace: str
    claim: str
    uid: str
    node: str
    phase: str
    since: str
    created: str
    reason: str = ""
    by: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What the picture is made of. A kind that nobody asked for is unknown for that reason."""

    slices: Part[Slice]
    claims: Part[Claim]
    pods: Part[Pod] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    classes: Part[GPUClass] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    device_classes: Part[DeviceClass] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    nodes: Part[Node] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    drivers: Part[DriverPod] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    rules: Part[TaintRule] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    remote_pools: Part[RemotePool] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
    leases: Part[Lease] = field(default_factory=lambda: Part(unknown=NOT_ASKED))
