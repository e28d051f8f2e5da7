"""Wanted pools + slices seen -> the writes that make them one. Decisions only; `publisher` performs them.

    Pool -> checked -> plan(wanted, seen, scope, dropped) -> Create | Replace | Delete, in the order to perform
    sent + stored -> dropped -> reduced: what a server without a feature may still be told

What must stay true: an allocator, which uses only the slices of a pool's highest generation and only when there are
as many as they say, never sees a mixture of two wanted states; a plan for what is there already is empty; the
same pool gives the same bytes. So a write that cannot be told apart from a finished state takes a new generation,
all slices of the pool with it, and the old ones go last: until then they are ignored, and the pool is never absent.
"""

import dataclasses
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api import resource
from kube import fields

JSON = dict[str, Any]

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
DEVICES_IN_SLICE: Final = 128
HEAVY_DEVICES_IN_SLICE: Final = 64
_RISKY: Final = {
    "taints": ("devices.taints",),
    "consumesCounters": ("devices.consumesCounters", "sharedCounters"),
}
"""Parts of a device that keep it from being used wrongly, and the fields that carry them."""
_SHARING: Final = ("devices.allowMultipleAllocations", "devices.capacity.requestPolicy")
"""One feature in two fields: with one of them alone, a claim would get another part of a device than it asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose slices these are: all of `driver` on one node belong to the publisher, or all that are no node's."""

    driver: str
    node_name: str = ""
    node_uid: str = ""

    @property
    def selector(self) -> str:
        return f"spec.driver={self.driver},spec.nodeName={self.node_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSlice:
    """A slice as the API server has it. Its spec is kept packed: read, those of ten thousand devices take 45 MiB, as text 15, so 1."""

    name: str
    uid: str
    resource_version: str
    owners: tuple[str, ...]
    pool: str
    generation: int
    packed: bytes

    @property
    def spec(self) -> JSON:
        """Read anew each time."""
        return msgspec.json.decode(zlib.decompress(self.packed), type=JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    name: str
    body: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """`body` carries uid and resourceVersion."""

    name: str
    body: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    name: str
    uid: str
    resource_version: str


Write = Create | Replace | Delete


def seen(data: JSON) -> SeenSlice:
    """A slice from its JSON."""
    meta = data["metadata"]
    return SeenSlice(
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        owners=tuple(owner["uid"] for owner in meta.get("ownerReferences") or ()),
        pool=str(data["spec"]["pool"]["name"]),
        generation=int(data["spec"]["pool"].get("generation", 0)),
        packed=packed(data["spec"]),
    )


def packed(spec: JSON) -> bytes:
    """Devices of a slice are much alike."""
    return zlib.compress(msgspec.json.encode(spec), level=1)


def plan(
    wanted: tuple[resource.Pool, ...],
    present: tuple[SeenSlice, ...],
    scope: Scope,
    dropped: frozenset[str] = frozenset(),
) -> tuple[Write, ...]:
    """The writes that turn `present`, all slices of the scope, into `wanted`; pools not wanted go.

    `dropped` are the fields that this server is known not to store: devices that need them are withheld, the others
    are written without them.
    """
    rest = by_pool(present)
    writes = [write for pool in wanted for write in planned(pool, rest.pop(pool.name, ()), scope, dropped)]
    return (*writes, *gone(rest))


def by_pool(present: Iterable[SeenSlice]) -> dict[str, tuple[SeenSlice, ...]]:
    """In the order of their names."""
    found: dict[str, list[SeenSlice]] = {}
    for item in sorted(present, key=lambda item: item.name):
        found.setdefault(item.pool, []).append(item)
    return {name: tuple(items) for name, items in found.items()}


def gone(rest: Mapping[str, tuple[SeenSlice, ...]]) -> Iterator[Write]:
    """The end of pools that are not wanted."""
    return (_delete(item) for items in rest.values() for item in items)


def planned(pool: resource.Pool, mine: tuple[SeenSlice, ...], scope: Scope, dropped: frozenset[str]) -> Iterator[Write]:
    """The plan of one pool, write by write. `mine`: its slices that are there; each is read once."""
    pool = reduced(pool, dropped)
    specs = {item.name: item.spec for item in mine}
    times = _times(specs.values())
    chunks = tuple(_chunks([_without(device.to_json(), dropped, times) for device in pool.devices]))
    names = tuple(slice_name(scope, pool.name, index) for index in range(len(chunks)))
    held = {item.name: item for item in mine if item.name in names}
    strays = tuple(item for item in mine if item.name not in names)
    top = max((item.generation for item in mine), default=0)

    def body(index: int, generation: int) -> JSON:
        place = {"name": pool.name, "generation": generation, "resourceSliceCount": len(chunks)}
        return _body(names[index], place, chunks[index], scope, pool)

    def same(index: int, name: str) -> bool:
        return _same(body(index, top), held[name].owners, specs[name])

    changed = [index for index, name in enumerate(names) if name in held and not same(index, name)]
    stray_on_top = any(item.generation == top for item in strays)
    renewed = len(held) < len(names) or len(changed) > 1 or (bool(changed) and stray_on_top)
    generation = top + 1 if renewed else top
    for index in range(len(names)) if renewed else changed:
        new, old = body(index, generation), held.get(names[index])
        if old is not None:
            new["metadata"] |= {"uid": old.uid, "resourceVersion": old.resource_version}
            yield Replace(name=names[index], body=new)
    for index, name in enumerate(names):
        if name not in held:
            yield Create(name=name, body=body(index, generation))
    yield from (_delete(item) for item in strays)


def slice_name(scope: Scope, pool: str, index: int) -> str:
    """The index leads: allocators try slices in the order of names. Fixed, so a lost answer makes no second slice."""
    digest = hashlib.sha256(f"{scope.driver}\n{scope.node_name}\n{pool}".encode()).hexdigest()[:10]
    return f"{index:05x}-{scope.driver}-{(scope.node_name or pool)[:150].rstrip('-.')}-{digest}"


def dropped(sent: JSON, stored: JSON) -> frozenset[str]:
    """The fields of a spec that were sent and are not in what was stored, as `devices.taints`."""
    return frozenset(fields.lost(sent, stored))


def reduced(pool: resource.Pool, missing: frozenset[str]) -> resource.Pool:
    """The pool without what would be offered wrongly where the fields `missing` are not stored.

    Without its taints a bad card looks good, without its counters a partition looks independent: such devices are left
    out. A device that cannot be shared is offered as a whole.
    """
    if unshared(missing):
        whole = tuple(dataclasses.replace(device, shareable=False, policies=()) for device in pool.devices)
        pool = dataclasses.replace(pool, devices=whole)
    unsafe = {part for part, carriers in _RISKY.items() if any(field.startswith(carriers) for field in missing)}
    if not unsafe:
        return pool
    kept = tuple(device for device in pool.devices if unsafe.isdisjoint(device.to_json()))
    return dataclasses.replace(pool, devices=kept)


def unshared(missing: frozenset[str]) -> bool:
    """Whether devices are offered as wholes only, where the fields `missing` are not stored."""
    return any(field.startswith(_SHARING) for field in missing)


def risky(pools: tuple[resource.Pool, ...]) -> frozenset[str]:
    """The parts in use whose loss would offer a device wrongly: a server proves that it keeps them before it gets them."""
    return frozenset(key for pool in pools for device in pool.devices for key in device.to_json() if key in _RISKY)


def carriers(parts: frozenset[str]) -> frozenset[str]:
    """The fields that carry these risky parts."""
    return frozenset(field for part in parts for field in _RISKY[part])


def trial(pools: tuple[resource.Pool, ...], scope: Scope) -> JSON:
    """A slice for a dry run: one device of each shape, unreduced, so that its answer shows every field that gets lost."""
    shapes = {frozenset(device.to_json()): device.to_json() for pool in pools for device in pool.devices}
    pool = pools[0] if pools else resource.Pool(name="trial")
    devices = list(shapes.values())[:HEAVY_DEVICES_IN_SLICE]
    body = _body("", {"name": pool.name, "generation": 1, "resourceSliceCount": 1}, devices, scope, pool)
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "trial-"
    return body


def _chunks(devices: list[JSON]) -> Iterable[list[JSON]]:
    """At least one, since an empty slice says that the driver is there and has no devices."""
    chunk: list[JSON] = []
    heavy = False
    for device in devices:
        heavy_now = heavy or _heavy(device)
        if len(chunk) >= (HEAVY_DEVICES_IN_SLICE if heavy_now else DEVICES_IN_SLICE):
            yield chunk
            chunk, heavy_now = [], _heavy(device)
        chunk.append(device)
        heavy = heavy_now
    yield chunk


def _heavy(device: JSON) -> bool:
    values = (value for attribute in device.get("attributes", {}).values() for value in attribute.values())
    weighty = {"taints", "consumesCounters", "bindingConditions"}  # the last so that a taint moves no other device
    return not weighty.isdisjoint(device) or any(isinstance(value, list) for value in values)


def _body(name: str, place: JSON, devices: list[JSON], scope: Scope, pool: resource.Pool) -> JSON:
    owner = pool.owner
    if scope.node_name:
        owner = resource.Owner(api_version="v1", kind="Node", name=scope.node_name, uid=scope.node_uid)
    spec = {"driver": scope.driver, **_reach(scope, pool), "pool": place}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name} | ({"ownerReferences": [_reference(owner)]} if owner else {}),
        "spec": spec | ({"devices": devices} if devices else {}),
    }


