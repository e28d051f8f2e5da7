"""The cluster objects at one moment: frozen, numbered, the same for all who decide by them.

The functions at the top turn one object's JSON into a value and are what the watches keep; `build` puts the values of
one moment together. Nothing is refused here: an object that cannot be read carries the reason along.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

import cel
from api import errors, names, v1alpha1
from view import objects, reader

JSON = Mapping[str, Any]
T = TypeVar("T")
_OWN = frozenset((names.UUID, f"{names.LOCAL_DRIVER}/{names.UUID}", names.PCI_BUS_ID))
"""What each card has for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUClass:
    """An ElasticGPUClass. Where `spec` is None, `problem` says why it could not be read. `seen`: what is shown of it."""

    name: str
    uid: str
    resource_version: str
    generation: int
    created: str
    spec: v1alpha1.ClassSpec | None
    problem: str = ""
    status: v1alpha1.ClassStatus
    seen: objects.GPUClass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass, ours or another's. `made_from`: the ElasticGPUClass that it says it was made from."""

    name: str
    uid: str
    resource_version: str
    made_from: str
    owner_uid: str
    spec: JSON
    seen: objects.DeviceClass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A kind of device of our drivers: `seen` is what CEL texts see of it, but for what tells one card from the next."""

    seen: cel.Device
    product_name: str | None

    @property
    def driver(self) -> str:
        return self.seen.driver

    @property
    def shareable(self) -> bool:
        return self.seen.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A ResourceSlice of our drivers: how many it has of each kind of card; `seen` has each card for itself."""

    pool: str
    generation: int
    cards: tuple[tuple[Card, int], ...]
    seen: objects.Slice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`classes` by age, then by name. `cards`: how many there are of each kind. `remote_cards`: whether pools are asked.

    taint_rules: whether the API server has DeviceTaintRules.
    """

    number: int
    classes: tuple[GPUClass, ...]
    device_classes: Mapping[str, DeviceClass]
    cards: Mapping[Card, int]
    remote_cards: bool = False
    taint_rules: bool = False


def gpu_class(data: JSON) -> GPUClass:
    meta = data["metadata"]
    spec, problem = None, ""
    try:
        spec = v1alpha1.decode_class(data, f"class {meta['name']}")
    except errors.Invalid as error:
        problem = str(error)
    return GPUClass(
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        created=meta.get("creationTimestamp", ""),
        spec=spec,
        problem=problem,
        status=_status(data.get("status")),
        seen=_seen(reader.gpu_class, data),
    )


def device_class(data: JSON) -> DeviceClass:
    meta = data["metadata"]
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("kind") == v1alpha1.CLASS_KIND]
    return DeviceClass(
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        made_from=(meta.get("labels") or {}).get(names.CLASS_LABEL, ""),
        owner_uid=owners[0]["uid"] if owners else "",
        spec=data.get("spec") or {},
        seen=_seen(reader.device_class, data),
    )


def slice_(data: JSON) -> Slice:
    spec = data["spec"]
    return Slice(
        pool=sys.intern(spec["pool"]["name"]),
        generation=spec["pool"].get("generation", 0),
        cards=_counted(tuple(_card(device, spec["driver"]) for device in spec.get("devices") or ())),
        seen=reader.slice_(data),
    )


def build(
    number: int,
    classes: Iterable[GPUClass],
    device_classes: Iterable[DeviceClass],
    slices: Iterable[Slice],
    *,
    remote_cards: bool = False,
    taint_rules: bool = False,
) -> Snapshot:
    return Snapshot(
        number=number,
        classes=tuple(sorted(classes, key=lambda item: (item.created, item.name))),
        device_classes={item.name: item for item in device_classes},
        cards=_current(tuple(slices)),
        remote_cards=remote_cards,
        taint_rules=taint_rules,
    )


def _current(slices: tuple[Slice, ...]) -> Mapping[Card, int]:
    """The cards of each pool's newest generation: while a pool is rewritten, the older slices count no more."""
    newest: dict[str, int] = {}
    for item in slices:
        newest[item.pool] = max(item.generation, newest.get(item.pool, 0))
    cards: Counter[Card] = Counter()
    for item in slices:
        if item.generation == newest[item.pool]:
            for card, count in item.cards:
                cards[card] += count
    return cards


@functools.lru_cache(maxsize=1024)
def _counted(cards: tuple[Card, ...]) -> tuple[tuple[Card, int], ...]:
    """Most nodes of a cluster are alike: they have this in common."""
    return tuple(Counter(cards).items())


def _card(device: JSON, driver: str) -> Card:
    common = {name: value for name, value in (device.get("attributes") or {}).items() if name not in _OWN}
    told = {name: device.get(name) for name in ("capacity", "allowMultipleAllocations")} | {"attributes": common}
    return _kind(msgspec.json.encode(told), driver)


@functools.lru_cache(maxsize=1024)
def _kind(told: bytes, driver: str) -> Card:
    """By the text, which most cards of a cluster have in common: to read it was a quarter of the first picture."""
    device = msgspec.json.decode(told)
    product = _own(device["attributes"], names.PRODUCT_NAME).get("string")
    return Card(seen=cel.device(device, driver), product_name=product)


def _own(entries: JSON, name: str) -> JSON:
    """A name without a domain belongs to the driver's own, and may be written either way; remote cards have it in full."""
    found: JSON = entries.get(name) or entries.get(f"{names.LOCAL_DRIVER}/{name}") or {}
    return found


def _seen(read: Callable[[JSON], T], data: JSON) -> T | None:
    """What the picture shows of it; None where it makes no sense."""
    found = reader.part([data], read).items
    return found[0] if found else None


def _status(data: Any) -> v1alpha1.ClassStatus:
    """The status is only ever ours: one that cannot be read is written anew."""
    try:
        return msgspec.convert(data or {}, v1alpha1.ClassStatus)
    except msgspec.ValidationError:
        return v1alpha1.ClassStatus()
