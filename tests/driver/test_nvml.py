"""The NVML gateway on the fake library: what a node sees of its cards when they are well, and when they are not.

In scope: inventory, faults, probes, events, the driver coming, going and changing. Out of scope: what follows from it for
the state of a card (test_health.py).
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pynvml
import pytest

from api import errors
from driver import inventory, nvml, nvmlerrors
from tests.fakes.cards import FakeCards

LIMIT_S = 4.0
"""Of a gateway whose card hangs: it is waited for."""
KIND = inventory.FaultKind


@pytest.fixture
def cards(tmp_path: Path) -> FakeCards:
    return FakeCards(tmp_path, count=4)


@pytest.fixture
async def gateway(cards: FakeCards, tmp_path: Path) -> AsyncIterator[nvml.NVML]:
    gateway = nvml.NVML(libraries=(cards.library,), limit_s=60, sysfs=tmp_path / "sys")
    yield gateway
    await gateway.close()


@pytest.fixture
async def hurried(cards: FakeCards, tmp_path: Path) -> AsyncIterator[nvml.NVML]:
    gateway = nvml.NVML(libraries=(cards.library,), limit_s=LIMIT_S, sysfs=tmp_path / "sys")
    yield gateway
    await gateway.close()


def uuids(seen: inventory.Inventory) -> list[str]:
    return [card.uuid for card in seen.cards]


def uuid(cards: FakeCards, index: int) -> inventory.CardUUID:
    return inventory.CardUUID(cards.uuids[index])


async def test_all_facts_of_a_card_are_read(cards: FakeCards, gateway: nvml.NVML, tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:07/0000:07:01.0/0000:0a:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    links = tmp_path / "sys/bus/pci/devices"
    links.mkdir(parents=True)
    (links / "0000:0a:00.0").symlink_to(device)
    cards.change(0, mig="on", minor=3)
    seen = await gateway.inventory()
    assert (seen.driver_version, seen.cuda_driver_version, seen.faults) == ("580.95.05", "13.0", ())
    assert seen.cards[0] == inventory.Card(
        uuid=uuid(cards, 0),
        minor=3,
        pci_bus_id="0000:0a:00.0",
        product_name="NVIDIA H100 80GB HBM3",
        brand="Nvidia",
        architecture="Hopper",
        compute_capability="9.0",
        memory_bytes=81559 << 20,
        numa_node=1,
        pcie_root="pci0000:07",
        mig_enabled=True,
    )


async def test_without_the_kernels_tree_the_node_comes_from_nvml_and_the_root_is_unknown(
    cards: FakeCards, gateway: nvml.NVML
) -> None:
    cards.change(1, numa="none")
    seen = await gateway.inventory()
    assert [(card.numa_node, card.pcie_root) for card in seen.cards] == [(0, None), (None, None), (0, None), (0, None)]


async def test_cards_are_told_in_the_order_of_their_address_whatever_their_numbers(
    cards: FakeCards, gateway: nvml.NVML
) -> None:
    cards.change(0, pci="0000:ff:00.0", minor=9)
    assert uuids(await gateway.inventory()) == [*cards.uuids[1:], cards.uuids[0]]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetName",
        "nvmlDeviceGetBrand",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryAffinity",
    ],
)
@pytest.mark.parametrize("code", ["NOT_SUPPORTED", "UNKNOWN"])
async def test_a_fact_that_cannot_be_read_hides_no_card(
    cards: FakeCards, gateway: nvml.NVML, function: str, code: str
) -> None:
    """AMD#7"""
    cards.fail(2, function, code)
    seen = await gateway.inventory()
    assert set(uuids(seen)) == set(cards.uuids)
    assert seen.faults == ()


async def test_a_lost_card_costs_only_itself_also_at_start(cards: FakeCards, gateway: nvml.NVML) -> None:
    """DP#2038"""
    cards.lose(1)
    seen = await gateway.inventory()
    assert uuids(seen) == [cards.uuids[0], *cards.uuids[2:]]
    assert [(fault.kind, fault.index, fault.uuid) for fault in seen.faults] == [(KIND.LOST, 1, None)]
    assert "lost" in seen.faults[0].why


async def test_a_card_lost_later_is_a_fault_with_its_name_and_its_facts(cards: FakeCards, gateway: nvml.NVML) -> None:
    before = await gateway.inventory()
    cards.lose(1)
    seen = await gateway.inventory()
    (fault,) = seen.faults
    assert (fault.kind, fault.uuid, fault.card) == (KIND.LOST, cards.uuids[1], before.cards[1])
    assert seen.known == before.known
    cards.return_(1)
    assert await gateway.inventory() == before


async def test_a_card_without_minor_number_is_a_fault_and_the_others_are_read(
    cards: FakeCards, gateway: nvml.NVML
) -> None:
    cards.fail(0, "nvmlDeviceGetMinorNumber", "UNKNOWN")
    seen = await gateway.inventory()
    assert uuids(seen) == list(cards.uuids[1:])
    assert [(fault.kind, fault.index, fault.uuid) for fault in seen.faults] == [(KIND.UNREADABLE, 0, cards.uuids[0])]


