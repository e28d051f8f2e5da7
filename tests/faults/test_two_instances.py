"""Two plugin processes on one node, as during a rolling update: they share the disk and nothing else."""

import asyncio
from pathlib import Path

import pytest

from api import errors
from tests.fakes.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, count=8)


async def test_what_one_instance_does_the_other_knows(machine: Machine) -> None:
    async with machine.node() as old, machine.node() as new:
        await old.prepare(machine.claim("a", 0))
        with pytest.raises(errors.Conflict, match="claim-a"):
            await new.prepare(machine.claim("b", 0))
        assert await new.prepare(machine.claim("a", 0)) == await old.prepare(machine.claim("a", 0))
        await new.unprepare(machine.ref("a"))
        await old.prepare(machine.claim("b", 0))
        assert [ref.uid for ref in await new.prepared()] == ["b"]


async def test_an_instance_puts_back_no_file_that_the_other_removed(machine: Machine) -> None:
    async with machine.node() as old, machine.node() as new:
        await old.prepare(machine.claim("a", 0))
        await new.unprepare(machine.ref("a"))
        await asyncio.sleep(0.3)  # some turns of both repairers
        assert machine.spec("a") is None


async def test_of_many_claims_through_two_instances_each_card_has_one(machine: Machine) -> None:
    async with machine.node() as old, machine.node() as new:
        calls = [
            node.prepare(machine.claim(f"{name}-{number}", number))
            for number in range(8)
            for name, node in (("old", old), ("new", new))
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, errors.Conflict) for answer in answers) == 8, answers
        assert len(await old.prepared()) == len(await new.prepared()) == 8
