"""Makes the templates that translated pods name, while this replica leads.

    pods with the label, templates, namespaces that translate, ElasticGPUClasses --watch--> templates.turn --> API server

Kubernetes looks for a missing template again within milliseconds at first and ever more slowly then, so this does not
pace itself. A write that failed is decided anew after a growing pause.
"""

import asyncio
import contextlib
import datetime
from collections.abc import Callable
from typing import Any

import structlog

from api import errors, names, resource
from controller import classes, metrics, templates
from kube import apiserver, backoff, informer

_UNUSED = datetime.timedelta(minutes=10)
_LOOK_AGAIN_S = 300.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_log = structlog.get_logger("translator")


class Translator:
    """The only writer of ResourceClaimTemplates."""

    def __init__(
        self, api: apiserver.APIServer, series: metrics.Metrics, clock: Callable[[], datetime.datetime]
    ) -> None:
        self._api = api
        self._series = series
        self._clock = clock
        self._pods = informer.Informer(
            api, templates.PODS, project=templates.pod, label_selector=f"{names.TRANSLATED_LABEL}=true"
        )
        self._templates = informer.Informer(api, templates.TEMPLATES, project=templates.template)
        self._namespaces = informer.Informer(
            api, templates.NAMESPACES, project=_name, label_selector=f"{names.TRANSLATE_LABEL}=true"
        )
        self._classes = informer.Informer(api, classes.CLASSES, project=_name)
        self._informers: tuple[informer.Informer[Any], ...] = (
            self._pods,
            self._templates,
            self._namespaces,
            self._classes,
        )
        self._stale = asyncio.Event()

    async def run(self) -> None:
        """Works until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for kept in self._informers:
                group.create_task(kept.run(), name="watch")
                group.create_task(self._note_changes(kept), name="note")
            for kept in self._informers:
                await kept.synced.wait()
            failures = 0
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await self._stale.wait()
                self._stale.clear()
                failures = 0 if await self._turn() else failures + 1
                if failures:
                    self._stale.set()
                    await asyncio.sleep(backoff.pause_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures))

    async def _turn(self) -> bool:
        """Whether all that was tried went well."""
        writes = templates.turn(
            (item for item in self._pods.objects.values() if item is not None),
            tuple(self._templates.objects.values()),
            set(self._namespaces.objects.values()),
            set(self._classes.objects.values()),
            resource.timestamp(self._clock() - _UNUSED),
        )
        return False not in [await self._perform(write) for write in tuple(writes)]

    async def _perform(self, write: templates.Write) -> bool:
        try:
            match write:
                case templates.Create():
                    made = await self._api.create(templates.path(write.namespace), write.body)
                    self._templates.adopt(made)
                case templates.Delete():
                    await self._api.delete(templates.path(write.namespace, write.name), uid=write.uid)
                    self._templates.discard(f"{write.namespace}/{write.name}")
            outcome = "done"
        except errors.Conflict:  # the watch will show whose it is
            outcome = "conflict"
        except errors.ElasticGPUError as error:
            outcome = "refused" if isinstance(error, errors.Invalid) else "failed"
            _log.warning("failed", write=type(write).__name__, namespace=write.namespace, error=str(error))
        self._series.wrote(f"Template{type(write).__name__}", outcome)
        return outcome in ("done", "conflict")

    async def _note_changes(self, kept: informer.Informer[Any]) -> None:
        seen = 0
        while True:
            seen = await kept.changed(seen)
            self._stale.set()


def _name(data: dict[str, Any]) -> str:
    return str(data["metadata"]["name"])
