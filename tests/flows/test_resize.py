"""A claim's annotation changes the limit of a share that is in use: all of the node is real but NVML's library."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import resource
from driver import hamiregion, inventory, nvml
from tests.fakes.cards import LIMITING
from tests.fakes.machine import Machine

POD = "00000001-0000-4000-8000-000000000000"
CONTAINER, PAUSE = "a" * 64, "b" * 64
GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, count=1)
    made.install_driver(LIMITING)
    made.add_hook()
    made.add_pod(POD, CONTAINER, PAUSE)
    return made


@pytest.fixture
async def gateway(machine: Machine) -> AsyncIterator[nvml.NVML]:
    made = nvml.NVML(libraries=(machine.cards.library,), limit_s=20, groups=machine.cgroups)
    yield made
    await made.close()


def a_claim(machine: Machine, text: str = "", **firm: Any) -> resource.Claim:
    claim = machine.share("a", 0, firm={"accept": ["Driver"], **firm})
    annotations = (("elasticgpu.io/memory-limit", text),) if text else ()
    return replace(claim, reserved_for=(("pod1", POD),), annotations=annotations)


async def limit(machine: Machine, gateway: nvml.NVML, *below: str) -> int | None:
    group = machine.cgroups / f"kubepods/burstable/pod{POD}" / "/".join(below)
    return await gateway.memory_limit(inventory.CardUUID(machine.cards.uuids[0]), group)


async def hook(machine: Machine, gateway: nvml.NVML) -> None:
    """What NVIDIA's hook does when the container starts, from what the container is given."""
    spec = json.dumps(machine.spec("a"))
    mib = int(spec.partition("NVIDIA_GPU_MEMORY_LIMIT=")[2].partition('"')[0])
    group = machine.cgroups / f"kubepods/burstable/pod{POD}" / CONTAINER
    await gateway.limit_memory(inventory.CardUUID(machine.cards.uuids[0]), group, mib * 2**20)


async def test_a_limit_is_lowered_and_raised_again_while_the_container_runs(
    machine: Machine, gateway: nvml.NVML
) -> None:
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        await hook(machine, gateway)
        for text, expected in (("6Gi", 6), ("2Gi", 2), ("8Gi", 8), ("", 8)):
            for _ in range(2):
                await driver.seen(a_claim(machine, text))
                assert await limit(machine, gateway, CONTAINER) == expected * GIB
            assert await limit(machine, gateway, PAUSE) is None
            (device,) = await driver.devices(machine.ref("a"))
            assert (device.data["memory"], device.data["limit"]) == ("8Gi", {"memory": f"{expected}Gi"})
            told = [(one.type, one.status, one.reason) for one in device.conditions]
            assert told == ([("Resized", True, "Applied")] if text else [])
        await driver.seen(a_claim(machine, "3Gi"))
        await hook(machine, gateway)  # the container starts again
        assert await limit(machine, gateway, CONTAINER) == 3 * GIB


async def test_a_refusal_changes_nothing_and_is_told_on_the_claim(machine: Machine, gateway: nvml.NVML) -> None:
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        await hook(machine, gateway)
        await driver.seen(a_claim(machine, "6Gi"))
        await driver.seen(a_claim(machine, "9Gi"))
        (device,) = await driver.devices(machine.ref("a"))
        (condition,) = device.conditions
        assert (condition.status, condition.reason) == (False, "Refused")
        assert "A booking cannot grow: make a new claim for more" in condition.message
        assert await limit(machine, gateway, CONTAINER) == 6 * GIB


async def test_a_driver_that_does_not_answer_is_asked_again(machine: Machine, gateway: nvml.NVML) -> None:
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        await hook(machine, gateway)
        machine.cards.fail(0, "nvmlDeviceSetMemoryLimits_v1", "UNKNOWN")
        await driver.seen(a_claim(machine, "6Gi"))
        (device,) = await driver.devices(machine.ref("a"))
        assert [one.reason for one in device.conditions] == ["NotYet"]
        machine.cards.mend(0)
        await driver.seen(a_claim(machine, "6Gi"))
        assert await limit(machine, gateway, CONTAINER) == 6 * GIB


async def test_a_process_that_died_between_record_and_card_is_made_good_by_the_next_look(
    machine: Machine, gateway: nvml.NVML
) -> None:
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        await hook(machine, gateway)
        machine.cards.fail(0, "nvmlDeviceSetMemoryLimits_v1", "UNKNOWN")
        await driver.seen(a_claim(machine, "6Gi"))
    machine.cards.mend(0)
    async with machine.node() as driver:
        await driver.seen(a_claim(machine, "6Gi"))
        assert await limit(machine, gateway, CONTAINER) == 6 * GIB


