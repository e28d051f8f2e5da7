"""Shares of a card become prepared devices, and go: all of the node is real but NVML's library."""

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import errors, names, resource
from driver import inventory, node, nvml
from tests.fakes.cards import LIMITING
from tests.fakes.machine import Machine, until

MEMORY = 81559
"""MiB of a card of the machine."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, count=2)


async def _order(driver: node.Node) -> list[str]:
    async with contextlib.aclosing(driver.pools()) as pools:
        return [device.name for device in (await anext(pools))[0].devices]


async def test_two_claims_share_a_card_and_each_is_told_its_part(machine: Machine) -> None:
    async with machine.node() as driver:
        (first,) = await driver.prepare(machine.share("a", 0, cores=30, memory="8Gi"))
        (second,) = await driver.prepare(machine.share("b", 0, cores=70, memory=f"{MEMORY - 8192}Mi"))
        assert first.device == second.device == machine.device(0)
        assert (first.share_id, second.share_id) == ("a-0", "b-0")
        assert first.cdi_ids[0].endswith("-a-0")
        assert first.data == {
            "uuid": machine.cards.uuids[0],
            "model": "NVIDIA H100 80GB HBM3",
            "cores": 30,
            "memory": "8Gi",
            "enforcement": {"memory": "none", "cores": "none"},
        }
        spec = machine.spec("a")
        assert spec is not None
        assert [device["name"] for device in spec["devices"]] == [first.cdi_ids[0].partition("=")[2]]


async def test_one_mib_more_than_is_left_waits_for_who_is_there(machine: Machine) -> None:
    """KK#136269: overlapping allocations after a force delete."""
    async with machine.node() as driver:
        await driver.prepare(machine.share("a", 0, cores=0, memory="8Gi"))
        late = machine.share("b", 0, cores=0, memory=f"{MEMORY - 8192 + 1}Mi")
        with pytest.raises(errors.Conflict, match="are left, and 1 of 16 shares are taken by claim default/claim-a"):
            await driver.prepare(late)
        await driver.unprepare(machine.ref("a"))
        await driver.prepare(late)


async def test_of_shares_that_come_at_once_as_many_are_prepared_as_fit(machine: Machine) -> None:
    """KAI#2153: 16 halves at once, three or four of them on one card."""
    async with machine.node() as driver:
        claims = [machine.share(f"c{number}", 0, cores=40, memory="1Mi") for number in range(8)]
        answers = await asyncio.gather(*(driver.prepare(claim) for claim in claims), return_exceptions=True)
        assert sum(isinstance(answer, errors.Conflict) for answer in answers) == 6
        assert len(await driver.prepared()) == 2


async def test_a_whole_card_and_a_share_of_it_keep_each_other_out(machine: Machine) -> None:
    async with machine.node() as driver:
        await driver.prepare(machine.claim("whole", 0))
        with pytest.raises(errors.Conflict, match="still held by claim default/claim-whole"):
            await driver.prepare(machine.share("a", 0))
        await driver.prepare(machine.share("b", 1))
        with pytest.raises(errors.Conflict, match="still held by claim default/claim-b"):
            await driver.prepare(machine.claim("other", 1))


async def test_a_claim_may_have_two_shares_and_both_on_one_card(machine: Machine) -> None:
    async with machine.node() as driver:
        first, second = await driver.prepare(machine.share("a", 0, 0, cores=50))
        assert first.share_id != second.share_id
        assert first.cdi_ids != second.cdi_ids
        with pytest.raises(errors.Conflict, match="2 of 16 shares are taken by claim default/claim-a"):
            await driver.prepare(machine.share("b", 0, cores=1))


async def test_a_claim_whose_own_shares_do_not_fit_together_says_so(machine: Machine) -> None:
    async with machine.node() as driver:
        with pytest.raises(errors.Conflict, match="taken by another request of this claim"):
            await driver.prepare(machine.share("a", 0, 0, cores=51))
        assert await driver.prepared() == ()


