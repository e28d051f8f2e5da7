"""Slices and their devices as allocation sees them.

    ResourceSlice's JSON --> slice_ --> Slice of Devices

A device's Look is all that equal cards have in common: equal looks are one object, so that a selector is judged once for
each kind of card and not for each card. What tells cards of a kind apart (`OWN`) is kept beside it.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocation import amounts, nodes
from api import names, resource

JSON = Mapping[str, Any]
Key = tuple[str, str, str]
"""driver, pool, device: what claims call a device."""
OWN = frozenset({names.UUID, names.PCI_BUS_ID, "pciBusID"})
"""Attributes, by their ids with or without a domain, that tell one card from the next."""


class Strange:
    """A value of a kind that is not known: equal to nothing."""

    __slots__ = ()


Attribute = resource.Attribute | Strange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """What equal cards have in common."""

    driver: str
    attributes: Mapping[str, Attribute]
    sizes: amounts.Sizes
    shareable: bool
    taints: tuple[resource.Taint, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Device:
    """`counters`: (set, counter, amount) that its use costs. `place`: where it says itself from where it can be used."""

    key: Key
    look: Look
    slice_place: nodes.Place
    own: Mapping[str, Attribute]
    counters: tuple[tuple[str, str, amounts.Amount], ...] = ()
    place: nodes.Place | None = None
    binds: bool = False
    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def attributes(self) -> dict[str, Attribute]:
        """All of them, named as the slice names them."""
        return {**self.look.attributes, **self.own}

    def attribute(self, name: str) -> Attribute | None:
        """By its full name; one without a domain belongs to the driver's own."""
        for found in (self.own, self.look.attributes):
            if name in found:
                return found[name]
        domain, slash, bare = name.partition("/")
        if not slash or domain != self.look.driver:
            return None
        return self.own.get(bare, self.look.attributes.get(bare))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """`each`: every device says for itself where it is. `strange`: devices in it need what is not known here."""

    name: str
    driver: str
    pool: str
    generation: int
    of: int
    place: nodes.Place
    each: bool
    devices: tuple[Device, ...]
    counters: Mapping[str, Mapping[str, amounts.Amount]]
    doubled: str = ""
    """A counter set that is in it twice."""
    strange: bool = False


def slice_(data: JSON) -> Slice:
    spec = data["spec"]
    driver, pool, each = spec["driver"], spec["pool"], bool(spec.get("perDeviceNodeSelection"))
    place = nodes.place(spec)
    given = spec.get("devices") or ()
    sets = [(one["name"], _counters(one)) for one in spec.get("sharedCounters") or ()]
    called = [name for name, _ in sets]
    return Slice(
        name=data["metadata"]["name"],
        driver=driver,
        pool=pool["name"],
        generation=pool.get("generation", 0),
        of=pool.get("resourceSliceCount", 1),
        place=place,
        each=each,
        devices=tuple(_device(one, (driver, pool["name"], one["name"]), place, each=each) for one in given),
        counters=dict(sets),
        doubled=next((name for name in called if called.count(name) > 1), ""),
        strange=any(use.get("compatibilityGroups") for one in given for use in one.get("consumesCounters") or ()),
    )


def _device(data: JSON, key: Key, place: nodes.Place, *, each: bool) -> Device:
    attributes = {name: attribute(value) for name, value in (data.get("attributes") or {}).items()}
    own = {name: value for name, value in attributes.items() if name in OWN or name.rpartition("/")[2] in OWN}
    return Device(
        key=key,
        look=_look(
            key[0],
            tuple(sorted((name, value) for name, value in _typed(attributes) if name not in own)),
            amounts.sizes(data.get("capacity") or {}),
            bool(data.get("allowMultipleAllocations")),
            tuple(map(_taint, data.get("taints") or ())),
        ),
        own=own,
        counters=tuple(
            (use["counterSet"], name, value)
            for use in data.get("consumesCounters") or ()
            for name, value in _counters(use).items()
        ),
        place=nodes.place(data) if each else None,
        slice_place=place,
        binds=bool(data.get("bindsToNode")),
        conditions=tuple(data.get("bindingConditions") or ()),
        failures=tuple(data.get("bindingFailureConditions") or ()),
    )


def attribute(data: JSON) -> Attribute:
    match data:
        case {"string": str(value)}:
            return value
        case {"bool": bool(value)}:
            return value
        case {"int": int(value)}:
            return value
        case {"version": str(value)}:
            return resource.Version(value)
        case _:
            return Strange()


def same(one: Attribute | None, other: Attribute | None) -> bool:
    """Equal in kind and value: 1 is not true, and what is strange equals nothing, not even itself."""
    return type(one) is type(other) and one == other and not isinstance(one, Strange)


def _typed(attributes: Mapping[str, Attribute]) -> list[tuple[str, tuple[str, Attribute]]]:
    """Each value with its kind, so that 1 and true make two looks."""
    return [(name, (type(value).__name__, value)) for name, value in attributes.items()]


@functools.lru_cache(maxsize=8192)
def _look(
    driver: str,
    attributes: tuple[tuple[str, tuple[str, Attribute]], ...],
    sizes: amounts.Sizes,
    shareable: bool,  # noqa: FBT001  lru_cache hands it on by place
    taints: tuple[resource.Taint, ...],
) -> Look:
    plain = {name: value for name, (_, value) in attributes}
    return Look(driver=driver, attributes=plain, sizes=sizes, shareable=shareable, taints=taints)


def _counters(data: JSON) -> dict[str, amounts.Amount]:
    return {name: amounts.amount(one["value"]) for name, one in (data.get("counters") or {}).items()}


def _taint(data: JSON) -> resource.Taint:
    """Without the time: equal cards tainted at two moments are equal."""
    return resource.Taint(key=data["key"], value=data.get("value") or "", effect=data["effect"])