async def test_a_removed_card_is_no_fault_and_comes_back_under_its_name(cards: FakeCards, gateway: nvml.NVML) -> None:
    """NV#427"""
    before = await gateway.inventory()
    cards.remove(0)
    seen = await gateway.inventory()
    assert seen.faults == ()
    assert inventory.difference(before, seen) == inventory.Difference(removed=before.cards[:1])
    cards.return_(0)
    assert inventory.difference(seen, await gateway.inventory()) == inventory.Difference(added=before.cards[:1])


async def test_a_hanging_card_holds_up_nobody_else(cards: FakeCards, hurried: nvml.NVML) -> None:
    before = await hurried.inventory()
    cards.hang(0)
    poll = asyncio.create_task(hurried.inventory())
    stuck = asyncio.create_task(hurried.probe(uuid(cards, 0)))
    await asyncio.gather(*(hurried.probe(uuid(cards, index)) for index in (1, 2, 3)))
    assert not stuck.done()
    with pytest.raises(nvml.CardError, match="no answer within") as caught:
        await stuck
    assert caught.value.kind is KIND.HUNG
    seen = await poll
    assert uuids(seen) == list(cards.uuids[1:])
    assert [(fault.kind, fault.uuid, fault.card) for fault in seen.faults] == [
        (KIND.HUNG, cards.uuids[0], before.cards[0])
    ]


async def test_a_card_that_still_hangs_is_refused_at_once_and_read_again_when_it_does_not(
    cards: FakeCards, hurried: nvml.NVML
) -> None:
    before = await hurried.inventory()
    cards.hang(0)
    await hurried.inventory()
    started = time.monotonic()
    assert [fault.kind for fault in (await hurried.inventory()).faults] == [KIND.HUNG]
    with pytest.raises(errors.Unavailable, match="has not come back"):
        await hurried.probe(uuid(cards, 0))
    assert time.monotonic() - started < LIMIT_S
    cards.return_(0)
    for thread in threading.enumerate():
        if thread.name.startswith(("card ", cards.uuids[0])):
            await asyncio.to_thread(thread.join, 60)
    assert await hurried.inventory() == before


async def test_the_card_that_takes_a_hanging_ones_place_is_read(cards: FakeCards, hurried: nvml.NVML) -> None:
    await hurried.inventory()
    cards.hang(0)
    await hurried.inventory()
    cards.remove(0)
    assert uuids(await hurried.inventory()) == list(cards.uuids[1:])


async def test_a_probe_asks_several_things(cards: FakeCards, gateway: nvml.NVML) -> None:
    await gateway.inventory()
    await gateway.probe(uuid(cards, 0))
    cards.fail(0, "nvmlDeviceGetTemperature", "UNKNOWN")
    with pytest.raises(nvml.CardError, match=cards.uuids[0]) as caught:
        await gateway.probe(uuid(cards, 0))
    assert caught.value.kind is KIND.UNREADABLE
    cards.fail(0, "nvmlDeviceGetTemperature", "NOT_SUPPORTED")
    await gateway.probe(uuid(cards, 0))
    cards.lose(0)
    with pytest.raises(nvml.CardError) as caught:
        await gateway.probe(uuid(cards, 0))
    assert caught.value.kind is KIND.LOST


async def test_a_driver_that_comes_after_us_is_taken_up(cards: FakeCards, gateway: nvml.NVML) -> None:
    cards.unload()
    for _ in range(2):
        with pytest.raises(errors.Unavailable, match="NVML does not start"):
            await gateway.inventory()
    cards.load()
    assert len((await gateway.inventory()).cards) == 4


async def test_a_library_that_comes_after_us_is_taken_up(cards: FakeCards, gateway: nvml.NVML) -> None:
    away = cards.library.rename(cards.library.with_name("away"))
    with pytest.raises(errors.Unavailable, match="No such file"):
        await gateway.inventory()
    away.rename(cards.library)
    assert len((await gateway.inventory()).cards) == 4


async def test_a_library_that_comes_later_in_another_place_is_found(cards: FakeCards, tmp_path: Path) -> None:
    gateway = nvml.NVML(libraries=(tmp_path / "a.so.1", tmp_path / "b.so.1"), limit_s=LIMIT_S, sysfs=tmp_path / "sys")
    with pytest.raises(errors.Unavailable, match=r"a\.so\.1"):
        await gateway.inventory()
    (tmp_path / "b.so.1").symlink_to(cards.library)
    assert len((await gateway.inventory()).cards) == 4
    await gateway.close()