async def test_a_part_of_a_class_of_whole_cards_is_refused_and_the_reverse(machine: Machine) -> None:
    part = replace(machine.share("a", 0), configs=())
    all_ = machine.share("a", 0, cores=100, memory=f"{MEMORY}Mi")
    async with machine.node() as driver:
        with pytest.raises(errors.Invalid, match=r"asks for a part of card .* but its class gives whole cards"):
            await driver.prepare(part)
        with pytest.raises(errors.Invalid, match="is of a class of shares, but takes all of card"):
            await driver.prepare(all_)
        assert (await driver.prepare(replace(all_, configs=())))[0].data["enforcement"] == "whole"


async def test_an_api_server_without_amounts_gets_no_whole_card_instead_of_a_share(machine: Machine) -> None:
    """Seen on Kubernetes 1.34.4."""
    claim = machine.share("a", 0)
    bare = replace(claim, results=tuple(replace(result, consumed_capacity=()) for result in claim.results))
    async with machine.node() as driver:
        with pytest.raises(errors.Invalid, match=r"was allocated a whole card .* .no consumedCapacity"):
            await driver.prepare(bare)
        assert await driver.prepared() == ()


async def test_a_class_may_let_its_claims_have_the_whole_card_on_such_a_server(machine: Machine) -> None:
    """A share that came with its amount stays one: only what the server lost is made up for."""
    lenient = {"fallback": "WholeCard"}
    claim = machine.share("a", 0, firm=lenient)
    bare = replace(claim, results=tuple(replace(result, consumed_capacity=()) for result in claim.results))
    async with machine.node() as driver:
        (device,) = await driver.prepare(bare)
        assert device.data["enforcement"] == "whole"
        with pytest.raises(errors.Conflict, match="still held by claim default/claim-a"):
            await driver.prepare(machine.share("b", 0, firm=lenient))
        (device,) = await driver.prepare(machine.share("b", 1, firm=lenient))
        assert device.data["memory"] == "8Gi"


async def test_two_claims_whose_configs_differ_share_a_card_and_each_is_held_as_its_own_says(held: Machine) -> None:
    held.pods = [_pod("a", "main"), _pod("b", "main")]
    async with held.node() as driver:
        (strict,) = await driver.prepare(held.share("a", 0, firm={"memory": "Required", "accept": ["HAMi"]}))
        (lax,) = await driver.prepare(held.share("b", 0, firm={"memory": "BestEffort", "accept": ["Driver"]}))
        assert strict.data["enforcement"] == {"memory": "hami", "cores": "hami"}
        assert lax.data["enforcement"] == {"memory": "none", "cores": "none"}


async def test_a_limit_that_must_hold_and_cannot_starts_no_pod(machine: Machine) -> None:
    async with machine.node() as driver:
        with pytest.raises(errors.Invalid, match=r"What is missing: Driver: a driver with .*; MPS: .*; HAMi: "):
            await driver.prepare(machine.share("a", 0, firm={"memory": "Required"}))


async def test_who_watches_a_full_card_takes_nothing_of_it(machine: Machine) -> None:
    async with machine.node() as driver:
        await driver.prepare(machine.share("a", 0, cores=60))
        watching = replace(
            machine.share("admin", 0, cores=0, memory="1Mi"),
            results=tuple(replace(r, admin_access=True) for r in machine.share("admin", 0).results),
        )
        (device,) = await driver.prepare(watching)
        assert device.data["enforcement"] == "none"
        await driver.prepare(machine.share("b", 0, cores=40))


async def test_shares_outlive_a_restart_with_their_amounts(machine: Machine) -> None:
    async with machine.node() as driver:
        before = await driver.prepare(machine.share("a", 0, cores=60))
    machine.spec_file("a").unlink()
    async with machine.node() as driver:
        assert await driver.prepare(machine.share("a", 0, cores=60)) == before
        assert machine.spec("a") is not None
        with pytest.raises(errors.Conflict):
            await driver.prepare(machine.share("b", 0, cores=41))


async def test_a_card_with_a_hole_is_offered_before_an_empty_one(machine: Machine) -> None:
    async with machine.node() as driver:
        bus = await _order(driver)
        await driver.prepare(machine.share("a", 1))
        assert await _order(driver) == bus[::-1]
        await driver.unprepare(machine.ref("a"))
        assert await _order(driver) == bus


