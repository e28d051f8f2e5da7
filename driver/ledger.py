"""The records in memory: a copy of the disk, kept true while other tasks and other processes work on it.

    guarded(uid, devices)   the locks of one claim and its cards, over all processes of the node
      follow(uid)           the claim's record as the disk has it; what others wrote or removed is taken in
      keep, drop            what is about to be on disk, or is no more, for everybody to see at once

What must stay true: a claim that this process works on is changed by nobody else's look; what a look brings is ignored
for claims that were worked on while it was under way, for it may be older than what memory knows.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from api import resource
from driver import checkpoint, metrics, records

Hold = Callable[[str], contextlib.AbstractAsyncContextManager[None]]


class Ledger:
    """`hold` locks a key over all processes of the node."""

    def __init__(self, disk: checkpoint.Checkpoint, hold: Hold) -> None:
        self._disk = disk
        self._hold = hold
        self._records: dict[resource.ClaimUID, records.Record] = {}
        self._busy: set[resource.ClaimUID] = set()
        self._looks: dict[object, set[resource.ClaimUID]] = {}

    @property
    def held(self) -> Mapping[resource.ClaimUID, records.Record]:
        """By claim, whatever their phase."""
        return self._records

    @contextlib.asynccontextmanager
    async def guarded(self, uid: resource.ClaimUID, devices: Iterable[str] = ()) -> AsyncIterator[None]:
        """The claim first, then cards by name: one order for all, so that nobody waits in a circle."""
        wanted = set(devices) | {holding.device for holding in self._holdings(uid)}
        async with contextlib.AsyncExitStack() as stack:
            for key in (f"claim/{uid}", *(f"card/{device}" for device in sorted(wanted))):
                await stack.enter_async_context(self._hold(key))
            self._busy.add(uid)
            try:
                yield
            finally:
                self._busy.discard(uid)
                for touched in self._looks.values():
                    touched.add(uid)

    async def follow(self, uid: resource.ClaimUID | None = None) -> records.Record | None:
        """Brings memory up to the disk; gives the record of `uid`, which the caller guards.

        A bad record is set aside under its claim's lock only: the own one here, those of others where no claim is named.
        """
        this, touched = object(), set[resource.ClaimUID]()
        self._looks[this] = touched
        try:
            look = await self._disk.look(uid, frozenset(self._records))
        finally:
            del self._looks[this]
        touched |= self._busy
        for gone in look.gone - touched:
            self._records.pop(gone, None)
        self._records |= {record.uid: record for record in look.appeared if record.uid not in touched}
        own = look.own
        if uid is None:
            for bad in look.bad:
                async with self.guarded(bad):
                    await self.follow(bad)
            return None
        if uid in look.bad:
            own = await self._disk.set_aside(uid)
            metrics.SET_ASIDE.inc()
        self.drop(uid) if own is None else self.keep(own)
        return own

    def keep(self, record: records.Record) -> None:
        self._records[record.uid] = record

    def drop(self, uid: resource.ClaimUID) -> None:
        self._records.pop(uid, None)

    def _holdings(self, uid: resource.ClaimUID) -> tuple[records.Holding, ...]:
        record = self._records.get(uid)
        return record.holdings if record is not None else ()
