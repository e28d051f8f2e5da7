"""The pool's agent: owns the lease table and does what it says.

    call -> rule of `calls` -> journal -> the table, and whoever waits for a change
    a lease that is not ended -> its tender: server up -> watch it -> kill the tree -> see the card clean -> released
    cards looked at -> devices; time -> leases that nobody renews

What must stay true: nobody hears of a change before it is on the disk; connections are cut in the same breath in which
a lease stops to be attached; a card is free only after its server is dead and the card is seen to be clean. The table is
changed under one lock, and never while something slow is awaited but the disk.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

from api import errors, lease
from pool import cards, credentials, devices, leases, metrics, profiles, servers, store

T = TypeVar("T")
Rule = Callable[[leases.Table, int], tuple[leases.Table, T]]
_log = structlog.get_logger("pool")

_AGAIN_S = 1.0
_KILL_S = 10.0
_FORGET_MS = 60_000


class Door(Protocol):
    """Where clients of servers come in."""

    def cut(self, lease_id: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the settings say about leases."""

    ttl_ms: int
    longest_ttl_ms: int
    look_s: float
    first_uid: int
    here: str


class Agent:
    """One a state directory. `clock_ms` only goes on; `started_s` grows from start to start."""

    def __init__(
        self,
        *,
        kept: store.Store,
        source: cards.Cards,
        runner: Callable[[int], servers.Servers],
        offered: Mapping[str, profiles.Profile],
        limits: Limits,
        series: metrics.Metrics,
        clock_ms: Callable[[], int],
        started_s: int,
    ) -> None:
        self._store = kept
        self._source = source
        self._runner = runner
        self.offered = offered
        self.limits = limits
        self._series = series
        self._clock_ms = clock_ms
        self._started_s = started_s
        self._base_ms = 0
        self.table = leases.Table()
        self.devices: Mapping[str, devices.Device] = {}
        self.missing = "the cards have not been looked at"
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._changes: set[asyncio.Task[Any]] = set()
        self._numbers: dict[str, int] = {}
        self._tenders: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, servers.Server] = {}
        self._group: asyncio.TaskGroup | None = None
        self._door: Door | None = None
        self._servers: servers.Servers | None = None

    @contextlib.asynccontextmanager
    async def working(self, door: Door) -> AsyncIterator[None]:
        """Takes up the table where it was left, and works inside the block. At its end all servers are dead."""
        self._door = door
        before, at = await self._store.open(patience_s=_KILL_S)
        try:
            self._base_ms = at + 1 - self._clock_ms()
            self._servers = self._runner(self._store.lock)
            self.table = before
            await self._look()
            await self.change(lambda table, now: (leases.restart(table, now, self._started_s), None))
            async with asyncio.TaskGroup() as group:
                self._group = group
                own = [
                    group.create_task(self._keep_looking(), name="cards"),
                    group.create_task(self._keep_time(), name="time"),
                ]
                for id_ in self.table.holders.values():
                    self._tend(id_)
                try:
                    yield
                finally:
                    self._group = None
                    for task in (*own, *self._tenders.values()):
                        task.cancel()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        running = list(self._running.values())
        for server in running:
            self._cut(server.lease)
        ended = await asyncio.gather(*(server.end(_KILL_S) for server in running), return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                _log.error("left behind", reason=str(failure))
        if self._changes:
            await asyncio.wait(self._changes)
        await self._store.close()

    def now_ms(self) -> int:
        """The pool's time: it goes on where the last start left it, and nobody sets it."""
        return self._base_ms + self._clock_ms()

    async def change(self, rule: Rule[T]) -> T:
        """Applies a rule. When this returns, its outcome is on the disk. Raises what the rule raises, and Unavailable."""
        # a caller that goes away must not leave the table behind the journal
        task = asyncio.create_task(self._apply(rule), name="change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _apply(self, rule: Rule[T]) -> T:
        async with self._lock:
            before, now = self.table, self.now_ms()
            after, answer = rule(before, now)
            if after is not before:
                await self._store.save(before, after, now)
                self.table = after
                self._tell(before)
        return answer

    def _tell(self, before: leases.Table) -> None:
        if self.table.revision != before.revision:
            for found in self.table.leases.values():
                if found.revision <= before.revision:
                    continue
                _log.info("lease", id=found.id, device=found.device, state=found.state.value, reason=found.reason)
                if found.state is not lease.State.ATTACHED:
                    self._cut(found.id)
                if not found.state.ended:
                    self._tend(found.id)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _cut(self, id_: str) -> None:
        if self._door is not None:
            self._door.cut(id_)

    async def news(self) -> None:
        """Returns when something has changed since the call. Look first, without an await between."""
        await self._changed.wait()

    def admit(self, who: credentials.Bearer) -> servers.Server:
        """The server that a certificate leads to, now."""
        found = self.table.leases.get(who.lease)
        if found is None or (found.token, found.consumer.claim_uid) != (who.token, who.claim):
            raise errors.Invalid(f"no lease {who.lease} with token {who.token}")
        server = self._running.get(who.lease)
        if found.state is not lease.State.ATTACHED or server is None:
            raise errors.Conflict(f"lease {who.lease} is {found.state.value}")
        return server

    @property
    def withheld(self) -> dict[str, str]:
        return {id_: device.withheld for id_, device in self.devices.items()}

    def _tend(self, id_: str) -> None:
        if self._group is not None and id_ not in self._tenders:
            task = self._group.create_task(self._life(id_), name=f"lease {id_}")
            self._tenders[id_] = task
            task.add_done_callback(lambda _: self._tenders.pop(id_, None))

    async def _life(self, id_: str) -> None:
        """Of a lease, from whatever state it is in to its end."""
        while not (found := self.table.leases[id_]).state.ended:
            match found.state:
                case lease.State.ATTACHING:
                    await self._attach(found)
                case lease.State.ATTACHED:
                    await self._watch(found)
                case lease.State.LOST:
                    await self._until_changed(found)
                case lease.State.RELEASING:
                    await self._release(found)

    async def _attach(self, found: lease.Lease) -> None:
        profile = self.offered.get(found.protocol)
        device = self.devices.get(found.device)
        assert self._servers is not None
        try:
            if profile is None or device is None:
                raise errors.Invalid(f"this pool no longer has {found.protocol!r} on {found.device}")
            starting = asyncio.create_task(self._servers.start(self._plan(found, profile, device)), name="start")
            try:
                await self._until_up_or_ending(starting, found)
            finally:
                starting.cancel()  # what is up is not touched by this
                await asyncio.wait({starting})
                self._take(found.id, starting)
            if starting.cancelled():
                return
            starting.result()
        except errors.ElasticGPUError as error:
            reason = str(error)
            await self._surely(lambda table, _: (leases.failed(table, found.id, reason), None))
            return
        await self._surely(lambda table, _: (leases.attached(table, found.id), None))
        self._series.attach.observe((self.now_ms() - found.created_ms) / 1000)

    async def _until_up_or_ending(self, starting: asyncio.Task[servers.Server], found: lease.Lease) -> None:
        while not starting.done() and self.table.leases[found.id].state is lease.State.ATTACHING:
            changed = asyncio.ensure_future(self.news())
            await asyncio.wait({starting, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    def _take(self, id_: str, starting: asyncio.Task[servers.Server]) -> None:
        """Whatever there is of a server is ours to end."""
        if starting.cancelled():
            return
        match starting.exception():
            case None:
                self._running[id_] = starting.result()
            case servers.Stuck() as stuck:
                self._running[id_] = stuck.server

    def _plan(self, found: lease.Lease, profile: profiles.Profile, device: devices.Device) -> servers.Plan:
        facts = {
            "uuid": device.uuid,
            "memory_mib": str(device.memory_bytes >> 20),
            "lease": found.id,
            "here": self.limits.here,
        }
        return servers.Plan(
            lease=found.id,
            command=profiles.command(profile, facts),
            environment=profiles.environment(profile, facts),
            uid=self.limits.first_uid + self._numbers.setdefault(device.id, len(self._numbers)),
            port=profile.port,
            ready_within_s=profile.ready_within_s,
        )

    async def _watch(self, found: lease.Lease) -> None:
        """Until its server or its card dies, or its end begins."""
        server = self._running.get(found.id)
        if server is None:
            await self._surely(lambda table, _: (leases.lost(table, found.id, "its server is gone"), None))
            return
        ended = asyncio.create_task(server.ended(), name="watch")
        try:
            while self.table.leases[found.id].state is lease.State.ATTACHED:
                device = self.devices[found.device]  # it has a server, so the card was listed
                reason = ended.result() if ended.done() else ""
                if device.state in {devices.State.UNWELL, devices.State.REMOVED}:
                    reason = reason or device.reason
                if reason:
                    await self._surely(lambda table, _, why=reason: (leases.lost(table, found.id, why), None))  # type: ignore[misc]
                    return
                changed = asyncio.ensure_future(self.news())
                await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            ended.cancel()
            await asyncio.wait({ended})

    async def _until_changed(self, found: lease.Lease) -> None:
        while self.table.leases[found.id].state is found.state:
            await self.news()

    async def _release(self, found: lease.Lease) -> None:
        """Kills, then looks at the card, until both are as they must be."""
        while True:
            try:
                if (server := self._running.get(found.id)) is not None:
                    await server.end(_KILL_S)
                    del self._running[found.id]
                left = await self._left_on(found.device)
            except errors.ElasticGPUError as error:
                left = str(error)
            if not left:
                break
            reason = f"{found.reason}; the card is not free yet: {left}"
            await self._surely(lambda table, _, why=reason: (leases.stuck(table, found.id, why), None))  # type: ignore[misc]
            await asyncio.sleep(_AGAIN_S)
        await self._surely(lambda table, now: (leases.released(table, found.id, now), None))

    async def _left_on(self, id_: str) -> str:
        """A card that is no longer there has nothing on it; it comes back as another start of its driver.

        As long as the cards could not be listed, nothing is known of any.
        """
        device = self.devices.get(id_)
        if device is None:
            return self.missing
        if device.state is devices.State.REMOVED:
            return ""
        return await self._source.unclean(device.uuid)

    async def _surely(self, rule: Rule[T]) -> T:
        """As often as the disk needs: what has happened has happened."""
        while True:
            try:
                return await self.change(rule)
            except errors.Unavailable as error:
                _log.error("the table cannot be written; tried again", reason=str(error))
                await asyncio.sleep(_AGAIN_S)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self.limits.look_s)
            await self._look()

    async def _look(self) -> None:
        try:
            found = await self._source.look()
        except errors.ElasticGPUError as error:
            self.missing = f"the cards cannot be listed: {error}"
            _log.warning("cards not listed; the last list stands", reason=str(error))
            return
        self.missing = ""
        last = max((device.revision for device in self.devices.values()), default=self._started_s * 1000)
        after = devices.merged(self.devices, found, last)
        if after != self.devices:
            self.devices = after
            _log.info("cards", **{id_: device.state.value for id_, device in after.items()})
            self._wake()

    async def _keep_time(self) -> None:
        forget = self.now_ms() + _FORGET_MS
        while True:
            due = leases.due_ms(self.table)
            left = (forget if due is None else min(due, forget)) - self.now_ms()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left / 1000):
                        await self.news()
                    continue
            await self._surely(lambda table, now: (leases.expire(table, now), None))
            forget = self.now_ms() + _FORGET_MS
