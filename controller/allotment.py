"""Which node and cards a want gets now, or why none.

    Mirror + Want --> decide --> Allotment: what to write for each claim     it is booked at once, so that the next want sees it
                            --> Refusal: in words, for the claim and its pod; `never`: not even if nothing else were here

What stands in the way is worked out for so many that ask differently in one turn, and no more: it takes a look at all cards.
Nothing here is written: whoever writes undoes the booking by `Mirror.restore` where the write fails.
"""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocation import bookings, choice, cluster, nodes, pods, policies, requests, results, search
from api import errors, names
from api.reasons import Reason
from controller import gangs, mirror
from explain import explanation, world

JSON = Mapping[str, Any]
_KEPT = 16
"""Nodes that are kept from others at once, for those that wait for long."""
_LOOKED_AT = 512
"""Nodes that are tried empty, to tell `never` from `not now`."""
_TOLD = 3
"""Reasons in a refusal, the closest first."""
_NEW, _OLD = 8, 8
"""So many are told for the first time in a turn, and so many anew."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allotment:
    want: mirror.Want
    node: str
    allocations: tuple[dict[str, Any], ...]
    """One for each claim of the want, without its time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refusal:
    """`reason`: what came closest to doing, in the words that `kubectl egpu explain` has too; empty for others, as an error."""

    message: str
    never: bool = False
    reason: Reason | None = None


LATER = Refusal(
    message="no node can have it now; why is not looked up yet, since many wait: kubectl egpu explain tells"
)
"""Of those that ask what nobody else asks, when many such wait. It holds for a turn or two, so no event says it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused:
    """`wants`: the first of all that are refused alike, by order. `keys`: those of all."""

    refusal: Refusal
    wants: tuple[mirror.Want, ...]
    keys: tuple[str, ...]


class Answers:
    """What was found to stand in the way of whom asks alike, from one turn to the next. The longest known is looked at anew first."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Refusal] = {}
        self._asked: set[Hashable] = set()
        self._due: set[Hashable] = set()
        self._new = 0

    def begin(self) -> None:
        """A turn begins. What nobody asked for in the last one is forgotten."""
        self._known = {shape: told for shape, told in self._known.items() if shape in self._asked}
        self._asked.clear()
        self._due = set(itertools.islice(self._known, _OLD))
        self._new = _NEW

    def of(self, shape: Hashable, look: Callable[[], Refusal]) -> Refusal:
        known = shape in self._known
        if not known and not self._new:
            return LATER
        self._asked.add(shape)
        if known and shape not in self._due:
            return self._known[shape]
        self._new -= not known
        self._due.discard(shape)
        self._known.pop(shape, None)
        self._known[shape] = found = look()
        return found