async def test_a_driver_reload_starts_nvml_anew(cards: FakeCards, gateway: nvml.NVML) -> None:
    """k8s-driver-manager PR#203"""
    await gateway.inventory()
    cards.set_driver("590.10.01")
    seen = await gateway.inventory()
    assert (seen.driver_version, len(seen.cards), seen.faults) == ("590.10.01", 4, ())
    cards.unload()
    with pytest.raises(errors.Unavailable):
        await gateway.inventory()
    cards.load()
    assert (await gateway.inventory()) == seen


async def test_an_xid_is_told_with_its_card(cards: FakeCards, gateway: nvml.NVML) -> None:
    await gateway.inventory()
    cards.xid(1, 79)
    cards.xid(3, 31)
    async with aclosing(gateway.events()) as events, asyncio.timeout(60):
        for index, number in ((1, 79), (3, 31)):
            assert await anext(events) == inventory.Event(
                kind=inventory.EventKind.XID, uuid=uuid(cards, index), xid=number
            )


async def test_a_lost_card_is_told_once_without_blame_and_the_others_are_still_watched(
    cards: FakeCards, gateway: nvml.NVML
) -> None:
    """NVIDIA's driver taints every card here, and logs 220 MB in 6 s."""
    await gateway.inventory()
    async with aclosing(gateway.events()) as events, asyncio.timeout(60):
        cards.lose(0)
        assert await anext(events) == inventory.Event(kind=inventory.EventKind.LOST)
        assert [fault.uuid for fault in (await gateway.inventory()).faults] == [cards.uuids[0]]
        cards.xid(1, 48)
        assert await anext(events) == inventory.Event(kind=inventory.EventKind.XID, uuid=uuid(cards, 1), xid=48)


async def test_a_returned_card_is_watched_again(cards: FakeCards, gateway: nvml.NVML) -> None:
    await gateway.inventory()
    async with aclosing(gateway.events()) as events, asyncio.timeout(60):
        cards.remove(0)
        assert (await anext(events)).kind is inventory.EventKind.LOST
        await gateway.inventory()
        cards.return_(0)
        await gateway.inventory()
        cards.xid(0, 63)
        assert (await anext(events)).uuid == uuid(cards, 0)


async def test_a_wait_that_keeps_failing_is_slowed_down(cards: FakeCards, gateway: nvml.NVML) -> None:
    await gateway.inventory()
    told = 0
    started = time.monotonic()
    cards.wait_error("GPU_IS_LOST")
    async with aclosing(gateway.events()) as events, asyncio.timeout(60):
        async for _ in events:
            told += 1
            if told == 3:
                break
            cards.wait_error("GPU_IS_LOST")
            await gateway.inventory()
            cards.wait_error("GPU_IS_LOST")
    assert time.monotonic() - started > 1.9, "a second or more after each"


async def test_events_go_on_after_a_driver_reload(cards: FakeCards, gateway: nvml.NVML) -> None:
    await gateway.inventory()
    async with aclosing(gateway.events()) as events, asyncio.timeout(60):
        cards.set_driver("590.10.01")
        await gateway.inventory()
        cards.xid(2, 94)
        while (event := await anext(events)).kind is not inventory.EventKind.XID:
            pass
        assert (event.uuid, event.xid) == (uuid(cards, 2), 94)


def test_every_error_of_nvml_has_a_meaning() -> None:
    numbers = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert set(nvmlerrors.MEANINGS) == numbers
    assert nvmlerrors.meaning(12345) is errors.Unavailable
    assert issubclass(nvmlerrors.meaning(None), errors.ElasticGPUError)


async def test_close_is_harmless_without_a_driver(tmp_path: Path) -> None:
    await nvml.NVML(libraries=(tmp_path / "none",), limit_s=LIMIT_S).close()


async def test_the_compute_mode_of_a_card_is_read_and_set(cards: FakeCards, gateway: nvml.NVML) -> None:
    await gateway.inventory()
    assert await gateway.compute_mode(uuid(cards, 1)) == 0
    await gateway.set_compute_mode(uuid(cards, 1), 3)
    assert [await gateway.compute_mode(uuid(cards, index)) for index in (0, 1)] == [0, 3]
    cards.lose(1)
    with pytest.raises(errors.Unavailable, match=uuid(cards, 1)):
        await gateway.set_compute_mode(uuid(cards, 1), 0)
    with pytest.raises(errors.Invalid):
        await gateway.set_compute_mode(uuid(cards, 0), 9)


async def test_what_is_left_on_a_card_is_told(cards: FakeCards, gateway: nvml.NVML) -> None:
    """A pool lends a card again only when nothing is left on it."""
    seen = await gateway.inventory()
    first, second, third = (card.uuid for card in seen.cards[:3])
    assert await gateway.left_on(first) is None
    cards.change(0, used=65)
    assert await gateway.left_on(first) == "65 MiB of the card are in use by no process"
    cards.change(1, process="4242:1024")
    assert await gateway.left_on(second) == "processes 4242 are on the card"
    cards.lose(2)
    with pytest.raises(errors.ElasticGPUError):
        await gateway.left_on(third)
