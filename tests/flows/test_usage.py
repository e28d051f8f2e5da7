"""From NVML's processes to the figures of a claim: all of the node is real but NVML's library, /proc and the groups."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from api import resource
from driver import metrics, node
from tests.fakes.cards import LIMITING
from tests.fakes.machine import Machine, until

POD, OTHER = "00000001-0000-4000-8000-000000000000", "00000002-0000-4000-8000-000000000000"
LEFT, RIGHT = "a" * 64, "b" * 64
MIB = 2**20


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, count=2)
    made.install_driver(LIMITING)
    made.add_hook()
    return made


def of_pods(claim: resource.Claim, *uids: str) -> resource.Claim:
    return replace(claim, reserved_for=tuple((f"pod{uid[7]}", uid) for uid in uids))


def series(driver: node.Node, name: str) -> dict[str, float]:
    """By claim or card."""
    registry = CollectorRegistry()
    registry.register(metrics.Holders(lambda: driver.held, driver.meter))
    return {
        sample.labels.get("claim_uid", sample.labels.get("card_uuid", ""))
        + sample.labels.get("request", ""): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"elasticgpu_{name}"
    }


def used(driver: node.Node) -> dict[str, float]:
    return {claim: value / MIB for claim, value in series(driver, "claim_memory_used_bytes").items()}


async def test_a_share_has_figures_before_its_first_process_and_then_those_of_its_pod(machine: Machine) -> None:
    """HAMi#1794, #281: no series until a process touched the card."""
    pod = machine.add_pod(POD, LEFT)
    async with machine.node() as driver:
        await driver.prepare(of_pods(machine.share("a", 0), POD))
        await driver.prepare(of_pods(machine.claim("b", 1), OTHER))
        assert used(driver) == {"arequest-0": 0, "brequest-0": 0}
        machine.add_process(71, pod / LEFT)
        machine.cards.process(0, "71:300:40", "72:50")
        await until(lambda: used(driver)["arequest-0"] == 300)
        assert series(driver, "claim_cores_used_percent")["arequest-0"] == 40
        card = machine.cards.uuids[0]
        assert series(driver, "card_memory_used_bytes")[card] == 350 * MIB
        assert series(driver, "card_memory_unbooked_bytes")[card] == 50 * MIB
        machine.cards.process(0)
        await until(lambda: used(driver)["arequest-0"] == 0)


async def test_a_pod_that_comes_to_a_claim_later_is_no_stranger_once_the_claim_was_seen(machine: Machine) -> None:
    pod = machine.add_pod(OTHER, LEFT)
    machine.add_process(71, pod / LEFT)
    machine.cards.process(0, "71:300")
    async with machine.node() as driver:
        claim = machine.share("a", 0)
        await driver.prepare(of_pods(claim, POD))
        card = machine.cards.uuids[0]
        await until(lambda: series(driver, "card_memory_unbooked_bytes").get(card) == 300 * MIB)
        await driver.seen(of_pods(claim, POD, OTHER))
        await until(lambda: series(driver, "card_memory_unbooked_bytes").get(card) == 0)
        assert used(driver) == {"arequest-0": 300}


async def test_containers_of_one_pod_with_a_share_each_have_their_own_figures(machine: Machine) -> None:
    """HAMi#863: two containers with a share of a card, and the figures vanished."""
    pod = machine.add_pod(POD, LEFT, RIGHT)
    containers = [
        {"name": name, "resources": {"claims": [{"name": "card", "request": request}]}}
        for name, request in (("left", "request-0"), ("right", "request-1"))
    ]
    statuses = [
        {"name": "left", "containerID": f"containerd://{LEFT}"},
        {"name": "right", "containerID": f"cri-o://{RIGHT}"},
    ]
    spec = {"resourceClaims": [{"name": "card", "resourceClaimName": "claim-a"}], "containers": containers}
    machine.pods.append(
        {"metadata": {"name": "pod1", "uid": POD}, "spec": spec, "status": {"containerStatuses": statuses}}
    )
    for pid, container in ((71, LEFT), (72, RIGHT)):
        machine.add_process(pid, pod / container)
    machine.cards.process(0, "71:100", "72:200")
    async with machine.node() as driver:
        await driver.prepare(of_pods(machine.share("a", 0, 0), POD))
        await until(lambda: used(driver) == {"arequest-0": 100, "arequest-1": 200})


async def test_a_card_that_does_not_answer_costs_its_own_figures_only(machine: Machine) -> None:
    """HAMi#1089: one error emptied the whole endpoint."""
    machine.cards.process(1, "71:100")
    machine.cards.fail(0, "nvmlDeviceGetComputeRunningProcesses_v3", "UNKNOWN")
    async with machine.node() as driver:
        await until(lambda: series(driver, "card_memory_used_bytes"))
        assert series(driver, "card_memory_used_bytes") == {machine.cards.uuids[1]: 100 * MIB}
        read = {card: metrics.USE_READ.labels(card)._value.get() for card in machine.cards.uuids}
        assert list(read.values()) == [0, 1]


async def test_use_that_nobody_booked_is_told_in_the_slice_and_beyond_the_setting_keeps_new_pods_away(
    machine: Machine,
) -> None:
    machine.unbooked_taint_mib = 1000
    async with machine.node() as driver:
        await driver.prepare(of_pods(machine.share("a", 0), POD))

        def taints() -> list[Any]:
            devices = driver._watcher.pool(driver.held).devices
            return [(taint.value, taint.effect) for device in devices for taint in device.taints]

        machine.cards.process(0, "71:600")
        await until(lambda: taints() == [("512Mi", "None")])
        machine.cards.process(0, "71:2100")
        await until(lambda: taints() == [("2Gi", "NoSchedule")])
        machine.cards.process(0)
        await until(lambda: taints() == [])


async def test_a_claim_says_what_it_is_held_to_and_when_that_was_last_seen(machine: Machine) -> None:
    pod = machine.add_pod(POD, LEFT)
    claim = of_pods(machine.share("a", 0, firm={"memory": "Required", "accept": ["Driver"]}), POD)  # type: ignore[dict-item]
    async with machine.node() as driver:
        (device,) = await driver.prepare(claim)
        assert device.data["limit"] == {"memory": "8Gi"}
        assert "verified" not in device.data
        assert series(driver, "claim_limit_verified_timestamp_seconds") == {"arequest-0": 0}
        assert series(driver, "claim_memory_limit_bytes") == {"arequest-0": 8 << 30}
        await driver.meter._reader.limit_memory(device.data["uuid"], pod / LEFT, 8 << 30)  # type: ignore[attr-defined]
        await until(lambda: series(driver, "claim_limit_verified_timestamp_seconds")["arequest-0"])
        (device,) = await driver.devices(machine.ref("a"))
        assert str(device.data["verified"]).endswith("Z")


async def test_what_holds_nothing_is_never_seen_to_hold(machine: Machine) -> None:
    machine.install_driver("580.95.05")
    async with machine.node() as driver:
        (device,) = await driver.prepare(of_pods(machine.share("a", 0), POD))
        assert "limit" not in device.data
        assert series(driver, "claim_memory_limit_bytes") == {}
