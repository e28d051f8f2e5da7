"""NVML: the only door to the driver's library; pynvml is imported here and in the `nvml...` modules behind it alone.

Every call runs in a thread of its own with a limit, in a lane per card, so that a card that hangs holds up nobody else.
`inventory` reads all cards at once: it starts NVML when it has to (also later, when the driver comes after us), starts it
anew when the driver is another one, and says of each card that does not answer what is wrong with it. `events` tells what
the driver reports between two inventories. The cards are registered for events by `inventory`, so read one before
listening, and one after each event without a uuid: it renews what an error broke.

pynvml keeps its library in a global, so there is one NVML a process.
"""

import asyncio
import contextlib
import ctypes
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pynvml
import structlog

from api import errors
from driver import inventory as inv
from driver import lanes, nvmlcalls, nvmlerrors, nvmlevents

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class CardError(errors.Unavailable):
    """A card does not answer as it should; `kind` says what follows from it."""

    def __init__(self, message: str, *, kind: inv.FaultKind) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Unread:
    index: int
    uuid: inv.CardUUID | None
    error: Exception


class NVML:
    """`libraries`: the places of the file to load, none for the loader's search. `limit_s`: how long one call may take.

    `groups`: where the control groups are mounted.
    """

    def __init__(
        self,
        *,
        libraries: tuple[Path, ...],
        limit_s: float,
        sysfs: Path = Path("/sys"),
        groups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._libraries = libraries
        self._sysfs = sysfs
        self._groups = groups
        self._lanes = lanes.Lanes(limit_s=limit_s)
        self._turn = asyncio.Lock()
        self._started_with: str | None = None
        self._last: dict[inv.CardUUID, inv.Card] = {}
        self._sampled: dict[inv.CardUUID, int] = {}
        self._reports = nvmlevents.Reports(self._lanes)

    async def inventory(self) -> inv.Inventory:
        """All cards as they are now. Raises Unavailable while there is no driver; calling again later is the cure."""
        async with self._turn:
            for attempt in (1, 2):
                version, cuda, count = await self._system()
                read = await asyncio.gather(*(self._read(index, count) for index in range(count)))
                unread = [one for one in read if isinstance(one, _Unread)]
                if attempt == 1 and any(_code(one.error) in nvmlcalls.GONE for one in unread):
                    await self._stop()  # the driver changed between two calls
                    continue
                break
            cards = [one for one in read if isinstance(one, inv.Card)]
            faults = await self._faults({card.uuid for card in cards}, unread)
            self._last |= {card.uuid: card for card in cards}
            await self._reports.watch_over([card.uuid for card in cards])
        return inv.Inventory(
            driver_version=version,
            cuda_driver_version=cuda,
            cards=inv.ordered(tuple(cards)),
            faults=faults,
        )

    async def probe(self, uuid: inv.CardUUID) -> None:
        """Asks the card several things that need it to be alive. Raises CardError if it does not answer well."""
        try:
            await self._lanes.run(uuid, lambda: nvmlcalls.examine(uuid))
        except (pynvml.NVMLError, TimeoutError) as error:
            raise CardError(f"card {uuid}: {error}", kind=_kind(error)) from error

    async def left_on(self, card: inv.CardUUID) -> str | None:
        """What is on a card that nobody should have: processes, memory in use. None: nothing."""
        return await self._ask_card(card, lambda: nvmlcalls.left_on(card), "what is left on it")

    async def use(self, card: inv.CardUUID) -> inv.Reading:
        """What is used of the card now, and by which processes."""
        since = self._sampled.get(card, 0)
        reading, self._sampled[card] = await self._ask_card(card, lambda: nvmlcalls.use(card, since), "its use")
        return reading

    async def memory_limit(self, card: inv.CardUUID, group: Path) -> int | None:
        """How many bytes of the card this control group may have; None: it has no limit of its own."""
        return await self._ask_card(card, lambda: nvmlcalls.memory_limit(card, str(group)), f"limit of {group}")

    async def limit_memory(self, card: inv.CardUUID, group: Path, limit: int | None) -> None:
        """Lets this control group have so many bytes of the card; None takes the limit away."""
        await self._ask_card(card, lambda: nvmlcalls.limit_memory(card, str(group), limit), f"limit of {group}")

    async def compute_mode(self, uuid: inv.CardUUID) -> int:
        """Who may have contexts on the card, by NVML's number. Raises Invalid or Unavailable."""
        return await self._ask_card(uuid, lambda: nvmlcalls.compute_mode(uuid), "compute mode")

    async def set_compute_mode(self, uuid: inv.CardUUID, mode: int) -> None:
        """May be repeated. Raises Invalid or Unavailable."""
        await self._ask_card(uuid, lambda: nvmlcalls.set_compute_mode(uuid, mode), "compute mode")

    def events(self) -> AsyncGenerator[inv.Event, None]:
        """What the driver reports, for ever. One listener at a time."""
        return self._reports.events()

    async def close(self) -> None:
        """Lets go of the driver. Harmless when it was never there."""
        async with self._turn:
            await self._stop()

    async def _system(self) -> tuple[str, str | None, int]:
        """Driver version, CUDA version, number of cards; NVML is started first if it is not, or not with this driver."""
        try:
            if self._started_with is not None:
                try:
                    seen = await self._lanes.run("driver", nvmlcalls.system_facts)
                except pynvml.NVMLError as error:
                    if error.value not in nvmlcalls.GONE:
                        raise
                else:
                    if seen[0] == self._started_with:
                        return seen
                _log.info("the driver is another one, NVML starts anew", started_with=self._started_with)
                await self._stop()
            await self._lanes.run("driver", lambda: _load(self._libraries))
            seen = await self._lanes.run("driver", nvmlcalls.system_facts)
        except (pynvml.NVMLError, OSError) as error:  # TimeoutError is an OSError
            raise translated(error, "NVML does not start; it is tried again") from error
        self._started_with = seen[0]
        _log.info("NVML started", driver=seen[0], cuda=seen[1], cards=seen[2])
        return seen

    async def _stop(self) -> None:
        if self._started_with is None:
            return
        self._started_with = None
        self._reports.orphan()
        with contextlib.suppress(pynvml.NVMLError, TimeoutError):
            await self._lanes.run("driver", pynvml.nvmlShutdown)

    async def _read(self, index: int, count: int) -> inv.Card | _Unread:
        """The lane carries the count too: when a hanging card is taken out, others move to its index."""
        found: list[inv.CardUUID] = []

        def read() -> inv.Card:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(inv.CardUUID(pynvml.nvmlDeviceGetUUID(handle)))
            return nvmlcalls.facts(handle, found[0], self._sysfs, self._groups)

        try:
            return await self._lanes.run(f"card {index} of {count}", read)
        except (pynvml.NVMLError, TimeoutError, ValueError) as error:
            return _Unread(index, found[0] if found else None, error)

    async def _faults(self, seen: set[inv.CardUUID], unread: list[_Unread]) -> tuple[inv.Fault, ...]:
        """One fault a card that did not answer. An index whose card is unknown is matched with the cards we miss."""
        faults = [self._fault(one.error, uuid=one.uuid, index=one.index) for one in unread if one.uuid is not None]
        nameless = [one for one in unread if one.uuid is None]
        named = {one.uuid for one in unread}
        missed = [uuid for uuid in self._last if uuid not in seen and uuid not in named]
        for uuid, error in zip(missed, await asyncio.gather(*map(self._ask, missed)), strict=True):
            if _code(error) == pynvml.NVML_ERROR_NOT_FOUND:
                del self._last[uuid]  # no longer listed
                continue
            place = nameless.pop(0).error if nameless else errors.NotReady("it was not listed this time")
            faults.append(self._fault(error or place, uuid=uuid))
        faults += [self._fault(one.error, index=one.index) for one in nameless]
        return tuple(faults)

    async def _ask(self, uuid: inv.CardUUID) -> Exception | None:
        try:
            await self._lanes.run(uuid, lambda: pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)))
        except (pynvml.NVMLError, TimeoutError) as error:
            return error
        return None

    async def _ask_card(self, card: inv.CardUUID, call: Callable[[], T], about: str) -> T:
        try:
            return await self._lanes.run(card, call)
        except (pynvml.NVMLError, TimeoutError) as error:
            raise translated(error, f"card {card}, {about}") from error

    def _fault(self, error: Exception, *, uuid: inv.CardUUID | None = None, index: int | None = None) -> inv.Fault:
        card = self._last.get(uuid) if uuid is not None else None
        return inv.Fault(kind=_kind(error), why=str(error), uuid=uuid, index=index, card=card)


def translated(error: Exception, about: str) -> errors.ElasticGPUError:
    """The same error in our words."""
    return nvmlerrors.meaning(_code(error))(f"{about}: {error}")


def _code(error: Exception | None) -> int | None:
    return int(error.value) if isinstance(error, pynvml.NVMLError) else None


def _kind(error: Exception) -> inv.FaultKind:
    if isinstance(error, TimeoutError):
        return inv.FaultKind.HUNG
    if _code(error) in {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND}:
        return inv.FaultKind.LOST
    return inv.FaultKind.UNREADABLE


def _load(libraries: tuple[Path, ...]) -> None:
    """The first that is there now: the driver may come after us.

    The file behind the links is what is loaded: after an update of the driver that is another one, and a new library.
    """
    if libraries:
        library = next((path for path in libraries if path.exists()), libraries[0])
        pynvml.nvmlLib = ctypes.CDLL(os.path.realpath(library))
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 it holds the functions of the library before
    pynvml.nvmlInitWithFlags(0)
