"""The state machine of one claim: forward to Prepared, backwards to nothing, each step on disk before the next.

    prepare     1 record: intent    2 apply, each step recorded    3 record: prepared   4 CDI file
    unprepare   1 CDI file away     2 record: undoing              3 undo, backwards    4 record away

A process may die between any two of these; the same call again goes on from the record. Steps 1 and 2 of prepare and 2
and 3 of unprepare are left out where a claim has no steps: one record and one file are all that a whole card costs. The
CDI file comes last and goes first, so that no container can be started with a card that is about to be free
(dra-driver-cpu#178). What must stay true: a card is held by a record from before the first change until after the last
one is undone.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from api import errors
from driver import backend, cdidir, checkpoint, metrics, records

_log = structlog.get_logger()


class Preparer:
    """Works on one claim at a time per claim: the caller holds the locks of the claim and of its cards."""

    def __init__(self, disk: checkpoint.Checkpoint, specs: cdidir.CDIDir, worker: backend.Backend) -> None:
        self._disk = disk
        self._specs = specs
        self._backend = worker

    async def prepare(self, record: records.Record, before: records.Record | None) -> records.Record:
        """Brings `record` to Prepared; `before` is what the disk says now.

        NotReady and Unavailable leave it half-prepared, to be called again. After any other error nothing is left of it,
        or a Stuck record.
        """
        if record.phase is records.Phase.PREPARED or not record.steps:
            return await self._prepared(record.moved(records.Phase.PREPARED), before)
        if record != before:
            with _timed("intent"):
                await self._disk.write(record)
        for step in record.steps[record.done :]:
            try:
                with _timed(step.kind):
                    await self._backend.apply(record, step)
            except (errors.NotReady, errors.Unavailable):
                raise
            except Exception as error:
                await self._give_up(record, error)
                raise
            record = record.moved(records.Phase.PREPARING, done=record.done + 1)
            await self._disk.write(record)
        return await self._prepared(record.moved(records.Phase.PREPARED), record)

    async def unprepare(self, record: records.Record) -> None:
        """Undoes all of it. Raises what an undo raised; the record is Stuck then, and the next call tries again."""
        with _timed("remove CDI file"):
            await self._specs.remove(record.uid)
        if record.steps:
            record = await self._undone(record)
        with _timed("remove record"):
            await self._disk.remove(record.uid)

    async def _prepared(self, record: records.Record, before: records.Record | None) -> records.Record:
        if record != before:
            with _timed("done"):
                await self._disk.write(record)
        with _timed("write CDI file"):
            await self._specs.write(record.uid, record.cdi)
        return record

    async def _undone(self, record: records.Record) -> records.Record:
        """The step after the last recorded one may have been made before a crash: it is undone too."""
        if record.phase is not records.Phase.UNDOING:
            done = min(record.done + 1, len(record.steps)) if record.phase is records.Phase.PREPARING else record.done
            record = record.moved(records.Phase.UNDOING, done=done)
            await self._disk.write(record)
        while record.done:
            step = record.steps[record.done - 1]
            try:
                with _timed(f"undo {step.kind}"):
                    await self._backend.undo(record, step)
            except Exception as error:
                _log.error("undo failed, the card stays withheld", claim=str(record), step=step.kind, error=str(error))
                await self._disk.write(record.moved(records.Phase.STUCK))
                raise
            record = record.moved(records.Phase.UNDOING, done=record.done - 1)
            await self._disk.write(record)
        return record

    async def _give_up(self, record: records.Record, why: Exception) -> None:
        """The user gets the error that began it; what went wrong while undoing is in the log and in the record."""
        try:
            await self.unprepare(record)
        except Exception as error:  # noqa: BLE001 a backend's defect must not hide the first error
            _log.error("claim is stuck", claim=str(record), error=str(error), began_with=str(why))


@contextmanager
def _timed(step: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        metrics.STEP_SECONDS.labels(step).observe(time.perf_counter() - began)
