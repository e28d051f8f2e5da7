"""Shares held by MPS, on a node with a stand-in for NVIDIA's daemon: real processes, real sockets, real clients."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from api import errors
from driver import node
from tests.fakes.machine import Machine, until
from tests.fakes.mpsdriver import MPSDriver

MPS = {"memory": "Required", "cores": "Required"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is a script, which a busy machine starts in seconds; what hangs is about the test that says so."""
    monkeypatch.setattr("driver.__main__._MPS_LIMIT_S", 60)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(params=["named", "old"])
def driver(request: pytest.FixtureRequest, machine: Machine) -> Iterator[MPSDriver]:
    made = machine.install_mps()
    made.fault(*(["old"] if request.param == "old" else []))
    yield made
    made.close()


@pytest.fixture
def named(machine: Machine) -> Iterator[MPSDriver]:
    """NVIDIA's driver r615: namespaces."""
    made = machine.install_mps()
    yield made
    made.close()


@contextlib.asynccontextmanager
async def _node(machine: Machine) -> AsyncIterator[node.Node]:
    """A driver whose MPS daemon serves clients."""
    async with machine.node() as running:
        await _published(running, "mps")
        yield running


async def _published(running: node.Node, word: str, card: int = 0) -> None:
    """Waits until the card is offered so."""
    async with asyncio.timeout(60), contextlib.aclosing(running.pools()) as pools:
        async for (pool,) in pools:
            device = sorted(pool.devices, key=lambda device: str(dict(device.attributes)["uuid"]))[card]
            told = dict(device.attributes)
            if (told["memoryEnforcement"], told["coresEnforcement"]) == (word, word):
                return


async def _eventually(running: node.Node, machine: Machine, uid: str) -> None:
    """Prepares a share as a kubelet does, which tries again."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(errors.Unavailable):
                await running.prepare(machine.share(uid, 0, firm=MPS))
                return
            await asyncio.sleep(0.05)


def _edits(machine: Machine, uid: str) -> dict[str, str]:
    """The environment that the container gets."""
    spec = machine.spec(uid)
    assert spec is not None
    return dict(text.split("=", 1) for text in spec["devices"][0]["containerEdits"]["env"] if "MPS" in text)


def _takes(machine: Machine, driver: MPSDriver, uid: str, mib: int) -> str:
    """What a program of the claim's container gets."""
    env = _edits(machine, uid)
    return driver.takes(env.pop("CUDA_MPS_PIPE_DIRECTORY"), mib, **env)


def _mode_file(machine: Machine, card: int) -> Path:
    return machine.cards.file.with_name(f"{machine.cards.file.name}.memory.{machine.cards.uuids[card]}.mode")


def _mode(machine: Machine, card: int) -> str:
    file = _mode_file(machine, card)
    return file.read_text().strip() if file.exists() else "0"


async def test_each_container_gets_its_own_part_and_no_more(machine: Machine, driver: MPSDriver) -> None:
    async with _node(machine) as running:
        for uid, cores, memory in (("small", 10, "1Gi"), ("large", 60, "40Gi")):
            (device,) = await running.prepare(machine.share(uid, 0, cores=cores, memory=memory, firm=MPS))
            assert device.data["enforcement"] == {"memory": "mps", "cores": "mps"}
        for uid, mib in (("small", 1024), ("large", 40960)):
            assert await asyncio.to_thread(_takes, machine, driver, uid, mib) == "ready"
            assert await asyncio.to_thread(_takes, machine, driver, uid, mib + 1) == "cuMemAlloc_v2 answers 2"


async def test_a_container_gets_the_directory_of_its_own_namespace_alone(machine: Machine, named: MPSDriver) -> None:
    """With the whole of the pipes it could connect to the namespace that nothing limits."""
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0, firm=MPS))
        spec = machine.spec("a") or {}
        (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
        assert mount["hostPath"] == mount["containerPath"] == _edits(machine, "a")["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(mount["hostPath"]).parent.parent == named.pipes
        assert list(_edits(machine, "a")) == ["CUDA_MPS_PIPE_DIRECTORY"]


async def test_an_older_daemon_is_asked_by_the_client_for_its_limits(machine: Machine, named: MPSDriver) -> None:
    named.fault("old")
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0, cores=25, memory="8Gi", firm=MPS))
        assert _edits(machine, "a") == {
            "CUDA_MPS_PIPE_DIRECTORY": str(named.pipes),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
        }


