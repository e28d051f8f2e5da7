"""Keeps an ElasticGPU object for every card, while this replica leads.

    observer --> Scene --> gpus.turn --> applies and deletions --> API server --> watch --> the next Scene

What must stay true: it writes no faster than `_PER_S`, however many cards come up at once; one picture at a time; what
failed is decided anew after a growing pause.
"""

import asyncio
import datetime
import functools
import itertools
from collections.abc import Callable, Mapping

import structlog

from api import errors, names, resource
from controller import gpus, metrics, observer
from kube import apiserver, backoff

_PER_S = 100
_AT_ONCE = 8
_MOST = 500
"""Writes by one picture: after these there is a newer one."""
_LOOK_AGAIN_S = 300.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0

_log = structlog.get_logger("recorder")


class Recorder:
    """The only writer of ElasticGPU objects."""

    def __init__(
        self,
        api: apiserver.APIServer,
        watch: observer.Observer,
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._api = api
        self._watch = watch
        self._series = series
        self._clock = clock
        self._agreed: gpus.Agreed = {}

    async def run(self) -> None:
        """Works until it is cancelled."""
        seen, failures = 0, 0
        while True:
            now = await self._watch.newer(seen, within_s=_LOOK_AGAIN_S)
            failures = 0 if await self._turn(now) else failures + 1
            seen = 0 if failures else now.number
            if failures:
                await asyncio.sleep(backoff.pause_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures))

    async def _turn(self, now: observer.Scene) -> bool:
        """Whether all that was tried went well."""
        if now.gpus is None:
            return True
        at = resource.timestamp(self._clock())
        writes = await asyncio.to_thread(
            lambda found: list(itertools.islice(gpus.turn(now.seen, now.view, found, at, self._agreed), _MOST)),
            now.gpus,
        )
        done = True
        for start in range(0, len(writes), _AT_ONCE):
            batch = writes[start : start + _AT_ONCE]
            act = functools.partial(self._perform, now.gpus)
            outcomes = await asyncio.gather(*map(act, batch), asyncio.sleep(len(batch) / _PER_S))
            done = done and False not in outcomes
        return done

    async def _perform(self, found: Mapping[str, gpus.GPU], write: gpus.Write) -> bool:
        path = f"{gpus.PATH}/{write.of}"
        try:
            match write:
                case gpus.Apply():
                    kind = apiserver.Patch.APPLY
                    await self._api.patch(path, write.body, kind=kind, fieldManager=names.FIELD_MANAGER, force=True)
                case gpus.Remove():
                    await self._api.delete(path, uid=write.uid)
            outcome = "done"
            if isinstance(write, gpus.Apply) and write.card is not None and write.of in found:
                # an object that stays as it was keeps no more of it, with older CRDs: others have their turn
                self._agreed[found[write.of]] = write.card
        except errors.Conflict:
            outcome = "conflict"
        except errors.ElasticGPUError as error:
            outcome = "refused" if isinstance(error, errors.Invalid) else "failed"
            _log.warning("failed", write=type(write).__name__, card=write.of, error=str(error))
        self._series.wrote(type(write).__name__, outcome)
        return outcome in ("done", "conflict")
