"""Every card of the cluster against one request: what rules it out, grouped, with the ones that came closest.

    option of a claim + World --> examine --> Funnel: cards seen, groups by reason, candidates by node

Cards that look alike are judged by the class and the selectors once.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocation import amounts, bookings, devices, nodes, pools, requests, rules
from api import errors
from api.reasons import Reason
from explain import reasons, world
from explain.reasons import Example, Group

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
    failing: tuple[str, ...] = ()
    """Nodes with cards that a selector cannot be judged on."""
    candidates: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Node -> cards that would do, each for itself."""


@dataclass(slots=True)
class _Heap:
    """The cards of one group so far, and those that came closest."""

    count: int = 0
    best: list[Example] = field(default_factory=list)
    bar: amounts.Amount | float = math.inf
    """Who lacks less came closer."""

    def keep(self, out: "_Out", key: devices.Key, node: str) -> None:
        _, pool, card = key
        lacking = {"lacks": out.lacks, "free": out.free, "need": out.need}
        example = Example(card=card, pool=pool, node=node, detail=out.detail, **lacking)
        self.best = sorted([*self.best, example], key=lambda one: one.lacks)[:_EXAMPLES]
        if len(self.best) == _EXAMPLES:
            self.bar = self.best[-1].lacks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Out:
    """Ruled out: why, with whom it is told, and the amounts where some are lacking."""

    reason: Reason
    heap: _Heap
    detail: str = ""
    lacks: amounts.Amount = 0
    free: amounts.Amount = 0
    need: amounts.Amount = 0

    @property
    def first(self) -> bool:
        """It is told of a card even where the pod may not be on its node."""
        return self.reason in (Reason.CLASS, Reason.SELECTOR, Reason.UNJUDGED)


_NEW = object()
_Needs = tuple[tuple[str, amounts.Amount, amounts.Amount], ...]


def examine(option: requests.Option, now: world.World, excluded: Callable[[nodes.Node], str]) -> Funnel:
    """`excluded`: why a pod may not be on a node; empty where it may."""
    return _Examination(option, now, excluded).run()


