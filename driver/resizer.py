"""Sets the limits that claims ask for by annotation while their programs run, and knows what became of it.

    a look at a claim -> resize.asked -> record and CDI file -> the running containers -> Outcome, a condition of its devices

On disk first, so that a container that starts meanwhile gets the new limit; then what runs. A look that was cut off is
done again by the next one: as long as a claim is held to less than its booking, its limits are set at each. Outcomes are
in memory alone; the next look finds them again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from api import errors, names, quantity, resource, v1alpha1
from driver import booking, ledger, meter, plan, preparer, records, rung, watcher

APPLIED, REFUSED, NOT_YET = "Applied", "Refused", "NotYet"
_LONGEST = 1000
_log = structlog.get_logger()

Clock = Callable[[], datetime]


class Shares(Protocol):
    async def resize(self, holding: records.Holding, pods: frozenset[str]) -> None:
        """Makes the holding's memory limit that of its running containers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`since` when it is well, or not, in RFC 3339."""

    reason: str
    message: str
    since: str = ""

    @property
    def well(self) -> bool:
        return self.reason == APPLIED


class Resizer:
    def __init__(
        self,
        *,
        book: ledger.Ledger,
        hands: preparer.Preparer,
        eyes: watcher.Watcher,
        gauge: meter.Meter,
        shares: Shares,
        clock: Clock,
    ) -> None:
        self._book = book
        self._preparer = hands
        self._watcher = eyes
        self._meter = gauge
        self._shares = shares
        self._clock = clock
        self._outcomes: dict[str, Outcome] = {}

    def outcome(self, uid: str) -> Outcome | None:
        """What became of what the claim asks for; nothing where it asks for nothing."""
        return self._outcomes.get(uid)

    async def seen(self, claim: resource.Claim) -> None:
        held = self._book.held.get(claim.uid)
        asks = names.MEMORY_LIMIT_ANNOTATION in dict(claim.annotations)
        self._outcomes = {uid: told for uid, told in self._outcomes.items() if uid in self._book.held}
        if held is not None:
            await self._hold_newcomers(claim, held)
        if held is not None and (asks or any(holding.limit_mib for holding in held.holdings)):
            told = await self._turn(claim)
            before = self._outcomes.get(claim.uid)
            same = before is not None and before.well == told.well
            since = before.since if before is not None and same else resource.timestamp(self._clock())
            self._outcomes[claim.uid] = replace(told, since=since, message=told.message[:_LONGEST])
        else:
            self._outcomes.pop(claim.uid, None)

    async def _hold_newcomers(self, claim: resource.Claim, record: records.Record) -> None:
        """A pod that came to a prepared claim, of which no kubelet tells: where pods are held as wholes, it is held too."""
        pods = frozenset(uid for _, uid in claim.reserved_for)
        for holding in record.holdings:
            if holding.group and pods - {holding.group}:
                try:
                    await self._shares.resize(holding, pods)
                except errors.ElasticGPUError as error:
                    _log.warning("a pod that came later could not be held", claim=str(record), error=str(error))

    async def _turn(self, claim: resource.Claim) -> Outcome:
        async with self._book.guarded(claim.uid):
            before = await self._book.follow(claim.uid)
            if before is None or before.phase is not records.Phase.PREPARED:
                return Outcome(reason=NOT_YET, message="the claim is not prepared on its node")
            try:
                record = plan.resized(before, claim, self._watcher.world)
                self._refuse_unclear(record, before)
                if record != before:
                    self._book.keep(await self._preparer.prepare(record, before))
                await self._set(claim, record, before)
            except (errors.Invalid, errors.Conflict) as error:
                return Outcome(reason=REFUSED, message=str(error))
            except errors.ElasticGPUError as error:
                return Outcome(reason=NOT_YET, message=f"{error}; it is tried again")
        return Outcome(reason=APPLIED, message=_said(record))

    def _refuse_unclear(self, record: records.Record, before: records.Record) -> None:
        for holding, old in zip(record.holdings, before.holdings, strict=True):
            if holding.limit_mib != old.limit_mib and self._unclear(holding, record):
                raise errors.Invalid(
                    f"{names.MEMORY_LIMIT_ANNOTATION}: a pod of the claim has another share of card {holding.card} too, and "
                    "which of its containers has which limit cannot be told. Make a new claim of the size that is wanted"
                )

    def _unclear(self, holding: records.Holding, record: records.Record) -> bool:
        """By the card's driver a limit is that of a group, which does not tell whose share it is."""
        by_group = holding.enforcement == rung.word(v1alpha1.Rung.DRIVER)
        return by_group and self._meter.several(holding.card, record)

    async def _set(self, claim: resource.Claim, record: records.Record, before: records.Record) -> None:
        pods = frozenset(uid for _, uid in claim.reserved_for)
        for holding, old in zip(record.holdings, before.holdings, strict=True):
            if (holding.limit_mib or old.limit_mib) and not self._unclear(holding, record):
                await self._shares.resize(holding, pods)


def _said(record: records.Record) -> str:
    return "; ".join(
        f"request {holding.request} is held to {quantity.text(holding.memory_limit_mib * booking.MIB)}"
        for holding in record.holdings
        if holding.backend != "whole" and not holding.admin_access
    )
