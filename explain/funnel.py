"""Every card of the cluster against one request: what rules it out, grouped, with the ones that came closest.

    option of a claim + World --> examine --> Funnel: cards seen, groups by reason, candidates by node

Cards that look alike are judged by the class and the selectors once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from allocation import amounts, devices, nodes, pools, requests, rules
from api import errors
from explain import reasons, world
from explain.reasons import Example, Group, Reason

_EXAMPLES = 2
_WORDS: Mapping[Reason, str] = {
    Reason.CLASS: "not of class {class_}",
    Reason.SELECTOR: "not what the claim's own selector asks for",
    Reason.NODE: "on nodes that are ruled out: {detail}",
    Reason.TAINT: "tainted: {detail}",
    Reason.SHAPE: "cannot give such a share: {detail}",
    Reason.HELD: "held by others for themselves alone",
    Reason.COUNTERS: "parts of cards whose counters are used up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """`left`: cards that are still in after each step. `fatal`: why the scheduler gives up the pod on all nodes."""

    request: str
    class_name: str
    count: int
    seen: int
    left: tuple[tuple[str, int], ...]
    groups: tuple[Group, ...]
    every: bool = False
    """It asks for all cards of a node that match, not for a number."""
    fatal: str = ""
    candidates: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Node -> cards that would do, each for itself."""


@dataclass(slots=True)
class _Heap:
    """The cards of one group so far."""

    count: int = 0
    best: list[Example] = field(default_factory=list)

    def add(self, example: Example) -> None:
        self.count += 1
        if len(self.best) < _EXAMPLES:
            self.best.append(example)
            self.best.sort(key=lambda one: one.lacks)
        elif example.lacks < self.best[-1].lacks:
            self.best[-1] = example
            self.best.sort(key=lambda one: one.lacks)


def examine(option: requests.Option, now: world.World, excluded: Callable[[nodes.Node], str]) -> Funnel:
    """`excluded`: why a pod may not be on a node; empty where it may."""
    return _Examination(option, now, excluded).run()


