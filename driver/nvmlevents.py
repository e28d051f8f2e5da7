"""What the driver reports between two looks at the cards: a set of events, the cards in it, and a thread that waits.

    nvml.inventory -> watch_over    cards registered, with a new set where the old one is broken
    the driver -> thread -> events  an XID of a card; "look at all" after an error of the wait, which names no card

What must stay true: a set is freed by the thread that waited on it, never under a registration that has not come back;
one whose library was shut down went with it.
"""

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml
import structlog

from driver import inventory as inv
from driver import lanes

_log = structlog.get_logger(__name__)

_WAIT_MS = 1000
_LONGEST_PAUSE_S = 30


@dataclass(slots=True)
class _Watch:
    """An event set and the cards in it. Written by `watch_over`, waited on by the listener."""

    events: Any
    names: dict[int, inv.CardUUID] = field(default_factory=dict)
    registering: set[inv.CardUUID] = field(default_factory=set)
    broken: bool = False
    orphaned: bool = False
    """It belonged to a library that was shut down, and went with it."""


class Reports:
    """The reports of one library."""

    def __init__(self, calls: lanes.Lanes) -> None:
        self._lanes = calls
        self._watch: _Watch | None = None
        self._unheard: dict[str, str] = {}
        """Why there are no events, of the driver or a card: what lasts is said once."""
        self._renewed = threading.Event()

    async def events(self) -> AsyncGenerator[inv.Event, None]:
        """What the driver reports, for ever. One listener at a time."""
        queue: asyncio.Queue[inv.Event | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        stop = threading.Event()

        def tell(news: inv.Event | Exception) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
                loop.call_soon_threadsafe(queue.put_nowait, news)

        def listen() -> None:
            try:
                self._listen(stop, tell)
            except Exception as error:  # noqa: BLE001 a listener that died must not look like cards that are well
                tell(error)

        threading.Thread(target=listen, name="nvml events", daemon=True).start()
        try:
            while True:
                news = await queue.get()
                if isinstance(news, Exception):
                    raise news
                yield news
        finally:
            stop.set()
            self._renewed.set()

    async def watch_over(self, uuids: list[inv.CardUUID]) -> None:
        """Registers for events the cards that are not yet; with a new set if the old one is broken."""
        watch = self._watch
        if watch is None or watch.broken:
            try:
                watch = _Watch(await self._lanes.run("driver", pynvml.nvmlEventSetCreate))
            except (pynvml.NVMLError, TimeoutError) as error:
                self._complain("driver", error)
                return
            self._unheard.pop("driver", None)
        for address in [address for address, uuid in watch.names.items() if uuid not in uuids]:
            del watch.names[address]  # its registration may be gone with it
        fresh = [uuid for uuid in uuids if uuid not in watch.names.values()]
        await asyncio.gather(*(self._register(watch, uuid) for uuid in fresh))
        if watch is not self._watch:
            self._watch = watch
            self._renewed.set()

    def orphan(self) -> None:
        """The library is about to be shut down, and the set goes with it."""
        if self._watch is not None:
            self._watch.broken = self._watch.orphaned = True
            self._watch = None

    async def _register(self, watch: _Watch, uuid: inv.CardUUID) -> None:
        def register() -> int:
            try:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, watch.events)
                return _address(handle)
            finally:
                watch.registering.discard(uuid)

        watch.registering.add(uuid)
        try:
            watch.names[await self._lanes.run(uuid, register)] = uuid
            self._unheard.pop(uuid, None)
        except (pynvml.NVMLError, TimeoutError) as error:
            self._complain(uuid, error)

    def _complain(self, source: str, error: Exception) -> None:
        if self._unheard.get(source) != str(error):
            _log.warning("no events", source=source, error=str(error))
        self._unheard[source] = str(error)

    def _listen(self, stop: threading.Event, tell: Callable[[inv.Event], None]) -> None:
        """The listener's thread. After an error it pauses, longer each time, and goes on only with a renewed set."""
        failures = 0
        before: _Watch | None = None
        while not stop.is_set():
            self._renewed.clear()
            watch = self._watch
            if before is not None and before is not watch:
                _free(before)
            before = watch
            if watch is None or watch.broken:
                self._renewed.wait(_WAIT_MS / 1000)
                continue
            try:
                data = pynvml.nvmlEventSetWait_v2(watch.events, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    failures = 0
                elif not watch.broken:
                    watch.broken = True
                    tell(inv.Event(kind=inv.EventKind.LOST))
                    stop.wait(min(2**failures, _LONGEST_PAUSE_S))
                    failures += 1
                continue
            failures = 0
            uuid = watch.names.get(_address(data.device))
            tell(inv.Event(kind=inv.EventKind.XID, uuid=uuid, xid=int(data.eventData)))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _free(watch: _Watch) -> None:
    """Not under a registration that has not come back: it would write into what is gone."""
    if not (watch.registering or watch.orphaned):
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(watch.events)
