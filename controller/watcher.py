"""The cluster's objects as one frozen, numbered Snapshot after another.

    informers (ElasticGPUClass, DeviceClass, slices of our drivers) --> Snapshot --> whoever asks for a newer one

Level-based: who was busy while ten things changed gets one Snapshot with all of them. None is given before every
informer has the whole list, so that nothing is taken for missing that only has not been read yet.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import structlog

from api import errors, names, v1alpha1
from controller import classes, snapshot
from kube import apiserver, informer, shapes

_PACE_S = 0.1
"""Between pictures: a cluster that starts a thousand nodes costs ten pictures a second, not a thousand."""
_SERVED = "/apis/resource.k8s.io/v1"
_SLICES = f"{_SERVED}/resourceslices"
_ASK_AGAIN_S = 5.0
_RULES = "devicetaintrules"
_log = structlog.get_logger("watcher")


class Watcher:
    """Watches what the controller decides by."""

    def __init__(self, api: apiserver.APIServer, *, remote: bool = False) -> None:
        self._api = api
        self._rules: bool | None = None
        self._asked = asyncio.Event()
        self.classes = informer.Informer(api, classes.CLASSES, project=snapshot.gpu_class)
        self.device_classes = informer.Informer(api, classes.DEVICE_CLASSES, project=snapshot.device_class)
        self.slices = informer.Informer(
            api,
            _SLICES,
            project=snapshot.slice_,
            field_selector=f"spec.driver={names.LOCAL_DRIVER}",
            shape=shapes.Whole,
        )
        self._informers: dict[str, informer.Informer[Any]] = {
            v1alpha1.CLASS_PLURAL: self.classes,
            "deviceclasses": self.device_classes,
            "resourceslices": self.slices,
        }
        self.remote: informer.Informer[snapshot.Slice] | None = None
        if remote:
            selector = f"spec.driver={names.REMOTE_DRIVER}"
            self.remote = informer.Informer(api, _SLICES, project=snapshot.slice_, field_selector=selector)
            self._informers["remote resourceslices"] = self.remote
        self._stale = asyncio.Event()
        self._latest = snapshot.build(0, (), (), ())
        self._turn = asyncio.Condition()

    def missing(self) -> str:
        """What has not been listed yet, for the readiness probe; empty once all is."""
        missing = [name for name, kept in self._informers.items() if not kept.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    async def run(self, show: Callable[[snapshot.Snapshot], None]) -> None:
        """Keeps the picture current until cancelled; `show` sees each one."""
        async with asyncio.TaskGroup() as group:
            for name, kept in self._informers.items():
                group.create_task(kept.run(), name=f"watch {name}")
                group.create_task(self._note_changes(kept), name=f"note {name}")
            group.create_task(self._ask(), name="ask what is served")
            for kept in self._informers.values():
                await kept.synced.wait()
            rules = await self.serves_rules()
            while True:
                await self._stale.wait()
                self._stale.clear()
                now = snapshot.build(
                    self._latest.number + 1,
                    self.classes.objects.values(),
                    self.device_classes.objects.values(),
                    (*self.slices.objects.values(), *(self.remote.objects.values() if self.remote else ())),
                    remote_cards=self.remote is not None,
                    taint_rules=rules,
                )
                show(now)
                async with self._turn:
                    self._latest = now
                    self._turn.notify_all()
                await asyncio.sleep(_PACE_S)

    async def newer(self, than: int, *, within_s: float) -> snapshot.Snapshot:
        """The latest snapshot, as soon as its number is above `than`, or as it is after `within_s`.

        The first one is waited for however long it takes: before it nothing is known.
        """
        async with self._turn:
            await self._turn.wait_for(lambda: self._latest.number > 0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._turn.wait_for(lambda: self._latest.number > than)
            return self._latest

    async def serves_rules(self) -> bool:
        """Whether the API server has DeviceTaintRules; servers before 1.37 have none, and are not asked again."""
        await self._asked.wait()
        return bool(self._rules)

    async def _ask(self) -> None:
        while True:
            try:
                served = await self._api.get(_SERVED)
                break
            except errors.ElasticGPUError as error:
                _log.warning("kinds not listed", path=_SERVED, reason=str(error))
                await asyncio.sleep(_ASK_AGAIN_S)
        self._rules = any(kind["name"] == _RULES for kind in (served or {}).get("resources") or ())
        self._asked.set()

    async def _note_changes(self, kept: informer.Informer[Any]) -> None:
        seen = 0
        while True:
            seen = await kept.changed(seen)
            self._stale.set()
