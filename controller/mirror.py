"""The watched objects as the allocator's cluster, and what waits for an allocation.

    objects of the watches --take--> Cluster (cards that are ours to give, what is booked, nodes, pods)
                           --lines--> Wants: a pod's claims, or a claim that is allocated at once; who asks alike in one line

Only cards of nodes that are given to the controller are in it: those that say so and bear the taint that keeps
kube-scheduler away, for long enough that it has seen it. Objects are compared by identity, so that a turn costs what
has changed, and a look at the rest; what waits is looked at again only when it, or a claim of it, has changed.
"""

import datetime
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from allocation import bookings, cluster, fragmentation, nodes, pods, policies, requests
from api import names, v1alpha1
from controller import gangs, lines, news, offers, snapshot
from view import objects, registers

JSON = Mapping[str, Any]
FINALIZER = "resource.kubernetes.io/delete-protection"
_SETTLED = datetime.timedelta(seconds=10)
"""After so long kube-scheduler has seen a taint, and what it chose before is written."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """`asked` is None for a claim that is allocated, `version` empty; `pieces` is what it holds. `node`: the only one where it
    can be used, as most are; `pinned`: what else is said of where.
    """

    namespace: str
    name: str
    uid: str
    version: str
    created: str
    finalizers: tuple[str, ...]
    deleting: bool
    asked: requests.Claim | None
    pieces: tuple[bookings.Piece, ...] = ()
    node: str = ""
    pinned: tuple[nodes.Term, ...] | None = None
    allocated: bool = False

    @property
    def placed(self) -> bool:
        return bool(self.node) or self.pinned is not None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Want:
    """Claims that are allocated together: those of a pod, or one alone. `pinned`: where the pod's other claims are."""

    claims: tuple[Claim, ...]
    policy: policies.Policy
    pod: pods.Pod | None = None
    pinned: tuple[tuple[nodes.Term, ...], ...] = ()

    @property
    def key(self) -> str:
        return self.pod.uid if self.pod is not None else self.claims[0].uid

    @property
    def order(self) -> tuple[int, str, str]:
        """Higher priority first, then who waits longest."""
        if self.pod is None:
            return (0, self.claims[0].created, self.claims[0].uid)
        return (-self.pod.priority, self.pod.created, self.pod.uid)

    @property
    def shape(self) -> Hashable:
        """Who has the same can be met by the same."""
        wishes = tuple(one.asked.wish for one in self.claims if one.asked is not None)
        pod = self.pod
        whom = None if pod is None else (pod.room, pod.selector, pod.terms, pod.tolerations)
        return (wishes, self.policy, whom, self.pinned)

    @property
    def line(self) -> Hashable:
        """By namespace, since people look into their own; a gang is a line of its own."""
        return gangs.of(self.pod) or (self.claims[0].namespace, self.shape)

    @property
    def together(self) -> bool:
        return gangs.of(self.pod) is not None

    @property
    def grouped(self) -> bool:
        """Whether kube-scheduler places its pod together with others."""
        return self.pod is not None and bool(self.pod.group)

    @property
    def created(self) -> str:
        return self.pod.created if self.pod is not None else self.claims[0].created

    def __str__(self) -> str:
        if self.pod is not None:
            return f"pod {self.pod.namespace}/{self.pod.name}"
        return f"claim {self.claims[0]}"


def claim(data: JSON) -> Claim:
    meta, allocation = data["metadata"], (data.get("status") or {}).get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    selector = (allocation or {}).get("nodeSelector")
    terms = nodes.terms(selector) if selector else None
    node = nodes.only(terms)
    return Claim(
        namespace=sys.intern(meta["namespace"]),
        name=sys.intern(meta["name"]),
        uid=meta["uid"],
        version=meta["resourceVersion"] if allocation is None else "",
        created=sys.intern(meta.get("creationTimestamp", "")),
        finalizers=objects.alike(tuple(meta.get("finalizers") or ())),
        deleting="deletionTimestamp" in meta,
        asked=None if allocation is not None else requests.claim(data),
        pieces=bookings.pieces(results),
        node=node,
        pinned=None if node else objects.alike(terms),
        allocated=allocation is not None,
    )


