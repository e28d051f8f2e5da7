"""One leader at a time, by a Lease object.

    wait until the lease is free -> take it -> run the work, renewing -> lost or done: end the work, give it back

Only the own monotonic clock decides. A lease counts as free when nobody has changed it for as long as it says, as
seen from here; the times written in it are for people. What must stay true: the work has ended before the lease can
expire, counted from the moment *before* the last successful renewal was sent; a hanging API server changes nothing
about that. Work that does not end when cancelled would share the leadership, so then the process ends.
"""

import asyncio
import contextlib
import datetime
import math
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from api import errors
from kube import apiserver

_log = structlog.get_logger(__name__)

_MARGIN_S: Final = 0.5
_EXIT_CODE: Final = 70


class Election:
    """`identity` names this candidate to people; a random part is added, so that a restart is another candidate.

    `lease_s`: how long others leave a silent leader alone. `renew_s`: how long the leader goes on without a renewal;
    the rest of `lease_s` is the time that the work has to end. `retry_s`: between tries, jittered by a fifth.
    """

    def __init__(
        self,
        api: apiserver.APIServer,
        namespace: str,
        name: str,
        identity: str,
        lease_s: float = 15.0,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
    ) -> None:
        if not retry_s < renew_s < lease_s - _MARGIN_S:
            raise errors.Invalid(
                f"election {name}: needs retry {retry_s} < renew {renew_s} < lease {lease_s} - {_MARGIN_S} s"
            )
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._name = name
        self._identity = f"{identity}_{secrets.token_hex(4)}"
        self._lease_s, self._renew_s, self._retry_s = lease_s, renew_s, retry_s
        self._lease: dict[str, Any] | None = None
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self.epoch = 0
        """Grows with each change of leader; what a leader writes elsewhere can carry it."""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` while leading, again after each loss. Returns or raises as the work does by itself."""
        while True:
            await self._acquire()
            _log.info("leading", lease=self._name, identity=self._identity, epoch=self.epoch)
            running = asyncio.ensure_future(work())
            try:
                if await self._hold(running):
                    return await running
                _log.error("leadership lost, work ended", lease=self._name, identity=self._identity)
            finally:
                await self._end(running)
                await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._renew_s):
                    if await self._take():
                        return
            except errors.Conflict:
                _log.debug("another candidate was faster", lease=self._name)
            except (errors.ElasticGPUError, TimeoutError) as error:
                _log.warning("election waits", lease=self._name, reason=str(error) or "no answer in time")
            await asyncio.sleep(self._pause_s())

    async def _take(self) -> bool:
        """Takes the lease if it is free, or ours by a write whose answer was lost."""
        lease = await self._api.get(self._path)
        now = time.monotonic()
        spec = (lease or {}).get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        record = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen:
            self._seen, self._seen_at = record, now
        valid_s = float(spec.get("leaseDurationSeconds") or self._lease_s)
        if holder not in {"", self._identity} and now - self._seen_at < valid_s:
            return False
        await self._write(lease, renewal=holder == self._identity)
        return True

    async def _renew(self) -> bool:
        """False where the lease is another's or gone: then somebody else may lead or have led."""
        lease = self._lease or await self._api.get(self._path)
        if lease is None or lease["spec"].get("holderIdentity") != self._identity:
            return False
        self._lease = None  # an answer that gets lost leaves it unknown: it is read again then
        await self._write(lease, renewal=True)
        return True

    async def _write(self, lease: dict[str, Any] | None, *, renewal: bool) -> None:
        spec = self._claimed((lease or {}).get("spec") or {}, renewal=renewal)
        sent_at = time.monotonic()
        if lease is None:
            head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            stored: dict[str, Any] | None = await self._api.create(self._collection, head | {"spec": spec})
        else:
            stored = await self._api.update(self._path, lease | {"spec": spec})
        if stored is None:
            raise errors.Conflict(f"lease {self._name} was deleted meanwhile; it is made anew")
        self._lease, self._renewed_at = stored, sent_at
        self.epoch = int(spec["leaseTransitions"])

    def _claimed(self, spec: dict[str, Any], *, renewal: bool) -> dict[str, Any]:
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251  # for people only
        return spec | {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._lease_s),
            "acquireTime": spec.get("acquireTime", stamp) if renewal else stamp,
            "renewTime": stamp,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if renewal else 1),
        }

    async def _hold(self, running: "asyncio.Future[None]") -> bool:
        """Renews until the work is done (True) or the lease must be given up (False)."""
        while True:
            left_s = self._renewed_at + self._renew_s - time.monotonic()
            await asyncio.wait([running], timeout=min(self._pause_s(), max(left_s, 0.0)))
            left_s = self._renewed_at + self._renew_s - time.monotonic()
            if running.done() or left_s <= 0:
                return running.done()
            try:
                async with asyncio.timeout(left_s):
                    if not await self._renew():
                        return False
            except (errors.ElasticGPUError, TimeoutError) as error:
                _log.warning("lease not renewed", lease=self._name, reason=str(error) or "no answer in time")

    async def _end(self, running: "asyncio.Future[None]") -> None:
        if running.done():
            return
        running.cancel()
        left_s = self._renewed_at + self._lease_s - _MARGIN_S - time.monotonic()
        done, _ = await asyncio.wait([running], timeout=max(left_s, 0.0))
        if not done:
            _log.critical("work goes on after the leadership ended; the process ends", lease=self._name)
            os._exit(_EXIT_CODE)
        if not running.cancelled() and (failure := running.exception()):
            _log.error("work failed while it was ended", lease=self._name, reason=repr(failure))

    async def _release(self) -> None:
        """Lets the next one start at once. Best effort: unreleased, the lease expires."""
        lease, self._lease = self._lease, None
        if lease is None or lease["spec"].get("holderIdentity") != self._identity:
            return
        with contextlib.suppress(errors.ElasticGPUError, TimeoutError):
            async with asyncio.timeout(self._retry_s):
                await self._api.update(self._path, lease | {"spec": lease["spec"] | {"holderIdentity": ""}})

    def _pause_s(self) -> float:
        return self._retry_s * random.uniform(0.8, 1.2)  # noqa: S311
