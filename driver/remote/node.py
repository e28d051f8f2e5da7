"""The driver of remote cards on one node, as the plugin library knows it.

    prepare     claim -> record, where we attach ourselves -> pool confirms -> credential -> record -> CDI file
    unprepare   RemoteLease: Releasing -> pool: Detach -> credential, CDI file, record away; needs no pool
    run         renews leases and credentials, and says which sessions are over

A pool that is down keeps no pod from ending: what it could not be told stands in the RemoteLease, and the controller
finishes it; the lease's own end is the backstop. If that cannot be written either, the record stays and the call is
repeated. What must stay true: what is prepared is answered from the record alone; a lease is renewed before anything is
served; no record goes before its card was given back, or somebody else was charged with it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import msgspec
import structlog

from api import errors, names, resource
from api import remote as kinds
from driver import cdidir
from driver.remote import (
    attacher,
    connections,
    credentials,
    edits,
    held,
    plan,
    profiles,
    records,
    remoteleases,
    renewer,
    store,
)
from kubeletplugin import contract

_RENEW_S = 60.0
_REPAIR_S = 2.0
_FIRST_RENEWAL_S = 10.0
_DETACH_S = 20.0
_ASK_S = 3.0
_log = structlog.get_logger()


class Node:
    """The Driver of `kubeletplugin.contract` for remote cards. `mint` makes epochs that nobody else makes; `relay`: one runs."""

    def __init__(
        self,
        *,
        kept: store.Store,
        specs: cdidir.CDIDir,
        keys: credentials.Credentials,
        objects: remoteleases.RemoteLeases,
        mint: Callable[[], str],
        relay: bool,
    ) -> None:
        self._relay = relay
        self._store, self._specs, self._keys, self._objects, self._mint = kept, specs, keys, objects, mint
        self._pools = connections.Connections(objects)
        self._attacher = attacher.Attacher(self._pools.to, objects, keys)
        self._held = held.Held()
        self._renewer = renewer.Renewer(self._held, self._pools, self._attacher, keys, specs)
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Reads what an earlier process left, and renews it. Call it before anything else."""
        await self._read()
        for uid in await self._keys.claims() - self._held.records.keys():
            await self._keys.remove(uid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_RENEWAL_S):
                await self._renew()
        _log.info("records read", claims=len(self._held.records))

    async def close(self) -> None:
        await self._pools.close()

    async def run(self) -> None:
        """Renews, and puts CDI files back that vanished, for ever."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while True:
            await asyncio.sleep(_REPAIR_S)
            known = self._held.records.values()
            wanted = {resource.ClaimUID(record.uid): record.cdi for record in known if self._held.well(record)}
            with contextlib.suppress(errors.Unavailable):
                for uid in await self._specs.broken(wanted):
                    await self._put_back(uid)
            if clock() - renewed >= _RENEW_S:
                renewed = clock()
                await self._renew()

    async def _put_back(self, uid: resource.ClaimUID) -> None:
        """Unless it went because its claim was given back, before or meanwhile."""
        record = self._held.records.get(uid)
        if record is not None and self._held.well(record) and not self._held.gone(uid):
            await self._specs.write(uid, record.cdi)
            if self._held.gone(uid):
                await self._specs.remove(uid)

    async def prepare(self, claim: resource.Claim) -> tuple[contract.PreparedDevice, ...]:
        results = claim.of_driver(names.REMOTE_DRIVER)
        if not results:
            return ()
        before = await self._store.read(claim.uid)
        if before is not None and before.phase is records.Phase.PREPARED and plan.same(before, claim, results):
            await self._restored(before)
            return _answers(before)
        me = await self._objects.identity()
        record = plan.planned(claim, results, before, cluster_uid=me.cluster_uid, node_uid=me.node_uid, mint=self._mint)
        for holding in plan.over(before, record):
            await self._released(holding)
        if any(holding.by_node for holding in record.holdings):
            await self._store.write(record)  # the key outlives us from now on: no second one is ever made up
        self._held.put(record)
        holdings = await self._attached(claim, record)
        record = msgspec.structs.replace(record, phase=records.Phase.PREPARED, holdings=holdings)
        record = await self._described(record)
        await self._renewer.certify(record)
        await self._store.write(record)
        await self._specs.write(claim.uid, record.cdi)
        self._held.put(record)
        self._tell()
        return _answers(record)

    async def unprepare(self, ref: contract.ClaimRef) -> None:
        record = await self._store.read(ref.uid)
        if record is not None:
            if await self._used_by_others(record):
                _log.warning("left prepared: another pod of this node uses the claim", claim=str(ref))
                return
            await asyncio.gather(*(self._released(holding) for holding in record.holdings))
        self._held.ending.add(ref.uid)
        try:
            await self._keys.remove(ref.uid)
            await self._specs.remove(ref.uid)
            await self._store.remove(ref.uid)
            self._held.drop(ref.uid)
            self._renewer.forget(ref.uid)
        finally:
            self._held.ending.discard(ref.uid)
        self._tell()

    async def prepared(self) -> tuple[contract.ClaimRef, ...]:
        await self._read()
        return tuple(
            contract.ClaimRef(uid=resource.ClaimUID(one.uid), namespace=one.namespace, name=one.name)
            for one in self._held.records.values()
        )

    async def _read(self) -> None:
        """Another process may share the disk."""
        with self._held.reading() as touched:
            self._held.take(touched, await self._store.all())

    async def devices(self, ref: contract.ClaimRef) -> tuple[contract.PreparedDevice, ...]:
        record = self._held.records.get(ref.uid)
        return _answers(record) if record is not None and record.phase is records.Phase.PREPARED else ()

    async def pools(self) -> AsyncGenerator[tuple[resource.Pool, ...]]:
        """None of this node's: the controller publishes them."""
        yield ()
        await asyncio.Event().wait()

    async def health(self) -> AsyncGenerator[tuple[contract.DeviceHealth, ...]]:
        while True:
            self._news.clear()
            yield tuple(
                contract.DeviceHealth(
                    pool=pool,
                    device=device,
                    health=contract.Health.UNHEALTHY if why else contract.Health.HEALTHY,
                    message=why,
                )
                for (pool, device), why in sorted(self._held.places().items())
            )
            await self._news.wait()

    async def seen(self, claim: resource.Claim) -> None:
        """Nothing follows here from who else uses a remote card."""

    async def dropped(self, fields: frozenset[str]) -> None:
        """This node publishes nothing."""

    # One claim.

    async def _attached(self, claim: resource.Claim, record: records.Record) -> tuple[records.Holding, ...]:
        """All cards, or none. Where one's key is used up, the next call makes up others for all: what the rest got by
        theirs is given back before those are forgotten.
        """
        asked = (self._attacher.attached(claim, one) for one in record.holdings)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        failed = [one for one in outcomes if isinstance(one, BaseException)]
        ended = next((one for one in failed if isinstance(one, attacher.Ended)), None)
        by_node = [holding for holding in record.holdings if holding.by_node]
        if ended is not None and by_node:
            await asyncio.gather(*(self._released(holding) for holding in by_node))
            await self._store.remove(claim.uid)
        if failed:
            raise ended or failed[0]
        return tuple(one for one in outcomes if isinstance(one, records.Holding))

    async def _restored(self, record: records.Record) -> None:
        """After a reboot neither CDI file nor credential is there. A lease that is over starts no container."""
        for holding in record.holdings:
            if why := self._held.why_lost(holding):
                raise errors.NotReady(f"card {holding.device} is lost: {why}; the pod has to be made anew")
        requests = edits.requests(record)
        there = [
            await self._keys.complete(record.uid, name, len(cards), relayed=name in record.relayed)
            for name, cards in requests.items()
        ]
        if not all(there):
            await self._renewer.certify(record)
        await self._specs.write(resource.ClaimUID(record.uid), record.cdi)
        self._held.put(record)

    async def _described(self, record: records.Record) -> records.Record:
        """With its CDI text, and with the requests before which a relay has to stand."""
        chosen, relayed = {}, []
        for request, holdings in edits.requests(record).items():
            insecure = all([(await self._pools.to(one.pool)).spec.allow_insecure for one in holdings])
            chosen[request], relay = profiles.chosen(
                holdings[0].profile,
                holdings[0].auth_modes,
                len(holdings),
                insecure=insecure,
                relay=self._relay,
                where=f"request {request} of claim {record.namespace}/{record.name}",
            )
            relayed += [request] if relay else []
        record = msgspec.structs.replace(record, relayed=tuple(relayed))
        text = edits.of_claim(record, chosen, str(self._keys.place(record.uid)))
        return msgspec.structs.replace(record, cdi=text)

    async def _used_by_others(self, record: records.Record) -> bool:
        """Where the API server does not say so at once, the card is given back: the pod that ends must end."""
        try:
            async with asyncio.timeout(_ASK_S):
                return await self._objects.used_by_others(record)
        except (errors.ElasticGPUError, TimeoutError):
            return False

    async def _released(self, holding: records.Holding) -> None:
        """Told to the RemoteLease first, so that the controller does not take the end for a loss."""
        written = await self._charged(holding)
        try:
            async with asyncio.timeout(_DETACH_S):
                await self._attacher.detach(holding, "the pod has ended")
        except (errors.ElasticGPUError, TimeoutError) as error:
            _log.warning(
                "not detached, the controller will do it", pool=holding.pool, lease=holding.lease_id, reason=str(error)
            )
            if not written and not await self._charged(holding):
                raise errors.Unavailable(
                    f"card {holding.device}: neither pool {holding.pool} nor the API server can be told that it is free; "
                    "nothing is lost, this is repeated"
                ) from error

    async def _charged(self, holding: records.Holding) -> bool:
        try:
            async with asyncio.timeout(_ASK_S):
                await self._objects.move(holding, kinds.Phase.RELEASING, "the pod has ended")
        except (errors.ElasticGPUError, TimeoutError):
            return False
        return True

    async def _renew(self) -> None:
        await self._renewer.renew()
        self._tell()

    def _tell(self) -> None:
        self._held.forget()
        self._news.set()


def _answers(record: records.Record) -> tuple[contract.PreparedDevice, ...]:
    """What the controller has told already is not told again: its entry in the claim's status is its own."""
    return tuple(
        contract.PreparedDevice(
            requests=(holding.request.partition("/")[0],),
            pool=holding.pool,
            device=holding.device,
            share_id=holding.share_id,
            cdi_ids=(edits.qualified(record.uid, holding.request.partition("/")[0]),),
            data=edits.data(holding) if holding.by_node else {},
        )
        for holding in record.holdings
    )