async def test_a_share_that_was_asked_smaller_before_it_was_prepared_starts_so(
    machine: Machine, gateway: nvml.NVML
) -> None:
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine, "6Gi"))
        await hook(machine, gateway)
        assert await limit(machine, gateway, CONTAINER) == 6 * GIB
        await driver.unprepare(machine.ref("a"))
        (device,) = await driver.prepare(a_claim(machine, "nonsense"))
        assert device.data["limit"] == {"memory": "8Gi"}


async def test_the_limit_of_a_pod_that_is_held_as_a_whole_is_changed_on_the_pod(
    machine: Machine, gateway: nvml.NVML
) -> None:
    use = {"claims": [{"name": "card"}]}
    containers = [{"name": name, "resources": use} for name in ("main", "second")]
    spec = {"resourceClaims": [{"name": "card", "resourceClaimName": "claim-a"}], "containers": containers}
    machine.pods.append({"metadata": {"name": "pod1", "uid": POD}, "spec": spec})
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        assert await limit(machine, gateway) == 8 * GIB
        await driver.seen(a_claim(machine, "2Gi"))
        assert (await limit(machine, gateway), await limit(machine, gateway, CONTAINER)) == (2 * GIB, None)


async def test_shares_that_nothing_can_hold_anew_say_so_in_a_condition(machine: Machine) -> None:
    machine.install_driver("580.95.05")
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        await driver.seen(a_claim(machine, "6Gi"))
        (device,) = await driver.devices(machine.ref("a"))
        assert "is held by nothing, which takes no other limit while programs run" in device.conditions[0].message


async def test_where_a_pod_has_two_shares_of_a_card_neither_is_changed(machine: Machine, gateway: nvml.NVML) -> None:
    two = replace(machine.share("a", 0, 0, firm={"accept": ["Driver"]}), reserved_for=(("pod1", POD),))
    async with machine.node() as driver:
        await driver.prepare(two)
        await hook(machine, gateway)
        await driver.seen(replace(two, annotations=(("elasticgpu.io/memory-limit", "request-0=2Gi"),)))
        (device, _) = await driver.devices(machine.ref("a"))
        assert "has another share of card" in device.conditions[0].message
        assert await limit(machine, gateway, CONTAINER) == 8 * GIB


async def test_a_pod_that_comes_to_a_prepared_claim_is_held_by_itself(machine: Machine, gateway: nvml.NVML) -> None:
    """k8s-dra-driver PR#25: a second pod on a claim; no kubelet asks for it."""
    other = "00000002-0000-4000-8000-000000000000"
    group = machine.add_pod(other, "c" * 64)
    containers = [{"name": name, "resources": {"claims": [{"name": "card"}]}} for name in ("main", "second")]
    spec = {"resourceClaims": [{"name": "card", "resourceClaimName": "claim-a"}], "containers": containers}
    machine.pods.append({"metadata": {"name": "pod1", "uid": POD}, "spec": spec})
    async with machine.node() as driver:
        await driver.prepare(a_claim(machine))
        await driver.seen(replace(a_claim(machine), reserved_for=(("pod1", POD), ("pod2", other))))
        card = inventory.CardUUID(machine.cards.uuids[0])
        assert await gateway.memory_limit(card, group) == await gateway.memory_limit(card, group.parent / f"pod{POD}")


async def test_hami_core_takes_another_limit_where_its_account_is_known(machine: Machine, tmp_path: Path) -> None:
    machine.install_driver("580.95.05")
    machine.hami_library = tmp_path / "libvgpu.so"
    machine.hami_library.write_bytes(b"the library")
    machine.hami_region = hamiregion.Layout.V1_2
    async with machine.node() as driver:
        (device,) = await driver.prepare(a_claim(machine, accept=["HAMi"]))
        account = machine.data_dir / "hami" / device.share_id / "region/share.cache"
        await driver.seen(a_claim(machine, "6Gi", accept=["HAMi"]))
        assert hamiregion.limits(account.read_bytes()) == (6 * GIB, 25)
        (device,) = await driver.devices(machine.ref("a"))
        assert device.data["limit"] == {"memory": "6Gi", "cores": 25}
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=6144m" in json.dumps(machine.spec("a"))