class Mirror:
    """The cluster as it was last taken in. `unsettled`: until when nodes that have just been given are left alone."""

    def __init__(self) -> None:
        self.cluster = cluster.Cluster()
        self.unsettled: datetime.datetime | None = None
        self._classes: dict[str, policies.Policy] = {}
        self._immediate: set[str] = set()
        self._gangs: dict[gangs.Gang, dict[str, pods.Pod]] = {}
        self.lines: lines.Lines[Want] = lines.Lines()
        """All that could be allocated, in the order in which it should be."""
        self._users: registers.Index[str, str] = registers.Index()
        """Claim -> the pods that wait for it."""
        self._moved_claims: set[str] = set()
        self._moved_pods: set[str] = set()
        self._late: dict[str, offers.Slice] = {}
        self._since: dict[str, datetime.datetime] = {}
        """Of the slices that are in; they are not waited for again, wherever the clock is set to."""
        self._rules: tuple[objects.TaintRule, ...] = ()
        self._seen_claims: news.Seen[Claim] = news.Seen()
        self._seen_pods: news.Seen[pods.Pod | None] = news.Seen()
        self._seen_nodes: news.Seen[nodes.Node] = news.Seen()
        self._seen_slices: news.Seen[offers.Slice] = news.Seen()
        self._seen_classes: news.Seen[snapshot.DeviceClass] = news.Seen()
        self.claims = self._seen_claims.now
        self._pods = self._seen_pods.now
        """None for one that is done."""

    def classes(self, now: snapshot.Snapshot) -> None:
        """Which classes are ours to allocate: those that say so, and whose DeviceClass is in place."""
        changed, gone = self._seen_classes.news(now.device_classes)
        for name, _, found in changed:
            self.cluster.put_class(requests.class_({"metadata": {"name": name}, "spec": found.spec}))
        for name, _ in gone:
            self.cluster.drop_class(name)
        ours = {
            item.name: item.spec.allocation
            for item in now.classes
            if item.spec is not None
            and item.spec.allocation.by is v1alpha1.Allocator.CONTROLLER
            and (made := now.device_classes.get(item.name)) is not None
            and made.owner_uid == item.uid
        }
        before = self._classes, self._immediate
        self._classes = {name: policies.Policy(found.policy.value) for name, found in ours.items()}
        self._immediate = {name for name, found in ours.items() if found.mode is v1alpha1.AllocationMode.IMMEDIATE}
        if before != (self._classes, self._immediate):
            self._moved_claims |= self.claims.keys()
            self._moved_pods |= self._pods.keys()

    def take(
        self,
        *,
        slices: Mapping[str, offers.Slice],
        nodes: Mapping[str, nodes.Node],
        claims: Mapping[str, Claim],
        pods: Mapping[str, pods.Pod | None],
        rules: Mapping[str, objects.TaintRule | None],
        at: datetime.datetime,
    ) -> None:
        """Brings the cluster up to date with what the watches hold."""
        changed_nodes, gone_nodes = self._seen_nodes.news(nodes)
        for _, _, node in changed_nodes:
            self.cluster.put_node(node)
        for name, _ in gone_nodes:
            self.cluster.drop_node(name)
        local = (rule for rule in rules.values() if rule is not None and rule.concerns(names.LOCAL_DRIVER))
        self._take_slices(slices, tuple(local), at)
        changed_claims, gone_claims = self._seen_claims.news(claims)
        for key, before in gone_claims:
            self.cluster.book(before.uid, ())
            self.lines.drop(before.uid)
            self._moved_claims.add(key)
        for key, known, found in changed_claims:
            if known is not None and known.uid != found.uid:
                self.cluster.book(known.uid, ())
                self.lines.drop(known.uid)
            self.cluster.book(found.uid, found.pieces)
            self._moved_claims.add(key)
        changed_pods, gone_pods = self._seen_pods.news(pods)
        for key, was in gone_pods:
            self._drop_pod(key, was)
        for key, was, pod in changed_pods:
            self._drop_pod(key, was)
            if pod is not None:
                self._moved_claims |= self._users.put(key, (), _awaited(pod))
                if (gang := gangs.of(pod)) is not None:
                    self._gangs.setdefault(gang, {})[key] = pod
                self.cluster.guest(pod.uid, pod.node, pod.room)
                self._moved_pods.add(key)
        self._line_up()

    def restore(self, claim: Claim) -> None:
        """A choice came to nothing: the claim holds again what it is known to hold."""
        known = self.claims.get(str(claim))
        self.cluster.book(claim.uid, known.pieces if known is not None and known.uid == claim.uid else ())

    def settled(self, gang: gangs.Gang) -> int:
        """How many pods of a gang wait for nothing from here: their claims are allocated. Where kube-scheduler places
        the gang together, it allocates its own claims after ours, so these are not waited for.
        """
        return sum(
            all(
                (found := self.claims.get(f"{pod.namespace}/{name}")) is not None
                and (found.allocated or (gang.group and not found.deleting and self._known(found)))
                for name in pod.claims
            )
            for pod in self._gangs.get(gang, {}).values()
        )

    def _known(self, one: Claim) -> bool:
        """Whether others can allocate it: no class of it is ours or is missing."""
        assert one.asked is not None
        asked = {option.class_name for request in one.asked.wish.requests for option in request.options}
        return not asked & self._classes.keys() and asked <= self.cluster.classes.keys()

    def usual(self) -> fragmentation.Mix:
        """What is asked of the cards that are given to the controller, by what claims hold of them now, and beside them."""
        known = {device.key: device for device in self.cluster.published()}
        given = {device.slice_place.node for device in known.values()}
        rooms = {
            f"{pod.namespace}/{name}": pod.room for pod in filter(None, self._pods.values()) for name in pod.claims
        }
        asked = Counter(
            fragmentation.Kind(part=0.0, count=0, cpu=pod.room.cpu, memory=pod.room.memory)
            for pod in filter(None, self._pods.values())
            if not pod.claims and pod.node in given
        )
        for key, claim in self.claims.items():
            held = [piece for piece in claim.pieces if piece.key in known]
            if held:
                part = max(policies.use(known[one.key], bookings.booked(one)) for one in held)
                room = rooms.get(key, pods.Room())
                kind = fragmentation.Kind(part=round(part, 3), count=len(held), cpu=room.cpu, memory=room.memory)
                asked[kind] += 1
        return fragmentation.Mix(asked)

    def _line_up(self) -> None:
        """Those that have changed since the last time, and the pods that wait for them."""
        for key in self._moved_pods | self._users.of(*self._moved_claims):
            pod = self._pods.get(key)
            if pod is not None and pod.waiting and pod.claims:
                self.cluster.guest(pod.uid, "", pod.room)  # what its claims bound it to before does not count
                self._stand(pod.uid, self._want(pod))
        for key in self._moved_claims:
            one = self.claims.get(key)
            if one is not None:
                alone = self._ours(one) and self._at_once(one) and not self._users.of(key)
                self._stand(one.uid, Want(claims=(one,), policy=self._policy(one)) if alone else None)
        self._moved_pods.clear()
        self._moved_claims.clear()

    def _stand(self, key: str, want: Want | None) -> None:
        if want is None:
            self.lines.drop(key)
        else:
            self.lines.put(want)

    def _want(self, pod: pods.Pod) -> Want | None:
        """None while a claim is not made yet, or nothing of it is ours to allocate."""
        claims = [self.claims.get(f"{pod.namespace}/{name}") for name in pod.claims]
        known = [one for one in claims if one is not None and not one.deleting]
        if len(known) < len(pod.claims):
            return None
        ours = tuple(one for one in known if not one.allocated and self._ours(one))
        if not ours:
            self._expect(pod, known)
            return None
        pinned = tuple(one.pinned if one.pinned is not None else nodes.named(one.node) for one in known if one.placed)
        return Want(claims=ours, policy=self._policy(ours[0]), pod=pod, pinned=pinned)

    def _expect(self, pod: pods.Pod, known: Iterable[Claim]) -> None:
        """A pod whose claims bind it to one node takes room there before it is bound."""
        names_ = {one.node for one in known} - {""}
        if len(names_) == 1:
            self.cluster.guest(pod.uid, names_.pop(), pod.room)

    def _ours(self, one: Claim) -> bool:
        options = [o for request in one.asked.wish.requests for o in request.options] if one.asked is not None else []
        return bool(options) and not one.deleting and all(option.class_name in self._classes for option in options)

    def _at_once(self, one: Claim) -> bool:
        assert one.asked is not None
        return all(o.class_name in self._immediate for request in one.asked.wish.requests for o in request.options)

    def _policy(self, one: Claim) -> policies.Policy:
        assert one.asked is not None
        return self._classes[one.asked.wish.requests[0].options[0].class_name]

    def _drop_pod(self, key: str, before: pods.Pod | None) -> None:
        if before is not None:
            if (gang := gangs.of(before)) is not None:
                self._gangs[gang].pop(key)
                if not self._gangs[gang]:
                    del self._gangs[gang]
            self.cluster.guest(before.uid, "", before.room)
            self.lines.drop(before.uid)
            self._moved_claims |= self._users.put(key, _awaited(before), ())

    def _take_slices(
        self, slices: Mapping[str, offers.Slice], rules: tuple[objects.TaintRule, ...], at: datetime.datetime
    ) -> None:
        changed, gone = self._seen_slices.news(slices)
        if rules != self._rules:
            pools = {rule.pool for rule in set(rules) ^ set(self._rules)}
            self._rules = rules
            changed += [
                (name, found, found)
                for name, found in slices.items()
                if "" in pools or (found.given is not None and found.given.pool in pools)
            ]
        for name, _ in gone:
            self._late.pop(name, None)
            self._since.pop(name, None)
            self.cluster.drop_slice(name)
        self._late.update((name, found) for name, _, found in changed)
        self.unsettled = None
        for name, found in list(self._late.items()):
            if found.given is None or found.since is None:
                self._since.pop(name, None)
                self.cluster.drop_slice(name)
            elif (ready := found.since + _SETTLED) > at and self._since.get(name) != found.since:
                self.unsettled = min(self.unsettled or ready, ready)
                continue
            else:
                self._since[name] = found.since
                self.cluster.put_slice(offers.ruled(found.given, rules))
            del self._late[name]


def _awaited(pod: pods.Pod) -> tuple[str, ...]:
    """The claims that it waits for."""
    return tuple(f"{pod.namespace}/{name}" for name in pod.claims) if pod.waiting else ()
