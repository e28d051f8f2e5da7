"""Slices and claims as the API's JSON has them, as far as `reader` looks at them.

These are the lists that are long where a cluster is large, and most of their text is of no use here: it is passed over
without ever becoming a value. What is missing or null has the value that stands for nothing.
"""

from typing import Any, Generic, TypeVar

import msgspec

from api import names

T = TypeVar("T")
_OWN = f"{names.LOCAL_DRIVER}/"


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Attribute(msgspec.Struct):
    string: str | None = None
    version: str | None = None


def _named(name: str) -> Any:
    return msgspec.field(name=name, default=None)


class Attributes(msgspec.Struct):
    """A name without a domain is of the driver, which may write it in full too."""

    uuid: Attribute | None = _named(names.UUID)
    own_uuid: Attribute | None = _named(_OWN + names.UUID)
    product_name: Attribute | None = _named(names.PRODUCT_NAME)
    own_product_name: Attribute | None = _named(_OWN + names.PRODUCT_NAME)
    driver_version: Attribute | None = _named(names.DRIVER_VERSION)
    own_driver_version: Attribute | None = _named(_OWN + names.DRIVER_VERSION)
    bus_id: Attribute | None = _named(names.PCI_BUS_ID)


class Amount(msgspec.Struct):
    value: str | int


class Taint(msgspec.Struct, rename="camel"):
    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None


class Device(msgspec.Struct, rename="camel"):
    name: str
    attributes: Attributes | None = None
    capacity: dict[str, Amount] | None = None
    allow_multiple_allocations: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Pool(msgspec.Struct, rename="camel"):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(msgspec.Struct, rename="camel"):
    driver: str
    pool: Pool
    node_name: str | None = None
    devices: tuple[Device, ...] | None = None


class Slice(msgspec.Struct):
    metadata: Meta
    spec: SliceSpec


class Exactly(msgspec.Struct, rename="camel"):
    device_class_name: str


class Sub(msgspec.Struct, rename="camel"):
    name: str
    device_class_name: str


class Request(msgspec.Struct, rename="camel"):
    name: str
    exactly: Exactly | None = None
    first_available: tuple[Sub, ...] | None = None


class Requests(msgspec.Struct):
    requests: tuple[Request, ...] | None = None


class ClaimSpec(msgspec.Struct):
    devices: Requests | None = None


class Result(msgspec.Struct, rename="camel"):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, str | int] | None = None
    binding_conditions: tuple[str, ...] | None = None


class Results(msgspec.Struct):
    results: tuple[Result, ...] | None = None


class Requirement(msgspec.Struct):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class Term(msgspec.Struct, rename="camel"):
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    node_selector_terms: tuple[Term, ...] | None = None


class Allocation(msgspec.Struct, rename="camel"):
    devices: Results | None = None
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class User(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource: str = ""
    api_group: str | None = None


class Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class Said(msgspec.Struct, rename="camel"):
    """What a driver says of a result. `data` is the driver's own: only of ours it is known what it means."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(name="shareID", default=None)
    data: Any = None
    conditions: tuple[Condition, ...] | None = None


class ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: Allocation | None = None
    reserved_for: tuple[User, ...] | None = None
    devices: tuple[Said, ...] | None = None


class Claim(msgspec.Struct):
    metadata: Meta
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class List(msgspec.Struct, Generic[T]):
    items: tuple[T, ...] | None = None
