"""Keeps the slices of one scope as wanted, whoever changes them.

    want(pools) ----+
    watch on slices +--> wake -> plan -> writes -> what was stored -> the informer's objects -> wake ...

The plan starts from what the API server holds now, and answers of own writes are part of that at once. So there is no
cache that could keep a deleted slice alive: a deletion is one event and one creation away from being mended, always.

Where nothing stands yet, `begin` is awaited before the first slice; where something does, it is kept up to date at once.

Before a repair the node is looked up: one that was made anew has another uid, and what an owner of the past owns is
collected as garbage at once, again and again.

What must stay true: nothing is written when nothing differs; a server that leaves out fields is asked again only by
dry runs, and a device that would be offered wrongly without them is never sent for real; a failure is retried.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from api import errors, resource
from kube import apiserver, backoff, informer, limits, metrics, plans, slices

_log = structlog.get_logger(__name__)

_ASK_AGAIN_S: Final = 300.0
_REPAIRS: Final = 10
"""Repairs in a row without a pause; more than that is somebody else writing the same slices."""
_REPAIR_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A pool as it is wanted, as it can be published, and what both looked at once."""

    given: resource.Pool
    pool: resource.Pool
    reasons: tuple[str, ...]
    risky: frozenset[str]


class Publisher:
    """`on_dropped` is told which fields this server does not store, at each change, also when it stores all again."""

    def __init__(
        self,
        api: apiserver.APIServer,
        scope: slices.Scope,
        on_dropped: Callable[[frozenset[str]], Awaitable[None]],
        begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._api = api
        self._scope = scope
        self._on_dropped = on_dropped
        self._begin = begin
        self._informer = informer.Informer(api, slices.PATH, project=slices.seen, field_selector=scope.selector)
        self._wishes: dict[str, _Wish] = {}
        self._wanted: tuple[resource.Pool, ...] | None = None
        self._published: tuple[resource.Pool, ...] | None = None
        self._plans = plans.Plans()
        self._wake = asyncio.Event()
        self._worth_it = asyncio.Event()
        """There is a reason not to wait any longer: another wish, or another connection."""
        self._dropped: frozenset[str] = frozenset()
        self._proven: frozenset[str] = frozenset()
        self._asked: tuple[float, int] = (0.0, 0)
        self._repairs = float(_REPAIRS)
        self._repaired_at = time.monotonic()

    def want(self, pools: tuple[resource.Pool, ...]) -> None:
        """The pools from now on; the latest call wins. What the API server would refuse is left out and logged."""
        before, self._wishes = self._wishes, {}
        for pool in pools:
            old = before.get(pool.name)
            self._wishes[pool.name] = old if old is not None and old.given == pool else _wish(pool)
        wanted = tuple(wish.pool for wish in self._wishes.values())
        if wanted == self._wanted:
            return
        for name, wish in self._wishes.items():
            for reason in wish.reasons if wish is not before.get(name) else ():
                _log.error("not published as wanted", reason=reason)
        self._wanted = wanted
        self._worth_it.set()
        self._wake.set()

    async def run(self) -> NoReturn:
        """Publishes until cancelled. Leaves the slices as they are at the end: a restart finds them."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name="slices informer")
            tasks.create_task(self._relay(), name="slices relay")
            await self._informer.synced.wait()
            if self._begin and not self._informer.objects:
                await self._begin()
            await self._publish()
        raise AssertionError("a publisher ends by being cancelled")

    async def _relay(self) -> NoReturn:
        version, connections = self._informer.version, self._informer.connections
        while True:
            version = await self._informer.changed(version)
            if self._informer.connections != connections:
                connections = self._informer.connections
                self._worth_it.set()
            self._wake.set()

    async def _publish(self) -> NoReturn:
        pauses = backoff.Backoff(0.1, 15.0)
        while True:
            self._wake.clear()
            try:
                await self._turn()
                pauses.reset()
            except errors.ElasticGPUError as error:
                metrics.slice_failures.inc()
                _log.warning("slices not published, will retry", reason=str(error), failures=pauses.failures)
                await _within(pauses.next_s(), self._worth_it)
            else:
                await _within(_ASK_AGAIN_S if self._dropped else None, self._wake)

    async def _turn(self) -> None:
        wanted = self._wanted
        self._worth_it.clear()
        if wanted is None:
            return
        await self._prove(wanted)
        if self._asked[1] != self._informer.connections and any(
            isinstance(write, slices.Replace) for write in self._planned(wanted)
        ):
            await self._ask(wanted)  # what stands may be all that this server keeps, written by the process before us
        written: list[str] = []
        for write in self._planned(wanted):
            repair = wanted is self._published and not written
            if repair and (await self._owner_changed() or not await self._may_repair(write)):
                self._wake.set()
                return
            await self._perform(write)
            written.append(f"{type(write).__name__.lower()} {write.name}")
        self._published = wanted
        if written:
            _log.info("slices published", writes=written)

    def _planned(self, wanted: tuple[resource.Pool, ...]) -> Iterator[slices.Write]:
        return self._plans.writes(wanted, self._informer.objects.values(), self._scope, self._dropped)

    async def _perform(self, write: slices.Write) -> None:
        metrics.slice_writes.labels(type(write).__name__.lower()).inc()
        path = f"{slices.PATH}/{write.name}"
        match write:
            case slices.Delete():
                await self._api.delete(path, uid=write.uid, resource_version=write.resource_version)
                self._informer.discard(write.name)
                return
            case slices.Create():
                stored = await self._api.create(slices.PATH, write.body)
            case slices.Replace():
                answer = await self._api.update(path, write.body)
                if answer is None:
                    self._informer.discard(write.name)
                    raise errors.Conflict(
                        f"slice {write.name} was deleted while it was being replaced; it is made anew"
                    )
                stored = answer
        self._informer.adopt(stored)
        await self._learn(self._dropped | slices.dropped(write.body["spec"], stored["spec"]))

    async def _prove(self, wanted: tuple[resource.Pool, ...]) -> None:
        """A dry run where it matters: before risky fields are relied on, and now and then after fields were dropped."""
        risky, connected, (at, connection) = self._risky(), self._informer.connections, self._asked
        if connected != connection:
            self._proven = frozenset()  # behind a new connection there may be another server
        again = self._dropped and (time.monotonic() - at >= _ASK_AGAIN_S or connected != connection)
        if again or not risky <= self._proven:
            await self._ask(wanted)

    async def _ask(self, wanted: tuple[resource.Pool, ...]) -> None:
        risky, connected = self._risky(), self._informer.connections
        body = slices.trial(wanted, self._scope)
        try:
            stored = await self._api.create(slices.PATH, body, dryRun="All")
        except errors.Invalid as error:
            _log.warning("no dry run, devices with taints or counters are withheld", reason=str(error))
            found = self._dropped | slices.carriers(risky)
        else:
            found = slices.dropped(body["spec"], stored["spec"])
        self._proven, self._asked = risky, (time.monotonic(), connected)
        await self._learn(found)

    async def _learn(self, found: frozenset[str]) -> None:
        if found == self._dropped:
            return
        _log.warning(
            "the API server does not store all fields; devices that need them are withheld, enable its feature gates"
            if found
            else "the API server stores all fields again",
            dropped=sorted(found),
        )
        self._dropped = found
        self._wake.set()
        await self._on_dropped(found)

    def _risky(self) -> frozenset[str]:
        return frozenset().union(*(wish.risky for wish in self._wishes.values()))

    async def _owner_changed(self) -> bool:
        """Whether the node is another one of the same name; from now on that is the owner."""
        name = self._scope.node_name
        if not name:
            return False
        node = await self._api.get(f"/api/v1/nodes/{name}")
        if node is None:
            raise errors.NotReady(f"node {name} does not exist any more: no slices without it")
        uid = node["metadata"]["uid"]
        if uid == self._scope.node_uid:
            return False
        _log.warning("the node was made anew and owns its slices from now on", node=name, uid=uid)
        self._scope = dataclasses.replace(self._scope, node_uid=uid)
        return True

    async def _may_repair(self, write: slices.Write) -> bool:
        """At once, until repairs come so fast that somebody must be fighting us: then False, after a pause."""
        now = time.monotonic()
        self._repairs = min(self._repairs + (now - self._repaired_at) / _REPAIR_EVERY_S, float(_REPAIRS))
        self._repaired_at = now
        if self._repairs >= 1:
            self._repairs -= 1
            return True
        _log.error(
            "somebody else keeps changing these slices; repairing only now and then",
            driver=self._scope.driver,
            node=self._scope.node_name,
            slice=write.name,
            advice="look for a second driver with this name on this node",
        )
        await _within(_REPAIR_EVERY_S, self._worth_it)
        return False


def _wish(given: resource.Pool) -> _Wish:
    pool, reasons = limits.checked(given)
    return _Wish(given=given, pool=pool, reasons=reasons, risky=slices.risky((pool,)))


async def _within(limit_s: float | None, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
