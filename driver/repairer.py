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
_SLOWER = 10
"""Times the period until the next look, where something could not be mended: a full disk is not a reason to hurry."""
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
        self._world: plan.World | None = None
        self._current: dict[resource.ClaimUID, records.Record] = {}
        """The records that are as `_world` wants them."""

    async def run(self) -> None:
        """Looks for ever. What a turn cannot do is logged, and the next one tries again."""
        number = 0
        while True:
            well = False
            try:
                well = await self.turn()
                if number % _ORPHANS_EVERY == 0:
                    await self._clear()
            except errors.Unavailable as error:
                _log.warning("CDI files could not be looked after", error=str(error))
            except Exception:  # noqa: BLE001 whatever one turn dies of, the next may not
                _log.exception("CDI files could not be looked after")
            number += 1
            await asyncio.sleep(self._period_s if well else _SLOWER * self._period_s)

    async def turn(self) -> bool:
        """One look: mends what is broken, and what a new boot, driver or minor number has made old. True: all is well."""
        world = self._watcher.world
        prepared = [record for record in self._book.held.values() if record.phase is records.Phase.PREPARED]
        before = self._current if self._world is world else {}
        self._world = world
        self._current = {
            record.uid: record
            for record in prepared
            if before.get(record.uid) is record or _renewed(record, world) == record
        }
        old = [record.uid for record in prepared if record.uid not in self._current]
        files = {record.uid: record.cdi for record in prepared if record.boot_id == world.boot_id}
        doubtful = dict.fromkeys([*old, *await self._specs.broken(files)])
        return all([await self._mend(uid, world) for uid in doubtful])

    async def _mend(self, uid: resource.ClaimUID, world: plan.World) -> bool:
        async with self._book.guarded(uid):
            before = await self._book.follow(uid)
            if before is None or before.phase is not records.Phase.PREPARED:
                return True
            record = _renewed(before, world)
            if record.phase is not records.Phase.PREPARED or record.boot_id != world.boot_id:
                return True
            try:
                self._book.keep(await self._preparer.prepare(record, before))
            except errors.Unavailable as error:
                _log.warning("CDI file could not be put back", claim=str(record), uid=uid, error=str(error))
                return False
            metrics.REPAIRED.inc()
            _log.warning("CDI file put back", claim=str(record), uid=uid)
            return True

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
