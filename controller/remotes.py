"""All remote pools, while this replica leads: a keeper for each RemotePool, and the slices of all of them.

    RemotePools --watch--> keepers, begun and ended --offers--> one publisher --> slices
                                                   --reports--> status of the RemotePools

A pool that has not answered since this process began is offered as it was published before. Whatever becomes of one
keeper, the others go on. RemoteLeases whose RemotePool is gone are forgotten when every lease must have run out.
"""

import asyncio
import datetime
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from api import errors, lease, names, resource
from api import remote as kinds
from controller import metrics, poolapi, poolkeeper, pools, remote, remotewatcher, settings
from kube import apiserver, publisher, slices

_CLUSTER = "/api/v1/namespaces/kube-system"
_RETRY_S = 5.0
_LOOK_S = 15.0
_RUN_OUT = 2 * datetime.timedelta(milliseconds=lease.TTL_MS)
"""Twice the life that a lease of ours has without renewal."""
_log = structlog.get_logger("remotes")


class Remotes:
    """Works for one reign: `epoch` goes with every call to a pool."""

    def __init__(
        self,
        api: apiserver.APIServer,
        watch: remotewatcher.RemoteWatcher,
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
        given: settings.Settings,
        epoch: int,
    ) -> None:
        self._api, self._watch, self._series, self._clock = api, watch, series, clock
        self._given, self._epoch = given, epoch
        self._labels = tuple(
            (key, value) for key, _, value in (term.partition("=") for term in given.remote_nodes.split(",")) if key
        )
        self._keepers: dict[tuple[str, str, bytes], tuple[poolkeeper.PoolKeeper, asyncio.Task[None]]] = {}
        self._inherited: dict[str, tuple[resource.Device, ...]] = {}
        self._offers: dict[tuple[str, str, bytes], resource.Pool] = {}
        self._taints_stored = True
        self._wake = asyncio.Event()
        self._publisher = publisher.Publisher(api, slices.Scope(driver=names.REMOTE_DRIVER), self._dropped)

    async def run(self) -> None:
        """Works until it is cancelled."""
        await self._watch.synced()
        cluster_uid = await self._prepared()
        self._watch.belong(cluster_uid)
        self._watch.listen(self._wake)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publisher.run(), name="publish remote slices")
                group.create_task(self._look(), name="look after remote pools")
                while True:
                    self._keep(group, cluster_uid)
                    self._publish()
                    await self._wake.wait()
                    self._wake.clear()
        finally:
            self._watch.unlisten(self._wake)

    async def _prepared(self) -> str:
        """The cluster's uid; meanwhile what is published is read."""
        while True:
            try:
                cluster = await self._api.get(_CLUSTER)
                selector = slices.Scope(driver=names.REMOTE_DRIVER).selector
                self._inherited = await self._published(selector)
            except errors.ElasticGPUError as error:
                _log.warning("remote cards wait", reason=str(error))
            else:
                if cluster is not None:
                    return str(cluster["metadata"]["uid"])
            await asyncio.sleep(_RETRY_S)

    async def _published(self, selector: str) -> dict[str, tuple[resource.Device, ...]]:
        found: dict[str, dict[str, resource.Device]] = {}
        async for item in self._api.each(slices.PATH, fieldSelector=selector):
            devices = found.setdefault(item["spec"]["pool"]["name"], {})
            devices |= {one["name"]: pools.published(one) for one in item["spec"].get("devices") or ()}
        return {pool: tuple(devices.values()) for pool, devices in found.items()}

    def _keep(self, group: asyncio.TaskGroup, cluster_uid: str) -> None:
        """One keeper a pool and spec: a pool that moved is another connection."""
        wanted = {
            (found.name, found.uid, msgspec.json.encode(found.spec)): found
            for found in self._watch.pools.objects.values()
            if found.spec is not None
        }
        for key in self._keepers.keys() - wanted.keys():
            keeper, task = self._keepers.pop(key)
            task.cancel()
            if keeper.offer is not None:
                self._inherited[key[0]] = keeper.offer.devices
        for key in wanted.keys() - self._keepers.keys():
            found = wanted[key]
            assert found.spec is not None
            credentials = Path(self._given.remote_credentials)
            keeper = poolkeeper.PoolKeeper(
                api=self._api,
                pool_api=poolapi.PoolAPI(found.name, found.spec, credentials, cluster_uid, self._epoch),
                watch=self._watch,
                name=found.name,
                cluster_uid=cluster_uid,
                labels=self._labels,
                binding_s=self._given.remote_binding_s,
                fresh_s=self._given.remote_fresh_s,
                inherited=self._inherited.get(found.name, ()),
                series=self._series,
                clock=self._clock,
                changed=self._wake.set,
            )
            keeper.taints_stored = self._taints_stored
            keeper.offer = self._offers.pop(key, None)
            self._keepers[key] = keeper, group.create_task(self._kept(key, keeper), name=f"keep pool {found.name}")

    async def _kept(self, key: tuple[str, str, bytes], keeper: poolkeeper.PoolKeeper) -> None:
        """One that fails is begun anew after a pause; until then its offer stays, and the others go on."""
        try:
            await keeper.run()
        except Exception:  # noqa: BLE001 whatever one keeper dies of, the others must not
            _log.exception("keeper failed, it is begun anew", pool=key[0])
            found = self._watch.pools.objects.get(key[0])
            if keeper.offer is None and found is not None:
                keeper.offer = self._unread(found)
            self._wake.set()
            await asyncio.sleep(_RETRY_S)
            del self._keepers[key]
            if keeper.offer is not None:
                self._inherited[key[0]] = keeper.offer.devices
                self._offers[key] = keeper.offer
            self._wake.set()

    def _publish(self) -> None:
        """Nothing of a pool goes because its keeper has not begun yet; what has an offer needs no memory of what was before."""
        for (name, _, _), (keeper, _) in self._keepers.items():
            if keeper.offer is not None:
                self._inherited.pop(name, None)
        offers = [keeper.offer for keeper, _ in self._keepers.values()]
        unread = [self._unread(found) for found in self._watch.pools.objects.values() if found.spec is None]
        if None not in offers:
            known = [one for one in (*offers, *unread) if one is not None]
            self._publisher.want(tuple(sorted(known, key=lambda one: one.name)))

    def _unread(self, found: remote.Pool) -> resource.Pool:
        """One whose spec cannot be read any more: what was offered of it stays, and nobody new gets it. Whether a node's word
        of a card is so nobody can be asked.
        """
        devices, intents = self._inherited.get(found.name, ()), self._watch.picture.intents.get(found.name, ())
        held = {device.name for device in devices}
        intents = tuple(one for one in intents if one.spec.attached_by is kinds.AttachedBy.CONTROLLER)
        return pools.wanted(
            found, self._labels, devices, None, intents, held, fresh=False, taints_stored=self._taints_stored
        )

    async def _look(self) -> None:
        """What needs no hurry: the status of pools, and what is left of pools that are gone."""
        while True:
            for (name, _, _), (keeper, _) in tuple(self._keepers.items()):
                found = self._watch.pools.objects.get(name)
                if found is not None:
                    await self._report(found, keeper.report(found))
            for found in tuple(self._watch.pools.objects.values()):
                if found.spec is None:
                    at = resource.timestamp(self._clock())
                    await self._report(
                        found, pools.report(found, devices=0, leases=0, pool_id="", trouble=found.problem, at=at)
                    )
            await self._forget()
            await asyncio.sleep(_LOOK_S if self._settled() else 1.0)

    def _settled(self) -> bool:
        return all(keeper.heard for keeper, _ in self._keepers.values())

    async def _report(self, found: remote.Pool, wanted: kinds.PoolStatus) -> None:
        if wanted == found.status:
            return
        body = {"metadata": {"uid": found.uid}, "status": remote.whole(wanted)}
        try:
            stored = await self._api.patch(f"{remote.POOLS}/{found.name}/status", body)
        except errors.ElasticGPUError as error:  # told again at the next look
            _log.warning("status of a pool not written", pool=found.name, error=str(error))
            return
        if stored is not None:
            self._watch.pools.adopt(stored)

    async def _forget(self) -> None:
        """Without its RemotePool nobody can ask about a lease; it has run out long since."""
        for intent in tuple(self._watch.intents.objects.values()):
            since = datetime.datetime.fromisoformat(intent.status.since)
            if intent.spec.pool in self._watch.pools.objects or self._clock() - since < _RUN_OUT:
                continue
            path = f"{remote.LEASES}/{intent.name}"
            meta = {"uid": intent.uid, "resourceVersion": intent.resource_version, "finalizers": None}
            try:
                await self._api.patch(path, {"metadata": meta})
                await self._api.delete(path, uid=intent.uid)
            except errors.ElasticGPUError as error:  # tried again at the next look
                _log.warning("a lease without its pool is not forgotten", lease=intent.name, error=str(error))

    async def _dropped(self, fields: frozenset[str]) -> None:
        self._series.remote_dropped.set(len(fields))
        self._taints_stored = not any(field.startswith("devices.taints") for field in fields)
        for keeper, _ in self._keepers.values():
            keeper.taints_stored = self._taints_stored
            keeper.wake()
        if any(field.startswith("devices.binding") for field in fields):
            _log.warning("this server stores no binding conditions: remote cards are attached when their pod starts")
