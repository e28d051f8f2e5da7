"""The pools that a node can use, gathered from slices as kube-scheduler 1.37 gathers them.

    slices of the node, then those that say otherwise where they are --> gather --> Pools, in the order of trying

Of a pool only its newest generation counts. While slices of it are missing it is incomplete, and where it contradicts
itself it is broken; neither has devices to give, and both say why.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from allocation import amounts, devices, nodes

ID = tuple[str, str]
"""driver, pool"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """`here`: what can be used from the node; `elsewhere`: what cannot, and draws on the same counters."""

    id: ID
    here: tuple[devices.Device, ...] = ()
    elsewhere: tuple[devices.Device, ...] = ()
    counters: Mapping[str, Mapping[str, amounts.Amount]]
    incomplete: str = ""
    broken: str = ""

    @property
    def usable(self) -> bool:
        return not (self.incomplete or self.broken)


def gather(
    node: nodes.Node, slices: Iterable[devices.Slice], all_of: Callable[[ID], Iterable[devices.Slice]]
) -> tuple[Pool, ...]:
    """`slices`: those that may concern the node; `all_of` gives every slice of a pool."""
    found: dict[ID, list[devices.Slice]] = {}
    for one in slices:
        if one.strange or not _reaches(one, node):
            continue
        known = found.setdefault((one.driver, one.pool), [])
        if known and one.generation > known[0].generation:
            known.clear()
        if not known or one.generation == known[0].generation:
            known.append(one)
    plain: list[Pool] = []
    later: list[Pool] = []
    for id_, here in found.items():
        pool = _pool(id_, here, all_of)
        if pool is not None:
            (later if any(device.conditions for device in pool.here) else plain).append(pool)
    return (*sorted(plain, key=lambda pool: pool.id), *sorted(later, key=lambda pool: pool.id))


def _reaches(one: devices.Slice, node: nodes.Node) -> bool:
    if one.place.known:
        return one.place.reaches(node)
    return one.each and any(device.place.reaches(node) for device in one.devices if device.place is not None)


def _pool(id_: ID, here: list[devices.Slice], all_of: Callable[[ID], Iterable[devices.Slice]]) -> Pool | None:
    """None where a newer generation has nothing for this node."""
    generation, of = here[0].generation, here[0].of
    elsewhere: list[devices.Slice] = []
    if len(here) != of:
        every = list(all_of(id_))
        if any(one.generation > generation for one in every):
            return None
        every = [one for one in every if one.generation == generation and not one.strange]
        if len(every) != of:
            text = f"{len(every)} of {of} slices of generation {generation} are there"
            return Pool(id=id_, counters={}, incomplete=text)
        known = {one.name for one in here}
        elsewhere = [one for one in every if one.name not in known]
    here = sorted(here, key=lambda one: one.name)
    sets = [one for one in (*here, *elsewhere) if one.counters]
    with_devices = [one for one in here if not one.counters]
    others = tuple(device for one in elsewhere if not one.counters for device in one.devices)
    listed = tuple(device for one in with_devices for device in one.devices)
    counters = {name: values for one in sets for name, values in one.counters.items()}
    broken = _doubled(listed) or _sets_doubled(sets) or _unknown(counters, (*listed, *others))
    if broken:
        return Pool(id=id_, counters={}, broken=broken)
    return Pool(id=id_, here=listed, elsewhere=others, counters=counters)


def _doubled(listed: tuple[devices.Device, ...]) -> str:
    seen: set[devices.Key] = set()
    for device in listed:
        if device.key in seen:
            return f"device {device.key[2]} is in it twice"
        seen.add(device.key)
    return ""


def _sets_doubled(sets: list[devices.Slice]) -> str:
    names = [name for one in sets for name in one.counters]
    doubled = [one.doubled for one in sets if one.doubled] + [name for name in names if names.count(name) > 1]
    return f"counter set {doubled[0]} is in it twice" if doubled else ""


def _unknown(counters: Mapping[str, Mapping[str, amounts.Amount]], users: tuple[devices.Device, ...]) -> str:
    for device in users:
        for set_, name, _ in device.counters:
            if name not in counters.get(set_, ()):
                return f"device {device.key[2]} draws on counter {name} of set {set_}, which the pool does not have"
    return ""
