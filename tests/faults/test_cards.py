"""Cards and drivers that fail under us."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from api import errors, resource
from driver import node as nodes
from kubeletplugin import contract
from tests.fakes.machine import LIBRARIES, Machine, until

VERDICTS = ("healthy", "unhealthy", "unknown")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, count=3)


async def pool_when(node: nodes.Node, condition: object) -> resource.Pool:
    async with contextlib.aclosing(node.pools()) as pools:
        async for (pool,) in pools:
            if condition(pool):  # type: ignore[operator]
                return pool
    raise AssertionError


def taint_keys(pool: resource.Pool, device: str) -> list[str]:
    return [taint.key for item in pool.devices if item.name == device for taint in item.taints]


async def test_without_a_driver_unprepare_is_answered_and_cards_come_later(machine: Machine) -> None:
    """k8s-driver-manager#213: the driver waits for pods to end, their end waits for us."""
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        await node.prepare(machine.claim("b", 1))
    machine.cards.unload()
    async with machine.node() as node:
        await node.unprepare(machine.ref("a"))
        assert machine.spec("a") is None
        assert await node.prepare(machine.claim("b", 1)), "what is prepared stays so"
        with pytest.raises(errors.NotReady, match="the cards of this node are not known yet"):
            await node.prepare(machine.claim("c", 0))
        pool = await pool_when(node, lambda pool: True)
        assert [(device.name, device.taints) for device in pool.devices] == [(machine.device(1), ())], (
            "a held card that cannot be looked at is not known to be lost: its pods must not be evicted"
        )
        machine.cards.load()
        pool = await pool_when(node, lambda pool: len(pool.devices) == 3)
        assert not any(device.taints for device in pool.devices)
        await until(lambda: machine.device(0) in node._watcher.world.cards and node._watcher.world.host.cards)
        assert await node.prepare(machine.claim("c", 0))


async def test_a_lost_card_costs_only_itself(machine: Machine) -> None:
    """DP#2038, DP#231"""
    async with machine.node() as node:
        answer = await node.prepare(machine.claim("a", 0))
        machine.cards.lose(0)
        pool = await pool_when(node, lambda pool: taint_keys(pool, machine.device(0)))
        assert taint_keys(pool, machine.device(0)) == ["gpu.elasticgpu.io/lost"]
        assert len(pool.devices) == 3
        assert not taint_keys(pool, machine.device(1))
        assert await node.prepare(machine.claim("a", 0)) == answer
        await node.prepare(machine.claim("b", 1))
        await node.unprepare(machine.ref("a"))
        with pytest.raises(
            errors.NotReady, match=f"device {machine.device(0)} of claim default/claim-c .*: lost since"
        ):
            await node.prepare(machine.claim("c", 0))
        machine.cards.return_(0)
        await pool_when(node, lambda pool: not taint_keys(pool, machine.device(0)))
        await until(lambda: len(node._watcher.world.host.cards) == 3)
        await node.prepare(machine.claim("c", 0))


async def test_the_kubelet_and_the_metrics_hear_of_cards_that_are_not_well(machine: Machine) -> None:
    def said(devices: tuple[contract.DeviceHealth, ...]) -> list[tuple[contract.Health, str]]:
        return [(device.health, device.message.partition(" since")[0]) for device in devices]

    health = contract.Health
    async with machine.node() as node, contextlib.aclosing(node.health()) as told:
        assert said(await anext(told)) == [(health.HEALTHY, "")] * 3
        machine.cards.lose(0)
        machine.cards.hang(1)
        wanted = [(health.UNHEALTHY, "lost"), (health.UNKNOWN, "does not answer"), (health.HEALTHY, "")]
        async for devices in told:
            if said(devices) == wanted:
                break
        counts = {name: REGISTRY.get_sample_value("elasticgpu_cards", {"health": name}) for name in VERDICTS}
        assert counts == dict.fromkeys(VERDICTS, 1)
        for index in (0, 1):
            machine.cards.return_(index)
        async for devices in told:
            if said(devices) == [(health.HEALTHY, "")] * 3:
                break


async def test_at_start_a_lost_card_costs_only_itself(machine: Machine) -> None:
    machine.cards.lose(1)
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0, 2))


async def test_a_held_card_that_is_pulled_out_stays_offered_and_tainted_until_its_claim_is_gone(
    machine: Machine,
) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
    machine.cards.remove(0)
    async with machine.node() as node:
        pool = await pool_when(node, lambda pool: len(pool.devices) == 3)
        assert taint_keys(pool, machine.device(0)) == ["gpu.elasticgpu.io/lost"]
        await node.unprepare(machine.ref("a"))
        await pool_when(node, lambda pool: len(pool.devices) == 2)