async def test_the_slice_is_told_again_only_when_the_order_changes(machine: Machine) -> None:
    async with machine.node() as driver, contextlib.aclosing(driver.pools()) as pools:
        (before,) = await anext(pools)
        await driver.prepare(machine.claim("whole", 1))
        await driver.prepare(machine.share("a", 0))
        await driver.unprepare(machine.ref("whole"))
        await driver.prepare(machine.share("b", 1))
        await driver.unprepare(machine.ref("a"))
        (after,) = await anext(pools)
        assert [device.name for device in after.devices] == [device.name for device in before.devices][::-1]


async def test_a_config_of_a_claim_cannot_make_a_class_laxer(machine: Machine) -> None:
    claim = machine.share("a", 0)
    parameters = {"apiVersion": names.API_VERSION, "kind": "ShareConfig", "memory": "Required"}
    own = resource.Config(driver=names.LOCAL_DRIVER, requests=(), from_class=False, parameters=parameters)
    async with machine.node() as driver:
        with pytest.raises(errors.Invalid, match="cannot hold a share to its memory"):
            await driver.prepare(replace(claim, configs=(*claim.configs, own)))


def _pod(uid: str, *containers: str) -> dict[str, Any]:
    """A pod whose containers all use the claim."""
    claims = {"claims": [{"name": "card"}]}
    return {
        "metadata": {"name": "pod"},
        "spec": {
            "resourceClaims": [{"name": "card", "resourceClaimName": f"claim-{uid}"}],
            "containers": [{"name": name, "resources": claims} for name in containers],
        },
    }


@pytest.fixture
def held(machine: Machine, tmp_path: Path) -> Machine:
    """A machine whose admin has put HAMi-core there."""
    machine.hami_library = tmp_path / "libvgpu.so"
    machine.hami_library.write_bytes(b"the library")
    return machine


async def test_a_share_is_held_by_the_library_that_the_node_has(held: Machine) -> None:
    held.pods = [_pod("a", "main")]
    async with held.node() as driver:
        async with contextlib.aclosing(driver.pools()) as pools:
            told = dict((await anext(pools))[0].devices[0].attributes)
        assert (told["memoryEnforcement"], told["coresEnforcement"]) == ("hami", "hami")
        (device,) = await driver.prepare(held.share("a", 0, memory="8Gi", firm={"memory": "Required"}))
        assert device.data["enforcement"] == {"memory": "hami", "cores": "hami"}
        edits = (held.spec("a") or {})["devices"][0]["containerEdits"]
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=8192m" in edits["env"]
        (region,) = [mount["hostPath"] for mount in edits["mounts"] if mount["containerPath"] == "/var/lib/elastic-gpu"]
        assert Path(region).is_dir()
        await driver.unprepare(held.ref("a"))
        assert not Path(region).exists()


async def test_two_containers_on_one_share_are_refused_where_it_has_to_hold_and_accounted_for_where_not(
    held: Machine,
) -> None:
    held.pods = [_pod("a", "main", "log")]
    async with held.node() as driver:
        with pytest.raises(errors.Invalid, match="container main of pod pod, container log of pod pod use this one"):
            await driver.prepare(held.share("a", 0, firm={"memory": "Required"}))
        (device,) = await driver.prepare(held.share("a", 0))
        assert device.data["enforcement"] == {"memory": "none", "cores": "none"}


async def test_a_share_keeps_its_account_over_a_restart(held: Machine) -> None:
    held.pods = [_pod("a", "main")]
    async with held.node() as driver:
        await driver.prepare(held.share("a", 0))
        account = held.data_dir / "hami" / "a-0" / "region" / "share.cache"
        account.write_text("what is used")
    async with held.node() as driver:
        await driver.prepare(held.share("a", 0))
        assert account.read_text() == "what is used"


async def test_a_library_that_is_put_there_later_is_published_without_a_restart(held: Machine) -> None:
    assert held.hami_library is not None
    held.hami_library.unlink()
    async with held.node() as driver, contextlib.aclosing(driver.pools()) as pools:
        assert dict((await anext(pools))[0].devices[0].attributes)["memoryEnforcement"] == "none"
        held.hami_library.write_bytes(b"the library")
        assert dict((await anext(pools))[0].devices[0].attributes)["memoryEnforcement"] == "hami"


