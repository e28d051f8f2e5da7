"""The GPU driver of one node, as the plugin library knows it.

    prepare     claim -> its locks -> disk looked at -> plan and record in one breath -> preparer -> devices
    unprepare   claim -> its locks -> disk looked at -> preparer, backwards; no API server and no NVML needed
    pools, health   what the watcher sees, told again whenever it changes
    run         watches the cards, and keeps the CDI files as the records want them

What must stay true: between the plan and its record in memory nothing else runs, so two claims cannot win one card; the
locks of the claim and of its cards keep other processes out until that record is on disk.
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

import structlog

from api import names, quantity, resource
from driver import (
    booking,
    cdi,
    cdidir,
    configs,
    containers,
    health,
    inventory,
    ledger,
    meter,
    metrics,
    offer,
    plan,
    preparer,
    records,
    repairer,
    resizer,
    rung,
    usage,
    watcher,
)
from kube import slices
from kubeletplugin import contract

_PATIENCE_S = 10.0
"""How long a Prepare waits for the first look at the cards: the kubelet's own patience is 45 s."""
_HEALTH = {
    health.Verdict.HEALTHY: contract.Health.HEALTHY,
    health.Verdict.UNHEALTHY: contract.Health.UNHEALTHY,
    health.Verdict.UNKNOWN: contract.Health.UNKNOWN,
}
_log = structlog.get_logger()
Pods = Callable[[resource.Claim], Awaitable[tuple[containers.JSON, ...]]]
"""Reads the pods that hold a claim."""


