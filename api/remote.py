"""The kinds of the remote road: where cards can be had over the network, and who holds one there.

    RemotePool    written by an admin: where a pool's API is, how to trust it, which nodes may use it
    RemoteLease   written before a card is attached, kept until the pool says that it is free: it outlives the claim

A RemoteLease is named after its idempotency key, so that whoever decides the same writes the same object. It has no
status subresource: intent and state are one write. Nothing in either kind is a secret.
"""

import datetime
import enum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from api import errors, names, resource, schema, v1alpha1

POOL_KIND = "RemotePool"
POOL_PLURAL = "remotepools"
LEASE_KIND = "RemoteLease"
LEASE_PLURAL = "remoteleases"

_Name = Annotated[str, Meta(max_length=253)]
_Text = Annotated[str, Meta(max_length=1024)]
_LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_YEARS = range(2000, 9000)
_CONDITIONS = Meta(
    max_length=8, extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)


class Phase(enum.Enum):
    """What a RemoteLease stands for. Attaching is written before the pool is asked."""

    ATTACHING = "Attaching"
    ATTACHED = "Attached"
    LOST = "Lost"
    FAILED = "Failed"
    RELEASING = "Releasing"


class AttachedBy(enum.Enum):
    CONTROLLER = "Controller"
    NODE = "Node"


class RemoteConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How remote cards are reached. Where they are, and by what files and variables, is never a claim's to say.

    protocol: One of those that the card offers; none given: the pool's only one.
    """

    protocol: Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None


class NodeLabel(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A label that a node must carry.

    key: The label's name.
    value: Its value.
    """

    key: Annotated[str, Meta(pattern=_LABEL_KEY, max_length=317)]
    value: Annotated[str, Meta(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")] = ""


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where a pool of remote cards is, and who may use it.

    endpoint: host:port of the pool's API, reached from the controller and from the nodes.
    ca_bundle: PEM certificates that the pool's own certificate must be signed by. No secret.
    server_name: The name that its certificate must carry. Empty: the host of the endpoint.
    pool_id: What the pool calls itself. The tokens by which nodes prove to it who they are are made out to it. Empty:
        the name of this object.
    nodes: Labels of the nodes that may use the pool. Empty: every node on which the driver of remote cards runs.
    allow_insecure: Takes servers that do not authenticate their clients. Whoever reaches such a server owns the card.
    """

    endpoint: Annotated[
        str, Meta(pattern=r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9][-A-Za-z0-9.]*):[0-9]{1,5}$", max_length=260)
    ]
    ca_bundle: Annotated[str, Meta(pattern="-----BEGIN CERTIFICATE-----", max_length=65536)]
    server_name: _Name = ""
    pool_id: _Name = ""
    nodes: Annotated[
        tuple[NodeLabel, ...],
        Meta(max_length=8, extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}),
    ] = ()
    allow_insecure: bool = False


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is known of the pool. Written by the controller.

    devices: How many cards it lists.
    leases: How many of them this cluster holds.
    pool_id: What the pool calls itself.
    version: Of the agent that answers there.
    conditions: Reachable (it answers).
    """

    devices: int = 0
    leases: int = 0
    pool_id: _Name = ""
    version: Annotated[str, Meta(max_length=128)] = ""
    conditions: Annotated[tuple[v1alpha1.Condition, ...], _CONDITIONS] = ()


class RemotePool(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Hosts that lend cards over the network. Its name is the name of the pool in ResourceSlices.

    spec: Where it is, and who may use it.
    status: What is known of it. Written by the controller.
    """

    spec: PoolSpec
    status: PoolStatus | None = None

    RULES: ClassVar[tuple[schema.Rule, ...]] = (
        schema.Rule(text="self.metadata.name.size() <= 63", message="the name may have 63 characters"),
    )


class LeaseClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claim that the card is for.

    namespace: Its namespace.
    name: Its name.
    uid: Its uid: a claim made again under the same name is another one.
    """

    namespace: _Name
    name: _Name
    uid: _Name


class LeaseNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The node that uses the card.

    name: Its name.
    uid: Its uid.
    """

    name: _Name
    uid: _Name


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is wanted of the pool. Never changed.

    pool: The RemotePool.
    device: The card, as the pool and the slices name it.
    key: The idempotency key of the attachment.
    epoch: Which allocation of the claim this is for: its timestamp, or what the node made up where it has none.
    share_id: The share of the card, where it is shared.
    protocol: How the card is to be reached; empty: the pool's only way.
    claim: The claim that the card is for.
    node: The node that uses it.
    attached_by: Who asks the pool: the controller before the pod is bound, or the node when the pod starts.
    """

    pool: _Name
    device: _Name
    key: Annotated[str, Meta(max_length=128)]
    epoch: Annotated[str, Meta(max_length=64)]
    share_id: _Name = ""
    protocol: Annotated[str, Meta(max_length=63)] = ""
    claim: LeaseClaim
    node: LeaseNode
    attached_by: AttachedBy

    RULES: ClassVar[tuple[schema.Rule, ...]] = (
        schema.Rule(text="self == oldSelf", message="spec is never changed: another attachment is another RemoteLease"),
    )


class LeaseStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far it is.

    phase: Attaching (the pool is being asked), Attached, Lost (the card or its server died), Failed (it could not be
        attached; the card is left alone for a while), Releasing (it is being given back).
    since: When this phase began.
    reason: Why, for people.
    lease_id: What the pool calls the lease.
    fencing_token: The number under which it was granted.
    """

    phase: Phase
    since: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    reason: _Text = ""
    lease_id: _Name = ""
    fencing_token: int = 0


class RemoteLease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim's hold on a remote card. Written by the controller and the node driver; do not edit. Deleting it gives the
    card back, whoever uses it.

    spec: What is wanted of the pool.
    status: How far it is.
    """

    spec: LeaseSpec
    status: LeaseStatus


def decode_config(parameters: Any, where: str) -> RemoteConfig:
    """The opaque parameters of a config for the driver of remote cards. Raises Invalid with the field's path."""
    return v1alpha1.decode_one_of({"RemoteConfig": RemoteConfig}, parameters, where)


def protocol(claim: resource.Claim) -> str:
    """How its cards are to be reached, by its configs; empty where they do not say. The class's word counts before the
    claim's. Raises Invalid.
    """
    chosen = ""
    for config in reversed([one for one in claim.configs if one.driver == names.REMOTE_DRIVER]):
        where = "the device class" if config.from_class else "the claim"
        read = decode_config(config.parameters, f"config of {where}, in claim {claim}")
        if read.protocol and (config.from_class or not chosen):
            chosen = read.protocol
    return chosen


def decode_pool(data: Any, where: str) -> PoolSpec:
    """The spec of a RemotePool object. Raises Invalid with the field's path."""
    return schema.decode(RemotePool, {"spec": data.get("spec")}, where).spec


def decode_lease(data: Any, where: str) -> RemoteLease:
    """A RemoteLease object. Raises Invalid with the field's path.

    The API server's date-time is wider than what can be reckoned with, and a node may write these objects.
    """
    found = schema.decode(RemoteLease, {"spec": data.get("spec"), "status": data.get("status")}, where)
    if not _reckonable(found.status.since):
        raise errors.Invalid(
            f"{where}: status.since: {found.status.since!r} is no time of these years with its zone, as 2026-01-31T12:00:00Z"
        )
    return found


def _reckonable(text: str) -> bool:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return found.tzinfo is not None and found.year in _YEARS


def encode_lease(lease: RemoteLease) -> dict[str, Any]:
    """The object to create. It stays until the pool has confirmed that the card is free."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": LEASE_KIND,
        "metadata": {"name": lease_name(lease.spec.key), "finalizers": [names.LEASE_FINALIZER]},
        **msgspec.to_builtins(lease),
    }


def lease_name(key: str) -> str:
    """The name of the RemoteLease of an idempotency key."""
    return f"lease-{key[:32].lower()}"


def pool_id(pool: str, spec: PoolSpec) -> str:
    """What a node's token for this pool is made out to: a token that one pool sees is worthless at another."""
    return spec.pool_id or pool
