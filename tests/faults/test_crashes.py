"""kill -9 after every step of Prepare and Unprepare; then the same call again, by a new process."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from api import errors
from tests.fakes.machine import Machine
from tests.fakes.mortal import Death, MortalDisk

# Prepare writes: 1 record, 2 CDI file. Unprepare: 1 CDI file away, 2 record away. With steps: test_preparer.py.
PREPARE = [(step, before) for step in (1, 2) for before in (True, False)]
UNPREPARE = [(step, before) for step in (1, 2) for before in (True, False)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, count=2)


@pytest.mark.parametrize(("step", "before"), PREPARE)
async def test_a_prepare_that_died_is_done_by_the_next(machine: Machine, step: int, before: bool) -> None:
    async with machine.node(MortalDisk(dies_at=step, before=before)) as node:
        with pytest.raises(Death):
            await node.prepare(machine.claim("a", 0))
    async with machine.node() as node:
        assert [ref.uid for ref in await node.prepared()] == ([] if (step, before) == (1, True) else ["a"])
        (device,) = await node.prepare(machine.claim("a", 0))
        spec = machine.spec("a")
        assert spec is not None
        assert device.cdi_ids[0].endswith(spec["devices"][0]["name"])
        with pytest.raises(errors.Conflict):
            await node.prepare(machine.claim("b", 0))
        await node.unprepare(machine.ref("a"))
        await node.prepare(machine.claim("b", 0))


@pytest.mark.parametrize(("step", "before"), PREPARE)
async def test_a_prepare_that_died_can_be_undone(machine: Machine, step: int, before: bool) -> None:
    """NV#840: nothing half-prepared stays for ever."""
    async with machine.node(MortalDisk(dies_at=step, before=before)) as node:
        with pytest.raises(Death):
            await node.prepare(machine.claim("a", 0))
    async with machine.node() as node:
        await node.unprepare(machine.ref("a"))
        assert await node.prepared() == ()
        assert machine.spec("a") is None
        await node.prepare(machine.claim("b", 0))


@pytest.mark.parametrize(("step", "before"), UNPREPARE)
async def test_an_unprepare_that_died_is_done_by_the_next(machine: Machine, step: int, before: bool) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
    async with machine.node(MortalDisk(dies_at=step, before=before)) as node:
        with pytest.raises(Death):
            await node.unprepare(machine.ref("a"))
    async with machine.node() as node:
        await node.unprepare(machine.ref("a"))
        assert machine.spec("a") is None
        assert not machine.record("a").exists()
        await node.prepare(machine.claim("b", 0))


@pytest.mark.parametrize(("step", "before"), UNPREPARE)
async def test_a_claim_whose_unprepare_died_can_be_prepared_again(machine: Machine, step: int, before: bool) -> None:
    async with machine.node() as node:
        answer = await node.prepare(machine.claim("a", 0))
    async with machine.node(MortalDisk(dies_at=step, before=before)) as node:
        with pytest.raises(Death):
            await node.unprepare(machine.ref("a"))
    async with machine.node() as node:
        assert await node.prepare(machine.claim("a", 0)) == answer
        assert machine.spec("a") is not None


async def test_a_cdi_file_is_never_without_its_record(machine: Machine) -> None:
    """dra-driver-cpu#178: a container could be started with a card that was free already."""
    async with machine.node(MortalDisk(dies_at=1, before=False)) as node:
        with pytest.raises(Death):
            await node.prepare(machine.claim("a", 0))
    assert (machine.record("a").exists(), machine.spec("a")) == (True, None)
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
    async with machine.node(MortalDisk(dies_at=1, before=False)) as node:
        with pytest.raises(Death):
            await node.unprepare(machine.ref("a"))
        assert (machine.record("a").exists(), machine.spec("a")) == (True, None)


async def test_the_steps_are_the_ones_counted_here(machine: Machine) -> None:
    counter = MortalDisk(dies_at=0, before=True)
    async with machine.node(counter) as node:
        await node.prepare(machine.claim("a", 0))
        assert counter.changes == 2
        await node.prepare(machine.claim("a", 0))
        assert counter.changes == 2
        await node.unprepare(machine.ref("a"))
        assert counter.changes == 4


async def test_a_call_that_is_cancelled_leaves_what_a_crash_would(machine: Machine) -> None:
    async with machine.node() as node:
        task = asyncio.create_task(node.prepare(machine.claim("a", 0)))
        while not machine.record("a").exists():  # noqa: ASYNC110 the other side is a disk
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await node.prepare(machine.claim("a", 0))
