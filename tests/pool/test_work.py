"""The agent in this process, with a clock of the test's."""

import asyncio
import json
from pathlib import Path

import pytest

from api import errors, lease
from driver import nvml
from pool import agent, calls, cards, leases, metrics, servers, store
from tests.fakes.cards import FakeCards

CALLER = lease.Caller(cluster="cluster-1")


async def test_what_is_old_is_forgotten_also_where_there_is_always_news(tmp_path: Path) -> None:
    now = 0
    (tmp_path / "cards.yaml").write_text(json.dumps({"cards": []}))
    worker = agent.Agent(
        kept=store.Store(tmp_path / "state"),
        source=cards.FileCards(tmp_path / "cards.yaml"),
        runner=lambda lock: servers.Servers(lock=lock, cgroup=None),
        offered={},
        limits=agent.Limits(ttl_ms=1000, longest_ttl_ms=1000, look_s=3600, first_uid=64000, here=""),
        series=metrics.Metrics(),
        clock_ms=lambda: now,
        started_s=1,
    )

    async def cancel(key: str) -> None:
        ref = calls.Ref(key=key)
        await worker.change(lambda table, at: calls.detach(table, CALLER, ref, "", at))
        await asyncio.sleep(0)

    async with worker.working(Nowhere()):
        await cancel("first")
        now += leases.TOMBSTONE_MS
        for number in range(20):
            await cancel(str(number))
        assert len(worker.table.cancelled) == 20


class Nowhere:
    def cut(self, lease_id: str) -> None:
        """Nobody is connected."""


async def test_a_list_of_drained_cards_that_cannot_be_read_is_told_and_mended(tmp_path: Path) -> None:
    fake = FakeCards(tmp_path / "nvml", count=1)
    drain = tmp_path / "drain"
    source = cards.DriverCards(nvml.NVML(libraries=(fake.library,), limit_s=10), drain)
    assert [card.state.value for card in await source.look()] == ["OFFERED"]
    drain.write_bytes(b"\xff")
    with pytest.raises(errors.Invalid, match="drain: "):
        await source.look()
    drain.unlink()
    drain.mkdir()
    with pytest.raises(errors.Invalid, match="drain: "):
        await source.look()
    drain.rmdir()
    assert len(await source.look()) == 1