@pytest.mark.parametrize("before", [0, 2, 3])
async def test_a_card_gets_its_compute_mode_back_with_the_last_share(
    machine: Machine, driver: MPSDriver, before: int
) -> None:
    """dra-driver-nvidia-gpu#1262: the card was left in EXCLUSIVE_PROCESS; and what it had is not always DEFAULT."""
    _mode_file(machine, 0).write_text(str(before))
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0))
        await running.prepare(machine.share("b", 0))
        assert (_mode(machine, 0), _mode(machine, 1)) == ("3", "0")
        await running.unprepare(machine.ref("a"))
        assert _mode(machine, 0) == "3"
        await running.unprepare(machine.ref("b"))
        assert _mode(machine, 0) == str(before)


async def test_what_a_crash_left_of_a_mode_is_put_right_at_the_next_start(machine: Machine, named: MPSDriver) -> None:
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0))
    machine.record("a").unlink()  # as if the last words of Unprepare had been all that was lost
    async with _node(machine):
        await until(lambda: _mode(machine, 0) == "0")


async def test_a_daemon_that_is_killed_is_started_anew_with_all_its_shares(machine: Machine, driver: MPSDriver) -> None:
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0, memory="1Gi", firm=MPS))
        (before,) = driver.daemons()
        os.kill(before, signal.SIGKILL)
        await until(lambda: driver.daemons() not in ([], [before]))
        await _published(running, "mps")
        assert _told(driver) == {"elasticgpu_mps_serving": "1.0", "elasticgpu_mps_starts_total": "2.0"}
        assert await asyncio.to_thread(_takes, machine, driver, "a", 1024) == "ready"
        assert await asyncio.to_thread(_takes, machine, driver, "a", 1025) == "cuMemAlloc_v2 answers 2"
        await running.prepare(machine.share("b", 0, firm=MPS))


async def test_a_daemon_that_answers_nobody_is_replaced(
    machine: Machine, named: MPSDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driver.__main__._MPS_LIMIT_S", 5)
    async with _node(machine) as running:
        await _eventually(running, machine, "a")
        (before,) = named.daemons()
        named.fault("wedged")
        await until(lambda: before not in named.daemons(), within_s=120)
        named.fault()
        await _published(running, "mps")
        assert await asyncio.to_thread(_takes, machine, named, "a", 1) == "ready"


async def test_nothing_counts_before_a_client_was_served(machine: Machine, named: MPSDriver) -> None:
    """k8s-device-plugin#762, #1094, #679: the daemon looked well, and no program ran."""
    named.fault("deaf")
    async with machine.node() as running:
        await until(named.daemons)
        await _published(running, "none")
        assert _told(named)["elasticgpu_mps_serving"] == "0.0"
        with pytest.raises(errors.Invalid, match=r"MPS: the MPS daemon has not been started yet"):
            await running.prepare(machine.share("a", 0, firm=MPS))
        named.fault()
        await _published(running, "mps")


async def test_a_daemon_that_ends_at_once_says_why(machine: Machine, named: MPSDriver) -> None:
    """k8s-device-plugin#1614: it ended with status 1, and its log was where nobody looked."""
    named.fault("broken")
    async with machine.node() as running:
        await _published(running, "none")
        await _refused(machine, running, "the MPS daemon ends at once: Server encountered a fatal exception")


def _told(driver: MPSDriver) -> dict[str, str]:
    """The series about this daemon."""
    lines = generate_latest().decode().splitlines()
    return {
        line.partition("{")[0]: line.rpartition(" ")[2]
        for line in lines
        if f'program="{driver.program}"' in line and "_created" not in line
    }


async def _refused(machine: Machine, running: node.Node, words: str) -> None:
    """Waits until a share is refused with these words."""
    async with asyncio.timeout(60):
        while True:
            try:
                await running.prepare(machine.share("refused", 0, firm=MPS))
            except errors.Invalid as error:
                if words in str(error):
                    return
            await asyncio.sleep(0.02)


async def test_beside_a_daemon_of_somebody_else_none_is_started(machine: Machine, named: MPSDriver) -> None:
    other = await asyncio.to_thread(named.start_by_hand, machine.root / "other")
    await until(named.daemons)
    async with machine.node() as running:
        await _refused(machine, running, f"which this driver did not start (process {other.pid})")
        assert named.daemons() == [other.pid]
        other.kill()
        await asyncio.to_thread(other.wait)
        await _published(running, "mps")


async def test_a_restart_of_the_driver_leaves_the_daemon_to_the_containers(machine: Machine, named: MPSDriver) -> None:
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0, memory="1Gi", firm=MPS))
        daemons = named.daemons()
        env = _edits(machine, "a")
        program = await asyncio.to_thread(named.program_with, env["CUDA_MPS_PIPE_DIRECTORY"], 512)
        assert program.stdout is not None
        assert await asyncio.to_thread(program.stdout.readline) == "ready\n"
    async with _node(machine) as running:
        assert named.daemons() == daemons
        assert program.poll() is None
        await running.prepare(machine.share("b", 0, firm=MPS))
        program.kill()
        program.communicate()
        await running.unprepare(machine.ref("a"))
        await running.unprepare(machine.ref("b"))
    assert named.daemons() == []


