"""What a node offers of its cards."""

from dataclasses import replace
from typing import Any

import pytest

from api import resource
from driver import inventory, offer, records
from driver.backends import share, whole

CARD = inventory.Card(
    uuid=inventory.CardUUID("GPU-00000000-0000-4000-8000-000000000001"),
    minor=1,
    pci_bus_id="0000:0b:00.0",
    product_name="NVIDIA L40S",
    brand="Nvidia",
    architecture="Ada Lovelace",
    compute_capability="8.9",
    memory_bytes=46068 * 2**20 + 5,
    numa_node=0,
    pcie_root="pci0000:00",
)


def _pool(*cards: inventory.Card, lost: tuple[inventory.Card, ...] = (), **more: Any) -> resource.Pool:
    facts: dict[str, Any] = {"driver_version": "570.158.01", "cuda_driver_version": "13.0"}
    return offer.pool("egpu/n", inventory.Inventory(cards=cards, **{**facts, **more}), lost, {}, (whole.Whole(),))


def test_a_card_is_offered_with_what_it_tells() -> None:
    (device,) = _pool(CARD).devices
    assert device.to_json() == {
        "name": "gpu-00000000-0000-4000-8000-000000000001",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": CARD.uuid},
            "productName": {"string": "NVIDIA L40S"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Ada Lovelace"},
            "cudaComputeCapability": {"version": "8.9.0"},
            "driverVersion": {"version": "570.158.1"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:0b:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            "resource.kubernetes.io/numaNode": {"int": 0},
            "backend": {"string": "local"},
            "memoryEnforcement": {"string": "none"},
            "coresEnforcement": {"string": "none"},
            "allocatedBy": {"string": "scheduler"},
        },
        "capacity": {"memory": {"value": "46068Mi"}},
    }


def test_a_fact_that_is_missing_or_that_kubernetes_would_refuse_hides_no_card() -> None:
    """AMD#7, AMD PR#68"""
    bare = inventory.Card(uuid=CARD.uuid, minor=1, product_name="x" * 65)
    (device,) = _pool(bare, driver_version="570.158.01.2", cuda_driver_version=None).devices
    assert {name for name, _ in device.attributes} == {
        *("type", "uuid", "backend", "memoryEnforcement", "coresEnforcement", "allocatedBy")
    }
    assert device.capacity == ()


def test_a_card_in_mig_mode_is_tainted_since_no_program_can_use_it_as_a_whole() -> None:
    plain, split = _pool(CARD, replace(CARD, uuid=inventory.CardUUID("GPU-2"), mig_enabled=True)).devices
    assert plain.taints == ()
    assert split.taints == (resource.Taint(key="gpu.elasticgpu.io/mig", effect="NoSchedule"),)


def test_the_order_is_that_of_the_bus_whatever_the_driver_says() -> None:
    other = inventory.Card(uuid=inventory.CardUUID("GPU-0"), minor=9, pci_bus_id="0000:0c:00.0")
    assert [device.name for device in _pool(CARD, lost=(other,)).devices] == [CARD.name, "gpu-0"]


SIX = tuple(
    inventory.Card(
        uuid=inventory.CardUUID(f"GPU-{number}"),
        minor=number,
        pci_bus_id=f"0000:0{number}:00.0",
        memory_bytes=1000 * 2**20,
    )
    for number in range(6)
)


def _order(fill: offer.Fill, **held: tuple[int, int]) -> str:
    """The cards as digits, where `c0=(cores, MiB)` is held of card 0."""
    record = records.Record(
        uid=resource.ClaimUID("a"),
        namespace="ns",
        name="a",
        phase=records.Phase.PREPARED,
        boot_id="b",
        cdi="",
        holdings=tuple(
            records.Holding(
                request="r",
                pool="p",
                device=f"gpu-{name[1:]}",
                card=f"GPU-{name[1:]}",
                minor=0,
                backend="share",
                cores=cores,
                memory_mib=memory,
            )
            for name, (cores, memory) in held.items()
        ),
    )
    workers = (whole.Whole(), share.Share((), 16))
    pool = offer.pool("egpu/n", inventory.Inventory(cards=SIX), (), {}, workers, (record,), fill)
    return "".join(device.name[-1] for device in pool.devices)


BIN_PACK, SPREAD = offer.Fill
HALF, FULL, LITTLE = (50, 500), (100, 1000), (0, 100)


@pytest.mark.parametrize(
    ("fill", "held", "order"),
    [
        (BIN_PACK, {}, "012345"),
        (BIN_PACK, {"c0": HALF}, "012345"),
        (BIN_PACK, {"c0": FULL, "c1": HALF}, "012345"),  # filling up in order changes nothing
        (BIN_PACK, {"c1": FULL, "c4": FULL}, "012345"),  # nor do whole cards that come and go
        (BIN_PACK, {"c2": HALF, "c4": LITTLE}, "240135"),
        (BIN_PACK, {"c0": FULL, "c3": HALF, "c5": FULL}, "031245"),  # the full ones stay
        (SPREAD, {}, "012345"),
        (SPREAD, {"c0": LITTLE}, "123450"),
        (SPREAD, {"c0": HALF, "c1": LITTLE, "c2": FULL}, "342510"),
        (SPREAD, {"c2": FULL, "c3": FULL}, "012345"),
    ],
)
def test_the_cards_are_tried_in_the_order_of_the_fill(
    fill: offer.Fill, held: dict[str, tuple[int, int]], order: str
) -> None:
    """dra-driver#459, #850: kube-scheduler takes the first card that has room."""
    assert _order(fill, **held) == order


def test_who_only_watches_changes_no_order() -> None:
    watching = records.Holding(
        request="r", pool="p", device="gpu-3", card="GPU-3", minor=0, admin_access=True, cores=0, memory_mib=0
    )
    record = records.Record(
        uid=resource.ClaimUID("a"),
        namespace="ns",
        name="a",
        phase=records.Phase.PREPARED,
        boot_id="b",
        cdi="",
        holdings=(watching,),
    )
    pool = offer.pool("egpu/n", inventory.Inventory(cards=SIX), (), {}, (whole.Whole(),), (record,))
    assert pool.devices[0].name == "gpu-0"


def test_a_card_can_be_shared_by_cores_memory_and_number() -> None:
    workers = (whole.Whole(), share.Share((), 16))
    (device,) = offer.pool("egpu/n", inventory.Inventory(cards=(CARD,)), (), {}, workers).devices
    told = device.to_json()
    assert told["allowMultipleAllocations"] is True
    assert told["capacity"] == {
        "cores": {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "0", "step": "1"}}},
        "memory": {
            "value": "46068Mi",
            "requestPolicy": {"default": "46068Mi", "validRange": {"min": "0", "step": "1Mi"}},
        },
        "shares": {
            "value": "16",
            "requestPolicy": {"default": "1", "validRange": {"min": "0", "step": "1", "max": "1"}},
        },
    }


