"""Claims that we hold and the API server does not: unprepared by ourselves.

A kubelet calls Unprepare only for claims that it remembers; a claim deleted while the plugin was down, or forgotten by
the kubelet, would hold its device for ever (NV#1278). So each held claim is looked up by name and UID, at start and then
in turns. Only a claim found gone twice, some seconds apart, is unprepared; an API server that does not answer proves
nothing.
"""

import asyncio

import structlog

from api import errors, resource
from kubeletplugin import claims, contract, flights, metrics

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
        period_s: float,
        series: metrics.Metrics,
    ) -> None:
        self._driver = driver
        self._claims = found
        self._flights = in_flight
        self._period_s = period_s
        self._confirm_s = min(_CONFIRM_S, period_s)
        self._series = series
        self._suspects: dict[resource.ClaimUID, float] = {}

    async def run(self) -> None:
        while True:
            await self._turn(asyncio.get_running_loop().time())
            await asyncio.sleep(self._confirm_s if self._suspects else self._period_s)

    async def _turn(self, now: float) -> None:
        """Looks each held claim up once. `now` in seconds of any clock that does not jump."""
        held = await self._driver.prepared()
        self._suspects = {ref.uid: self._suspects[ref.uid] for ref in held if ref.uid in self._suspects}
        for ref in held:
            try:
                gone = await self._claims.gone(ref)
            except errors.Unavailable as error:
                log.warning("held claims could not be checked", error=str(error))
                return
            except errors.ElasticGPUError as error:
                log.warning("held claim could not be checked", claim=str(ref), uid=ref.uid, error=str(error))
                continue
            if not gone:
                self._suspects.pop(ref.uid, None)
            elif now - self._suspects.setdefault(ref.uid, now) >= self._confirm_s:
                await self._unprepare(ref)

    async def _unprepare(self, ref: contract.ClaimRef) -> None:
        """One that cannot be freed stays a suspect, and is no reason to leave the others."""
        log.info("claim is gone from the API server; unpreparing it", claim=str(ref), uid=ref.uid)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._flights.fly(ref.uid, flights.Kind.UNPREPARE, lambda: self._driver.unprepare(ref))
        except Exception:
            log.exception("claim that is gone could not be unprepared; tried again", claim=str(ref), uid=ref.uid)
        else:
            self._series.swept.inc()
            del self._suspects[ref.uid]
