"""ElasticGPU: a card and who holds it, as an object of the API. One a card, written by the controller alone.

It is bounded: so many holders, so many pods of each, with the number of those left out.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from api import v1alpha1

KIND = "ElasticGPU"
PLURAL = "elasticgpus"
MOST_HOLDERS = 16
MOST_PODS = 8

_Name = Annotated[str, Meta(max_length=253)]


class Amounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Parts of a card.

    cores: Percent of its compute.
    memory: Its memory, as a quantity.
    shares: How many claims may have a part of it.
    """

    cores: int | None = None
    memory: Annotated[str, Meta(max_length=32)] | None = None
    shares: int | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod at a claim.

    name: Its name, in the claim's namespace.
    containers: Those that use the card.
    """

    name: _Name
    containers: Annotated[tuple[_Name, ...], Meta(max_length=32)] = ()


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A claim at the card.

    namespace: The claim's namespace.
    claim: The claim's name.
    request: Which of its requests.
    class_name: The DeviceClass of the request.
    amounts: What it takes of the card.
    since: When it was allocated.
    enforcement: What the node says holds it to its amounts.
    node: The node that uses a remote card.
    lease: The RemoteLease by which a remote card is had, and its phase.
    pods: The pods that use the claim.
    more_pods: How many others do.
    """

    namespace: _Name
    claim: _Name
    request: _Name
    class_name: _Name = ""
    amounts: Amounts = Amounts()
    since: Annotated[str, Meta(max_length=64)] = ""
    enforcement: Annotated[str, Meta(max_length=128)] = ""
    node: _Name = ""
    lease: Annotated[str, Meta(max_length=320)] = ""
    pods: Annotated[tuple[Pod, ...], Meta(max_length=MOST_PODS)] = ()
    more_pods: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is known of the card.

    place: Its node, or `pool/` and the name of the RemotePool that lends it.
    node: The node that it is in; none for a remote card.
    pool: The pool of the slices that publish it.
    uuid: As NVML tells it.
    model: The product's name.
    state: Free, Partly (a part is held, another claim may get more), Held (nothing is left), Blocked (nobody has it,
        nobody can get it) or Unknown.
    reason: Why it is blocked or unknown.
    held_by: The pods that have it, for people to read.
    capacity: What it has.
    free: What is left of it.
    holders: The claims that hold it.
    more_holders: How many others do.
    observers: Claims with admin access; they hold nothing.
    conditions: Healthy (no taint keeps claims away), Published (a node or a pool publishes it), UsedAsBooked; Retained while its
        class keeps it back after a claim has released it.
    """

    place: Annotated[str, Meta(max_length=260)] = ""
    node: _Name = ""
    pool: _Name = ""
    uuid: Annotated[str, Meta(max_length=128)] = ""
    model: Annotated[str, Meta(max_length=128)] = ""
    state: Annotated[str, Meta(max_length=16)]
    reason: Annotated[str, Meta(max_length=1024)] = ""
    held_by: Annotated[str, Meta(max_length=1024)] = ""
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()
    holders: Annotated[tuple[Holder, ...], Meta(max_length=MOST_HOLDERS)] = ()
    more_holders: int = 0
    observers: int = 0
    conditions: Annotated[
        tuple[v1alpha1.Condition, ...],
        Meta(max_length=8, extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = ()


class ElasticGPU(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A card of the cluster and who holds it, named like its device. Written by the controller; changes are undone.

    status: What is known of it.
    """

    status: Status
