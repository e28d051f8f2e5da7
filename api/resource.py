"""`resource.k8s.io/v1` as values: what a claim asks and got, what a slice offers.

Reads tolerantly (unknown fields of newer servers are ignored, a missing list is empty), writes exactly (`to_json`
leaves out what is not set: an empty list is refused by 1.35 servers where none is allowed). Nothing here waits,
nothing here knows what a device is.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType

from api import errors, quantity

ClaimUID = NewType("ClaimUID", str)
JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """A semver attribute, kept apart from plain strings: CEL compares the two differently."""

    text: str


Attribute = str | int | bool | Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """`added` is RFC 3339 in UTC with whole seconds, or empty where the server shall set it."""

    key: str
    value: str = ""
    effect: str
    added: str = ""

    def to_json(self) -> dict[str, Any]:
        out = {"key": self.key, "effect": self.effect}
        if self.value:
            out["value"] = self.value
        if self.added:
            out["timeAdded"] = self.added
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """How much of a capacity one share takes: `default` where its claim does not say, else from `least` in `step`s.

    `most` is empty where the capacity itself is the limit.
    """

    default: int
    least: int
    step: int
    most: int | None = None

    def to_json(self) -> dict[str, Any]:
        range_ = {"min": quantity.text(self.least), "step": quantity.text(self.step)}
        if self.most is not None:
            range_["max"] = quantity.text(self.most)
        return {"default": quantity.text(self.default), "validRange": range_}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as a slice lists it. `capacity` in whole units (bytes, percent).

    `shareable`: several claims may have a part of it each. `policies` say of which capacity; one without a policy is
    taken whole by the first claim that does not name it. `conditions`: kube-scheduler binds a pod when the claim's status
    has them, and gives the choice up when it has one of `failures`; an allocation names one node then.
    """

    name: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()
    taints: tuple[Taint, ...] = ()
    shareable: bool = False
    policies: tuple[tuple[str, RequestPolicy], ...] = ()
    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.name}
        if self.attributes:
            out["attributes"] = {key: _attribute(value) for key, value in self.attributes}
        if self.shareable:
            out["allowMultipleAllocations"] = True
        if self.capacity:
            out["capacity"] = {key: {"value": quantity.text(amount)} for key, amount in self.capacity}
            for key, policy in self.policies:
                out["capacity"][key]["requestPolicy"] = policy.to_json()
        if self.taints:
            out["taints"] = [taint.to_json() for taint in self.taints]
        if self.conditions:
            out |= {"bindsToNode": True, "bindingConditions": list(self.conditions)}
            out["bindingFailureConditions"] = list(self.failures)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The object, in no namespace, with which slices go."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All devices of one pool, in the order in which an allocator shall try them.

    Of a pool that is no node's: `labels` of the nodes that may use it (none: all), and its `owner`.
    """

    name: str
    devices: tuple[Device, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    owner: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One allocated device of a claim. `request` as stored: `request` or `request/subrequest`."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str = ""
    consumed_capacity: tuple[tuple[str, str], ...] = ()
    conditions: tuple[str, ...] = ()
    """The binding conditions that it was allocated with."""

    @property
    def base_request(self) -> str:
        """The name a pod uses: a chosen subrequest is not part of it."""
        return self.request.partition("/")[0]

    @property
    def place(self) -> tuple[str, str, str]:
        """Pool, device and share."""
        return self.pool, self.device, self.share_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Opaque parameters for `driver`; no `requests` means all of them. `from_class`: an admin wrote it."""

    driver: str
    requests: tuple[str, ...]
    from_class: bool
    parameters: JSON

    def covers(self, result: Result) -> bool:
        """`req` also covers `req/sub` (API types.go 2021-2031)."""
        return not self.requests or result.request in self.requests or result.base_request in self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An allocated claim. `configs` in the order of the API: class first, later ones win."""

    uid: ClaimUID
    namespace: str
    name: str
    results: tuple[Result, ...]
    configs: tuple[Config, ...] = ()
    resource_version: str = ""
    reserved_for: tuple[tuple[str, str], ...] = ()
    """(name, uid) of the pods that may use it."""
    allocated_at: str = ""
    """The time of the allocation, where the server keeps one."""
    node: str = ""
    """The one node that the allocation is good for, where it is one."""
    annotations: tuple[tuple[str, str], ...] = ()

    def of_driver(self, driver: str) -> tuple[Result, ...]:
        """A claim may mix devices of several drivers (NV PR#435): only these are ours."""
        return tuple(result for result in self.results if result.driver == driver)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def claim(data: JSON) -> Claim:
    """An allocated ResourceClaim from its JSON.

    Raises NotReady while it has no allocation, Invalid where the shape is not that of a claim.
    """
    try:
        meta, status = data["metadata"], data.get("status") or {}
        where = f"{meta['namespace']}/{meta['name']}"
        allocation = status.get("allocation")
        if allocation is None:
            raise errors.NotReady(f"claim {where} is not allocated yet; the scheduler has to allocate it first")
        devices = allocation.get("devices") or {}
        return Claim(
            uid=ClaimUID(meta["uid"]),
            namespace=meta["namespace"],
            name=meta["name"],
            results=tuple(_result(item) for item in devices.get("results") or ()),
            configs=tuple(_config(item) for item in devices.get("config") or () if item.get("opaque")),
            resource_version=meta.get("resourceVersion", ""),
            annotations=tuple(sorted((meta.get("annotations") or {}).items())),
            reserved_for=tuple(
                (item["name"], item["uid"])
                for item in status.get("reservedFor") or ()
                if item.get("resource") == "pods" and not item.get("apiGroup")
            ),
            allocated_at=allocation.get("allocationTimestamp") or "",
            node=_node(allocation.get("nodeSelector")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.Invalid(f"the API server's ResourceClaim has an unexpected shape: {error!r}") from error


def timestamp(moment: datetime.datetime) -> str:
    """RFC 3339, UTC, whole seconds: what the API server stores for a taint's `timeAdded`."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _result(item: JSON) -> Result:
    return Result(
        request=item["request"],
        driver=item["driver"],
        pool=item["pool"],
        device=item["device"],
        admin_access=bool(item.get("adminAccess")),
        share_id=item.get("shareID") or "",
        consumed_capacity=tuple(sorted((item.get("consumedCapacity") or {}).items())),
        conditions=tuple(item.get("bindingConditions") or ()),
    )


def _node(selector: JSON | None) -> str:
    """The name in a selector of the form that one node has; else nothing."""
    match (selector or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str() as name]}]}]:
            return name
        case _:
            return ""


def _config(item: JSON) -> Config:
    opaque = item["opaque"]
    return Config(
        driver=opaque["driver"],
        requests=tuple(item.get("requests") or ()),
        from_class=item.get("source") == "FromClass",
        parameters=opaque.get("parameters") or {},
    )


def _attribute(value: Attribute) -> dict[str, Any]:
    match value:
        case Version():
            return {"version": value.text}
        case bool():  # before int: a bool is one
            return {"bool": value}
        case int():
            return {"int": value}
        case _:
            return {"string": value}
