"""A DRA plugin from start to stop: the parts of this library around one driver.

Start: leftovers of dead instances removed, DRA socket, then the registration socket, since a kubelet calls as soon as
it has registered us; then all that needs the API server. Unprepare is served from the first moment, also while neither
API server nor node can be read. Where no slices stand yet, they are published when the kubelet has registered us: a pod
that is bound before fails on the node, and the kubelet tries it again only after a minute and a half.

Stop: registration socket first (the kubelet sends nothing new), flights to their end, DRA socket. Slices stay, since
the successor publishes the same, and nothing is unprepared.

The sockets are what a plugin is for: where they cannot be opened, `serve` ends with the reason. All else recovers: it is
logged and begun anew, more slowly each time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from api import errors
from kube import apiserver, publisher, slices
from kubeletplugin import (
    claims,
    contract,
    flights,
    healthstream,
    locks,
    metrics,
    registration,
    service,
    sockets,
    statuses,
    sweep,
)

_DRAIN_S = 5
_FLUSH_S = 2
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10
_HEALTHY_S = 60
_REMIND_S = 15

log = structlog.get_logger()


async def serve(
    driver: contract.Driver, options: contract.Options, api: apiserver.APIServer, *, stop: asyncio.Event
) -> None:
    """Runs a plugin until `stop` is set.

    Raises Invalid, Conflict or Unavailable where the sockets cannot be had.
    """
    await Plugin(driver, options, api).run(stop)


class Plugin:
    """What `serve` runs, for those who want to ask it something."""

    def __init__(self, driver: contract.Driver, options: contract.Options, api: apiserver.APIServer) -> None:
        self._driver, self._options, self._api = driver, options, api
        self._series = metrics.Metrics(options.driver_name)
        found = claims.Claims(api)
        self._flights = flights.Flights(locks.Locks(options.data_dir / "claims.lock"))
        self._statuses = statuses.Statuses(api, options.driver_name, found)
        self._health = healthstream.HealthStream(driver, options.health_repeat_s)
        self._sweep = sweep.Sweep(driver, found, self._flights, self._statuses, options.sweep_period_s, self._series)
        calls = service.Service(driver, found, self._flights, self._statuses, self._series)
        self._dra = sockets.Listener(sockets.dra_socket(options), (*calls.handlers(), *self._health.handlers()))
        self._registration = registration.Registration(
            options.driver_name, self._dra.path, (*service.SERVICES, *healthstream.SERVICES), self._series
        )
        self._registrar = sockets.Listener(sockets.registration_socket(options), (self._registration.handler(),))

    @property
    def registered(self) -> bool:
        """Whether the kubelet's last word was that it registered us."""
        return self._registration.registered

    @property
    def unready(self) -> str:
        """Why no kubelet sends calls; empty where one does."""
        if self._registration.refusal:
            return f"the kubelet refuses this driver: {self._registration.refusal}"
        return "" if self.registered else "the kubelet has not registered this driver yet"

    async def run(self, stop: asyncio.Event) -> None:
        await sockets.clear_leftovers(self._options)
        try:
            await self._dra.open()
            await self._registrar.open()
            async with asyncio.TaskGroup() as group:
                writer = self._start(group, "statuses", self._statuses.run)
                others = [
                    self._start(group, "dra socket", self._dra.keep),
                    self._start(group, "registration socket", self._registrar.keep),
                    self._start(group, "health", self._health.run),
                    self._start(group, "slices", self._publish),
                    self._start(group, "sweep", self._sweep.run),
                ]
                await stop.wait()
                for task in others:
                    task.cancel()
                await self._registrar.close()
                await self._flights.drain(_DRAIN_S)
                await self._statuses.flush(_FLUSH_S)
                writer.cancel()
        finally:
            self._health.end()
            await self._registrar.close()
            await self._dra.close()
            self._series.registered.set(0)

    def _start(self, group: asyncio.TaskGroup, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return group.create_task(_lasting(name, work), name=f"{self._options.driver_name} {name}")

    async def _publish(self) -> None:
        options = self._options
        node = await self._api.get(f"/api/v1/nodes/{options.node_name}")
        if node is None:
            raise errors.NotReady(f"node {options.node_name} does not exist (yet): no slices without it")
        scope = slices.Scope(driver=options.driver_name, node_name=options.node_name, node_uid=node["metadata"]["uid"])
        keeper = publisher.Publisher(self._api, scope, self._dropped, self._until_registered)
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run(), name=f"{options.driver_name} publisher")
            async for pools in self._driver.pools():
                keeper.want(pools)

    async def _until_registered(self) -> None:
        first = self._registration.first
        while not first.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REMIND_S):
                    await first.wait()
                    return
            log.warning(
                "no slices are published yet",
                driver=self._options.driver_name,
                reason=self.unready,
                socket=str(self._registrar.path),
                advice="a kubelet looks for sockets in plugins_registry below its --root-dir",
            )

    async def _dropped(self, fields: frozenset[str]) -> None:
        self._series.dropped_fields.set(len(fields))
        await self._driver.dropped(fields)


async def _lasting(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Does `work` until it ends by itself; where it fails, anew after a pause."""
    clock, pause_s = asyncio.get_running_loop().time, float(_FIRST_PAUSE_S)
    while True:
        started = clock()
        try:
            await work()
        except Exception as error:  # noqa: BLE001  the plugin's calls are worth more than any of its side jobs
            if clock() - started > _HEALTHY_S:
                pause_s = _FIRST_PAUSE_S
            known = isinstance(error, errors.ElasticGPUError)
            log.warning("failed, trying again", part=name, pause_s=pause_s, error=str(error), exc_info=not known)
        else:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
