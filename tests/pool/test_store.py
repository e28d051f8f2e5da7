"""The journal: what was said is there after a crash, what was not said never happened."""

import asyncio
import itertools
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import errors, lease
from pool import calls, leases, store

CONTROLLER = lease.Caller(cluster="c1")
CARDS = {f"gpu-{name}": "" for name in "abcdef"}


def attached(table: leases.Table, key: str, device: str) -> leases.Table:
    request = calls.Request(
        key=key,
        device=device,
        cluster="c1",
        epoch=1,
        consumer=lease.Consumer(
            claim_uid="u", node_uid="n", node_name="n", namespace="ns", claim_name="c", pods=("p",)
        ),
        protocol="fake",
        ttl_ms=600_000,
        within_ms=30_000,
    )
    return calls.attach(table, CONTROLLER, request, CARDS, 5)[0]


def story() -> list[leases.Table]:
    """A table at each step of a life with everything in it."""
    tables = [leases.restart(leases.Table(), 0, 7)]
    tables.append(attached(tables[-1], "k1", "gpu-a"))
    first = lease.lease_id("c1", "k1")
    tables.append(leases.attached(tables[-1], first))
    tables.append(attached(tables[-1], "k2", "gpu-b"))
    tables.append(calls.detach(tables[-1], CONTROLLER, calls.Ref(key="k9"), "", 6)[0])
    tables.append(calls.detach(tables[-1], CONTROLLER, calls.Ref(key="k1"), "", 6)[0])
    tables.append(leases.released(tables[-1], first, 7))
    tables.append(leases.expire(tables[-1], 8 + leases.TOMBSTONE_MS))
    return tables


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[store.Store]:
    made = store.Store(tmp_path / "state")
    await made.open(patience_s=0)
    yield made
    await made.close()


async def written(folder: Path, tables: list[leases.Table]) -> None:
    made = store.Store(folder)
    table, _ = await made.open(patience_s=0)
    for at, after in enumerate(tables):
        await made.save(table, after, at)
        table = after
    await made.close()


async def read(folder: Path) -> tuple[leases.Table, int]:
    made = store.Store(folder)
    try:
        return await made.open(patience_s=0)
    finally:
        await made.close()


@pytest.mark.parametrize("steps", range(1, len(story()) + 1))
async def test_a_table_comes_back_as_it_was_after_every_step(tmp_path: Path, steps: int) -> None:
    tables = story()[:steps]
    await written(tmp_path, tables)
    table, at = await read(tmp_path)
    assert table == tables[-1]
    assert at == steps - 1
    assert await read(tmp_path) == (table, at), "a second start finds the same"


@given(st.integers(0, 10_000))
def test_a_journal_cut_anywhere_tells_the_steps_before_the_cut(cut: int) -> None:
    tables = [leases.Table(), *story()]
    texts = [
        store.encode(change)
        for before, after in itertools.pairwise(tables)
        if (change := store.difference(before, after, 1)) is not None
    ]
    journal = b"".join(texts)[:cut]
    lines, _, damaged = store.decode(journal)
    assert not damaged
    table = leases.Table()
    for change in lines:
        table = store.applied(table, change)
    assert leases.rebuilt(table) == tables[len(lines)]


async def test_a_damaged_line_costs_itself_and_is_kept_for_people(tmp_path: Path) -> None:
    await written(tmp_path, story()[:4])
    journal = tmp_path / "leases.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    broken = lines[-2].replace(b"ATTACHED", b"ATTACHEX")
    journal.write_bytes(b"".join([*lines[:-2], broken, lines[-1]]))
    table, _ = await read(tmp_path)
    assert table.leases[lease.lease_id("c1", "k1")].state is lease.State.ATTACHING
    assert set(table.holders) == {"gpu-a", "gpu-b"}
    assert broken in (tmp_path / "leases.journal.damaged-1").read_bytes()


async def test_renewals_are_not_written(kept: store.Store, tmp_path: Path) -> None:
    table = leases.attached(attached(leases.Table(), "k1", "gpu-a"), lease.lease_id("c1", "k1"))
    await kept.save(leases.Table(), table, 0)
    size = (tmp_path / "state" / "leases.journal").stat().st_size
    renewed, _ = calls.renew(table, CONTROLLER, (calls.Ref(key="k1"),), 9)
    assert renewed != table
    await kept.save(table, renewed, 9)
    assert (tmp_path / "state" / "leases.journal").stat().st_size == size


async def test_a_second_agent_on_the_same_state_is_refused(kept: store.Store, tmp_path: Path) -> None:
    other = store.Store(tmp_path / "state")
    with pytest.raises(errors.Conflict, match="belongs to another agent that works"):
        await other.open(patience_s=0.2)
    await other.close()


async def test_an_agent_waits_for_what_watches_over_the_servers_of_an_earlier_one(tmp_path: Path) -> None:
    first = store.Store(tmp_path)
    await first.open(patience_s=0)
    code = "import sys; sys.stdin.read()"
    keeper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, pass_fds=[first.lock]
    )
    await first.close()
    second = store.Store(tmp_path)
    opening = asyncio.create_task(second.open(patience_s=20))
    await asyncio.sleep(0)
    assert not opening.done()
    assert keeper.stdin is not None
    keeper.stdin.close()
    await keeper.wait()
    assert (await opening)[0] == leases.Table()
    await second.close()


async def test_a_full_disk_changes_nothing_and_the_same_call_does_later(kept: store.Store, tmp_path: Path) -> None:
    """The limit on a file's size stands in for the disk's end: the write stops in the middle of a line."""
    tables = story()
    await kept.save(leases.Table(), tables[1], 0)
    journal = tmp_path / "state" / "leases.journal"
    before = journal.read_bytes()
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, old[1]))
    try:
        with pytest.raises(errors.Unavailable, match="nothing was changed"):
            await kept.save(tables[1], tables[2], 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert journal.read_bytes() == before
    await kept.save(tables[1], tables[2], 2)
    assert store.decode(journal.read_bytes())[2] == []


def test_the_form_on_disk_has_not_changed_unnoticed() -> None:
    """Journals of the first release are read for ever; a new form gets a file of its own beside this one."""
    text = (Path(__file__).parent / "golden" / "leases-v1.journal").read_bytes()
    held = lease.Lease(
        id="lease-1",
        key="k1",
        device="gpu-a",
        token=7,
        state=lease.State.RELEASING,
        cluster="c1",
        consumer=lease.Consumer(
            claim_uid="u", node_uid="n", node_name="node1", namespace="ns", claim_name="c", share_id="a5", pods=("p",)
        ),
        protocol="fake",
        epoch=1,
        ttl_ms=600_000,
        within_ms=30_000,
        created_ms=5,
        expires_ms=600_005,
        attach_by_ms=30_005,
        ended_ms=9,
        failing=True,
        reason="its server died",
        server_incarnation=3,
        revision=4,
        created_revision=2,
    )
    change = store.Change(
        at=9,
        incarnation=3,
        revision=4,
        leases=(held,),
        tokens={"gpu-a": 7},
        epochs={"k1": 1},
        cancelled={"k2": 8},
        forgotten=("lease-0",),
    )
    assert store.encode(change) == text
    assert store.decode(text) == ([change], 0, [])