async def test_a_daemon_that_holds_nothing_ends_with_the_driver(machine: Machine, driver: MPSDriver) -> None:
    async with _node(machine):
        assert len(driver.daemons()) == 1
    assert driver.daemons() == []


async def test_a_card_whose_server_does_not_come_up_costs_itself(machine: Machine, named: MPSDriver) -> None:
    """A server for a card that is not there is accepted and gone; its clients would have had no limits at all."""
    async with _node(machine) as running:
        named.fault(f"dead {machine.cards.uuids[0]}")
        with pytest.raises(errors.NotReady, match=r"the MPS server of card GPU-.* does not come up"):
            await running.prepare(machine.share("a", 0, firm=MPS))
        assert machine.spec("a") is None
        await running.prepare(machine.share("b", 1, firm=MPS))
        await running.unprepare(machine.ref("a"))
        assert _mode(machine, 0) == "0"


async def test_shares_by_mps_and_without_it_never_meet_on_a_card(machine: Machine, named: MPSDriver) -> None:
    """Refused before anything is touched; the scheduler is told by the card's attributes."""
    other: dict[str, Any] = {"accept": ["Driver"]}
    async with _node(machine) as running:
        await running.prepare(machine.share("mps", 0))
        with pytest.raises(errors.Conflict, match="has shares held by MPS, as claim default/claim-mps"):
            await running.prepare(machine.share("other", 0, firm=other))
        assert not machine.record("other").exists()
        await running.prepare(machine.share("other", 1, firm=other))
        assert _mode(machine, 1) == "0"
        await _published(running, "none", card=1)
        with pytest.raises(errors.Invalid, match="a card without shares that MPS does not hold: default/claim-other"):
            await running.prepare(machine.share("strict", 1, firm=MPS))
        (device,) = await running.prepare(machine.share("lax", 1))
        assert device.data["enforcement"] == {"memory": "none", "cores": "none"}


async def test_a_share_is_given_back_though_daemon_and_card_are_gone(machine: Machine, named: MPSDriver) -> None:
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0, firm=MPS))
        machine.cards.lose(0)
        named.fault("broken")
        named.kill_all()
        await running.unprepare(machine.ref("a"))
        assert await running.prepared() == ()
        machine.cards.return_(0)
        await until(lambda: _mode(machine, 0) == "0")


async def test_a_server_of_a_share_that_is_gone_is_not_left_behind(machine: Machine, named: MPSDriver) -> None:
    async with _node(machine) as running:
        await running.prepare(machine.share("a", 0, firm=MPS))
        await running.prepare(machine.share("b", 0, firm=MPS))
        kept, gone = (Path(_edits(machine, uid)["CUDA_MPS_PIPE_DIRECTORY"]) for uid in ("a", "b"))
        await running.unprepare(machine.ref("b"))
        assert await asyncio.to_thread(named.takes, str(kept), 1) == "ready"
        assert _namespaces(named, kept.parent.name) == {"default", kept.name}
        assert gone.name not in _namespaces(named, kept.parent.name)


def _namespaces(driver: MPSDriver, server: str) -> set[str]:
    return {line.split(",")[0] for line in driver.ask("namespace", "list", f"--server={server}").splitlines()}
