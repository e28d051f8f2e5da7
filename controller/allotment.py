"""Which node and cards a want gets now, or why none.

    Mirror + Want --> decide --> Allotment: what to write for each claim     it is booked at once, so that the next want sees it
                            --> Refusal: in words, for the claim and its pod; `never`: not even if nothing else were here

Nothing here is written: whoever writes undoes the booking by `Mirror.restore` where the write fails.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocation import bookings, choice, cluster, nodes, pods, policies, requests, results, search
from api import errors, names
from controller import mirror
from explain import explanation, world
from explain.reasons import Reason

JSON = Mapping[str, Any]
_KEPT = 16
"""Nodes that are kept from others at once, for those that wait for long."""
_LOOKED_AT = 512
"""Nodes that are tried empty, to tell `never` from `not now`."""
_TOLD = 3
"""Reasons in a refusal, the closest first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allotment:
    want: mirror.Want
    node: str
    allocations: tuple[dict[str, Any], ...]
    """One for each claim of the want, without its time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refusal:
    """`reason`: what came closest to doing, in the words that `kubectl egpu explain` has too; empty for others, as an error."""

    want: mirror.Want
    message: str
    never: bool = False
    reason: Reason | None = None


@dataclass(slots=True, eq=False)
class Turn:
    """One round over all wants. Equal ones that were refused are refused again without a look.

    `avoided`: node names that a want shall not get, by its key, since kube-scheduler has given it back there.
    `before`: who was created by then has waited long enough: a node that could have it is kept from those behind it.
    """

    known: mirror.Mirror
    chooser: choice.Chooser
    share_id: Callable[[], str]
    avoided: Mapping[str, frozenset[str]] = field(default_factory=dict)
    before: str = ""
    _kept: dict[str, str] = field(default_factory=dict)
    _refused: dict[Any, Refusal] = field(default_factory=dict)

    def decide(self, want: mirror.Want) -> Allotment | Refusal:
        wishes = [one.asked.wish for one in want.claims if one.asked is not None]
        avoid = self.avoided.get(want.key, frozenset())
        shape = (tuple(wishes), want.policy, _shape(want.pod), want.pinned, avoid)
        before = self._refused.get(shape)
        if before is not None:
            return dataclasses.replace(before, want=want)
        found: choice.Choice | None = None
        refusal: Refusal | None = None
        room = want.pod.room if want.pod is not None else pods.Room()
        try:
            found = self.chooser.choose(wishes, want.policy, lambda node: self._bar(want, node, avoid) == "", room)
        except errors.NotReady as error:
            refusal = Refusal(want=want, message=str(error))
        except (errors.Invalid, search.TooHard) as error:
            refusal = Refusal(want=want, message=str(error), never=isinstance(error, errors.Invalid))
        if found is None:
            refusal = refusal or self._why(want, wishes, avoid)
            if not refusal.never and want.created <= self.before and len(self._kept) < _KEPT:
                self._keep(want, wishes, avoid)
            self._refused[shape] = refusal
            return refusal
        return self._booked(want, found)

    def decide_all(self, wants: Sequence[mirror.Want]) -> list[Allotment] | list[Refusal]:
        """A gang: an allotment for each, or a refusal for each and nothing booked."""
        pod = wants[0].pod
        assert pod is not None
        there = len(wants) + self.known.settled((pod.namespace, pod.gang))
        if there < pod.gang_size:
            message = f"{there} of {pod.gang_size} pods of gang {pod.gang} are there; none is allocated before all are"
            return [Refusal(want=want, message=message) for want in wants]
        given: list[Allotment] = []
        kept = dict(self._kept)
        for want in wants:
            found = self.decide(want)
            if isinstance(found, Allotment):
                given.append(found)
                continue
            for one in given:
                self.take_back(one.want, one.want.claims)
            self._kept = kept  # for a gang no node is kept: one is of no use to it
            self._refused.clear()  # they were refused beside bookings that are gone again
            message = f"gang {pod.gang}: {len(given)} of {len(wants)} pods fit, and no more: {found.message}"
            return [dataclasses.replace(found, want=want, message=message) for want in wants]
        return given

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
                want=want,
                message=f"no node gives its cards to the controller; label one {names.ALLOCATED_BY_LABEL}={names.BY_CONTROLLER}",
            )
        told = explanation.nearest(wishes, world.World(cluster=known), lambda node: self._bar(want, node, avoid))
        never = not _fits_empty(known, given[:_LOOKED_AT], wishes)
        end = "; it would not fit either if all of them were empty" if never and len(given) <= _LOOKED_AT else ""
        texts = "; ".join(group.text for group in told[:_TOLD])
        return Refusal(
            want=want,
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


def _shape(pod: pods.Pod | None) -> Any:
    """What of the pod decides where it may go."""
    return None if pod is None else (pod.room, pod.selector, pod.terms, pod.tolerations)
