"""Keeps the CDI directory as the records want it, between the kubelet's calls.

A kubelet makes no call for a claim that it holds as prepared: not for a second pod on it, not after its own restart. So a
file that vanished or was changed is put back from its record within seconds; a record of another boot, or of a driver
that has been replaced since, is first brought up to what the machine is now. Files of claims that nobody knows go, but
not while the claim's record is one that could not be read: its pods may still start.
"""

import asyncio

import structlog

from api import errors, resource
from driver import cdidir, checkpoint, ledger, metrics, plan, preparer, records, watcher

_ORPHANS_EVERY = 30
_log = structlog.get_logger()


class Repairer:
    """`period_s`: how often the files are looked at; one stat each while nothing changes."""

    def __init__(
        self,
        *,
        book: ledger.Ledger,
        disk: checkpoint.Checkpoint,
        specs: cdidir.CDIDir,
        hands: preparer.Preparer,
        eyes: watcher.Watcher,
        period_s: float,
    ) -> None:
        self._book = book
        self._disk = disk
        self._specs = specs
        self._preparer = hands
        self._watcher = eyes
        self._period_s = period_s
        self._checked: plan.World | None = None

    async def run(self) -> None:
        """Looks for ever. What a turn cannot do is logged, and the next one tries again."""
        number = 0
        while True:
            try:
                await self.turn()
                if number % _ORPHANS_EVERY == 0:
                    await self._clear()
            except errors.Unavailable as error:
                _log.warning("CDI files could not be looked after", error=str(error))
            except Exception:  # noqa: BLE001 whatever one turn dies of, the next may not
                _log.exception("CDI files could not be looked after")
            number += 1
            await asyncio.sleep(self._period_s)

    async def turn(self) -> None:
        """One look: mends what is broken, and what a new boot, driver or minor number has made old."""
        world = self._watcher.world
        prepared = [record for record in self._book.held.values() if record.phase is records.Phase.PREPARED]
        old = [record.uid for record in prepared if self._checked is not world and _renewed(record, world) != record]
        current = {record.uid: record.cdi for record in prepared if record.boot_id == world.boot_id}
        for uid in dict.fromkeys([*old, *await self._specs.broken(current)]):
            await self._mend(uid, world)
        self._checked = world

    async def _mend(self, uid: resource.ClaimUID, world: plan.World) -> None:
        async with self._book.guarded(uid):
            before = await self._book.follow(uid)
            if before is None or before.phase is not records.Phase.PREPARED:
                return
            record = _renewed(before, world)
            if record.phase is not records.Phase.PREPARED or record.boot_id != world.boot_id:
                return
            try:
                self._book.keep(await self._preparer.prepare(record, before))
            except errors.Unavailable as error:
                _log.warning("CDI file could not be put back", claim=str(record), uid=uid, error=str(error))
            else:
                metrics.REPAIRED.inc()
                _log.warning("CDI file put back", claim=str(record), uid=uid)

    async def _clear(self) -> None:
        known = frozenset(self._book.held) | await self._disk.quarantined()
        for uid in await self._specs.orphans(known):
            async with self._book.guarded(uid):
                if await self._book.follow(uid) is None:
                    await self._specs.remove(uid)
                    _log.warning("CDI file without a claim removed", uid=uid)


def _renewed(record: records.Record, world: plan.World) -> records.Record:
    try:
        return plan.renewed(record, world)
    except errors.NotReady:
        return record
