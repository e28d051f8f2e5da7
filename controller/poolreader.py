"""What one pool says: its cards and our leases there, kept by list and watch.

    pool --list--> devices, states, leases --watch--> leases that changed; every third of `fresh_s` all is listed anew

What must stay true: an answer that is older than what is known says nothing, but where the pool counts anew: then it has
lost what it had; a key is over when the pool has said so, or lists it no more after it was asked to end it; cards that it
does not list any more stay known.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping

import structlog

from api import errors, resource
from controller import metrics, poolapi, pools, remote
from kube import backoff

_FIRST_REST_S = 0.2
_LONGEST_REST_S = 10.0
_log = structlog.get_logger("poolreader")


class PoolReader:
    """`inherited`: the devices that were published before this process began; `news` is called when there is some."""

    def __init__(
        self,
        pool_api: poolapi.PoolAPI,
        *,
        name: str,
        fresh_s: float,
        inherited: tuple[resource.Device, ...],
        series: metrics.Metrics,
        news: Callable[[], None],
    ) -> None:
        self._pool, self._name, self._fresh_s, self._series, self._news = pool_api, name, fresh_s, series, news
        self.devices = {device.name: device for device in inherited}
        self.states: Mapping[str, str] | None = None
        """By device in the pool's words; None until it was listed, as `leases`."""
        self.leases: dict[str, remote.Lease] | None = None
        self.over: set[str] = set()
        self._asked: set[str] = set()
        self._revision = 0
        self.listings = 0
        self.trouble = ""
        self.pool_id = self.version = ""
        self._heard_at = asyncio.get_running_loop().time()

    @property
    def fresh(self) -> bool:
        return asyncio.get_running_loop().time() - self._heard_at <= self._fresh_s

    async def run(self) -> None:
        """Reads until it is cancelled."""
        failures = 0
        while True:
            try:
                revision = await self._list()
                failures = 0
                self._heard("")
                with contextlib.suppress(TimeoutError):
                    async with (
                        asyncio.timeout(self._fresh_s / 3),
                        contextlib.aclosing(self._pool.changes(revision)) as changes,
                    ):
                        async for held in changes:
                            self._revision = max(self._revision, held.revision)
                            self.take(held)
                        # a pool that ends each watch at once is not asked without end
                        await asyncio.sleep(_FIRST_REST_S)
            except errors.ElasticGPUError as error:
                failures += 1
                self._heard(str(error))
                await asyncio.sleep(backoff.pause_s(_FIRST_REST_S, _LONGEST_REST_S, failures))

    async def _list(self) -> int:
        info = await self._pool.info()
        self.pool_id, self.version = info.pool_id, info.version
        found, _ = await self._pool.devices()
        held, revision = await self._pool.leases()
        self.states = {device.name: device.state for device in found}
        self.devices |= {device.name: pools.device(device) for device in found}
        self.listings += 1
        known = self.leases if self.leases is not None and revision >= self._revision else {}
        self.leases, self._revision = remote.merged(known, held, revision), revision
        self.over |= {key for key in self._asked if key not in self.leases}
        self._heard_at = asyncio.get_running_loop().time()
        self._news()
        return revision

    def take(self, held: remote.Lease) -> None:
        """One that is older than what is known says nothing."""
        assert self.leases is not None
        known = self.leases.get(held.key)
        if known is None or known.revision <= held.revision:
            self.leases[held.key] = held
            self._heard_at = asyncio.get_running_loop().time()
            self._news()

    def asked_to_end(self, key: str) -> None:
        self._asked.add(key)

    def ended(self, key: str) -> None:
        """By the pool's answer."""
        self.over.add(key)
        if self.leases is not None:
            self.leases.pop(key, None)

    def prune(self, known: Collection[str]) -> None:
        """What is remembered of keys goes with their intents."""
        self.over.intersection_update(known)
        self._asked.intersection_update(known)
        self.leases = self.leases and {
            key: held for key, held in self.leases.items() if key in known or not held.state.ended
        }

    def _heard(self, trouble: str) -> None:
        if bool(trouble) != bool(self.trouble):
            _log.warning("pool does not answer" if trouble else "pool answers", pool=self._name, reason=trouble)
        self.trouble = trouble
        self._series.reached(self._name, answers=not trouble)
        self._news()