def a_pod_of(uid: str, pod: str, *containers: str) -> dict[str, Any]:
    """A pod whose containers use the claim `claim-<uid>`."""
    use = {"claims": [{"name": "card"}]}
    return {
        "metadata": {"name": pod, "uid": f"0000000{pod[-1]}-0000-4000-8000-000000000000"},
        "spec": {
            "resourceClaims": [{"name": "card", "resourceClaimName": f"claim-{uid}"}],
            "containers": [{"name": name, "resources": use} for name in containers],
        },
    }


def held_by_driver(machine: Machine, uid: str, pod: dict[str, Any], **amounts: Any) -> resource.Claim:
    claim = machine.share(uid, 0, firm={"memory": "Required", "accept": ["Driver"]}, **amounts)  # type: ignore[dict-item]
    return replace(claim, reserved_for=((pod["metadata"]["name"], pod["metadata"]["uid"]),))


@pytest.fixture
def limiting(machine: Machine) -> Machine:
    """A machine whose driver limits control groups."""
    machine.install_driver(LIMITING)
    machine.add_hook()
    return machine


async def test_a_share_that_one_container_uses_is_held_by_the_hook_and_any_other_by_the_pods_group(
    limiting: Machine,
) -> None:
    alone, together = a_pod_of("a", "pod1", "main"), a_pod_of("b", "pod2", "main", "second")
    limiting.pods += [alone, together]
    pod = limiting.add_pod(together["metadata"]["uid"], "main", "second")
    gateway = nvml.NVML(libraries=(limiting.cards.library,), limit_s=20, groups=limiting.cgroups)
    async with limiting.node() as driver:
        (first,) = await driver.prepare(held_by_driver(limiting, "a", alone))
        await driver.prepare(held_by_driver(limiting, "b", together))
        card = inventory.CardUUID(limiting.cards.uuids[0])
        assert await gateway.memory_limit(card, pod) == 8 << 30
        hooks = {uid: json.dumps(limiting.spec(uid)).count("apply-cuda-memory-limits") for uid in ("a", "b")}
        assert hooks == {"a": 1, "b": 0}
        assert first.data["enforcement"] == {"memory": "driver", "cores": "none"}
        await driver.unprepare(limiting.ref("b"))
        assert await gateway.memory_limit(card, pod) is None


async def test_a_pod_that_is_held_as_a_whole_gets_no_second_share_of_that_card(limiting: Machine) -> None:
    pod = a_pod_of("a", "pod1", "main", "second")
    pod["spec"]["resourceClaims"].append({"name": "other", "resourceClaimName": "claim-b"})
    pod["spec"]["containers"].append({"name": "third", "resources": {"claims": [{"name": "other"}]}})
    limiting.pods.append(pod)
    limiting.add_pod(pod["metadata"]["uid"])
    async with limiting.node() as driver:
        await driver.prepare(held_by_driver(limiting, "a", pod))
        with pytest.raises(errors.Invalid, match=r"its pod has two shares of card .* give each container one share"):
            await driver.prepare(held_by_driver(limiting, "b", pod))
        await driver.unprepare(limiting.ref("a"))
        await driver.prepare(held_by_driver(limiting, "b", pod))
        with pytest.raises(errors.Invalid, match="its pod has two shares of card"):
            await driver.prepare(held_by_driver(limiting, "a", pod))


async def test_a_driver_that_is_replaced_changes_what_new_shares_are_held_by_and_no_old_one(limiting: Machine) -> None:
    pod = a_pod_of("a", "pod1", "main")
    limiting.pods.append(pod)
    async with limiting.node() as driver:
        await driver.prepare(held_by_driver(limiting, "a", pod))
        limiting.install_driver("580.95.05")
        await until(lambda: _enforced(limiting, driver) == "none")
        (again,) = await driver.prepare(held_by_driver(limiting, "a", pod))
        assert again.data["enforcement"] == {"memory": "driver", "cores": "none"}


def _enforced(machine: Machine, driver: node.Node) -> object:
    (first, *_) = driver._watcher.pool(driver.held).devices
    return dict(first.attributes)["memoryEnforcement"]
