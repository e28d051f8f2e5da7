"""The search for devices on one node, by the rules of kube-scheduler 1.37: the first solution in the order of trying.

    pools of the node + what is booked + claims --> Search.run --> a Pick for each device, or None

Claims one after the other, requests one after the other, devices in their order, and back where it does not go on. Where
that is upstream's order the answer is upstream's answer; a policy puts the devices in another order and leaves the rest.

What must stay true: a way is given up early only where upstream would walk it to the end and find nothing, or the same
error. Invalid and NotReady are for the whole pod: upstream tries no other node after them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from allocation import amounts, bookings, devices, nodes, pools, requests, rules, selectors
from api import errors

MOST = 32
"""Devices that one claim can have."""
_STEPS = 200_000
"""Devices tried before a node is given up: upstream gives up after ten seconds."""

Order = Callable[[requests.Option, Sequence[devices.Device]], Sequence[devices.Device]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pick:
    """One device for one option of a claim. `share`: a part of it, of this size."""

    option: requests.Option
    device: devices.Device
    share: bool = False
    taken: tuple[tuple[str, amounts.Amount], ...] = ()


class TooHard(errors.ElasticGPUError):
    """The node may have a solution; it was not found within reason."""


class _Hopeless(Exception):
    """No choice before changes it: the node has too little for one of the requests alone."""


class _TooMany(Exception):
    """More devices than one claim can have: another choice before may need fewer."""


@dataclass(slots=True, eq=False)
class _Plan:
    """An option of a claim, with the number of devices it comes to."""

    option: requests.Option
    class_: requests.Class
    count: int
    every: tuple[devices.Device, ...] | None = None
    ordered: Sequence[devices.Device] = ()


class _Taking:
    """What this search has taken of a device so far."""

    __slots__ = ("shares", "taken", "wholes")

    def __init__(self) -> None:
        self.wholes: list[int] = []
        self.shares = 0
        self.taken: dict[str, amounts.Amount] = {}


class Search:
    """One node, one pod's claims. Used once."""

    def __init__(
        self,
        *,
        node: nodes.Node,
        usable: Sequence[pools.Pool],
        booked: bookings.Bookings,
        classes: Mapping[str, requests.Class],
        judge: selectors.Selectors,
        order: Order | None = None,
    ) -> None:
        self._node = node
        self._pools = usable
        self._booked = booked
        self._classes = classes
        self._judge = judge
        self._order = order
        self._listed = [device for pool in usable if pool.usable for device in pool.here]
        self._matched: dict[tuple[int, devices.Device], bool] = {}
        self._takings: dict[devices.Key, _Taking] = {}
        self._left: dict[pools.ID, dict[tuple[str, str], amounts.Amount]] = {}
        self._asked: set[tuple[int, int]] = set()
        self._steps = 0

    def run(self, wishes: Sequence[requests.Wish]) -> tuple[tuple[Pick, ...], ...] | None:
        """The devices of each wish, or None where this node has none for all of them.

        Raises Invalid and NotReady for what is wrong on every node, TooHard where it takes too long.
        """
        self._wishes = wishes
        self._plans = [[[self._plan(o) for o in r.options] for r in wish.requests] for wish in wishes]
        for wish, plans in zip(wishes, self._plans, strict=True):
            if sum(min(plan.count for plan in options) for options in plans) > MOST:
                raise errors.Invalid(f"more than {MOST} devices in one claim")
            if any(not constraint.attribute for constraint in wish.constraints):
                raise errors.Invalid("a constraint of a kind that is not known")
        self._held: list[list[list[devices.Attribute]]] = [[[] for _ in wish.constraints] for wish in wishes]
        self._picks: list[list[Pick]] = [[] for _ in wishes]
        try:
            found = self._request(0, 0)
        except _Hopeless:
            return None
        except _TooMany as error:
            raise errors.Invalid(f"every way to meet the claim takes more than {MOST} devices") from error
        except RecursionError as error:
            raise errors.Invalid("too many requests and devices in one pod") from error
        return tuple(map(tuple, self._picks)) if found else None

    # What an option comes to

    def _plan(self, option: requests.Option) -> _Plan:
        if option.derived:
            raise errors.Invalid(f"request {option.name} has derived attributes, which are not allocated here")
        if None in option.selectors:
            raise errors.Invalid(f"request {option.name} has a selector without a CEL text; no other kind is known")
        class_ = self._classes.get(option.class_name)
        if class_ is None:
            raise errors.Invalid(f"request {option.name}: there is no DeviceClass {option.class_name!r}")
        plan = _Plan(option=option, class_=class_, count=option.count)
        match option.mode:
            case requests.EXACT:
                plan.ordered = self._order(option, self._listed) if self._order else self._listed
            case requests.ALL:
                plan.every = tuple(self._all(plan))
                plan.count = len(plan.every)
            case _:
                raise errors.Invalid(f"request {option.name}: allocationMode {option.mode!r} is not known")
        return plan

    def _all(self, plan: _Plan) -> list[devices.Device]:
        found = []
        for pool in self._pools:
            name, where = plan.option.name, "/".join(pool.id)
            if pool.incomplete:
                raise errors.NotReady(
                    f"request {name} asks for all, and pool {where} is being updated: {pool.incomplete}"
                )
            if pool.broken:
                raise errors.Invalid(f"request {name} asks for all, and pool {where} is broken: {pool.broken}")
            for device in pool.here:
                if self._matches(plan, device):
                    needs = device.look.sizes.needs(plan.option.asked)
                    if needs is not None and all(need <= size for _, need, size in needs):
                        found.append(device)
        return found

    # The search

    def _request(self, claim: int, request: int) -> bool:
        if claim == len(self._plans):
            return True
        plans = self._plans[claim]
        if request == len(plans):
            try:
                return self._request(claim + 1, 0)
            except _TooMany:
                return False
        if not self._wishes[claim].requests[request].listed:
            if self._hopeless(claim, request):
                raise _Hopeless
            return self._devices(claim, request, plans[request][0], 0, 0)
        too_many = True
        for plan in plans[request]:
            try:
                if self._devices(claim, request, plan, 0, 0):
                    return True
                too_many = False
            except _TooMany:
                continue
        if too_many:
            raise _TooMany
        return False

    def _devices(self, claim: int, request: int, plan: _Plan, done: int, start: int) -> bool:
        if plan.every is not None and not plan.every:
            return False
        wanted = plan.count - done
        if wanted <= 0:
            return self._request(claim, request + 1)
        if wanted > MOST - len(self._picks[claim]):
            raise _TooMany
        if plan.every is not None:
            return self._tried(claim, request, plan, done, 0, plan.every[done], must=True)
        start = self._promising(claim, plan, start, wanted)
        for index in range(start, len(plan.ordered)):
            device = plan.ordered[index]
            if self._fits(claim, plan, device) and self._tried(claim, request, plan, done, index + 1, device):
                return True
        return False

    def _hopeless(self, claim: int, request: int) -> bool:
        """Whether upstream would try all choices before this request in vain, and meet no error on its way.

        Known only where those have one option each; asked once, since the search alone does not change it.
        """
        if (claim, request) in self._asked or (claim, request) == (0, 0):
            return False
        self._asked.add((claim, request))
        before = [
            (asked, option)
            for number, plans in enumerate(self._plans[: claim + 1])
            for asked, option in zip(self._wishes[number].requests, plans, strict=True)
        ][: sum(map(len, self._plans[:claim])) + request]
        plan = self._plans[claim][request][0]
        if any(asked.listed or options[0].every is not None for asked, options in before) or plan.every is not None:
            return False
        try:
            fitting = sum(self._could(plan, device) and self._tolerated(plan, device) for device in plan.ordered)
            for _, options in before:
                for device in self._listed:
                    self._could(options[0], device)
        except errors.Invalid:
            return False
        return fitting < plan.count <= MOST - len(self._picks[claim])

    def _could(self, plan: _Plan, device: devices.Device) -> bool:
        """Whether the device would do if this search had taken nothing."""
        booked = self._booked.of(device.key)
        if booked.whole and not plan.option.admin:
            return False
        needs = device.look.sizes.needs(plan.option.asked)
        room = needs is not None and all(need + booked.of(name) <= size for name, need, size in needs)
        return self._matches(plan, device) and room

    def _tried(
        self,
        claim: int,
        request: int,
        plan: _Plan,
        done: int,
        start: int,
        device: devices.Device,
        *,
        must: bool = False,
    ) -> bool:
        self._steps += 1
        if self._steps > _STEPS:
            raise TooHard(f"node {self._node.name}: no answer after {_STEPS} devices were tried; ask for less at once")
        if not self._take(claim, plan, device, must=must):
            return False
        going = False
        try:
            going = self._devices(claim, request, plan, done + 1, start)
        finally:
            if not going:
                self._give_back(claim, plan, device)
        return going

    def _promising(self, claim: int, plan: _Plan, start: int, wanted: int) -> int:
        """From where on it is worth trying: the first device that fits, or the end where too few do.

        A text that cannot be applied to a later device is upstream's error only if the search gets there.
        """
        found, first = 0, len(plan.ordered)
        for index in range(start, len(plan.ordered)):
            try:
                fits = self._fits(claim, plan, plan.ordered[index]) and self._tolerated(plan, plan.ordered[index])
            except errors.Invalid:
                return min(first, index)
            if fits:
                first = min(first, index)
                found += 1
                if found == wanted:
                    return first
        return len(plan.ordered)

    # One device

    def _matches(self, plan: _Plan, device: devices.Device) -> bool:
        texts = (*plan.class_.selectors, *plan.option.selectors)
        return all(self._judge.match(text, device) for text in texts) and (
            device.place is None or device.place.reaches(self._node)
        )

    def _fits(self, claim: int, plan: _Plan, device: devices.Device) -> bool:
        """In the order in which upstream looks: what is wrong with a text shows only where it is asked."""
        if not self._free(claim, plan, device):
            return False
        known = (id(plan), device)
        matches = self._matched.get(known)
        if matches is None:
            matches = self._matched[known] = self._matches(plan, device)
        return matches and self._has_room(plan, device)

    def _free(self, claim: int, plan: _Plan, device: devices.Device) -> bool:
        """Nobody has it for himself; with admin access, this claim does not have it yet."""
        taking = self._takings.get(device.key)
        if plan.option.admin:
            return taking is None or claim not in taking.wholes
        return not (self._booked.of(device.key).whole or (taking is not None and taking.wholes))

    def _has_room(self, plan: _Plan, device: devices.Device) -> bool:
        needs = device.look.sizes.needs(plan.option.asked)
        if needs is None:
            return False
        booked, taking = self._booked.of(device.key), self._takings.get(device.key)
        mine = taking.taken if taking is not None else {}
        return all(need + booked.of(name) + mine.get(name, 0) <= size for name, need, size in needs)

    @staticmethod
    def _tolerated(plan: _Plan, device: devices.Device) -> bool:
        return rules.tolerated(device.look.taints, plan.option.tolerations)

    def _take(self, claim: int, plan: _Plan, device: devices.Device, *, must: bool) -> bool:
        """All or nothing. Whether it is free and has room is known already, but for All: there room is asked last."""
        if must and not self._free(claim, plan, device):
            return False
        booked, taking, share = self._booked.of(device.key), self._takings.get(device.key), device.look.shareable
        draws = bool(device.counters) and not (share and (booked.shares or (taking is not None and taking.shares)))
        if not self._tolerated(plan, device) or (draws and not self._draw(device)):
            return False
        joined = self._join(claim, plan.option, device)
        apart = joined < len(self._wishes[claim].constraints)
        if apart or (must and not self._has_room(plan, device)):
            self._leave(claim, plan.option, joined)
            if draws:
                self._put_back(device)
            if apart and must:
                raise errors.Invalid(
                    f"request {plan.option.name} asks for all, and device {'/'.join(device.key)} does not meet "
                    f"the constraint on {self._wishes[claim].constraints[joined].attribute}"
                )
            return False
        taking = self._takings.setdefault(device.key, _Taking())
        taken: tuple[tuple[str, amounts.Amount], ...] = ()
        if share:
            taken = tuple((name, need) for name, need, _ in device.look.sizes.needs(plan.option.asked) or ())
            taking.taken = amounts.total(taken, taking.taken)
            taking.shares += 1
        else:
            taking.wholes.append(claim)
        self._picks[claim].append(Pick(option=plan.option, device=device, share=share, taken=taken))
        return True

    def _give_back(self, claim: int, plan: _Plan, device: devices.Device) -> None:
        pick = self._picks[claim].pop()
        taking = self._takings[device.key]
        if pick.share:
            taking.taken = amounts.total(((name, -value) for name, value in pick.taken), taking.taken)
            taking.shares -= 1
        else:
            taking.wholes.pop()
        self._leave(claim, plan.option, len(self._wishes[claim].constraints))
        if device.counters and not (pick.share and (taking.shares or self._booked.of(device.key).shares)):
            self._put_back(device)

    # Constraints and counters

    def _join(self, claim: int, option: requests.Option, device: devices.Device) -> int:
        """How many of the claim's constraints, in their order, the device meets; it counts for these from now on."""
        constraints = self._wishes[claim].constraints
        for number, constraint in enumerate(constraints):
            if constraint.about(option):
                held, value = self._held[claim][number], device.attribute(constraint.attribute)
                if value is None or not rules.meets(constraint, value, held):
                    return number
                held.append(value)
        return len(constraints)

    def _leave(self, claim: int, option: requests.Option, joined: int) -> None:
        for number in range(joined):
            if self._wishes[claim].constraints[number].about(option):
                self._held[claim][number].pop()

    def _draw(self, device: devices.Device) -> bool:
        """Upstream refuses too while any other counter of the pool is overdrawn."""
        left = self._counters(device.key[:2])
        for set_, name, value in device.counters:
            left[set_, name] -= value
        if all(value >= 0 for value in left.values()):
            return True
        self._put_back(device)
        return False

    def _put_back(self, device: devices.Device) -> None:
        left = self._counters(device.key[:2])
        for set_, name, value in device.counters:
            left[set_, name] += value

    def _counters(self, id_: pools.ID) -> dict[tuple[str, str], amounts.Amount]:
        """What the pool's counters have left, beside what is booked."""
        left = self._left.get(id_)
        if left is None:
            pool = next(pool for pool in self._pools if pool.id == id_)
            left = self._left[id_] = rules.counters_left(pool, self._booked)
        return left