def test_a_card_that_nobody_lists_stays_offered_while_a_claim_holds_it() -> None:
    def record(uid: str, card: str) -> records.Record:
        holding = records.Holding(request="r", pool="p", device="d", card=card, minor=4, model="NVIDIA L4")
        return records.Record(
            uid=resource.ClaimUID(uid),
            namespace="ns",
            name=uid,
            phase=records.Phase.PREPARED,
            boot_id="b",
            holdings=(holding,),
            cdi="",
        )

    held = [record("a", "GPU-gone"), record("b", "GPU-gone"), record("c", CARD.uuid)]
    assert offer.withheld((CARD,), held) == (
        inventory.Card(uuid=inventory.CardUUID("GPU-gone"), minor=4, product_name="NVIDIA L4"),
    )


def test_cards_that_are_given_to_the_controller_say_so_and_keep_kube_scheduler_away() -> None:
    given = offer.Given(by="controller", fenced=True)
    pool = offer.pool("egpu/n", inventory.Inventory(cards=(CARD,)), (), {}, (whole.Whole(),), given=given)
    (device,) = pool.devices
    assert dict(device.attributes)["allocatedBy"] == "controller"
    assert device.taints == (
        resource.Taint(key="gpu.elasticgpu.io/allocated-by", value="controller", effect="NoSchedule"),
    )
