"""Memory beside the disk: what a look brings is older than what was done while it was under way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from api import resource
from driver import checkpoint, disk, ledger, records

UID = resource.ClaimUID("a")
RECORD = records.Record(
    uid=UID, namespace="ns", name="a", phase=records.Phase.PREPARED, boot_id="b", holdings=(), cdi="{}"
)


class SlowDisk(disk.Disk):
    """Looks come back only while `open` is set, with what they saw before."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.seen = asyncio.Event()

    async def run(self, path: Path, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = await super().run(path, function, *args, **kwargs)
        if function.__name__ == "_look":
            self.seen.set()
            await self.open.wait()
        return result


@contextlib.asynccontextmanager
async def free(key: str) -> AsyncIterator[None]:
    del key
    yield


class Desk:
    def __init__(self, root: Path) -> None:
        self.slow = SlowDisk()
        self.disk = checkpoint.Checkpoint(root, self.slow)
        self.book = ledger.Ledger(self.disk, free)

    @contextlib.asynccontextmanager
    async def during_a_look(self) -> AsyncIterator[None]:
        """The disk is read at the start of the block, what it said is known at its end."""
        self.slow.open.clear()
        self.slow.seen.clear()
        look = asyncio.create_task(self.book.follow())
        await self.slow.seen.wait()
        yield
        self.slow.open.set()
        await look


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_claim_whose_record_is_about_to_be_written_is_not_taken_for_gone(desk: Desk) -> None:
    """Else another claim could win its card between the plan and the disk."""
    async with desk.book.guarded(UID):
        desk.book.keep(RECORD)
        await desk.book.follow()
        assert UID in desk.book.held
        await desk.book.follow(resource.ClaimUID("b"))
        assert UID in desk.book.held
    await desk.book.follow()
    assert UID not in desk.book.held, "nobody works on it, and the disk is the truth"


async def test_a_claim_that_was_prepared_during_a_look_is_not_taken_for_gone(desk: Desk) -> None:
    async with desk.book.guarded(UID):
        desk.book.keep(RECORD)
        async with desk.during_a_look():
            await desk.disk.write(RECORD)
    async with desk.during_a_look(), desk.book.guarded(UID):
        desk.book.keep(RECORD)
    assert UID in desk.book.held


async def test_a_claim_that_was_released_during_a_look_does_not_come_back(desk: Desk) -> None:
    await desk.disk.write(RECORD)
    async with desk.during_a_look(), desk.book.guarded(UID):
        await desk.disk.remove(UID)
        desk.book.drop(UID)
    assert UID not in desk.book.held


async def test_what_another_process_did_is_taken_in(desk: Desk) -> None:
    await desk.disk.write(RECORD)
    await desk.book.follow()
    assert desk.book.held == {UID: RECORD}
    await desk.disk.remove(UID)
    await desk.book.follow()
    assert desk.book.held == {}
