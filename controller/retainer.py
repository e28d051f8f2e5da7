"""Writes the rules that keep released cards back, while this replica leads.

    watcher (classes), observer (cards, holders, rules) --> retention.turn --> rules --> API server --> the watches

What must stay true: nothing is decided while claims, slices or rules are not all known; what failed is decided anew
after a growing pause.
"""

import asyncio

import structlog

from api import errors, names
from controller import metrics, observer, retention, watcher
from kube import apiserver, backoff

_AT_ONCE = 16
_LOOK_AGAIN_S = 300.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0

_log = structlog.get_logger("retainer")


class Retainer:
    """The only writer of DeviceTaintRules in the controller; it deletes none."""

    def __init__(
        self, api: apiserver.APIServer, watch: watcher.Watcher, look: observer.Observer, series: metrics.Metrics
    ) -> None:
        self._api = api
        self._watch = watch
        self._look = look
        self._series = series

    async def run(self) -> None:
        """Works until it is cancelled."""
        seen, failures = 0, 0
        while True:
            scene = await self._look.newer(seen, within_s=_LOOK_AGAIN_S)
            failures = 0 if await self._turn(scene) else failures + 1
            seen = 0 if failures else scene.number
            if failures:
                await asyncio.sleep(backoff.pause_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures))

    async def _turn(self, scene: observer.Scene) -> bool:
        """Whether all that was tried went well."""
        seen = scene.seen
        if scene.number == 0 or not (seen.slices.whole and seen.claims.whole and seen.rules.whole):
            return True
        keeping = retention.keeping(await self._watch.newer(0, within_s=0))
        if not keeping and not seen.rules.items:
            return True
        writes = await asyncio.to_thread(
            lambda: list(retention.turn(scene.view.cards, seen.rules.items, keeping)),
        )
        done = True
        for start in range(0, len(writes), _AT_ONCE):
            done = all(await asyncio.gather(*map(self._perform, writes[start : start + _AT_ONCE]))) and done
        return done

    async def _perform(self, write: retention.Write) -> bool:
        try:
            match write:
                case retention.Make():
                    await self._api.create(retention.RULES, write.body, fieldManager=names.FIELD_MANAGER)
                case retention.Change():
                    path = f"{retention.RULES}/{write.rule}"
                    await self._api.patch(path, write.body, fieldManager=names.FIELD_MANAGER)
            outcome = "done"
            _log.info("card kept back", write=type(write).__name__, card=write.of, taint=write.body["spec"]["taint"])
        except errors.Conflict:
            outcome = "conflict"
        except errors.ElasticGPUError as error:
            outcome = "refused" if isinstance(error, errors.Invalid) else "failed"
            _log.warning("failed", write=type(write).__name__, card=write.of, error=str(error))
        self._series.wrote("TaintRule", outcome)
        return outcome in ("done", "conflict")
