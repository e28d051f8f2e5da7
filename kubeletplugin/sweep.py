"""The claims that we hold against those of the API server: what is gone there is unprepared by ourselves.

A kubelet calls Unprepare only for claims that it remembers; a claim deleted while the plugin was down, or forgotten by
the kubelet, would hold its device for ever (NV#1278). So each held claim is looked up by name and UID, at start and then
in turns. Only a claim found gone twice, some seconds apart, is unprepared; an API server that does not answer proves
nothing. One that is there is shown to the driver, and gets its `status.devices` where they have changed since, or a process
that was killed has not written them.
"""

import asyncio

import structlog

from api import errors, resource
from kubeletplugin import claims, contract, flights, metrics, statuses

_CONFIRM_S = 10
_PATIENCE_S = 45
"""For one claim; its flight goes on, the others get their turn."""

log = structlog.get_logger()


class Sweep:
    def __init__(
        self,
        driver: contract.Driver,
        found: claims.Claims,
        in_flight: flights.Flights,
        writer: statuses.Statuses,
        period_s: float,
        series: metrics.Metrics,
    ) -> None:
        self._driver = driver
        self._claims = found
        self._flights = in_flight
        self._statuses = writer
        self._period_s = period_s
        self._confirm_s = min(_CONFIRM_S, period_s)
        self._series = series
        self._suspects: dict[resource.ClaimUID, float] = {}
        self._told: dict[resource.ClaimUID, statuses.Devices] = {}
        """What was wanted as status: the same is not wanted again, for a server may not store it."""

    async def run(self) -> None:
        while True:
            now = asyncio.get_running_loop().time()
            await self._turn(now)
            await asyncio.sleep(self._confirm_s if now in self._suspects.values() else self._period_s)

    async def _turn(self, now: float) -> None:
        """Looks each held claim up once. `now` in seconds of any clock that does not jump."""
        held = await self._driver.prepared()
        self._suspects = {ref.uid: self._suspects[ref.uid] for ref in held if ref.uid in self._suspects}
        self._told = {ref.uid: self._told[ref.uid] for ref in held if ref.uid in self._told}
        for ref in held:
            try:
                found = await self._claims.held(ref)
            except errors.NotReady:  # not allocated, or nothing is proven
                self._suspects.pop(ref.uid, None)
                continue
            except errors.Unavailable as error:
                log.warning("held claims could not be checked", error=str(error))
                return
            except errors.ElasticGPUError as error:
                log.warning("held claim could not be checked", claim=str(ref), uid=ref.uid, error=str(error))
                continue
            if found is not None:
                self._suspects.pop(ref.uid, None)
                await self._tell(found, ref)
            elif now - self._suspects.setdefault(ref.uid, now) >= self._confirm_s:
                await self._unprepare(ref)

    async def _tell(self, found: claims.Found, ref: contract.ClaimRef) -> None:
        try:
            await self._driver.seen(found.claim)
        except Exception as error:  # noqa: BLE001  whatever a driver makes of it, the claim is held as before
            log.warning("claim could not be looked at", claim=str(ref), uid=ref.uid, error=repr(error))
        devices = await self._driver.devices(ref)
        if self._told.get(ref.uid) != devices:
            self._statuses.want(found, devices)
            self._told[ref.uid] = devices

    async def _unprepare(self, ref: contract.ClaimRef) -> None:
        """One that cannot be freed stays a suspect, and is no reason to leave the others."""
        log.info("claim is gone from the API server; unpreparing it", claim=str(ref), uid=ref.uid)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._flights.fly(ref.uid, flights.Kind.UNPREPARE, lambda: self._driver.unprepare(ref))
        except Exception as error:  # noqa: BLE001  whatever is wrong with this one, the others are looked at
            known = isinstance(error, (errors.ElasticGPUError, TimeoutError))
            log.warning(
                "claim that is gone could not be unprepared; tried again",
                claim=str(ref),
                uid=ref.uid,
                error=repr(error),
                exc_info=not known,
            )
        else:
            self._series.swept.inc()
            del self._suspects[ref.uid]
