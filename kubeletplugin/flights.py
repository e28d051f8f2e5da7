"""One flight a claim: whoever asks for what is under way joins it, whoever asks for the opposite waits for its end.

    Prepare ----> flight (task) <---- repeated Prepare, after the kubelet lost patience
                    ^ waits
    Unprepare ----> flight (task)

A flight belongs to no caller: it goes on when the caller's deadline passes, and the repeat gets its answer. Flights of
one claim run in the order in which they were asked for, so that a Prepare that comes late never runs after the
Unprepare behind it (NV#1162). Other processes of this node are kept out by the claim's lock. A flight that still waits
when its last caller has gone does nothing.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from api import errors, resource
from kubeletplugin import locks

T = TypeVar("T")
log = structlog.get_logger()


class Kind(enum.Enum):
    PREPARE = "prepare"
    UNPREPARE = "unprepare"


@dataclass(slots=True)
class _Flight:
    kind: Kind
    task: asyncio.Task[Any]
    callers: int = 0


class Flights:
    def __init__(self, claim_locks: locks.Locks) -> None:
        self._locks = claim_locks
        self._last: dict[resource.ClaimUID, _Flight] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def fly(self, uid: resource.ClaimUID, kind: Kind, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, or of the flight of the same kind that is last in line for this claim."""
        flight = self._last.get(uid)
        if flight is None or flight.kind is not kind:
            flight = self._start(uid, kind, work, flight)
        flight.callers += 1
        try:
            result: T = await asyncio.shield(flight.task)
        finally:
            flight.callers -= 1
        return result

    async def drain(self, timeout_s: float) -> None:
        """Waits for all flights; those that take longer are cancelled, which a driver must bear like a crash."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=timeout_s)
        for task in late:
            log.warning("flight cut short by the stop", flight=task.get_name(), waited_s=timeout_s)
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1)

    def _start(
        self, uid: resource.ClaimUID, kind: Kind, work: Callable[[], Awaitable[T]], before: _Flight | None
    ) -> _Flight:
        async def run() -> T:
            try:
                if before is not None:
                    await asyncio.wait((before.task,))
                async with self._locks.hold(f"claim/{uid}"):
                    if not flight.callers:
                        raise errors.NotReady(f"{kind.value} of claim {uid} was given up before its turn came")
                    return await work()
            finally:
                if self._last.get(uid) is flight:
                    del self._last[uid]

        flight = _Flight(kind, asyncio.create_task(run(), name=f"{kind.value} {uid}"))
        self._last[uid] = flight
        self._running.add(flight.task)
        flight.task.add_done_callback(self._ended)
        return flight

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also when every caller has gone
