"""The picture of the cluster: which card is held by whom, what is left of it, and what is wrong.

Values alone. `join` makes them; command line, objects and metrics render them, so that they cannot disagree. The states
of a card are disjoint and add up to the total. What is not known is None, and never 0.
"""

import enum
from collections.abc import Mapping

import msgspec

from view import objects

POOL = "pool/"


class State(enum.StrEnum):
    FREE = "Free"
    """Nobody holds it, and a claim may get it."""
    PARTLY = "Partly"
    """Somebody holds a part of it, and another claim may get more."""
    HELD = "Held"
    """Nothing is left for another claim. A held card stays held when it is tainted: it is counted once."""
    BLOCKED = "Blocked"
    """Nobody holds it, and no claim may get it: `reason` says why."""
    UNKNOWN = "Unknown"
    """Whether somebody holds it could not be read."""


class PodUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod at a claim. `containers` is None where the pod was not read."""

    name: str
    uid: str
    containers: tuple[str, ...] | None = None


class Attachment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The lease by which a claim has a remote card.

    runs_out: when its pool ends it at the latest, since nobody renews it any more; empty while it is renewed.
    """

    lease: str
    phase: str
    since: str
    reason: str = ""
    runs_out: str = ""


class Holder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claim at a card. `amounts`: what it takes of the card. `enforcement`: what the node says holds it to that.

    node: where a remote card is used. attachment: None for a card in a node, and where the leases are not known.
    """

    namespace: str
    claim: str
    uid: str
    request: str
    class_name: str
    since: str
    amounts: Mapping[str, int]
    share_id: str = ""
    enforcement: str = ""
    pods: tuple[PodUse, ...] = ()
    node: str = ""
    attachment: Attachment | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A lease of a remote card, and whether its claim holds that card: None where that is not known."""

    name: str
    pool: str
    device: str
    namespace: str
    claim: str
    node: str
    phase: str
    since: str
    reason: str
    runs_out: str
    attached_by: str
    created: str
    pods: tuple[str, ...] = ()
    held: bool | None = None


class Card(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`free`: what is left of each capacity; None where that is not known. `observers` hold nothing: admin access.

    remote: its place is a pool, and `node` is empty. ending: leases of claims that hold it no more.
    """

    name: str
    uuid: str | None
    model: str | None
    node: str
    pool: str
    bus_id: str | None
    driver_version: str | None
    state: State
    reason: str
    capacity: Mapping[str, int]
    free: Mapping[str, int] | None
    holders: tuple[Holder, ...] = ()
    observers: tuple[Holder, ...] = ()
    taints: tuple[objects.Taint, ...] = ()
    remote: bool = False
    ending: tuple[Attachment, ...] = ()

    @property
    def place(self) -> str:
        """Its node, or `pool/` and the name of its pool."""
        return f"{POOL}{self.pool}" if self.remote else self.node

    @property
    def where(self) -> str:
        return f"of pool {self.pool}" if self.remote else f"on node {self.node}"


class Tally(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cards by state. `memory_free` is None where a card's is not known."""

    total: int = 0
    free: int = 0
    partly: int = 0
    held: int = 0
    blocked: int = 0
    unknown: int = 0
    memory: int = 0
    memory_free: int | None = 0


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Remote cards are counted apart: not every claim can get one."""

    name: str
    tally: Tally
    remote: bool = False


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`ready` and `driver` are None where they are not known; `driver` is whether one answers for the cards."""

    name: str
    models: tuple[str, ...]
    tally: Tally
    ready: bool | None = None
    driver: bool | None = None


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A taint that cards of a pool have, how many, and since when."""

    taint: str
    cards: int
    since: str


class RemotePool(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that can be had over the network. `reachable` is None where `reason` says why it is not known.

    known: whether there is a RemotePool of that name, None where that could not be read. `leases`: None likewise.
    """

    name: str
    models: tuple[str, ...]
    tally: Tally
    known: bool | None
    reachable: bool | None
    reason: str
    since: str
    endpoint: str
    version: str
    created: str
    leases: int | None
    troubles: tuple[Trouble, ...] = ()


class Booked(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace, a workload type or a class holds. Cards are counted once, however many hold a part of them."""

    name: str
    cards: int = 0
    claims: int = 0
    pods: int = 0
    memory: int = 0


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """`matching` is None while the controller has not counted. `ready` as its condition has it, empty without one."""

    name: str
    backend: str
    workload_types: tuple[str, ...]
    ready: str
    reason: str
    matching: int | None
    created: str
    booked: Booked
    waiting: int = 0


class PodCard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A card that a pod has, and by which request it has it. `node` is that of the card: a remote one has none."""

    card: str
    node: str
    model: str | None
    claim: str
    request: str
    containers: tuple[str, ...]
    amounts: Mapping[str, int]
    observes: bool = False
    pool: str = ""
    remote: bool = False


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`waiting`: why it does not run yet, empty where it does. `reason`: that in one word, of the list of reasons. `evidence`: what the scheduler or the kubelet says."""

    namespace: str
    name: str
    node: str
    phase: str
    workload_type: str
    created: str
    claims: tuple[str, ...]
    cards: tuple[PodCard, ...] = ()
    waiting: str = ""
    reason: str = ""
    evidence: str = ""
    waits_since: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`state`: Waiting, Allocated (nobody uses it) or InUse; Deleting goes first. `nodes`: where its cards are used."""

    namespace: str
    name: str
    state: str
    classes: tuple[str, ...]
    cards: tuple[str, ...]
    nodes: tuple[str, ...]
    amounts: Mapping[str, int]
    pods: tuple[str, ...]
    created: str
    since: str
    pools: tuple[str, ...] = ()
    """Remote ones."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, since when, and the command that clears it or shows more.

    namespace: of the claim or pod that it names; empty where it is about a card, a node, a pool or a class.
    """

    kind: str
    about: str
    message: str
    since: str
    command: str
    namespace: str = ""
