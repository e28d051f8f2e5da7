"""Words and rules of leases that a pool and its callers share: the key, the states, and what a refusal means.

    claim's allocation -> key -> Attach -> lease (id, token) -> Renew ... Detach
    status of a failed call, kind of refusal -> meaning -> what the caller does next

What must stay true: one allocation of one device for one node has one key, so that a repeated call cannot make a second
lease; and an answer that did not come means that the outcome is unknown, never that nothing happened.
"""

import hashlib
from dataclasses import dataclass, field
from enum import Enum, auto

from api import errors

CLUSTER_URI = "urn:elasticgpu:cluster:"
"""SAN of a controller's certificate: this and the cluster's UID, which is that of its namespace kube-system."""
TTL_MS = 600_000
"""What the controller and the nodes' driver ask for, who renew each minute: so long a lease lives without them."""
REFUSAL_METADATA = "elasticgpu-refusal-bin"


class State(Enum):
    """Under the names that the pool's API has."""

    ATTACHING = "ATTACHING"
    ATTACHED = "ATTACHED"
    RELEASING = "RELEASING"
    RELEASED = "RELEASED"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def ended(self) -> bool:
        """Nobody holds the card by it any more; in every other state somebody does."""
        return self in {State.RELEASED, State.FAILED}


class Kind(Enum):
    """Why a pool refuses, under the names that its API has."""

    HELD = "HELD"
    DEPOSED = "DEPOSED"
    STALE = "STALE"
    ENDED = "ENDED"
    REUSED = "REUSED"
    UNKNOWN_DEVICE = "UNKNOWN_DEVICE"
    UNKNOWN_LEASE = "UNKNOWN_LEASE"
    WITHHELD = "WITHHELD"
    INVALID = "INVALID"
    FORBIDDEN = "FORBIDDEN"
    GONE = "GONE"


STATUS = {
    Kind.HELD: "FAILED_PRECONDITION",
    Kind.DEPOSED: "FAILED_PRECONDITION",
    Kind.STALE: "FAILED_PRECONDITION",
    Kind.ENDED: "ABORTED",
    Kind.REUSED: "ALREADY_EXISTS",
    Kind.UNKNOWN_DEVICE: "NOT_FOUND",
    Kind.UNKNOWN_LEASE: "NOT_FOUND",
    Kind.WITHHELD: "RESOURCE_EXHAUSTED",
    Kind.INVALID: "INVALID_ARGUMENT",
    Kind.FORBIDDEN: "PERMISSION_DENIED",
    Kind.GONE: "OUT_OF_RANGE",
}
"""The gRPC status that goes with each."""


class Meaning(Enum):
    """What a caller does about a call that failed."""

    AGAIN = auto()
    """Whether the pool acted is unknown, or it will do later: the same call with the same key."""
    HELD = auto()
    """Another live lease has the card: detach it if its claim is gone and it is of this cluster, then the same call."""
    ENDED = auto()
    """The lease is over and its key is used up."""
    DEPOSED = auto()
    """A newer controller of this cluster works: stop."""
    FINAL = auto()
    """It will never do: the allocation has to go elsewhere."""


_AGAIN = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL", "DATA_LOSS", "UNAUTHENTICATED"}
"""UNAUTHENTICATED: a certificate or token that has run out says nothing of the card."""
_PRECONDITION = {Kind.HELD: Meaning.HELD, Kind.DEPOSED: Meaning.DEPOSED, Kind.STALE: Meaning.ENDED}


def meaning(status: str, kind: Kind | None) -> Meaning:
    """Of a failed call, by the name of its gRPC status and the refusal in its metadata, if there was one."""
    if status in _AGAIN:
        return Meaning.AGAIN
    if status == "FAILED_PRECONDITION":
        return Meaning.AGAIN if kind is None else _PRECONDITION.get(kind, Meaning.FINAL)
    return Meaning.ENDED if status == "ABORTED" else Meaning.FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """For whom the card is. `pods` are for people to read: the same consumer may have others later."""

    claim_uid: str
    node_uid: str
    node_name: str = ""
    namespace: str = ""
    claim_name: str = ""
    share_id: str = ""
    pods: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.claim_name} on node {self.node_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, by his credentials: the controller of a cluster, or one of its nodes."""

    cluster: str
    node_uid: str = ""
    node_name: str = ""

    @property
    def is_node(self) -> bool:
        return bool(self.node_uid)

    def __str__(self) -> str:
        return f"node {self.node_name}" if self.is_node else f"the controller of cluster {self.cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A claim's hold on a remote card, as its pool has it. Times in ms of the pool's own clock."""

    id: str
    key: str
    device: str
    token: int
    state: State
    cluster: str
    consumer: Consumer
    protocol: str = ""
    epoch: int = 0
    ttl_ms: int
    within_ms: int
    created_ms: int
    expires_ms: int
    attach_by_ms: int
    ended_ms: int = 0
    failing: bool = False
    """It is released without ever having been attached: it ends as FAILED."""
    reason: str = ""
    server_incarnation: int = 0
    revision: int = 0
    created_revision: int = 0


class Refused(errors.Conflict):
    """The pool's no. `holder`: the lease in the way, which only its own cluster may see."""

    def __init__(self, kind: Kind, message: str, holder: Lease | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.holder = holder


def key(
    *, cluster_uid: str, claim_uid: str, driver: str, pool: str, device: str, share_id: str, node_uid: str, epoch: str
) -> str:
    """The idempotency key of one allocation.

    `epoch` is the allocation's timestamp, else a UUID that was made durable before the first Attach. The timestamp has
    a resolution of a second, hence the node and the share beside it.
    """
    parts = (cluster_uid, claim_uid, driver, pool, device, share_id, node_uid, epoch)
    return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def lease_id(cluster_uid: str, idempotency_key: str) -> str:
    """A key is used once, so its lease can be named by it."""
    return "lease-" + hashlib.sha256(f"{cluster_uid}\0{idempotency_key}".encode()).hexdigest()[:32]
