"""One card of a claim -> a lease that the pool confirms, and its credential.

    attached before the pod was bound   GetLease by the key that only this allocation, on this node, has
    not                                 RemoteLease, Attach, and GetLease until it is attached or patience ends

Nothing is believed but the pool: whoever may write a claim's status could name a server of his own there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from api import errors, lease, resource
from api import remote as kinds
from driver.remote import credentials, poolapi, records, remoteleases
from poolclient import connection

PATIENCE_S = 30.0
"""Of a Prepare: the kubelet's own is 45 s, and it asks again."""
_LOOK_S = 0.3
_ATTACH_WITHIN_S = 600.0
Connect = Callable[[str], Awaitable[poolapi.PoolAPI]]
"""The connection to a pool by its name."""


class Ended(errors.NotReady):
    """The key is used up: whoever may make another one has to."""


class Attacher:
    def __init__(self, connect: Connect, objects: remoteleases.RemoteLeases, keys: credentials.Credentials) -> None:
        self._connect, self._objects, self._keys = connect, objects, keys

    async def attached(self, claim: resource.Claim, holding: records.Holding) -> records.Holding:
        """The card with all that its lease says. Raises NotReady while it is on its way."""
        pool = await self._connect(holding.pool)
        held = await (self._attach(pool, claim, holding) if holding.by_node else self._confirmed(pool, claim, holding))
        me = await self._objects.identity()
        if held.node and held.node != me.node_name:
            raise errors.Conflict(
                f"card {holding.device} of claim {claim} is attached to node {held.node}, not to this one"
            )
        return msgspec.structs.replace(
            holding,
            lease_id=held.id,
            token=held.token,
            host=held.host,
            port=held.port,
            spki=held.spki,
            protocol=held.protocol,
            profile=held.profile,
            auth_modes=held.auth_modes,
        )

    async def certify(self, uid: str, request: str, number: int, holding: records.Holding) -> float:
        """Puts a fresh credential in place; for how many seconds it is good."""
        pool = await self._connect(holding.pool)
        asked = await self._keys.request(holding.lease_id)
        got = await pool.credential(holding.lease_id, holding.token, asked.csr)
        await self._keys.write(uid, request, number, asked, certificate=got.certificate, authorities=got.authorities)
        return got.lives_s

    async def detach(self, holding: records.Holding, reason: str) -> None:
        pool = await self._connect(holding.pool)
        await pool.detach(key=holding.key, lease_id=holding.lease_id, token=holding.token, reason=reason)

    async def _confirmed(self, pool: poolapi.PoolAPI, claim: resource.Claim, holding: records.Holding) -> poolapi.Lease:
        held = await pool.lease(holding.key)
        if held is None:
            raise errors.NotReady(
                f"pool {holding.pool} knows no lease of card {holding.device} for claim {claim} on this node"
            )
        return _usable(held, holding)

    async def _attach(self, pool: poolapi.PoolAPI, claim: resource.Claim, holding: records.Holding) -> poolapi.Lease:
        spec = await self._objects.intend(claim, holding)
        try:
            held = await pool.attach(spec, _ATTACH_WITHIN_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while held.state is lease.State.ATTACHING:
                        await asyncio.sleep(_LOOK_S)
                        held = await pool.lease(holding.key) or held
        except connection.Refused as error:
            kind = Ended if error.meaning is lease.Meaning.ENDED else errors.NotReady
            raise kind(f"card {holding.device} cannot be attached for claim {claim}: {error}") from error
        held = _usable(held, holding)
        told = msgspec.structs.replace(holding, lease_id=held.id, token=held.token)
        await self._objects.move(told, kinds.Phase.ATTACHED)
        return held


def _usable(held: poolapi.Lease, holding: records.Holding) -> poolapi.Lease:
    if held.state is lease.State.ATTACHED:
        return held
    if held.state is lease.State.ATTACHING:
        raise errors.NotReady(f"pool {holding.pool} is still attaching card {holding.device}")
    raise Ended(
        f"the lease of card {holding.device} in pool {holding.pool} is {held.state.value.lower()}"
        f"{': ' + held.reason if held.reason else ''}; a session cannot be made again, the pod has to be"
    )
