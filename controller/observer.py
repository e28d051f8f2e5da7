"""The cluster's cards and who holds them, as one numbered picture after another.

    slices, classes (the watcher's) + claims, pods, nodes, ElasticGPU objects --> Scene --> recorder, metrics
    RemotePools, RemoteLeases (the remote watcher's, where it is on) --------/

A kind that is not listed yet is unknown with that reason: cards are then unknown too, not free. So a right that is
missing, or a CRD that is, costs this picture alone. It is made in a thread, from the one before: the first one of a large
cluster takes a second.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from api import names
from controller import gpus, remotewatcher, retention, snapshot, watcher
from kube import apiserver, informer, shapes
from view import join, ledger, objects, reader

_PACE_S = 1.0
"""Between pictures: claims come and go by the thousand, and people read once in a while."""
_OFF = "remote cards are off in the controller (remote.enabled of the chart)"
_REST = 4
"""So many times as long as a picture took, nothing is done: a large cluster's takes at most a fifth of a core."""
_SHOWN = attrgetter("seen")
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Both:
    """A pod in both of its meanings; most have one of them, or neither."""

    user: objects.Pod
    driver: objects.DriverPod


_Pod = objects.Pod | objects.DriverPod | _Both


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One picture, and the objects that show it. `gpus` is None until those are listed."""

    number: int
    seen: objects.Objects
    view: join.View
    gpus: Mapping[str, gpus.GPU] | None


class Observer:
    """Watches what the picture is made of. `claims`, `pods`, `nodes`: also for who needs something else of them."""

    def __init__(
        self, api: apiserver.APIServer, watch: watcher.Watcher, far: remotewatcher.RemoteWatcher | None = None
    ) -> None:
        """`far` is None where remote cards are off: slices that were left are shown, leases are not known."""
        self._slices, self._classes, self._device_classes = watch.slices, watch.classes, watch.device_classes
        self._lent: tuple[informer.Informer[Any], ...] = (self._slices, self._classes, self._device_classes)
        self._far = far
        self._far_slices = watch.remote or informer.Informer(
            api, _SLICES, project=snapshot.slice_, field_selector=f"spec.driver={names.REMOTE_DRIVER}"
        )
        if watch.remote is not None and far is not None:
            self._lent += (watch.remote, far.pools, far.intents)
        self.claims = informer.Informer(api, _CLAIMS, project=reader.claim, quiet=True, shape=shapes.Whole)
        self.pods = informer.Informer(api, _PODS, project=_pod, quiet=True, shape=shapes.Whole)
        self.nodes = informer.Informer(api, _NODES, project=reader.node, quiet=True, shape=shapes.Node)
        self._gpus = informer.Informer(api, gpus.PATH, project=gpus.gpu, shape=shapes.Whole)
        self._own: dict[str, informer.Informer[Any]] = {
            "resourceclaims": self.claims,
            "pods": self.pods,
            "nodes": self.nodes,
            "elasticgpus": self._gpus,
        }
        if watch.remote is None:
            self._own["remote resourceslices"] = self._far_slices
        self._watch = watch
        self._rules = informer.Informer(api, retention.RULES, project=reader.taint_rule)
        self._no_rules = False
        self._stale = asyncio.Event()
        self._outdated = True
        """Something has changed that the picture shows; it shows no ElasticGPU."""
        self._ledger = ledger.Ledger()
        nothing = self._seen()
        self._latest = Scene(number=0, seen=nothing, view=join.View(nothing), gpus=None)
        self._turn = asyncio.Condition()

    async def run(self, show: Callable[[Scene], None]) -> None:
        """Keeps the picture current until cancelled; `show` sees each one."""
        async with asyncio.TaskGroup() as group:
            for name, kept in self._own.items():
                if kept is not self._gpus:
                    group.create_task(kept.run(), name=f"watch {name}")
            group.create_task(self._follow_rules(), name="watch devicetaintrules")
            for kept in (*self._lent, *self._own.values(), self._rules):
                group.create_task(self._note_changes(kept), name="note changes")
            for kept in (*self._lent, self._far_slices, self.claims, self.pods, self.nodes, self._rules):
                await kept.tried.wait()  # each list makes all of a picture anew
            took_s = await self._look(show)
            # as many as cards, and the first picture has nothing of them
            group.create_task(self._gpus.run(), name="watch elasticgpus")
            while True:
                await asyncio.sleep(max(_PACE_S, _REST * took_s))
                took_s = await self._look(show)

    async def _look(self, show: Callable[[Scene], None]) -> float:
        """The next picture, as soon as something has changed; how long it took."""
        await self._stale.wait()
        self._stale.clear()
        started = asyncio.get_running_loop().time()
        found = dict(self._gpus.objects) if self._gpus.synced.is_set() else None
        seen, view = self._latest.seen, self._latest.view
        if self._outdated:
            self._outdated, seen = False, self._seen()
            view = await asyncio.to_thread(self._ledger.view, seen)
        now = Scene(number=self._latest.number + 1, seen=seen, view=view, gpus=found)
        took_s = asyncio.get_running_loop().time() - started
        show(now)
        async with self._turn:
            self._latest = now
            self._turn.notify_all()
        return took_s

    async def newer(self, than: int, *, within_s: float) -> Scene:
        """The latest picture, as soon as its number is above `than`, or as it is after `within_s`."""
        async with self._turn:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._turn.wait_for(lambda: self._latest.number > than)
            return self._latest

    @property
    def latest(self) -> Scene:
        return self._latest

    def silent_s(self) -> float | None:
        """For how long the API server cannot be heard, by the watch that lost it first; None while all hear it."""
        cuts = [kept.cut_at for kept in (*self._lent, *self._own.values()) if kept.cut_at is not None]
        return time.monotonic() - min(cuts) if cuts else None

    def _seen(self) -> objects.Objects:
        near, far = _part(self._slices, _SHOWN), _part(self._far_slices, _SHOWN)
        unwatched: objects.Part[Any] = objects.Part(unknown=_OFF if far.items else "")
        return objects.Objects(
            slices=_both(near, far),
            claims=_part(self.claims),
            pods=_part(self.pods, _user),
            drivers=_part(self.pods, _driver),
            nodes=_part(self.nodes),
            classes=_part(self._classes, _SHOWN),
            device_classes=_part(self._device_classes, _SHOWN),
            rules=objects.Part() if self._no_rules else _part(self._rules),
            remote_pools=_part(self._far.pools, _SHOWN) if self._far else unwatched,
            leases=_part(self._far.intents, _SHOWN) if self._far else unwatched,
        )

    @property
    def rules(self) -> Mapping[str, objects.TaintRule | None]:
        """DeviceTaintRules as they are now; none where the API server has no such kind."""
        return self._rules.objects

    async def _follow_rules(self) -> None:
        if await self._watch.serves_rules():
            await self._rules.run()
        self._no_rules = True
        self._rules.tried.set()
        self._outdated = True
        self._stale.set()

    async def _note_changes(self, kept: informer.Informer[Any]) -> None:
        seen = 0
        while True:
            seen = await kept.changed(seen)
            self._outdated |= kept is not self._gpus
            self._stale.set()


def _pod(data: dict[str, Any]) -> _Pod | None:
    user, driver = reader.pod(data), reader.driver_pod(data)
    return _Both(user=user, driver=driver) if user and driver else user or driver


def _user(one: _Pod) -> objects.Pod | None:
    return one.user if isinstance(one, _Both) else one if isinstance(one, objects.Pod) else None


def _driver(one: _Pod) -> objects.DriverPod | None:
    return one.driver if isinstance(one, _Both) else one if isinstance(one, objects.DriverPod) else None


def _both(near: objects.Part[Any], far: objects.Part[Any]) -> objects.Part[Any]:
    return objects.Part(items=(*near.items, *far.items), unknown=near.unknown or far.unknown)


def _part(kept: informer.Informer[Any], of: Callable[[Any], Any] | None = None) -> objects.Part[Any]:
    """`of`: the part of what is kept that the picture shows, where it is not all of it."""
    if not kept.synced.is_set():
        return objects.Part(unknown="not listed yet")
    found: Iterable[Any] = kept.objects.values()
    found = map(of, filter(None, found)) if of else found
    return objects.Part(items=tuple(one for one in found if one is not None))
