"""The connections to pools, one for each RemotePool as it is now."""

import asyncio

from api import errors
from api import remote as kinds
from driver.remote import poolapi, remoteleases

_ASK_S = 3.0


class Connections:
    def __init__(self, objects: remoteleases.RemoteLeases) -> None:
        self._objects = objects
        self._pools: dict[str, poolapi.PoolAPI] = {}

    async def to(self, name: str) -> poolapi.PoolAPI:
        spec, me = await self._spec_of(name), await self._objects.identity()
        found = self._pools.get(name)
        if found is not None and found.spec == spec:
            return found
        made = self._pools[name] = poolapi.PoolAPI(name, spec, me.cluster_uid, self._objects.token)
        if found is not None:
            await found.close()
        return made

    async def close(self) -> None:
        for pool in tuple(self._pools.values()):
            await pool.close()

    async def _spec_of(self, name: str) -> kinds.PoolSpec:
        """As the API server has it; while that is away, as it was."""
        try:
            async with asyncio.timeout(_ASK_S):
                return await self._objects.pool(name)
        except (errors.Unavailable, TimeoutError):
            if name in self._pools:
                return self._pools[name].spec
            raise
