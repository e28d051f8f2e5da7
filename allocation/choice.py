"""Which node and which of its cards a pod's claims get, by a policy.

    wishes + policy + which nodes are allowed --> choose --> Choice (node, Picks), or None
                                                    |
            a table for each question: states of nodes that fit, best first; only new states are looked at

The rules of what fits are those of `search`; a policy only says what is tried first. What must stay true: a question that
was asked before costs what has changed since, and never a walk over all nodes. Texts that tell apart cards of one kind
are the exception: they are asked of each node.
"""

import bisect
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from allocation import (
    cluster,
    devices,
    fragmentation,
    nodes,
    pods,
    policies,
    requests,
    rules,
    search,
    selectors,
    states,
)
from allocation.policies import Policy
from api import errors

_TABLES = 128
"""Questions whose tables are kept."""
_FULLER, _CARDS, _CPU = 0.05, 8, 128_000
"""What an empty node of eight cards and 128 CPUs weighs against growth, in cards' worth: equal growths are many."""
_NOTHING = pods.Room()
Allowed = Callable[[nodes.Node], bool]
Rank = tuple[float, ...]
Picks = tuple[tuple[search.Pick, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """`picks`: for each wish, in their order."""

    node: nodes.Node
    picks: Picks


@dataclass(slots=True, eq=False)
class _Table:
    """`ranked`: (merit, number) of the states that fit, the best last; with the card to begin with in `found`.

    `wishes`: the first that were asked so; their options are what `fits` knows, by identity.
    `needed`: of each request, the options and how many cards each wants; a request that takes what there is is not there.
    `single`: one request for a number of cards and no more; then what a card is tells whether it does.
    """

    epoch: int
    wishes: tuple[requests.Wish, ...]
    single: requests.Option | None
    seen: int = 0
    ranked: list[tuple[Rank, int]] = field(default_factory=list)
    found: dict[int, tuple[states.State, int]] = field(default_factory=dict)
    fits: dict[int, "_Fits"] = field(default_factory=dict)
    needed: list[list[tuple["_Fits", int]]] = field(default_factory=list)


class _Fits(dict[states.Held, bool]):
    """Whether a card that is held so would do for an option, found out when it is asked.

    Raises Invalid for a text that cannot be judged on the card.
    """

    def __init__(self, option: requests.Option, known: cluster.Cluster) -> None:
        super().__init__()
        self._option = option
        self._known = known

    def __missing__(self, card: states.Held) -> bool:
        option, device, class_ = self._option, card.example, self._known.classes.get(self._option.class_name)
        if class_ is None:
            raise errors.Invalid(f"request {option.name}: there is no DeviceClass {option.class_name!r}")
        needs = device.look.sizes.needs(option.asked)
        found = self[card] = (
            (option.admin or not card.taken.whole)
            and all(self._known.judge.match(text, device) for text in (*class_.selectors, *option.selectors))
            and needs is not None
            and all(need + card.taken.of(name) <= size for name, need, size in needs)
            and rules.tolerated(device.look.taints, option.tolerations)
        )
        return found


class Chooser:
    """Answers by the cluster as it is when it is asked."""

    def __init__(self, known: cluster.Cluster) -> None:
        self._known = known
        self._states = states.States(known)
        self._tables: OrderedDict[object, _Table] = OrderedDict()
        self._revision = known.revision
        self._mix = fragmentation.Mix(Counter())

    def usual(self, mix: fragmentation.Mix) -> None:
        """From now on these requests are what fragmentation is measured by."""
        self._mix = mix
        self._tables.clear()

    def choose(
        self, wishes: Sequence[requests.Wish], policy: Policy, allowed: Allowed, room: pods.Room = _NOTHING
    ) -> Choice | None:
        """None where no allowed node has it. `room`: what the pod takes beside. Raises as `Search.run` does."""
        wishes = tuple(wishes)
        self._refresh()
        if self._personal(wishes):
            return self._one_by_one(wishes, policy, allowed)
        for node, lead in self._ranked(wishes, policy, room):
            if allowed(node):
                picks = self._picks(node, wishes, policy, lead)
                if picks is not None:
                    return Choice(node=node, picks=picks)
        return None

    def _refresh(self) -> None:
        known = self._known
        if known.revision != self._revision:
            self._tables.clear()
            self._revision = known.revision
        if known.changed:
            changed, known.changed = known.changed, set()
            self._states.refresh(changed)

    def _ranked(
        self, wishes: tuple[requests.Wish, ...], policy: Policy, room: pods.Room
    ) -> Iterator[tuple[nodes.Node, int]]:
        """Nodes that fit, best first, each with where to begin on it."""
        table = self._table(wishes, policy, room)
        ranked, gone = table.ranked, 0
        while ranked and not table.found[ranked[-1][1]][0].nodes:
            del table.found[ranked.pop()[1]]
        for _, number in reversed(ranked):
            state, lead = table.found[number]
            gone += not state.nodes
            for name in state.nodes:
                yield self._known.nodes[name], lead
        if 2 * gone > len(ranked):
            table.ranked = [entry for entry in ranked if table.found[entry[1]][0].nodes]
            table.found = {number: table.found[number] for _, number in table.ranked}

    def _table(self, wishes: tuple[requests.Wish, ...], policy: Policy, room: pods.Room) -> _Table:
        known = self._states
        key = (wishes, policy, room if policy is Policy.LEAST_FRAGMENTATION else None)
        table = self._tables.get(key)
        if table is None or table.epoch != known.epoch:
            table = self._tables[key] = _Table(epoch=known.epoch, wishes=wishes, single=_single(wishes))
            for request in (request for wish in wishes for request in wish.requests):
                table.fits |= {id(option): _Fits(option, self._known) for option in request.options}
                if all(option.mode == requests.EXACT for option in request.options):
                    table.needed.append([(table.fits[id(option)], option.count) for option in request.options])
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        new = []  # first all of them: a text that cannot be judged must leave the table as it was
        for state in known.since(table.seen):
            if _enough(table.needed, state.cards):
                ranked = self._rank(table, state, wishes, policy, room)
                if ranked is not None:
                    new.append((state, *ranked))
        for state, rank, lead in new:
            bisect.insort(table.ranked, (rank, state.number))
            table.found[state.number] = (state, lead)
        table.seen = known.made
        return table

    def _rank(
        self,
        table: _Table,
        state: states.State,
        wishes: tuple[requests.Wish, ...],
        policy: Policy,
        room: pods.Room,
    ) -> tuple[Rank, int] | None:
        """How good the nodes of a state are, more is better, and where to begin; None where it does not fit."""
        node = self._known.nodes[next(iter(state.nodes))]
        free = [1.0 - card.used for card in state.cards]
        picks: Picks | None = None
        if table.single is None or state.alone:
            try:
                picks = self._picks(node, wishes, policy, -1)
            except search.TooHard:
                return None
            if picks is None:
                return None
        left = self._known.free(node.name)
        if policy is not Policy.LEAST_FRAGMENTATION:
            sign = -1 if policy is Policy.BIN_PACK else 1
            return (sign * sum(free), float(sign * left.cpu)), -1
        now = self._mix.waste(free, left)
        found: list[tuple[Rank, int]] = []
        for lead, after in self._afters(table, state, free, node, picks):
            growth = self._mix.waste(after, left.without(room)) - now
            found.append((_least(growth, free, left), lead))
        return max(found, key=lambda one: one[0], default=None)

    def _afters(
        self,
        table: _Table,
        state: states.State,
        free: Sequence[float],
        node: nodes.Node,
        picks: Picks | None,
    ) -> Iterator[tuple[int, list[float]]]:
        """What may be left of the cards: with each card that makes a difference first, else as the search has it."""
        if picks is not None or table.single is None:
            yield -1, _after(self._devices(node), free, picks or ())
            return
        option = table.single
        fits = table.fits[id(option)]
        fitting = [index for index, card in enumerate(state.cards) if fits[card]]
        fitting.sort(key=lambda index: free[index])
        tried: set[states.Held] = set()
        for lead in fitting if option.count == 1 else fitting[:1]:
            if state.cards[lead] in tried:
                continue
            tried.add(state.cards[lead])
            after = list(free)
            for index in (lead, *(one for one in fitting if one != lead))[: option.count]:
                after[index] -= policies.asked(state.cards[index].example, option)
            yield lead, after

    def _picks(self, node: nodes.Node, wishes: tuple[requests.Wish, ...], policy: Policy, lead: int) -> Picks | None:
        order = policies.order(policy, self._known.booked)
        if lead < 0:
            return self._known.search(node, wishes, order)
        first = self._devices(node)[lead]

        def led(option: requests.Option, listed: Sequence[devices.Device]) -> Sequence[devices.Device]:
            return (first, *(device for device in order(option, listed) if device is not first))

        return self._known.search(node, wishes, led)

    def _devices(self, node: nodes.Node) -> list[devices.Device]:
        """In the order of its state's cards."""
        listed = [device for pool in self._known.pools_of(node) for device in pool.here]
        return sorted(listed, key=lambda device: self._states.held(device).number)

    def _personal(self, wishes: Iterable[requests.Wish]) -> bool:
        classes = self._known.classes
        for wish in wishes:
            if any(_own(constraint.attribute) for constraint in wish.constraints):
                return True
            for option in (option for request in wish.requests for option in request.options):
                class_ = classes.get(option.class_name)
                texts = (*(class_.selectors if class_ else ()), *option.selectors)
                if any(text is not None and selectors.personal(text) for text in texts):
                    return True
        return False

    def _one_by_one(self, wishes: tuple[requests.Wish, ...], policy: Policy, allowed: Allowed) -> Choice | None:
        """Where cards of one kind are not alike. LeastFragmentation packs here: it knows cards by their kind alone."""
        booked, best = self._known.booked, (math.inf, "")
        found: Choice | None = None
        for node in self._known.nodes.values():
            picks = self._picks(node, wishes, policy, -1) if allowed(node) else None
            if picks is not None:
                free = policies.free(self._devices(node), booked.of)
                rank = (-free if policy is Policy.SPREAD else free, node.name)
                if rank < best:
                    best, found = rank, Choice(node=node, picks=picks)
        return found


def _enough(needed: Iterable[Iterable[tuple[_Fits, int]]], cards: tuple[states.Held, ...]) -> bool:
    """Whether a node has as many cards as each request wants, the others left out of account."""
    for options in needed:
        for fits, count in options:
            if sum(map(fits.__getitem__, cards)) >= count:
                break
        else:
            return False
    return True


def _single(wishes: tuple[requests.Wish, ...]) -> requests.Option | None:
    if len(wishes) != 1 or len(wishes[0].requests) != 1 or wishes[0].constraints or wishes[0].requests[0].listed:
        return None
    option = wishes[0].requests[0].options[0]
    return option if option.mode == requests.EXACT and option.count <= search.MOST and not option.derived else None


def _after(listed: Sequence[devices.Device], before: Sequence[float], picks: Picks) -> list[float]:
    taken: dict[devices.Key, float] = {}
    for pick in (pick for of in picks for pick in of):
        taken[pick.device.key] = taken.get(pick.device.key, 0.0) + policies.part(pick)
    return [max(0.0, free - taken.get(device.key, 0.0)) for device, free in zip(listed, before, strict=True)]


def _least(growth: float, free: Sequence[float], left: pods.Room) -> Rank:
    """Growth by and large, then the fullest node, in cards and CPU."""
    return (-round(growth + _FULLER * (sum(free) / _CARDS + left.cpu / _CPU), 9),)


def _own(attribute: str) -> bool:
    return attribute in devices.OWN or attribute.rpartition("/")[2] in devices.OWN