async def test_a_card_that_is_put_in_later_is_offered_when_it_can_be_prepared(machine: Machine) -> None:
    async with machine.node() as node:
        await pool_when(node, lambda pool: len(pool.devices) == 3)
        await node.looked()
        machine.add_node("nvidia3")
        machine.cards.add()
        await pool_when(node, lambda pool: len(pool.devices) == 4)
        assert machine.cards.uuids[3] in node._watcher.world.host.cards
        await node.prepare(machine.claim("a", 3))


async def test_what_was_known_of_the_cards_health_and_cannot_be_read_is_kept_for_people_and_begun_anew(
    machine: Machine,
) -> None:
    machine.data_dir.mkdir(parents=True)
    (machine.data_dir / "health.json").write_text("{")
    async with machine.node() as node:
        await pool_when(node, lambda pool: len(pool.devices) == 3)
        assert (machine.data_dir / "health.json.corrupt-1").read_text() == "{"
        await until((machine.data_dir / "health.json").exists)


async def test_what_lasts_is_said_once(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.remove_node("nvidia2")
    machine.cards.fail(2, "nvmlDeviceRegisterEvents", "NOT_SUPPORTED")
    async with machine.node() as node:
        await pool_when(node, lambda pool: len(pool.devices) == 3)
        machine.cards.xid(0, 79)
        machine.cards.lose(1)
        await pool_when(node, lambda pool: taint_keys(pool, machine.device(1)))
        await asyncio.sleep(0.5)  # some ten looks
    said = capsys.readouterr().out
    assert said.count("the host has no /dev/nvidia2") == 1
    assert said.count("card probed") <= 2
    assert said.count("no events") == 1


async def test_a_fatal_xid_stays_over_a_restart_until_it_is_cured(machine: Machine) -> None:
    """NV#904, NV#1455"""
    async with machine.node() as node:
        await pool_when(node, lambda pool: len(pool.devices) == 3)
        machine.cards.xid(0, 79)
        await pool_when(node, lambda pool: taint_keys(pool, machine.device(0)) == ["gpu.elasticgpu.io/xid"])
        await until(
            lambda: (
                (machine.data_dir / "health.json").exists() and "79" in (machine.data_dir / "health.json").read_text()
            )
        )
    async with machine.node() as node:
        pool = await pool_when(node, lambda pool: len(pool.devices) == 3)
        assert taint_keys(pool, machine.device(0)) == ["gpu.elasticgpu.io/xid"]
        with pytest.raises(errors.NotReady, match="XID 79"):
            await node.prepare(machine.claim("a", 0))
        await node.prepare(machine.claim("b", 1))


async def test_after_a_driver_update_containers_get_the_files_of_the_new_one(machine: Machine) -> None:
    """k8s-driver-manager PR#203, aicr#1704: CDI files of the old version were served until a restart."""
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        machine.install_driver("590.10.01")
        await until(lambda: "libcuda.so.590.10.01" in machine.spec_file("a").read_text())
        assert "580" not in machine.spec_file("a").read_text()
        await node.prepare(machine.claim("b", 1))
        assert "libcuda.so.590.10.01" in machine.spec_file("b").read_text()
        pool = await pool_when(node, lambda pool: True)
        assert ("driverVersion", resource.Version("590.10.1")) in pool.devices[0].attributes


@pytest.mark.parametrize("missing", ["nvidia0", "nvidiactl", "nvidia-uvm"])
async def test_a_claim_waits_for_a_missing_device_node_and_an_incomplete_look_is_not_kept(
    machine: Machine, missing: str
) -> None:
    """NV#1144, NV#1380: a pod ran without its GPU, and later ones too, until the plugin was restarted."""
    machine.remove_node(missing)
    async with machine.node() as node:
        with pytest.raises(errors.NotReady, match=f"the host has no /dev/{missing}"):
            await node.prepare(machine.claim("a", 0))
        assert await node.prepared() == ()
        machine.add_node(missing)
        await until(lambda: not node._watcher.world.host.problems)
        assert await node.prepare(machine.claim("a", 0))


async def test_a_hanging_card_holds_up_nobody_else(machine: Machine) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        machine.cards.hang(0)
        await node.prepare(machine.claim("b", 1))
        await pool_when(node, lambda pool: taint_keys(pool, machine.device(0)))
        await node.prepare(machine.claim("c", 2))
        await node.unprepare(machine.ref("a"))
        machine.cards.return_(0)


async def test_links_become_mounts_where_no_hook_is_on_the_host(machine: Machine) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        spec = machine.spec("a") or {}
        inside = {mount["containerPath"] for mount in spec["containerEdits"]["mounts"]}
        assert {f"/{LIBRARIES}/libcuda.so.580.95.05", f"/{LIBRARIES}/libcuda.so.1"} <= inside
        assert all(mount["hostPath"].startswith("/usr/") for mount in spec["containerEdits"]["mounts"])
