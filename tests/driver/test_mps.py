"""The rung MPS: what is decided without a daemon. How it holds is in tests/flows/test_mps.py."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import errors, resource, v1alpha1
from driver import booking, cdi, containers, disk, mpscontrol, mpskeeper, records
from driver import inventory as inv
from driver.backends import mps, share
from tests.contract import backend_suite
from tests.fakes.machine import until
from tests.fakes.mpsdriver import MPSDriver

CARD = inv.Card(uuid=inv.CardUUID("GPU-0"), minor=0, memory_bytes=23034 * 2**20, compute_capability="9.0")
HOST = cdi.HostEdits(cards={"GPU-0": cdi.Edits(device_nodes=({"path": "/dev/nvidia0"},))})


class Modes:
    """Cards that remember their compute mode."""

    def __init__(self) -> None:
        self.modes = {CARD.uuid: 0}

    async def inventory(self) -> inv.Inventory:
        return inv.Inventory(cards=(CARD,))

    async def compute_mode(self, uuid: inv.CardUUID) -> int:
        return self.modes[uuid]

    async def set_compute_mode(self, uuid: inv.CardUUID, mode: int) -> None:
        self.modes[uuid] = mode


class Rig:
    def __init__(self, root: Path, driver: MPSDriver) -> None:
        self.held: list[records.Record] = []
        self.control = mpscontrol.Control(driver.program, driver.pipes.parent, "", 60)
        self.keeper = mpskeeper.Keeper(
            self.control, library=str(driver.library), needed=lambda: False, period_s=0.05, proc=driver.proc
        )
        self.cards = Modes()
        self.rung = mps.MPS(
            control=self.control,
            keeper=self.keeper,
            cards=self.cards,
            held=lambda: self.held,
            data_dir=root,
            writer=disk.Disk(),
        )

    def subject(self, **firm: Any) -> backend_suite.Subject:
        return backend_suite.Subject(
            backend=share.Share((self.rung,), 16),
            card=CARD,
            host=HOST,
            share=v1alpha1.Share(**firm),
            consumed=(("cores", "30"), ("memory", "8Gi")),
        )


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """With a daemon that runs, and a keeper that was told of it."""
    driver = MPSDriver()
    made = Rig(tmp_path, driver)
    await made.control.look()
    await made.control.launch()
    while not driver.daemons():
        await made.control.last_words()
    made.keeper.problem = ""
    yield made
    driver.close()


class TestMPS(backend_suite.BackendSuite):
    @pytest.fixture
    async def subject(self, rig: Rig) -> backend_suite.Subject:
        return rig.subject()


def test_a_card_before_volta_cannot_be_limited(rig: Rig) -> None:
    assert rig.rung.lacking(CARD) == ()
    assert rig.rung.lacking(replace(CARD, compute_capability="6.1")) == ("compute capability 7.0: this card has 6.1",)


def test_containers_that_one_directory_cannot_keep_apart_are_refused_in_words(rig: Rig) -> None:
    both = tuple(containers.User(pod="p", container=name) for name in ("main", "log"))
    assert rig.rung.lacking(CARD, both) == (
        "a container for each share: container main of pod p, container log of pod p use this one together",
    )


def test_a_share_of_memory_alone_has_no_limit_of_cores(rig: Rig) -> None:
    subject = rig.subject()
    holding = subject.backend.holding(subject.ask(consumed_capacity=(("cores", "0"), ("memory", "8Gi"))))
    assert (holding.enforcement, holding.cores_enforcement) == ("mps", "none")
    rig.control.interface = mpscontrol.Interface.PIPES
    assert not any("THREAD" in text for text in rig.rung.edits(holding).env)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M" in rig.rung.edits(holding).env


async def test_a_limit_that_the_daemon_did_not_take_holds_nobody(rig: Rig) -> None:
    """A namespace without limits is the whole card: what was set is read again."""
    subject = rig.subject()
    record = subject.record()
    await subject.backend.apply(record, record.steps[0])
    (server,) = await rig.control.servers()
    (found,) = (await rig.control.namespaces(server)).values()
    assert found == mpscontrol.Limits(cores=30, memory_mib=8192)


async def test_a_share_is_seen_to_be_held_as_long_as_the_daemon_says_so(rig: Rig) -> None:
    subject = rig.subject()
    record = subject.record()
    (holding,) = record.holdings
    await subject.backend.apply(record, record.steps[0])
    assert isinstance(subject.backend, share.Share)
    assert await subject.backend.holds(holding, frozenset())
    assert not await subject.backend.holds(replace(holding, memory_mib=4096), frozenset())
    rig.control.interface = mpscontrol.Interface.PIPES
    assert not await subject.backend.holds(holding, frozenset()), "the client tells the limits there"


def test_a_directory_that_is_too_long_for_sockets_is_refused_at_the_start(tmp_path: Path) -> None:
    control = mpscontrol.Control(tmp_path / "program", Path("/run") / ("long" * 10), "", 1)
    with pytest.raises(errors.Invalid, match="is too long a path: sockets below it would be "):
        mps.MPS(
            control=control,
            keeper=mpskeeper.Keeper(control, library="", needed=lambda: False, period_s=1),
            cards=Modes(),
            held=tuple,
            data_dir=tmp_path,
            writer=disk.Disk(),
        )


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    control = mpscontrol.Control(tmp_path / "nvidia-cuda-mps-control", tmp_path, "", 1)
    with pytest.raises(errors.NotReady, match=r"nvidia-cuda-mps-control is not there: it comes with NVIDIA's driver"):
        await control.look()


@pytest.mark.parametrize(
    ("first", "second", "refused"), [("mps", "none", True), ("hami", "mps", True), ("mps", "mps", False)]
)
def test_one_card_is_given_in_one_way(first: str, second: str, refused: bool) -> None:
    there, wanted = (
        records.Holding(request="r", pool="p", device="gpu-0", card="GPU-0", minor=0, backend="share", enforcement=word)
        for word in (first, second)
    )
    beside = (booking.Neighbour(holder="claim ns/a", holding=there),)
    if refused:
        with pytest.raises(errors.Conflict, match="as claim ns/a, and request r would be held"):
            booking.refuse_mixed(wanted, beside)
    else:
        booking.refuse_mixed(wanted, beside)
    booking.refuse_mixed(replace(wanted, admin_access=True), beside)


def test_who_only_watches_is_no_share(rig: Rig) -> None:
    rig.held = [
        records.Record(
            uid=resource.ClaimUID("w"),
            namespace="ns",
            name="w",
            phase=records.Phase.PREPARED,
            boot_id="b",
            holdings=(
                records.Holding(request="r", pool="p", device="gpu-0", card="GPU-0", minor=0, admin_access=True),
            ),
            cdi="",
        )
    ]
    assert rig.rung.lacking(CARD) == ()


async def test_a_daemon_that_serves_no_newcomer_is_left_to_those_that_it_serves() -> None:
    """gpu-fractioning's changelog: a killed client wedged the server for all that came after it."""
    driver, needed = MPSDriver(), True
    control = mpscontrol.Control(driver.program, driver.pipes.parent, "", 60)
    keeper = mpskeeper.Keeper(
        control,
        library=str(driver.library),
        needed=lambda: needed,
        period_s=0.02,
        client_limit_s=0.3,
        proc=driver.proc,
    )
    tries = 0

    async def nothing() -> None:
        pass

    async def trial() -> bool:
        nonlocal tries
        tries += 1
        await keeper.serve(control.pipes, "GPU-0")
        return True

    task = asyncio.create_task(keeper.run(nothing, trial))
    try:
        await until(lambda: not keeper.problem)
        (before,) = driver.daemons()
        driver.fault("deaf")
        await until(lambda: "is not served on card GPU-0" in keeper.problem)
        many = tries + 6
        await until(lambda: tries > many)
        assert driver.daemons() == [before]
        needed = False
        await until(lambda: before not in driver.daemons())
        driver.fault()
        await until(lambda: not keeper.problem)
    finally:
        task.cancel()
        await asyncio.wait([task])
        driver.close()