def _reach(scope: Scope, pool: resource.Pool) -> JSON:
    """Which nodes may use the devices."""
    if scope.node_name:
        return {"nodeName": scope.node_name}
    if not pool.labels:
        return {"allNodes": True}
    tests = [{"key": key, "operator": "In", "values": [value]} for key, value in pool.labels]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": tests}]}}


def _reference(owner: resource.Owner) -> JSON:
    found = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return found | {"controller": True}


def _delete(item: SeenSlice) -> Delete:
    return Delete(name=item.name, uid=item.uid, resource_version=item.resource_version)


def _times(present: Iterable[JSON]) -> Mapping[tuple[str, ...], str]:
    """When each taint was first stored: it keeps that over rewrites, since tolerations count from it."""
    return {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for spec in present
        for device in spec.get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }


def _without(device: JSON, missing: frozenset[str], times: Mapping[tuple[str, ...], str]) -> JSON:
    for field in missing:
        if field.startswith("devices."):
            fields.remove(device, field.split(".")[1:])
    for taint in device.get("taints", ()):
        first = times.get((device["name"], taint["key"], taint.get("value", ""), taint["effect"]))
        if "timeAdded" not in taint and first:
            taint["timeAdded"] = first
    return device


def _same(body: JSON, owners: tuple[str, ...], spec: JSON) -> bool:
    wanted = {owner["uid"] for owner in body["metadata"].get("ownerReferences", ())}
    return wanted <= set(owners) and fields.equal(body["spec"], spec)
