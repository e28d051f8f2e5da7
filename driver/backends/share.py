"""Shares: a claim gets a part of a card, and the strongest rung that the node has and its class accepts holds it to that.

    consumedCapacity + class -> holding: cores, memory, and the rung of each -> the rungs' steps and edits

What must stay true: a limit that is Required is held or the claim is refused, with what was found missing for each rung;
a limit that nothing holds is called so (`none`) in the record, and from there in the claim's status and the metrics. An
amount comes from the allocator's own count alone: where an API server keeps none, the claim would have got a whole card
without a word (seen on Kubernetes 1.34.4), so it is refused.
"""

import re

from api import errors, names, resource, v1alpha1
from driver import backend, booking, cdi, containers, inventory, records, rung

_NAME = "share"
_ABSENT = "the node is not set up for it"
_SHARE_ID = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]*")
"""Directories are named by it."""


class Share:
    """`rungs` from the strongest to the weakest. `most`: how many shares one card may have; 0 offers whole cards only."""

    def __init__(self, rungs: tuple[rung.Rung, ...], most: int) -> None:
        self._rungs = rungs
        self._most = most

    def offer(self, card: inventory.Card) -> backend.Offer:
        """Of each capacity nothing at all may be asked: kube-scheduler compares amounts also for admin access, and who only
        watches has to see a full card. A share of nothing is refused by `holding`.
        """
        memory = booking.memory_mib(card) * booking.MIB
        amounts = (
            (names.CORES, booking.CORES, resource.RequestPolicy(default=booking.CORES, least=0, step=1)),
            (names.MEMORY, memory, resource.RequestPolicy(default=memory, least=0, step=booking.MIB)),
            (names.SHARES, self._most, resource.RequestPolicy(default=1, least=0, step=1, most=1)),
        )
        return backend.Offer(
            attributes=(
                (names.BACKEND, "local"),
                (names.MEMORY_ENFORCEMENT, self._strongest(card, "memory", tuple(v1alpha1.Rung))),
                (names.CORES_ENFORCEMENT, self._strongest(card, "cores", tuple(v1alpha1.Rung))),
                (names.ALLOCATED_BY, "scheduler"),
            ),
            amounts=amounts if memory and self._most else (),
        )

    def holding(self, ask: backend.Ask) -> records.Holding:
        assert ask.share is not None
        result, card = ask.result, ask.card
        amount = _part(result, card)
        enforcement = self._chosen(ask, "memory", ask.share.memory)
        return records.Holding(
            request=result.request,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            card=card.uuid,
            minor=card.minor,
            model=card.product_name or "",
            backend=_NAME,
            cores=amount.cores,
            memory_mib=amount.memory_mib,
            enforcement=enforcement,
            cores_enforcement=self._chosen(ask, "cores", ask.share.cores) if amount.cores else rung.NONE,
            group=containers.together(ask.users) if enforcement == rung.word(v1alpha1.Rung.DRIVER) else "",
        )

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        return tuple(
            step
            for each in self._rungs
            if (held := tuple(holding for holding in holdings if rung.word(each.kind) in _words(holding)))
            for step in each.steps(held)
        )

    def edits(self, holding: records.Holding, host: cdi.HostEdits) -> cdi.Edits:
        told = (
            f"{names.SHARE_MEMORY_ENV}{holding.minor}={holding.memory_mib}Mi",
            f"{names.SHARE_CORES_ENV}{holding.minor}={holding.cores}",
        )
        edits = host.of_card(holding.card).without_hook(cdi.MEMORY_LIMITS_HOOK) + cdi.Edits(env=told)
        for name in sorted(_words(holding) - {rung.NONE}):
            edits += self._rung(name).edits(holding)
        return edits

    async def look(self) -> None:
        for each in self._rungs:
            await each.look()

    async def apply(self, record: records.Record, step: records.Step) -> None:
        await self._rung(step.kind.partition("/")[0]).apply(record, step)

    async def undo(self, record: records.Record, step: records.Step) -> None:
        await self._rung(step.kind.partition("/")[0]).undo(record, step)

    @property
    def elastic(self) -> frozenset[str]:
        """The words of the rungs that take another memory limit while programs run."""
        return frozenset(
            rung.word(each.kind) for each in self._rungs if isinstance(each, rung.Elastic) and each.elastic
        )

    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        """Whether all that holds it was asked, and says that it does now."""
        words = _words(holding) - {rung.NONE}
        for each in self._rungs:
            if rung.word(each.kind) in words and isinstance(each, rung.Witness) and await each.holds(holding, pods):
                words -= {rung.word(each.kind)}
        return not words and _words(holding) != {rung.NONE}

    async def resize(self, holding: records.Holding, pods: frozenset[str]) -> None:
        """Makes the holding's memory limit that of its running containers. Raises Invalid where what holds it cannot."""
        held_by = self._rung(holding.enforcement)
        if not isinstance(held_by, rung.Elastic):
            raise errors.Invalid(f"{holding.enforcement} takes no other limit while programs run")
        await held_by.resize(holding, pods)

    def _rung(self, name: str) -> rung.Rung:
        for each in self._rungs:
            if rung.word(each.kind) == name:
                return each
        raise errors.NotReady(f"this version of the driver cannot hold shares by {name}; run the one that began it")

    def _chosen(self, ask: backend.Ask, limit: rung.Limit, firmness: v1alpha1.Enforcement) -> str:
        assert ask.share is not None
        if firmness is v1alpha1.Enforcement.BURST:
            return rung.NONE
        accept = ask.share.accept
        found = self._strongest(ask.card, limit, accept, ask.users)
        if found == rung.NONE and firmness is v1alpha1.Enforcement.REQUIRED:
            missing = "; ".join(f"{kind.value}: {self._missing(ask, limit, kind)}" for kind in accept)
            raise errors.Invalid(
                f"card {ask.card.name} cannot hold a share to its {limit}, which the class requires. What is missing: "
                f"{missing}. The node's admin can add it; a class with share.{limit}: BestEffort does without"
            )
        return found

    def _strongest(
        self,
        card: inventory.Card,
        limit: rung.Limit,
        accept: tuple[v1alpha1.Rung, ...],
        users: tuple[containers.User, ...] = (),
    ) -> str:
        for each in self._rungs:
            if each.kind in accept and limit in each.limits and not each.lacking(card, users):
                return rung.word(each.kind)
        return rung.NONE

    def _missing(self, ask: backend.Ask, limit: rung.Limit, kind: v1alpha1.Rung) -> str:
        for each in self._rungs:
            if each.kind is kind:
                return (
                    ", ".join(each.lacking(ask.card, ask.users)) if limit in each.limits else f"it cannot hold {limit}"
                )
        return _ABSENT