class Node:
    """The Driver of `kubeletplugin.contract` for the cards of this machine. `also`: what runs for ever beside."""

    def __init__(
        self,
        *,
        book: ledger.Ledger,
        specs: cdidir.CDIDir,
        hands: preparer.Preparer,
        eyes: watcher.Watcher,
        mender: repairer.Repairer,
        pods: Pods,
        gauge: meter.Meter,
        sizes: resizer.Resizer,
        also: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (),
    ) -> None:
        self._book = book
        self._specs = specs
        self._preparer = hands
        self._watcher = eyes
        self._repairer = mender
        self._pods = pods
        self._also = also
        self.meter = gauge
        self._resizer = sizes

    @property
    def held(self) -> tuple[records.Record, ...]:
        """The records of all claims that hold something."""
        return tuple(self._book.held.values())

    async def start(self) -> None:
        """Reads what an earlier process left. Call it before anything else."""
        await self._watcher.start()
        await self._book.follow()
        _log.info("records read", claims=len(self.held))

    async def run(self) -> None:
        """Watches cards and files, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watcher.run(), name="watch cards")
            group.create_task(self._watcher.listen(), name="listen to the driver")
            group.create_task(self._repairer.run(), name="repair CDI files")
            group.create_task(self.meter.run(), name="measure use")
            for work in self._also:
                group.create_task(work(), name="keep what holds shares")

    async def prepare(self, claim: resource.Claim) -> tuple[contract.PreparedDevice, ...]:
        results = claim.of_driver(names.LOCAL_DRIVER)
        if not results:
            return ()
        await self.looked()
        users = await self._users(claim)
        async with self._book.guarded(claim.uid, (result.device for result in results)):
            before = await self._book.follow(claim.uid)
            chosen = plan.plan(claim, self._watcher.world, self._book.held, users)
            self._book.keep(chosen.record)  # no await since the plan
            try:
                if chosen.stale is not None:
                    await self._preparer.unprepare(chosen.stale)
                    before = None
                record = await self._preparer.prepare(chosen.record, before)
            except Exception:
                await self._book.follow(claim.uid)
                raise
            self._book.keep(record)
        self._watcher.tell_soon()  # the order of the cards may follow from what is held
        self.meter.seen(claim)
        return self._answers(record)

    async def unprepare(self, ref: contract.ClaimRef) -> None:
        async with self._book.guarded(ref.uid):
            record = await self._book.follow(ref.uid)
            if record is None:
                await self._specs.remove(ref.uid)
                return
            try:
                await self._preparer.unprepare(record)
            except Exception:
                await self._book.follow(ref.uid)
                raise
            self._book.drop(ref.uid)
        self._watcher.tell_soon()  # a card that is gone was offered for this claim's sake

    def give(self, given: offer.Given) -> None:
        """The cards are for this allocator; they are offered to nobody before it is known."""
        self._watcher.give(given)

    async def prepared(self) -> tuple[contract.ClaimRef, ...]:
        await self._book.follow()
        return tuple(contract.ClaimRef(uid=held.uid, namespace=held.namespace, name=held.name) for held in self.held)

    async def devices(self, ref: contract.ClaimRef) -> tuple[contract.PreparedDevice, ...]:
        record = self._book.held.get(ref.uid)
        return self._answers(record) if record is not None and record.phase is records.Phase.PREPARED else ()

    async def seen(self, claim: resource.Claim) -> None:
        self.meter.seen(claim)
        await self._resizer.seen(claim)

    async def pools(self) -> AsyncGenerator[tuple[resource.Pool, ...]]:
        last = None
        async with contextlib.aclosing(self._watcher.changes()) as changes:
            async for _ in changes:
                pool = self._watcher.pool(self.held)
                if pool is not None and pool != last:
                    last = pool
                    yield (pool,)

    async def health(self) -> AsyncGenerator[tuple[contract.DeviceHealth, ...]]:
        last = None
        async with contextlib.aclosing(self._watcher.changes()) as changes:
            async for _ in changes:
                now = tuple(
                    _told(card, report, self._watcher.world.pool) for card, report in self._watcher.reports(self.held)
                )
                if now != last:
                    last = now
                    yield now

    async def dropped(self, fields: frozenset[str]) -> None:
        metrics.SHARES_STORED.set(0 if slices.unshared(fields) else 1)
        if fields:
            _log.warning("the API server stores less of a slice than was sent", fields=sorted(fields))

    def _answers(self, record: records.Record) -> tuple[contract.PreparedDevice, ...]:
        return tuple(
            contract.PreparedDevice(
                requests=(holding.request.partition("/")[0],),
                pool=holding.pool,
                device=holding.device,
                cdi_ids=(cdi.qualified(record.uid, holding),),
                share_id=holding.share_id,
                data={
                    "uuid": holding.card,
                    "model": holding.model,
                    **_terms(holding, self.meter.said(usage.key(record, holding))),
                },
                conditions=() if holding.backend == "whole" else _conditions(self._resizer.outcome(record.uid)),
            )
            for holding in record.holdings
        )

    async def _users(self, claim: resource.Claim) -> tuple[containers.User, ...]:
        """Asked for shares alone: a whole card costs no call for it."""
        if not any(configs.chosen(claim, names.LOCAL_DRIVER)):
            return ()
        return containers.users(claim, await self._pods(claim), names.LOCAL_DRIVER)

    async def looked(self) -> None:
        """Waits, within reason, for the first look at the cards: a plan before it would only say so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._watcher.looked.wait()


def _conditions(outcome: resizer.Outcome | None) -> tuple[contract.Condition, ...]:
    if outcome is None:
        return ()
    facts = {"reason": outcome.reason, "message": outcome.message, "since": outcome.since}
    return (contract.Condition(type=names.RESIZED, status=outcome.well, **facts),)


def _terms(holding: records.Holding, verified: datetime.datetime | None) -> dict[str, object]:
    """What of the card it is, what holds it to that, and when that was last seen in force."""
    if holding.backend == "whole":
        return {"enforcement": holding.enforcement}
    limits: dict[str, object] = {}
    if holding.enforcement != rung.NONE:
        limits["memory"] = quantity.text(holding.memory_limit_mib * booking.MIB)
    if holding.cores_enforcement != rung.NONE:
        limits["cores"] = holding.cores
    return {
        "cores": holding.cores,
        "memory": quantity.text(holding.memory_mib * booking.MIB),
        "enforcement": {"memory": holding.enforcement, "cores": holding.cores_enforcement},
        **({"limit": limits} if limits else {}),
        **({"verified": resource.timestamp(verified)} if verified is not None else {}),
    }


def _told(card: inventory.Card, report: health.Report, pool: str) -> contract.DeviceHealth:
    return contract.DeviceHealth(pool=pool, device=card.name, health=_HEALTH[report.verdict], message=report.message)
