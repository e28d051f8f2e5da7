import asyncio
from pathlib import Path

import pytest

from api import errors, resource
from kubeletplugin import flights, locks
from kubeletplugin.flights import Kind

UID = resource.ClaimUID("uid-1")


class Work:
    """Work that ends when it is told to."""

    def __init__(self, result: str = "done") -> None:
        self.started, self.may_end = asyncio.Event(), asyncio.Event()
        self.runs, self.result = 0, result

    async def __call__(self) -> str:
        self.runs += 1
        self.started.set()
        await self.may_end.wait()
        return self.result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "claims.lock"


@pytest.fixture
def some(path: Path) -> flights.Flights:
    return flights.Flights(locks.Locks(path))


async def test_second_prepare_joins_the_first(some: flights.Flights) -> None:
    work, other = Work(), Work("other")
    first = asyncio.create_task(some.fly(UID, Kind.PREPARE, work))
    await work.started.wait()
    second = asyncio.create_task(some.fly(UID, Kind.PREPARE, other))
    await asyncio.sleep(0)
    work.may_end.set()
    assert await asyncio.gather(first, second) == ["done", "done"]
    assert (work.runs, other.runs) == (1, 0)


async def test_a_caller_that_leaves_does_not_stop_the_flight(some: flights.Flights) -> None:
    work = Work()
    caller = asyncio.create_task(some.fly(UID, Kind.PREPARE, work))
    await work.started.wait()
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    work.may_end.set()
    assert await some.fly(UID, Kind.PREPARE, Work("other")) == "done"
    assert work.runs == 1


async def test_unprepare_waits_for_prepare_and_prepare_for_unprepare(some: flights.Flights) -> None:
    prepare, unprepare, again = Work("p1"), Work("u"), Work("p2")
    tasks = [asyncio.create_task(some.fly(UID, Kind.PREPARE, prepare))]
    await prepare.started.wait()
    tasks.append(asyncio.create_task(some.fly(UID, Kind.UNPREPARE, unprepare)))
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(some.fly(UID, Kind.PREPARE, again)))
    await asyncio.sleep(0.05)
    assert (unprepare.runs, again.runs) == (0, 0)
    for work, next_one in ((prepare, unprepare), (unprepare, again)):
        work.may_end.set()
        await asyncio.wait_for(next_one.started.wait(), 60)
    again.may_end.set()
    assert await asyncio.gather(*tasks) == ["p1", "u", "p2"]


async def test_a_prepare_nobody_waits_for_any_more_does_not_begin(some: flights.Flights) -> None:
    """NV#1162: a stale Prepare that ran after Unprepare recorded the claim again."""
    unprepare, stale = Work(), Work()
    first = asyncio.create_task(some.fly(UID, Kind.UNPREPARE, unprepare))
    await unprepare.started.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(some.fly(UID, Kind.PREPARE, stale), 0.05)
    unprepare.may_end.set()
    await first
    await some.drain(1)
    assert stale.runs == 0


async def test_flights_of_different_claims_run_side_by_side(some: flights.Flights) -> None:
    works = [Work(str(number)) for number in range(16)]
    tasks = [
        asyncio.create_task(some.fly(resource.ClaimUID(f"uid-{number}"), Kind.PREPARE, work))
        for number, work in enumerate(works)
    ]
    await asyncio.wait_for(asyncio.gather(*(work.started.wait() for work in works)), 60)
    for work in works:
        work.may_end.set()
    assert await asyncio.gather(*tasks) == [str(number) for number in range(16)]


async def test_an_error_reaches_every_caller_and_the_next_call_begins_anew(some: flights.Flights) -> None:
    async def fails() -> str:
        await asyncio.sleep(0)
        raise errors.Conflict("held by other/claim")

    outcomes = await asyncio.gather(*(some.fly(UID, Kind.PREPARE, fails) for _ in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["held by other/claim"] * 3
    work = Work()
    work.may_end.set()
    assert await some.fly(UID, Kind.PREPARE, work) == "done"


async def test_a_flight_waits_for_the_flight_of_another_process(path: Path) -> None:
    """Rolling update: two instances with one lock file."""
    old, new = flights.Flights(locks.Locks(path)), flights.Flights(locks.Locks(path))
    prepare, unprepare = Work(), Work()
    first = asyncio.create_task(old.fly(UID, Kind.PREPARE, prepare))
    await prepare.started.wait()
    second = asyncio.create_task(new.fly(UID, Kind.UNPREPARE, unprepare))
    await asyncio.sleep(0.1)
    assert unprepare.runs == 0
    prepare.may_end.set()
    unprepare.may_end.set()
    await asyncio.wait_for(asyncio.gather(first, second), 60)


async def test_draining_waits_and_cuts_what_takes_too_long(some: flights.Flights) -> None:
    quick, slow = Work(), Work()
    quick.may_end.set()
    tasks = [
        asyncio.create_task(some.fly(resource.ClaimUID(uid), Kind.PREPARE, work))
        for uid, work in (("a", quick), ("b", slow))
    ]
    await slow.started.wait()
    await some.drain(0.1)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] == "done"
    assert isinstance(results[1], asyncio.CancelledError)