def _words(holding: records.Holding) -> set[str]:
    return {holding.enforcement, holding.cores_enforcement}


def _part(result: resource.Result, card: inventory.Card) -> booking.Amount:
    """How much of the card it is. Raises Invalid where that is not a part."""
    if card.mig_enabled:
        raise errors.Invalid(
            f"card {card.name} is in MIG mode: no share of it can be given; switch MIG off on the node or ask for another"
        )
    amount = booking.consumed(result)
    if amount is not None and not _SHARE_ID.fullmatch(result.share_id):
        raise errors.Invalid(f"request {result.request} has a part of card {card.name} without a proper shareID")
    if amount is None:
        raise errors.Invalid(
            f"request {result.request} is of a class of shares, but was allocated a whole card {card.name}: the API server "
            "keeps no amounts (no consumedCapacity). It takes Kubernetes 1.36, or the feature gate "
            "DRAConsumableCapacity before that; or name a class of backend Whole, or one with share.fallback: WholeCard"
        )
    if not amount.memory_mib or not amount.shares:
        raise errors.Invalid(
            f"request {result.request} asks for nothing of card {card.name} (memory: 0 or shares: 0), which is for admin "
            "access alone: name some memory in the claim's capacity.requests, and no shares"
        )
    if booking.is_all(amount, card):
        raise errors.Invalid(
            f"request {result.request} is of a class of shares, but takes all of card {card.name}: name a part of it in the "
            f"claim's capacity.requests ({names.CORES}, {names.MEMORY}; each is all of the card where it is not named), "
            "or name a class of backend Whole"
        )
    return amount
