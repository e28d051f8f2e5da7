"""The objects of the remote road as values: pools, intents, claims that hold remote cards, and what a pool itself says.

The functions turn one object's JSON into a value, and are what the watches keep. A claim that holds no remote card, a
node that does not concern anybody: None, so that thousands of them cost nothing.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api import errors, lease, names, remote, resource
from view import objects, reader

JSON = Mapping[str, Any]
Place = tuple[str, str, str]
"""Pool, device and share of a result."""
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
POOLS = f"/apis/{names.API_VERSION}/{remote.POOL_PLURAL}"
LEASES = f"/apis/{names.API_VERSION}/{remote.LEASE_PLURAL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A RemotePool. Where `spec` is None, `problem` says why it could not be read. `seen`: as the picture shows it."""

    name: str
    uid: str
    generation: int
    spec: remote.PoolSpec | None
    problem: str = ""
    status: remote.PoolStatus
    seen: objects.RemotePool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A RemoteLease. `deleting`: somebody wants it gone, so the card is given back. `created`: by the API server's clock."""

    name: str
    uid: str
    resource_version: str
    deleting: bool
    spec: remote.LeaseSpec
    status: remote.LeaseStatus
    created: str = ""
    seen: objects.Lease | None = None

    @property
    def place(self) -> Place:
        return self.spec.pool, self.spec.device, self.spec.share_id

    def genuine(self, cluster_uid: str) -> bool:
        """Whether its key is of what it says. A node may write the objects of its own leases: without this it could copy
        the key of another's, and have that one detached.
        """
        spec = self.spec
        return spec.key == lease.key(
            cluster_uid=cluster_uid,
            claim_uid=resource.ClaimUID(spec.claim.uid),
            driver=names.REMOTE_DRIVER,
            pool=spec.pool,
            device=spec.device,
            share_id=spec.share_id,
            node_uid=spec.node.uid,
            epoch=spec.epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What stands in a claim's status about one of our devices."""

    conditions: Mapping[str, bool]
    since: Mapping[str, str]
    lease_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that holds remote cards, and what it has been told of them."""

    claim: resource.Claim
    told: Mapping[Place, Told]

    def results(self, pool: str) -> tuple[resource.Result, ...]:
        """Those of one pool. Admin access holds nothing."""
        held = self.claim.of_driver(names.REMOTE_DRIVER)
        return tuple(result for result in held if result.pool == pool and not result.admin_access)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`gone`: an admin has said that its pods do not run any more."""

    name: str
    uid: str
    ready: bool
    gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card as its pool lists it. `state` in the pool's words."""

    name: str
    state: str
    reason: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease of this cluster as its pool has it. `data` is what the claim's status tells of it: nothing secret."""

    id: str
    key: str
    device: str
    token: int
    state: lease.State
    age_s: float
    revision: int
    reason: str = ""
    by_node: bool = False
    data: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known of one pool. `leases` by key, None until it was listed; `over`: keys that it has ended at our word;
    `refused`: what it will never attach, with its words; `meant`: keys of all pools' intents, as two may be one pool;
    `borne`: by key, of intents that a node has written, why they are not to be believed, empty where they are; `asked`:
    keys of attached intents that the pool, when asked, did not lend; `unserved`: nodes of the claims where the driver of remote cards
    is not ready, and since when it was not seen ready.
    """

    pool: str
    cluster_uid: str
    claims: tuple[Claim, ...]
    intents: tuple[Intent, ...]
    meant: frozenset[str]
    leases: Mapping[str, Lease] | None
    nodes: Mapping[str, Node]
    refused: Mapping[str, str]
    over: frozenset[str]
    borne: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    unserved: Mapping[str, datetime.datetime] = field(default_factory=dict)
    binding_s: float
    now: datetime.datetime

    def key(self, claim: resource.Claim, result: resource.Result, node: Node) -> str:
        """Of a card that was allocated with conditions."""
        return lease.key(
            cluster_uid=self.cluster_uid,
            claim_uid=claim.uid,
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            node_uid=node.uid,
            epoch=claim.allocated_at,
        )


def pool(data: JSON) -> Pool:
    meta = data["metadata"]
    spec, problem = None, ""
    try:
        spec = remote.decode_pool(data, f"pool {meta['name']}")
    except errors.Invalid as error:
        problem = str(error)
    try:
        status = msgspec.convert(data.get("status") or {}, remote.PoolStatus)
    except msgspec.ValidationError:  # it is only ever ours: one that cannot be read is written anew
        status = remote.PoolStatus()
    return Pool(
        name=meta["name"],
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        spec=spec,
        problem=problem,
        status=status,
        seen=reader.remote_pool(data),
    )


def intent(data: JSON) -> Intent:
    meta = data["metadata"]
    found = remote.decode_lease(data, f"lease {meta['name']}")
    return Intent(
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        deleting="deletionTimestamp" in meta,
        spec=found.spec,
        status=found.status,
        created=meta.get("creationTimestamp") or "",
        seen=reader.lease(data),
    )


def claim(data: JSON) -> Claim | None:
    """None where it holds no remote card."""
    status = data.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    if not any(item.get("driver") == names.REMOTE_DRIVER for item in results):
        return None
    told = {
        (item["pool"], item["device"], item.get("shareID") or ""): _told(item)
        for item in status.get("devices") or ()
        if item.get("driver") == names.REMOTE_DRIVER
    }
    return Claim(claim=resource.claim(data), told=told)


def node(data: JSON) -> Node:
    meta = data["metadata"]
    taints = (data.get("spec") or {}).get("taints") or ()
    return Node(
        name=meta["name"],
        uid=meta["uid"],
        ready=_ready(data),
        gone=any(taint.get("key") == _OUT_OF_SERVICE for taint in taints),
    )


def whole(wanted: remote.LeaseStatus | remote.PoolStatus) -> dict[str, object]:
    """Every field, so that a merge patch leaves nothing of what was."""
    fields = msgspec.structs.fields(type(wanted))
    told = msgspec.to_builtins(wanted)
    return {field.encode_name: told.get(field.encode_name) for field in fields}


def merged(known: Mapping[str, Lease], listed: Iterable[Lease], revision: int) -> dict[str, Lease]:
    """What is known of a pool's leases with a list of those that are not over, made at `revision`: of each the newer, as what
    was told while the list was on its way.
    """
    newer = {key: held for key, held in known.items() if held.revision > revision or held.state.ended}
    return {held.key: held for held in listed} | newer


def served(data: JSON) -> str:
    """The node on which this pod of the driver is ready; empty where it is not, or not for long."""
    leaves = "deletionTimestamp" in data["metadata"]
    return str(data["spec"].get("nodeName") or "") if _ready(data) and not leaves else ""


def _ready(data: JSON) -> bool:
    conditions = (data.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _told(item: JSON) -> Told:
    conditions = item.get("conditions") or ()
    data = item.get("data") or {}
    return Told(
        conditions={one["type"]: one.get("status") == "True" for one in conditions},
        since={one["type"]: one.get("lastTransitionTime", "") for one in conditions},
        lease_id=data.get("leaseID", "") if isinstance(data, dict) else "",
    )
