"""Keeps one remote pool: what it has, who holds it, and that both end together.

    pool --list, watch--> poolreader --------------+
    API server --watch--> claims, RemoteLeases, nodes --+--> leases.turn --> actions --> leaser --> pool, API server
                                            +--> pools.wanted --> the offer, published by whoever owns the slices

Another pool is another keeper. What must stay true: nothing is decided before the pool was listed once and the watches are
complete; a pool that is not heard of for long is tainted.
"""

import asyncio
import contextlib
import datetime
from collections.abc import Callable

from api import remote as kinds
from api import resource
from controller import leaser, leases, metrics, poolapi, poolreader, pools, remote, remotewatcher
from kube import apiserver

_RENEW_S = 60.0
_IDLE_S = 5.0
"""Without news things are looked at all the same: deadlines pass silently."""


class PoolKeeper:
    """`inherited`: the devices that were published before this process began; `changed` is called when the offer is."""

    def __init__(
        self,
        *,
        api: apiserver.APIServer,
        pool_api: poolapi.PoolAPI,
        watch: remotewatcher.RemoteWatcher,
        name: str,
        cluster_uid: str,
        labels: tuple[tuple[str, str], ...],
        binding_s: float,
        fresh_s: float,
        inherited: tuple[resource.Device, ...],
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
        changed: Callable[[], None],
    ) -> None:
        self._pool, self._watch, self._name = pool_api, watch, name
        self._cluster_uid, self._labels, self._binding_s = cluster_uid, labels, binding_s
        self._fresh_s = fresh_s
        self._series, self._clock, self._changed = series, clock, changed
        self._wake = asyncio.Event()
        wake = self._wake.set
        self._reader = poolreader.PoolReader(
            pool_api, name=name, fresh_s=fresh_s, inherited=inherited, series=series, news=wake
        )
        self._leaser = leaser.Leaser(api, pool_api, watch, self._reader, name=name, series=series, done=wake)
        self._basis: tuple[object, ...] = ()
        self._unserved: dict[str, datetime.datetime] = {}
        self.taints_stored = True
        self.offer: resource.Pool | None = None

    @property
    def heard(self) -> bool:
        """Whether the pool has answered, or failed to."""
        return self._reader.states is not None or bool(self._reader.trouble)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        self._watch.listen(self._wake)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reader.run(), name=f"listen to pool {self._name}")
                group.create_task(self._renew(), name=f"renew leases of pool {self._name}")
                while True:
                    self._turn(group)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._pause_s()):
                            await self._wake.wait()
                    self._wake.clear()
        finally:
            self._watch.unlisten(self._wake)
            self._series.reached(self._name, answers=None)
            await self._pool.close()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            scene = self._scene()
            if scene is not None and (wanted := leases.renewable(scene)):
                await self._leaser.renew(wanted)

    def _scene(self) -> remote.Scene | None:
        if self._leaser.deposed:
            return None
        picture, now = self._watch.picture, self._clock()
        claims = picture.claims.get(self._name, ())
        return remote.Scene(
            pool=self._name,
            cluster_uid=self._cluster_uid,
            claims=claims,
            intents=picture.intents.get(self._name, ()),
            meant=picture.meant,
            leases=self._reader.leases,
            nodes=self._watch.nodes.objects,
            refused=self._leaser.refused,
            over=frozenset(self._reader.over),
            borne=self._leaser.borne,
            asked=frozenset(self._leaser.asked),
            unserved=self._late(claims, now),
            binding_s=self._binding_s,
            now=now,
        )

    def _late(self, claims: tuple[remote.Claim, ...], now: datetime.datetime) -> dict[str, datetime.datetime]:
        """Where the driver is not ready, and since when we see that."""
        served = self._watch.served
        nodes = set[str]() if served is None else {claim.claim.node for claim in claims} - served
        self._unserved = {node: self._unserved.get(node, now) for node in nodes}
        return self._unserved

    def _turn(self, group: asyncio.TaskGroup) -> None:
        scene = self._scene()
        if scene is None:
            return
        known = {intent.spec.key for intent in scene.intents}
        self._leaser.prune(known)
        self._reader.prune(known)
        self._leaser.begin(group, leases.turn(scene))
        self._offer(scene)

    def _pause_s(self) -> float:
        return max(min([_IDLE_S, self._fresh_s / 3, *self._leaser.rests_s()]), 0.01)

    def _offer(self, scene: remote.Scene) -> None:
        found = self._watch.pools.objects.get(self._name)
        if found is None:
            return
        fresh, reader = self._reader.fresh, self._reader
        held = frozenset(result.device for claim in scene.claims for result in claim.results(self._name))
        tainting = leases.tainting(scene)
        basis = (found, tainting, held, reader.listings, fresh, self.taints_stored)
        if basis == self._basis:  # most changes are another pool's
            return
        self._basis = basis
        offer = pools.wanted(
            found,
            self._labels,
            reader.devices.values(),
            reader.states,
            tainting,
            held,
            fresh=fresh,
            taints_stored=self.taints_stored,
        )
        if offer != self.offer:
            self.offer = offer
            self._changed()

    def report(self, found: remote.Pool) -> kinds.PoolStatus:
        """The RemotePool's status as it should be."""
        reader = self._reader
        return pools.report(
            found,
            devices=len(reader.devices if reader.states is None else reader.states),
            leases=sum(not held.state.ended for held in (reader.leases or {}).values()),
            pool_id=reader.pool_id,
            version=reader.version,
            trouble=reader.trouble or ("" if reader.states is not None else "it has not answered yet"),
            at=resource.timestamp(self._clock()),
        )