class _Examination:
    def __init__(self, option: requests.Option, now: world.World, excluded: Callable[[nodes.Node], str]) -> None:
        self._option, self._now, self._excluded = option, now, excluded
        class_ = now.cluster.classes.get(option.class_name)
        self._class_texts = class_.selectors if class_ else ()
        self._each = any(
            any(name in (text or "") for name in devices.OWN) for text in (*self._class_texts, *option.selectors)
        )
        self._looks: dict[devices.Look, _Out | _Needs] = {}
        self._held: dict[devices.Look, dict[int, _Out | None]] = defaultdict(dict)
        """What follows where a kind of card is held in a way, by the identity of its Booked."""
        self._groups: dict[tuple[Reason, str], _Heap] = defaultdict(_Heap)
        self._candidates: dict[str, int] = defaultdict(int)
        self._shared: set[devices.Key] = set()
        self._fatal = ""
        self._failing: dict[str, None] = {}

    def run(self) -> Funnel:
        """One pass over all cards: what is asked of each is kept to a few steps."""
        total, known = 0, self._now.cluster.nodes
        for name in sorted(known):
            node = known[name]
            why = self._excluded(node)
            apart = self._out(Reason.NODE, why, why) if why else None
            would_do = 0
            for pool in self._now.cluster.pools_of(node):
                if pool.incomplete or pool.broken:
                    self._pool(pool)
                here = self._new(pool) if self._now.far else pool.here
                total += len(here)
                would_do += self._pass(here, name, apart, pool)
            if would_do:
                self._candidates[name] = would_do
        return self._told(total)

    def _pass(self, here: Sequence[devices.Device], node: str, apart: _Out | None, pool: pools.Pool) -> int:
        """How many of them would do."""
        held_of, look, would_do = self._now.cluster.booked.of_pool(pool.id).get, None, 0
        for device in here:
            if device.look is not look or self._each:
                look = device.look
                found, known = self._looks.get(look) or self._looked(device), self._held[look]
            if type(found) is _Out:
                if found.reason is Reason.UNJUDGED:
                    self._failing[node] = None
                out: Any = apart if apart is not None and not found.first else found
            elif apart is not None:
                out = apart
            else:
                held = held_of(device.key[2], bookings.NOTHING)
                out = known.get(id(held), _NEW)
                if out is _NEW:
                    out = known[id(held)] = self._short(found, held)  # type: ignore[arg-type]  # _Needs it is
                if out is None and device.counters and not held.shares and not self._counted(device, pool):
                    out = self._out(Reason.COUNTERS)
            if out is None:
                would_do += 1
                continue
            heap = out.heap
            heap.count += 1
            if out.lacks < heap.bar:
                heap.keep(out, device.key, node)
        return would_do

    def _new(self, pool: pools.Pool) -> Sequence[devices.Device]:
        """Each card once, though it may be reached from several nodes."""
        new = [one for one in pool.here if one.slice_place.node or one.key not in self._shared]
        self._shared.update(one.key for one in new)
        return new

    def _out(self, reason: Reason, key: str = "", detail: str = "", **lacking: amounts.Amount) -> _Out:
        return _Out(reason=reason, detail=detail, heap=self._groups[reason, key], **lacking)

    def _pool(self, pool: pools.Pool) -> None:
        out = self._out(Reason.POOL, "", pool.incomplete or pool.broken)
        out.heap.count += 1
        if out.lacks < out.heap.bar:
            out.heap.keep(out, (pool.id[0], pool.id[1], ""), "")

    def _looked(self, device: devices.Device) -> _Out | _Needs:
        found = self._judged(device)
        if not self._each and not (isinstance(found, _Out) and found.reason is Reason.UNJUDGED):
            self._looks[device.look] = found
        return found

    def _judged(self, device: devices.Device) -> _Out | _Needs:  # noqa: PLR0911  one a reason
        """What can be said of a kind of card, whoever holds it: the reason, or how much of what it takes."""
        for reason, texts in ((Reason.CLASS, self._class_texts), (Reason.SELECTOR, self._option.selectors)):
            for text in texts:
                try:
                    if not self._now.cluster.judge.match(text, device):
                        return self._out(reason)
                except errors.Invalid as error:
                    return self._stopped(error)
        if not rules.tolerated(device.look.taints, self._option.tolerations):
            keys = ", ".join(sorted(taint.key for taint in device.look.taints))
            return self._out(Reason.TAINT, keys, keys)
        try:
            needs = device.look.sizes.needs(self._option.asked)
        except errors.Invalid as error:
            return self._stopped(error)
        if needs is None:
            detail = self._no_share(device)
            return self._out(Reason.SHAPE, detail, detail)
        for name, need, size in needs:
            if need > size:
                return self._out(Reason.SIZE, name, lacks=need - size, free=size, need=need)
        return needs

    def _stopped(self, error: errors.Invalid) -> _Out:
        self._fatal = self._fatal or str(error)
        return self._out(Reason.UNJUDGED, "", str(error))

    def _short(self, needs: _Needs, booked: bookings.Booked) -> _Out | None:
        """Why others leave too little of a card that is held so."""
        if booked.whole and not self._option.admin:
            return self._out(Reason.HELD)
        return self._left_over(needs, booked)

    def _left_over(self, needs: _Needs, booked: bookings.Booked) -> _Out | None:
        """The capacity of which the largest part of what is asked is missing."""
        worst, part = None, 0.0
        for name, need, size in needs:
            free = size - booked.of(name)
            if need > free and (lacking := float((need - free) / need)) > part:
                worst, part = (name, need, free), lacking
        if worst is None:
            return None
        name, need, free = worst
        return self._out(Reason.CAPACITY, name, lacks=need - free, free=free, need=need)

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
        told = [item for item in self._groups.items() if item[1].count]
        groups = tuple(self._group(*key, heap) for key, heap in sorted(told, key=_closeness))
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
            failing=tuple(self._failing),
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
