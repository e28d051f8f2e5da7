"""What admission knows of the cluster, kept by watches: the classes, and the namespaces that ask for translation.

    informers --> known values --> pods.Setting, classes by name

An answer never waits for a watch, but for one case: a namespace that was labelled a moment ago is asked for by name.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from api import names, v1alpha1
from kube import apiserver, informer
from translate import asks, pods
from webhook import known

_CLASSES = f"/apis/{names.API_VERSION}/{v1alpha1.CLASS_PLURAL}"
_NAMESPACES = "/api/v1/namespaces"


class Watcher:
    """`units`: what the admin says about the old systems."""

    def __init__(self, api: apiserver.APIServer, units: asks.Units) -> None:
        self._api = api
        self._units = units
        self._classes = informer.Informer(api, _CLASSES, project=known.gpu_class)
        self._namespaces = informer.Informer(
            api, _NAMESPACES, project=known.namespace, label_selector=f"{names.TRANSLATE_LABEL}=true"
        )
        self._offered: tuple[int, tuple[pods.Class, ...]] = (-1, ())

    def missing(self) -> str:
        """What has not been listed yet, for the readiness probe."""
        kept: Mapping[str, informer.Informer[Any]] = {"classes": self._classes, "namespaces": self._namespaces}
        missing = [name for name, one in kept.items() if not one.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    async def run(self) -> None:
        """Keeps it current until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._classes.run(), name="watch classes")
            group.create_task(self._namespaces.run(), name="watch namespaces")

    @property
    def classes(self) -> Mapping[str, known.GPUClass]:
        return self._classes.objects

    async def setting(self, namespace: str) -> pods.Setting:
        """How pods of a namespace are translated now."""
        found = self._namespaces.objects.get(namespace)
        if found is None:
            data = await self._api.get(f"{_NAMESPACES}/{namespace}")
            found = known.namespace(data) if data else None
        if self._offered[0] != self._classes.version:
            self._offered = (self._classes.version, known.offered(self.classes.values()))
        return pods.Setting(
            classes=self._offered[1], workload_type=found.workload_type if found else "", units=self._units
        )
