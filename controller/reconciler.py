"""Performs what `classes.turn` decides, while this replica leads.

    watcher --> Snapshot --> classes.turn --> writes --> API server --> watch --> the next Snapshot

What must stay true: nothing here changes a snapshot, only the watch shows what a write did. A write that lost a race
waits for the newer picture; one that got no answer is decided anew after a growing pause; one that the API server
refuses is remembered with its words, so that the status can tell and the same text is not sent again for minutes. Numbers
in a class's status are written once in a while, and the last ones always.
"""

import asyncio
import datetime
import enum
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from api import errors, names, resource
from controller import classes, metrics, snapshot, watcher
from kube import apiserver, backoff

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_REFUSAL_S = 300.0
"""After so long a refused DeviceClass is tried again: rights and API servers change without a word to us."""
_REPORT_S = 5.0
"""Between two reports of a class that tell other numbers alone: while nodes come up there are new ones ten times a second."""


class Outcome(enum.StrEnum):
    DONE = "done"
    CONFLICT = "conflict"
    REFUSED = "refused"
    FAILED = "failed"


_log = structlog.get_logger("reconciler")


class Reconciler:
    """Keeps DeviceClasses and the status of ElasticGPUClasses as wanted."""

    def __init__(
        self,
        api: apiserver.APIServer,
        watch: watcher.Watcher,
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._api = api
        self._watch = watch
        self._series = series
        self._clock = clock
        self._refusals: dict[str, tuple[classes.Refusal, float]] = {}
        self._reported: dict[str, tuple[float, str]] = {}
        """Class -> when its next numbers may be written, and the version that the last report was decided by."""

    async def run(self) -> None:
        """Works until it is cancelled."""
        seen, failures, wait_s = 0, 0, _REFUSAL_S
        self._refusals.clear()
        self._reported.clear()
        self._series.leading.set(1)
        try:
            while True:
                now = await self._watch.newer(seen, within_s=wait_s)
                outcomes, wait_s = await self._turn(now)
                failures = failures + 1 if Outcome.FAILED in outcomes else 0
                seen = 0 if outcomes & {Outcome.FAILED, Outcome.REFUSED} else now.number
                if failures:
                    await asyncio.sleep(backoff.pause_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures))
        finally:
            self._series.leading.set(0)

    async def _turn(self, now: snapshot.Snapshot) -> tuple[set[Outcome], float]:
        """What became of the writes, and how soon there is something to do though nothing changes."""
        moment = asyncio.get_running_loop().time()
        self._refusals = {of: kept for of, kept in self._refusals.items() if kept[1] > moment}
        refusals = {of: refusal for of, (refusal, _) in self._refusals.items()}
        writes = classes.turn(now, refusals, resource.timestamp(self._clock()))
        self._reported = {of: kept for of, kept in self._reported.items() if kept[0] > moment}
        outcomes, wait_s = set(), _REFUSAL_S
        for write in writes:
            if not isinstance(write, classes.Report):
                outcomes.add(await self._perform(write))
                continue
            until, version = self._reported.get(write.of, (moment, ""))
            if (until > moment and not write.news) or write.version == version:  # or the watch has not told of the last
                wait_s = min(wait_s, max(until - moment, 0.0))
                continue
            outcomes.add(outcome := await self._perform(write))
            self._reported[write.of] = moment + _REPORT_S, write.version if outcome is Outcome.DONE else ""
        return outcomes, wait_s

    async def _perform(self, write: classes.Write) -> Outcome:
        log = _log.bind(write=type(write).__name__, name=write.of)
        try:
            await self._send(write)
            outcome = Outcome.DONE
            log.info("written")
        except errors.Conflict as error:
            outcome = Outcome.CONFLICT
            log.info("overtaken", error=str(error))
        except errors.Invalid as error:
            outcome = self._refused(write, str(error))
            log.warning("refused", error=str(error))
        except errors.ElasticGPUError as error:
            outcome = Outcome.FAILED
            log.warning("failed", error=str(error))
        self._series.wrote(type(write).__name__, outcome)
        return outcome

    def _refused(self, write: classes.Write, words: str) -> Outcome:
        if not isinstance(write, classes.Create | classes.Change):
            return Outcome.FAILED
        until = asyncio.get_running_loop().time() + _REFUSAL_S
        self._refusals[write.of] = (classes.Refusal(spec=write.spec, message=words), until)
        return Outcome.REFUSED

    async def _send(self, write: classes.Write) -> None:
        path = f"{classes.DEVICE_CLASSES}/{write.of}"
        match write:
            case classes.Create():
                _check_stored(
                    write, await self._api.create(classes.DEVICE_CLASSES, write.body, fieldManager=names.FIELD_MANAGER)
                )
            case classes.Change():
                _check_stored(write, await self._api.patch(path, write.body, fieldManager=names.FIELD_MANAGER))
            case classes.Delete():
                await self._api.delete(path, uid=write.uid, resource_version=write.resource_version)
            case classes.Report():
                status = f"{classes.CLASSES}/{write.of}/status"
                await self._api.patch(status, write.body, fieldManager=names.FIELD_MANAGER)


def _check_stored(write: classes.Create | classes.Change, stored: Mapping[str, Any] | None) -> None:
    """An older API server drops fields that it does not know, and says nothing. Raises Invalid with their names."""
    if stored and (dropped := write.spec.keys() - stored["spec"].keys()):
        raise errors.Invalid(
            f"the API server took the DeviceClass {write.of} but did not store spec.{', spec.'.join(sorted(dropped))}; "
            "it is too old for that or has it switched off (extendedResourceName: 1.36, DRAExtendedResource)"
        )