@dataclass(slots=True, eq=False)
class Turn:
    """One round over all wants. Equal ones that were refused are refused again without a look.

    `avoided`: node names that a want shall not get, by its key, since kube-scheduler has given it back there.
    `before`: who was created by then has waited long enough: a node that could have it is kept from those behind it.
    `groups`: "namespace/name" of each PodGroup -> how many of its pods are allocated together, `gangs.NONE` for one by one.
    """

    known: mirror.Mirror
    chooser: choice.Chooser
    share_id: Callable[[], str]
    avoided: Mapping[str, frozenset[str]] = field(default_factory=dict)
    before: str = ""
    answers: Answers = field(default_factory=Answers)
    groups: Mapping[str, int] = field(default_factory=dict)
    _kept: dict[str, str] = field(default_factory=dict)
    _refused: dict[Hashable, Refusal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers.begin()

    def decide(self, want: mirror.Want) -> Allotment | Refusal:
        wishes = [one.asked.wish for one in want.claims if one.asked is not None]
        avoid = self.avoided.get(want.key, frozenset())
        shape = (want.shape, avoid)
        before = self._refused.get(shape)
        if before is not None:
            return before
        found: choice.Choice | None = None
        refusal: Refusal | None = None
        room = want.pod.room if want.pod is not None else pods.Room()
        try:
            found = self.chooser.choose(wishes, want.policy, lambda node: self._bar(want, node, avoid) == "", room)
        except errors.NotReady as error:
            refusal = Refusal(message=str(error))
        except (errors.Invalid, search.TooHard) as error:
            refusal = Refusal(message=str(error), never=isinstance(error, errors.Invalid))
        if found is None:
            refusal = refusal or self.answers.of(shape, lambda: self._why(want, wishes, avoid))
            if not refusal.never and want.created <= self.before and len(self._kept) < _KEPT:
                self._keep(want, wishes, avoid)
            self._refused[shape] = refusal
            return refusal
        return self._booked(want, found)

    def decide_one(self, want: mirror.Want) -> tuple[list[Allotment], Refusal | None]:
        found = self.decide(want)
        return ([found], None) if isinstance(found, Allotment) else ([], found)

    def decide_all(self, wants: Sequence[mirror.Want]) -> tuple[list[Allotment], Refusal | None]:
        """A gang: an allotment for each, or none, nothing booked and why. Of a PodGroup so many as it needs are enough, and
        the others come as they fit.
        """
        pod = wants[0].pod
        gang = gangs.of(pod)
        assert pod is not None
        assert gang is not None
        needed, settled = gangs.needed(pod, self.groups), self.known.settled(gang)
        there = len(wants) + settled
        if needed is None:
            message = f"{gang} is not there, by scheduling.k8s.io/v1beta1; no pod of it is allocated before it is"
            return [], Refusal(message=message)
        if there < needed:
            return [], Refusal(
                message=f"{there} of {needed} pods of {gang} are there; none is allocated before all are"
            )
        missing = (needed if gang.group else there) - settled
        given: list[Allotment] = []
        last: Refusal | None = None
        kept, refused = dict(self._kept), dict(self._refused)
        for number, want in enumerate(wants, start=1):
            found = self.decide(want)
            if isinstance(found, Allotment):
                given.append(found)
                continue
            last = found
            self._kept = dict(kept)  # for a gang no node is kept: one is of no use to it
            if len(given) + len(wants) - number < missing:
                for one in given:
                    self.take_back(one.want, one.want.claims)
                self._refused = refused  # what was refused since was so beside bookings that are gone again
                message = f"{gang}: {len(given)} of {missing} pods fit, and no more: {found.message}"
                return [], dataclasses.replace(found, message=message)
        return given, last

    def take_back(self, want: mirror.Want, claims: Iterable[mirror.Claim]) -> None:
        """These claims of a want do not get what was booked for them."""
        for claim in claims:
            self.known.restore(claim)
        if want.pod is not None:
            self.known.cluster.guest(want.pod.uid, "", want.pod.room)

    def _booked(self, want: mirror.Want, found: choice.Choice) -> Allotment:
        known = self.known.cluster
        allocations = []
        for one, picks in zip(want.claims, found.picks, strict=True):
            assert one.asked is not None
            made = results.allocation(one.asked, picks, known.classes, found.node.name, self.share_id)
            known.book(one.uid, bookings.pieces(made["devices"]["results"]))
            allocations.append(made)
        if want.pod is not None:
            known.guest(want.pod.uid, found.node.name, want.pod.room)
        return Allotment(want=want, node=found.node.name, allocations=tuple(allocations))

    def _bar(self, want: mirror.Want, node: nodes.Node, avoid: frozenset[str]) -> str:
        if node.name in avoid:
            return "kube-scheduler gave the allocation there back"
        if node.name in self._kept:
            return f"keeping the node for {self._kept[node.name]}, which waits for long"
        for terms in want.pinned:
            if not any(term.matches(node) for term in terms):
                return "another claim of the pod"
        return want.pod.goes_to(node, self.known.cluster.free(node.name)) if want.pod is not None else ""

    def _keep(self, want: mirror.Want, wishes: Sequence[requests.Wish], avoid: frozenset[str]) -> None:
        """Of the nodes that would do if nobody had a card of them, the one where the most is free already."""
        known = self.known.cluster
        found = [
            (policies.free(listed, known.booked.of), node.name)
            for node in known.nodes.values()
            if (listed := [device for pool in known.pools_of(node) for device in pool.here])
            and not self._bar(want, node, avoid)
        ]
        for _, name in sorted(found, reverse=True)[:_LOOKED_AT]:
            if _fits_empty(known, [known.nodes[name]], wishes):
                self._kept[name] = str(want)
                return

    def _why(self, want: mirror.Want, wishes: Sequence[requests.Wish], avoid: frozenset[str]) -> Refusal:
        known = self.known.cluster
        given = [node for node in known.nodes.values() if any(pool.here for pool in known.pools_of(node))]
        if not given:
            return Refusal(
                message=f"no node gives its cards to the controller; label one {names.ALLOCATED_BY_LABEL}={names.BY_CONTROLLER}",
            )
        told = explanation.nearest(wishes, world.World(cluster=known), lambda node: self._bar(want, node, avoid))
        never = not _fits_empty(known, given[:_LOOKED_AT], wishes)
        end = "; it would not fit either if all of them were empty" if never and len(given) <= _LOOKED_AT else ""
        texts = "; ".join(group.text for group in told[:_TOLD])
        return Refusal(
            message=f"{len(given)} nodes give cards to the controller; {texts}{end}",
            never=bool(end),
            reason=told[0].reason,
        )


def _fits_empty(known: cluster.Cluster, given: Sequence[nodes.Node], wishes: Sequence[requests.Wish]) -> bool:
    """Whether one of the nodes would do if nobody had anything."""
    tried: set[tuple[int, ...]] = set()
    for node in given:
        usable = known.pools_of(node)
        kind = tuple(sorted(id(device.look) for pool in usable for device in pool.here))
        if kind in tried:
            continue
        tried.add(kind)
        empty = search.Search(
            node=node, usable=usable, booked=bookings.Bookings(), classes=known.classes, judge=known.judge
        )
        try:
            if empty.run(wishes) is not None:
                return True
        except errors.ElasticGPUError:
            continue
    return False
