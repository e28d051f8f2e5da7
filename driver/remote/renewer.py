"""Keeps alive what is prepared on one node: leases by a call a pool, credentials at half of their life.

    renew    pool: RenewLeases -> refused: the lease is over, its CDI file goes      old: another credential
    certify  key made here, CSR -> pool -> certificate

What must stay true: one pool that does not answer delays no other; of a claim that is given back meanwhile no credential
stays; a lease that is over starts no container.
"""

import asyncio

import structlog

from api import errors, resource
from driver import cdidir
from driver.remote import attacher, connections, credentials, edits, held, records

_log = structlog.get_logger()


class Renewer:
    def __init__(
        self,
        kept: held.Held,
        pools: connections.Connections,
        attaching: attacher.Attacher,
        keys: credentials.Credentials,
        specs: cdidir.CDIDir,
    ) -> None:
        self._held, self._pools, self._attacher, self._keys, self._specs = kept, pools, attaching, keys, specs
        self._fresh_until: dict[str, float] = {}

    async def certify(self, record: records.Record) -> None:
        """Puts fresh credentials of all its cards in place."""
        lives: list[float] = []
        for request, holdings in edits.requests(record).items():
            for number, holding in enumerate(holdings):
                lives.append(await self._attacher.certify(record.uid, request, number, holding))
            if request in record.relayed:
                await self._keys.write_relay(record.uid, request, edits.relay(record, request, holdings))
        self._fresh_until[record.uid] = asyncio.get_running_loop().time() + min(lives) / 2

    def forget(self, uid: str) -> None:
        self._fresh_until.pop(uid, None)

    async def renew(self) -> None:
        by_pool: dict[str, list[tuple[records.Record, records.Holding]]] = {}
        for record in self._held.records.values():
            for holding in record.holdings if record.phase is records.Phase.PREPARED else ():
                by_pool.setdefault(holding.pool, []).append((record, holding))
        await asyncio.gather(*(self._renew_pool(pool, leases) for pool, leases in by_pool.items()))

    async def _renew_pool(self, name: str, leases: list[tuple[records.Record, records.Holding]]) -> None:
        """One pool that does not answer delays no other."""
        try:
            pool = await self._pools.to(name)
            refused = await pool.renew(tuple((holding.lease_id, holding.token) for _, holding in leases))
        except errors.ElasticGPUError as error:
            _log.warning("leases not renewed", pool=name, leases=len(leases), reason=str(error))
            return
        for record, holding in leases:
            try:
                await self._renewed(record, holding, refused.get(holding.lease_id))
            except errors.ElasticGPUError as error:
                _log.warning("not renewed wholly", claim=f"{record.namespace}/{record.name}", reason=str(error))

    async def _renewed(self, record: records.Record, holding: records.Holding, refused: str | None) -> None:
        """What follows from the pool's answer; of a claim that is given back meanwhile no credential stays."""
        try:
            if not self._held.has(record.uid, holding):
                return  # given back while the pool was asked: that it has ended is no news
            if refused is not None:
                await self._over(record, holding, refused)
            elif asyncio.get_running_loop().time() >= self._fresh_until.get(record.uid, 0.0):
                await self.certify(record)
        finally:
            if self._held.gone(record.uid):
                await self._keys.remove(record.uid)

    async def _over(self, record: records.Record, holding: records.Holding, why: str) -> None:
        """No container is started with it any more; those that run are told by their pod's status."""
        if not self._held.why_lost(holding):
            _log.error("lease lost", claim=f"{record.namespace}/{record.name}", device=holding.device, reason=why)
        self._held.lose(holding, why)
        await self._specs.remove(resource.ClaimUID(record.uid))