class _Examination:
    def __init__(self, option: requests.Option, now: world.World, excluded: Callable[[nodes.Node], str]) -> None:
        self._option, self._now, self._excluded = option, now, excluded
        self._class = now.cluster.classes.get(option.class_name)
        self._looks: dict[devices.Look, tuple[Reason | None, str]] = {}
        self._left: dict[pools.ID, bool] = {}
        self._groups: dict[tuple[Reason, str], _Heap] = defaultdict(_Heap)
        self._candidates: dict[str, int] = defaultdict(int)
        self._fatal = ""

    def run(self) -> Funnel:
        seen: set[devices.Key] = set()
        total = 0
        for node in self._nodes():
            why = self._excluded(node)
            for pool in self._now.cluster.pools_of(node):
                if not pool.usable:
                    self._pool(pool)
                for device in pool.here:
                    if device.slice_place.node or device.key not in seen:
                        total += 1
                    elif device.key in seen:
                        continue
                    seen.add(device.key)
                    self._device(device, node, why, pool)
        return self._told(total)

    def _nodes(self) -> Iterator[nodes.Node]:
        known = self._now.cluster.nodes
        return (known[name] for name in sorted(known))

    def _pool(self, pool: pools.Pool) -> None:
        heap = self._groups[Reason.POOL, ""]
        heap.add(Example(card="", pool=pool.id[1], node="", detail=pool.incomplete or pool.broken))

    def _device(self, device: devices.Device, node: nodes.Node, why: str, pool: pools.Pool) -> None:
        reason, detail = self._look(device)
        if reason is None and why:
            reason, detail = Reason.NODE, why
        if reason is None and not rules.tolerated(device.look.taints, self._option.tolerations):
            reason, detail = Reason.TAINT, ", ".join(sorted(taint.key for taint in device.look.taints))
        if reason is not None:
            key = "" if reason in (Reason.CLASS, Reason.SELECTOR) else detail
            self._groups[reason, key].add(reasons.example(device, node.name, detail))
            return
        if found := self._short(device, node, pool):
            self._groups[found[0], found[1]].add(found[2])
            return
        self._candidates[node.name] += 1

    def _look(self, device: devices.Device) -> tuple[Reason | None, str]:
        """What class and selectors say; once a kind of card where they cannot tell cards of a kind apart."""
        known = self._looks.get(device.look)
        if known is None:
            known = self._judged(device)
            if known[0] is not Reason.UNJUDGED and not self._personal():
                self._looks[device.look] = known
        return known

    def _personal(self) -> bool:
        texts = (*(self._class.selectors if self._class else ()), *self._option.selectors)
        return any(any(name in (text or "") for name in devices.OWN) for text in texts)

    def _judged(self, device: devices.Device) -> tuple[Reason | None, str]:
        assert self._class is not None
        judge = self._now.cluster.judge
        for reason, texts in ((Reason.CLASS, self._class.selectors), (Reason.SELECTOR, self._option.selectors)):
            for text in texts:
                try:
                    if not judge.match(text, device):
                        return reason, ""
                except errors.Invalid as error:
                    self._fatal = self._fatal or str(error)
                    return Reason.UNJUDGED, str(error)
        return None, ""

    def _short(self, device: devices.Device, node: nodes.Node, pool: pools.Pool) -> tuple[Reason, str, Example] | None:
        """Why it has not got what is asked, and how much is lacking."""
        needs = device.look.sizes.needs(self._option.asked)
        if needs is None:
            detail = self._no_share(device)
            return Reason.SHAPE, detail, reasons.example(device, node.name, detail)
        for name, need, size in needs:
            if need > size:
                return Reason.SIZE, name, _lacking(device, node, size, need)
        booked = self._now.cluster.booked.of(device.key)
        if self._option.admin:
            booked = booked if booked.shares else type(booked)()
        elif booked.whole:
            return Reason.HELD, "", reasons.example(device, node.name)
        worst: tuple[float, str, Example] | None = None
        for name, need, size in needs:
            free = size - booked.of(name)
            if need > free and (worst is None or (need - free) / need > worst[0]):
                worst = (float((need - free) / need), name, _lacking(device, node, free, need))
        if worst is not None:
            return Reason.CAPACITY, worst[1], worst[2]
        if device.counters and not booked.shares and not self._counted(device, pool):
            return Reason.COUNTERS, "", reasons.example(device, node.name)
        return None

    def _counted(self, device: devices.Device, pool: pools.Pool) -> bool:
        left = rules.counters_left(pool, self._now.cluster.booked)
        return all(left[set_, name] >= value for set_, name, value in device.counters)

    def _no_share(self, device: devices.Device) -> str:
        known = device.look.sizes.by_name
        strange = [name for name, _ in self._option.asked if name not in known]
        if strange:
            return f"it has no capacity {', '.join(strange)}"
        asked = (f"{reasons.shown(name, value)} of {reasons.bare(name)}" for name, value in self._option.asked)
        return "its policy has no share of " + ", ".join(asked)

    def _told(self, total: int) -> Funnel:
        groups = tuple(self._group(*key, heap) for key, heap in sorted(self._groups.items(), key=_closeness))
        left, steps = total, []
        for reason in Reason:
            out = sum(group.cards for group in groups if group.reason is reason and reason is not Reason.POOL)
            if out:
                left -= out
                steps.append((reason.value, left))
        option = self._option
        return Funnel(
            request=option.name,
            class_name=option.class_name,
            count=option.count,
            seen=total,
            left=tuple(steps),
            groups=groups,
            every=option.mode == requests.ALL,
            fatal=self._fatal,
            candidates=self._candidates,
        )

    def _group(self, reason: Reason, key: str, heap: _Heap) -> Group:
        first, count = heap.best[0], f"{heap.count} card{'s' if heap.count != 1 else ''}"
        match reason:
            case Reason.POOL:
                text = f"{heap.count} pool{'s' if heap.count != 1 else ''} not usable, such as {first.pool}: {first.detail}"
            case Reason.UNJUDGED:
                text = f"{count}: {first.detail}"
            case Reason.SIZE:
                text = (
                    f"{count} too small: {reasons.shown(key, first.need)} of {reasons.bare(key)} asked, "
                    f"the largest has {reasons.shown(key, first.free)}"
                )
            case Reason.CAPACITY:
                text = (
                    f"{count}: {reasons.shown(key, first.lacks)} of {reasons.bare(key)} short, closest {first.where} "
                    f"with {reasons.shown(key, first.free)} free of {reasons.shown(key, first.need)} asked"
                )
            case _:
                text = f"{count} {_WORDS[reason].format(class_=self._option.class_name, detail=key or first.detail)}"
        return Group(reason=reason, cards=heap.count, text=text, examples=tuple(heap.best))


_RANK = {reason: rank for rank, reason in enumerate(Reason)}


def _closeness(item: tuple[tuple[Reason, str], _Heap]) -> tuple[int, amounts.Amount, str]:
    """The latest step first, and of one step the smallest lack."""
    (reason, key), heap = item
    return -_RANK[reason], heap.best[0].lacks, key


def _lacking(device: devices.Device, node: nodes.Node, free: amounts.Amount, need: amounts.Amount) -> Example:
    _, pool, card = device.key
    return Example(card=card, pool=pool, node=node.name, lacks=need - free, free=free, need=need)
