"""Watches the cards of this machine: what there is, how well it is, what the host gives with it.

    NVML's events and polls -> Inventory, Health -> the host's edits -> World -> `changes` -> pools, health, plans

At start the cards are offered before the host's files are known: a node is seen in the cluster at once, and a Prepare
waits for `looked`. A card that comes later is offered when its files are known too. What must stay true: a card that is lost or hangs costs only itself; while NVML cannot be read nothing is
known to be worse than before; and what is known of a card's health outlives this process.
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace

import structlog

from api import errors, resource
from driver import checkpoint, health, hostroot, inventory, metrics, nvml, offer, plan, records

_FILE = "health.json"
_CALM_S = 0.25
"""How long a change of what is held may wait for the next: the order of cards is no news that hurries."""
_log = structlog.get_logger()

Clock = Callable[[], datetime.datetime]
Held = Callable[[], Iterable[records.Record]]
MoreTaints = Callable[[inventory.CardUUID], tuple[resource.Taint, ...]]
"""What others than health have to say of a card."""
Hold = Callable[[str], contextlib.AbstractAsyncContextManager[None]]


class Watcher:
    """`held`: the records, whose cards stay offered while they are away. `hold`: a lock over all processes of the node."""

    def __init__(
        self,
        *,
        world: plan.World,
        gateway: nvml.NVML,
        host: hostroot.HostRoot,
        disk: checkpoint.Checkpoint,
        held: Held,
        hold: Hold,
        clock: Clock,
        period_s: float,
        lost_effect: str,
        fill: offer.Fill,
        more_taints: MoreTaints,
        given: offer.Given | None = offer.Given(),  # noqa: B008  a value that nobody can change
    ) -> None:
        self.world = world
        self.looked = asyncio.Event()
        self._listed = asyncio.Event()
        self._nvml = gateway
        self._host = host
        self._disk = disk
        self._held = held
        self._hold = hold
        self._clock = clock
        self._period_s = period_s
        self._lost_effect = lost_effect
        self._fill = fill
        self._more_taints = more_taints
        self._given = given
        self._seen = inventory.Inventory()
        self._fresh: frozenset[inventory.CardUUID] = frozenset()
        self._health = health.Health()
        self._written = ""
        self._unkept = ""
        self._changed = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Reads what an earlier process knew of the cards' health."""
        self._written = await self._disk.read_text(_FILE)
        if self._written:
            try:
                self._health = health.decode(self._written, self.world.boot_id)
            except errors.Corrupt as error:
                await self._disk.set_text_aside(_FILE)
                _log.error("health of the cards is begun anew", reason=str(error))

    async def run(self) -> None:
        """Looks for ever, every period and whenever the driver reports something."""
        while True:
            self._wake.clear()
            try:
                await self.look()
            except Exception:  # noqa: BLE001 whatever one look dies of, the next may not
                _log.exception("the cards could not be looked at, trying again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._wake.wait()

    async def listen(self) -> None:
        """Takes in what the driver reports, for ever."""
        await self._listed.wait()
        async for event in self._nvml.events():
            _log.warning("the driver reports", kind=event.kind.value, card=event.uuid, xid=event.xid)
            self._health = health.seen(self._health, event, self._clock())
            self._show(unread=self.world.unread)
            self._wake.set()

    async def look(self) -> None:
        """One look at everything."""
        unread = ""
        try:
            seen = await self._nvml.inventory()
        except errors.ElasticGPUError as error:
            unread = str(error)
            if unread != self.world.unread:
                _log.warning("the cards cannot be read", reason=unread)
        else:
            self._health = health.polled(self._health, self._seen, seen, self._clock())
            if self.looked.is_set():
                self._fresh |= {card.uuid for card in inventory.difference(self._seen, seen).added}
            self._seen = seen
            await self._probe()
            self._mark_away()
        for worker in self.world.backends.values():
            await worker.look()
        self._show(unread=unread)
        self._listed.set()
        if not unread:
            self._renew(host=await self._host.refresh(self._seen))
            if self._fresh:
                self._fresh = frozenset()
                self.tell()
        self.looked.set()
        await self._keep()

    async def changes(self) -> AsyncGenerator[None]:
        """One turn as soon as the cards are known, then one after each change; changes in between are one."""
        await self._listed.wait()
        while True:
            changed = self._changed
            yield
            await changed.wait()

    def tell(self) -> None:
        """Something that the pool is made of has changed."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._changed.set()
        self._changed = asyncio.Event()

    def tell_soon(self) -> None:
        """What is held has changed. A burst of claims is told once: the pool is made of all of them each time."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_CALM_S, self.tell)

    def give(self, given: offer.Given) -> None:
        """From now on the cards are offered to this allocator."""
        if given != self._given:
            _log.info("cards are offered to an allocator", by=given.by, fenced=given.fenced)
            self._given = given
            self.tell()

    def pool(self, held: Iterable[records.Record]) -> resource.Pool | None:
        """None while it is not known for whom it is: a card offered to two allocators is promised twice."""
        if self._given is None:
            return None
        held = tuple(held)
        seen = self._seen.without(self._fresh)
        taints = {
            uuid: (*health.taints(self._health.of(uuid), lost_effect=self._lost_effect), *self._more_taints(uuid))
            for uuid in {*self._health.states, *(card.uuid for card in seen.known)}
        }
        lost = offer.withheld(seen.known, held)
        return offer.pool(
            self.world.pool, seen, lost, taints, self.world.backends.values(), held, self._fill, self._given
        )

    def reports(self, held: Iterable[records.Record]) -> tuple[tuple[inventory.Card, health.Report], ...]:
        """How each card is that is offered."""
        cards = inventory.ordered((*self._seen.known, *offer.withheld(self._seen.known, held)))
        unknown = health.Report(verdict=health.Verdict.UNKNOWN, message=self.world.unread)
        return tuple(
            (card, unknown if self.world.unread else health.report(self._health.of(card.uuid))) for card in cards
        )

    async def _probe(self) -> None:
        """Whatever is held against a card that answers, only a probe takes back."""
        doubtful = [card.uuid for card in self._seen.cards if self._health.of(card.uuid).causes]
        for uuid, event in zip(doubtful, await asyncio.gather(*map(self._asked, doubtful)), strict=True):
            before = self._health.of(uuid)
            self._health = health.seen(self._health, event, self._clock())
            if self._health.of(uuid) != before:
                _log.info("card probed", card=uuid, outcome=event.kind.value)

    async def _asked(self, uuid: inventory.CardUUID) -> inventory.Event:
        try:
            await self._nvml.probe(uuid)
        except nvml.CardError as error:
            return inventory.Event(kind=inventory.EventKind(error.kind.value), uuid=uuid)
        return inventory.Event(kind=inventory.EventKind.ANSWERED, uuid=uuid)

    def _mark_away(self) -> None:
        """A card that was pulled out while nobody watched left no event, only a claim that holds it."""
        for card in offer.withheld(self._seen.known, self._held()):
            if not self._health.of(card.uuid).away:
                event = inventory.Event(kind=inventory.EventKind.VANISHED, uuid=card.uuid)
                self._health = health.seen(self._health, event, self._clock())

    def _show(self, *, unread: str) -> None:
        """Makes what is known now the picture for everybody."""
        states = {card: self._health.of(card.uuid) for card in self._seen.known}
        self._renew(
            unread=unread,
            cards={card.name: card for card in states},
            troubles={
                card.name: health.report(state).message
                for card, state in states.items()
                if state.severity > health.Severity.NOTED
            },
        )
        count = dict.fromkeys(health.Verdict, 0)
        for _, report in self.reports(self._held()):
            count[report.verdict] += 1
        for verdict, number in count.items():
            metrics.CARDS.labels(verdict.value).set(number)
        metrics.CARDS_READ.set(0 if unread else 1)
        self.tell()

    def _renew(self, **facts: object) -> None:
        """The world stays the same object while nothing in it changes."""
        world = replace(self.world, **facts)  # type: ignore[arg-type]
        if world != self.world:
            self.world = world

    async def _keep(self) -> None:
        text = health.encode(self._health, self.world.boot_id)
        if text != self._written:
            try:
                async with self._hold("health"):  # during an update two instances write it
                    await self._disk.write_text(_FILE, text)
                self._written = text
            except errors.Unavailable as error:
                if str(error) != self._unkept:
                    _log.warning("health of the cards could not be kept", reason=str(error))
                self._unkept = str(error)
            else:
                self._unkept = ""
