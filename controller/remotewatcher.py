"""The cluster's objects that the remote road is decided by, kept by watches of their own.

    RemotePools, RemoteLeases, claims that hold remote cards, nodes --> Picture, by pool --> keepers
    pods of the driver of remote cards ------------------------------> served, the nodes where it is ready

One Picture for all keepers, made when it is first asked for after a change. Answers of own writes are in it at once. A pod
of the driver that changes nothing of `served`, as most do while they are made anew, wakes nobody.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller import remote
from kube import apiserver, informer

_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """By the name of the pool: who holds what, and what is meant, as far as it is genuine. `genuine`: of all pools; `meant`: their keys."""

    claims: Mapping[str, tuple[remote.Claim, ...]] = field(default_factory=dict)
    intents: Mapping[str, tuple[remote.Intent, ...]] = field(default_factory=dict)
    genuine: tuple[remote.Intent, ...] = ()
    meant: frozenset[str] = frozenset()


class RemoteWatcher:
    """`drivers`: the labels of the driver's pods in `namespace`; without them all nodes are taken for served."""

    def __init__(self, api: apiserver.APIServer, namespace: str = "", drivers: str = "") -> None:
        self.pools = informer.Informer(api, remote.POOLS, project=remote.pool)
        self.intents = informer.Informer(api, remote.LEASES, project=remote.intent)
        self.claims = informer.Informer(api, _CLAIMS, project=remote.claim, quiet=True)
        self.nodes = informer.Informer(api, _NODES, project=remote.node, quiet=True)
        self._drivers: informer.Informer[str] | None = None
        self.served: frozenset[str] | None = None
        self._all: tuple[informer.Informer[Any], ...] = (self.pools, self.intents, self.claims, self.nodes)
        if drivers:
            path = f"/api/v1/namespaces/{namespace}/pods"
            self._drivers = informer.Informer(api, path, project=remote.served, label_selector=drivers, quiet=True)
            self._all += (self._drivers,)
            self.served = frozenset()
        self._listeners: set[asyncio.Event] = set()
        self._picture: Picture | None = None
        self._cluster_uid = ""

    def belong(self, cluster_uid: str) -> None:
        """Intents of this cluster alone count from now on."""
        self._cluster_uid, self._picture = cluster_uid, None

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kept in self._all:
                group.create_task(kept.run(), name="watch remote")
                noted = self._note(kept) if kept is not self._drivers else self._note_drivers(kept)
                group.create_task(noted, name="note remote")

    async def synced(self) -> None:
        for kept in self._all:
            await kept.synced.wait()

    def listen(self, wake: asyncio.Event) -> None:
        """Sets `wake` at every change from now on, until `unlisten`."""
        self._listeners.add(wake)

    def unlisten(self, wake: asyncio.Event) -> None:
        self._listeners.discard(wake)

    @property
    def picture(self) -> Picture:
        if self._picture is None:
            claims: dict[str, list[remote.Claim]] = {}
            intents: dict[str, list[remote.Intent]] = {}
            for claim in self.claims.objects.values():
                if claim is None:
                    continue
                for pool in {result.pool for result in claim.claim.results}:
                    claims.setdefault(pool, []).append(claim)
            genuine = [one for one in self.intents.objects.values() if one.genuine(self._cluster_uid)]
            for intent in genuine:
                intents.setdefault(intent.spec.pool, []).append(intent)
            self._picture = Picture(
                claims={pool: tuple(found) for pool, found in claims.items()},
                intents={pool: tuple(found) for pool, found in intents.items()},
                genuine=tuple(genuine),
                meant=frozenset(intent.spec.key for intent in genuine),
            )
        return self._picture

    async def _note(self, kept: informer.Informer[Any]) -> None:
        seen = 0
        while True:
            seen = await kept.changed(seen)
            self._picture = None
            self._tell()

    async def _note_drivers(self, drivers: informer.Informer[str]) -> None:
        seen = 0
        while True:
            seen = await drivers.changed(seen)
            served = frozenset(drivers.objects.values()) - {""}
            if served != self.served:
                self.served = served
                self._tell()

    def _tell(self) -> None:
        for wake in self._listeners:
            wake.set()
