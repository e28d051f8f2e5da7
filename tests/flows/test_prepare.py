"""A claim becomes a prepared device, and goes: all of the node is real but NVML's library."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from api import errors, names, resource
from tests.fakes.machine import Machine, until


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, count=2)


async def test_a_claim_gets_its_card_and_gives_it_back(machine: Machine) -> None:
    async with machine.node() as node:
        (device,) = await node.prepare(machine.claim("a", 0))
        spec = machine.spec("a")
        assert spec is not None
        assert device.requests == ("request-0",)
        assert device.cdi_ids == (f"{spec['kind']}={spec['devices'][0]['name']}",)
        assert device.data == {"uuid": machine.cards.uuids[0], "model": "NVIDIA H100 80GB HBM3", "enforcement": "whole"}
        assert "NVIDIA_VISIBLE_DEVICES=void" in spec["containerEdits"]["env"]
        assert spec["devices"][0]["containerEdits"]["env"] == [f"ELASTIC_GPU_CARD_0={machine.cards.uuids[0]}"]
        await node.unprepare(machine.ref("a"))
        assert machine.spec("a") is None
        assert not machine.record("a").exists()
        assert await node.prepared() == ()


async def test_of_two_claims_at_once_one_gets_the_card(machine: Machine) -> None:
    async with machine.node() as node:
        claims = [machine.claim(uid, 0) for uid in ("a", "b", "c", "d")]
        answers = await asyncio.gather(*(node.prepare(claim) for claim in claims), return_exceptions=True)
        won = [answer for answer in answers if not isinstance(answer, BaseException)]
        lost = [answer for answer in answers if isinstance(answer, errors.Conflict)]
        assert (len(won), len(lost)) == (1, 3)
        assert len(await node.prepared()) == 1


async def test_the_holder_is_named_until_it_is_gone(machine: Machine) -> None:
    """k8s#141471, EX#263"""
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        with pytest.raises(errors.Conflict) as refused:
            await node.prepare(machine.claim("b", 0))
        assert str(refused.value) == (
            f"device {machine.device(0)} is still held by claim default/claim-a (uid a, Prepared); "
            "it is free when that claim's pods have stopped on this node, and this is tried again"
        )
        await node.unprepare(machine.ref("a"))
        await node.prepare(machine.claim("b", 0))


async def test_admin_access_sees_a_held_card_and_holds_none(machine: Machine) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("user", 0))
        (device,) = await node.prepare(machine.claim("admin", 0, admin=True))
        assert device.data["enforcement"] == "none"
        await node.unprepare(machine.ref("user"))
        await node.prepare(machine.claim("next", 0))


async def test_two_claims_of_one_pod_add_up_in_a_container(machine: Machine) -> None:
    async with machine.node() as node:
        for uid, index in (("a", 0), ("b", 1)):
            await node.prepare(machine.claim(uid, index))
        specs = [machine.spec(uid) or {} for uid in ("a", "b")]
        names_ = [device["name"] for spec in specs for device in spec["devices"]]
        env = [text for spec in specs for device in spec["devices"] for text in device["containerEdits"]["env"]]
        assert len(set(names_)) == 2
        assert env == [f"ELASTIC_GPU_CARD_{index}={machine.cards.uuids[index]}" for index in (0, 1)]


async def test_a_device_that_is_gone_is_refused_with_the_cards_there_are(machine: Machine) -> None:
    async with machine.node() as node:
        machine.cards.remove(1)
        await until(lambda: machine.device(1) not in node._watcher.world.cards)
        with pytest.raises(errors.Invalid) as refused:
            await node.prepare(machine.claim("a", 1))
        assert f"device {machine.device(1)} is gone from this node; the cards here are {machine.device(0)}." in str(
            refused.value
        )
        assert await node.prepared() == ()


CONFIG = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "CardConfig"}


def config(**parameters: object) -> resource.Config:
    return resource.Config(
        driver=names.LOCAL_DRIVER, requests=(), from_class=False, parameters={**CONFIG, **parameters}
    )


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (config(kind="CradConfig"), "CradConfig"),
        (config(apiVersion="elasticgpu.io/v9"), "elasticgpu.io/v9"),
        (config(memry="1Gi"), "memry"),
    ],
)
async def test_a_config_that_is_not_understood_is_refused_with_its_place(
    machine: Machine, bad: resource.Config, text: str
) -> None:
    async with machine.node() as node:
        with pytest.raises(errors.Invalid) as refused:
            await node.prepare(machine.claim("a", 0, configs=(bad,)))
        assert str(refused.value).startswith("config of claim default/claim-a: ")
        assert text in str(refused.value)
        assert await node.prepared() == ()


async def test_configs_of_other_drivers_are_not_read(machine: Machine) -> None:
    foreign = resource.Config(driver="nic.example.com", requests=(), from_class=True, parameters={"kind": "?"})
    async with machine.node() as node:
        assert await node.prepare(machine.claim("a", 0, configs=(foreign, config())))


async def test_a_claim_without_results_of_ours_needs_nothing(machine: Machine) -> None:
    async with machine.node() as node:
        assert await node.prepare(machine.claim("a")) == ()
        assert await node.prepared() == ()


async def test_a_claim_that_was_allocated_anew_moves_to_its_new_card(machine: Machine) -> None:
    """The old card is free afterwards, the new one is not."""
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        (device,) = await node.prepare(machine.claim("a", 1))
        assert device.device == machine.device(1)
        await node.prepare(machine.claim("b", 0))


async def test_a_repeated_prepare_writes_no_record_again(machine: Machine) -> None:
    """NV#727: a repeat changes nothing and gives the same answer."""
    async with machine.node() as node:
        first = await node.prepare(machine.claim("a", 0))
        before = machine.record("a").stat()
        assert await node.prepare(machine.claim("a", 0)) == first
        assert machine.record("a").stat().st_ino == before.st_ino


async def test_slices_are_the_same_after_a_restart(machine: Machine) -> None:
    async def pool() -> resource.Pool:
        async with machine.node() as node, contextlib.aclosing(node.pools()) as pools:
            return (await anext(pools))[0]

    first = await pool()
    assert first == await pool()
    assert first.name == "egpu/node1"
    assert [device.name for device in first.devices] == [machine.device(0), machine.device(1)]
