"""What a node offers of its cards."""

from dataclasses import replace
from typing import Any

from api import resource
from driver import inventory, offer, records
from driver.backends import whole

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
    return offer.pool("egpu/n", inventory.Inventory(cards=cards, **{**facts, **more}), lost, {}, whole.Whole())


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
