"""The controller between an API server and pools, all real sockets: the rows of the failure matrix that are its own.

A controller that is left and begun anew is a crash: nothing of it stays in memory. After each row: live leases =
allocated devices.
"""

import asyncio
import contextlib
import datetime
from pathlib import Path
from typing import Any

import pytest

from api import lease, names
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from controller import remotewatcher
from driver.remote import poolapi as node_poolapi
from kube import apiserver
from poolclient import connection
from tests.fakes.pool import FakePool
from tests.fakes.remotes import CLAIMS, CLUSTER_UID, LEASES, Cluster, a_cluster


async def _attached(cluster: Cluster, *names: str) -> None:
    await cluster.until(lambda: all(cluster.condition(name, "attached") for name in names))
    await cluster.until(lambda: cluster.phases() == ["Attached"] * len(names))


async def test_a_card_is_attached_before_the_pod_is_bound_and_given_back_after(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await cluster.until(lambda: len(cluster.taints()) == 2)
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            [held] = pool.live()
            assert (held.consumer.node_name, held.consumer.claim_uid) == ("node1", "a")
            [device] = cluster.devices("a")
            assert device["data"]["leaseID"] == held.lease_id
            cluster.balanced(pool)
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.phases() == [])
            assert pool.live() == []
            await cluster.until(lambda: not any(cluster.taints().values()))


async def test_slices_reach_the_nodes_of_the_driver_and_of_the_pool_and_bind_to_one(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority, count=70) as pool:
        cluster.add_pool(pool, nodes=[{"key": "rack", "value": "r1"}])
        async with cluster.controller(remote_nodes="gpu=none"):
            await cluster.until(lambda: len(cluster.taints()) == 70)
            first, second = cluster.server.list("resourceslices")
            tests = first["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"]
            assert {one["key"]: one["values"] for one in tests} == {"gpu": ["none"], "rack": ["r1"]}
            assert [len(one["spec"]["devices"]) for one in (first, second)] == [64, 6]
            [owner] = first["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("RemotePool", "lab")
            device = first["spec"]["devices"][0]
            assert device["bindsToNode"] is True
            assert device["bindingConditions"] == ["remote.gpu.elasticgpu.io/attached"]
            assert device["attributes"]["gpu.elasticgpu.io/backend"] == {"string": "remote"}
            assert device["attributes"]["gpu.elasticgpu.io/cudaComputeCapability"] == {"version": "8.0.0"}


async def test_a_server_without_binding_conditions_gets_plain_devices_and_that_is_counted(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        gate = ("devices.bindsToNode", "devices.bindingConditions", "devices.bindingFailureConditions")
        cluster.server.drops(*gate)
        cluster.add_pool(pool)
        async with cluster.controller() as series:
            await cluster.until(lambda: len(cluster.taints()) == 2)
            counted = "elasticgpu_controller_remote_dropped_fields"
            await cluster.until(lambda: series.registry.get_sample_value(counted) == 3)
            cluster.claim("a", pool, 0, conditions=False)
            cluster.claim("b", pool, 1)
            await _attached(cluster, "b")
            assert [one.consumer.claim_uid for one in pool.live()] == ["b"]


async def test_a_pool_that_hangs_delays_no_other(tmp_path: Path) -> None:
    """Four of them: one after the other, the last would be asked after 15 s."""
    async with (
        a_cluster(tmp_path) as cluster,
        FakePool(cluster.authority) as well,
        contextlib.AsyncExitStack() as stack,
    ):
        dead = [await stack.enter_async_context(FakePool(cluster.authority)) for _ in range(4)]
        for number, pool in enumerate(dead):
            pool.fault("GetPoolInfo", hang=True, times=-1)
            cluster.add_pool(pool, f"dead{number}")
            cluster.claim(f"b{number}", pool, 0, of=f"dead{number}")
        cluster.add_pool(well, "well")
        async with cluster.controller():
            cluster.claim("a", well, 0, of="well")
            await cluster.until(lambda: cluster.condition("a", "attached"))
            await cluster.until(lambda: all(pool.count_of("GetPoolInfo") for pool in dead), within_s=14)
            assert not any(pool.live() for pool in dead)


async def test_the_status_of_a_pool_says_whether_it_answers(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)

        def reachable() -> list[str]:
            status = cluster.server.list("remotepools")[0].get("status") or {}
            return [one["status"] for one in status.get("conditions") or ()]

        async with cluster.controller():
            await cluster.until(lambda: reachable() == ["True"])
            assert cluster.server.list("remotepools")[0]["status"]["devices"] == 2


async def test_a_pool_that_lists_no_card_any_more_is_said_to_have_none(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)

        def cards() -> int | None:
            found: int | None = (cluster.server.list("remotepools")[0].get("status") or {}).get("devices")
            return found

        async with cluster.controller():
            await cluster.until(lambda: cards() == 2, within_s=60)
        pool.devices.clear()
        async with cluster.controller():  # which knows the two by their slice
            await cluster.until(lambda: not cards(), within_s=60)


async def test_a_pool_that_names_cards_without_end_is_given_up(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority, count=20_200) as pool:
        cluster.add_pool(pool)

        def trouble() -> str:
            conditions = (cluster.server.list("remotepools")[0].get("status") or {}).get("conditions") or ()
            return "".join(one["message"] for one in conditions)

        async with cluster.controller():
            await cluster.until(lambda: "lists cards without end" in trouble(), within_s=60)
            assert cluster.taints() == {}


async def test_a_pool_that_ends_each_watch_at_once_is_not_asked_without_a_pause(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority, ends_watches=True) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await pool.until(lambda: pool.count_of("WatchLeases") == 1, within_s=60)
            began = asyncio.get_running_loop().time()
            await pool.until(lambda: pool.count_of("WatchLeases") >= 6, within_s=60)
            assert asyncio.get_running_loop().time() - began > 0.9  # five pauses of a fifth of a second, at least


async def test_row_01_a_pool_down_at_discovery_keeps_its_slices_tainted_and_costs_no_other(tmp_path: Path) -> None:
    async with (
        a_cluster(tmp_path) as cluster,
        FakePool(cluster.authority) as down,
        FakePool(cluster.authority) as up,
    ):
        cluster.add_pool(down, "down")
        cluster.add_pool(up, "up")
        async with cluster.controller():
            await cluster.until(lambda: len(cluster.taints("down")) == len(cluster.taints("up")) == 2)
        await down.stop()
        async with cluster.controller(remote_fresh_s=1):
            await cluster.until(lambda: all(one == {"unreachable"} for one in cluster.taints("down").values()))
            assert len(cluster.taints("down")) == 2
            await cluster.until(
                lambda: not any(cluster.taints("up").values())
            )  # a stall of this machine made it old too
            await down.start()
            await cluster.until(lambda: not any(cluster.taints("down").values()), within_s=60)


async def test_row_02_an_attach_without_an_answer_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.fault("Attach", after=True, times=2)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
        keys = {call.idempotency_key for verb, call in pool.calls if verb == "Attach"}
        assert len(keys) == 1
        cluster.balanced(pool)


async def test_row_02_a_pool_that_stays_silent_fails_in_time_and_is_told_to_detach_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await cluster.until(lambda: len(cluster.taints()) == 2)
            pool.fault("Attach", after=True, times=-1)
            pool.fault("Detach", code="UNAVAILABLE", times=3)
            pool.attaching = True
            cluster.claim("a", pool, 0)
            await pool.until(pool.live)
            cluster.late_s = 560
            await cluster.until(lambda: cluster.condition("a", "attach-failed"), within_s=60)
            cluster.deallocate("a")
            await pool.until(lambda: not pool.live(), within_s=60)
        cluster.balanced(pool)


async def test_row_03_a_final_refusal_fails_with_its_reason_and_the_card_rests(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.fault("Attach", kind=lease.Kind.WITHHELD)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: cluster.condition("a", "attach-failed"))
            assert "injected" in cluster.devices("a")[0]["conditions"][0]["message"]
            cluster.deallocate("a")
            await cluster.until(lambda: {"attach-failed"} in cluster.taints().values())
            cluster.late_s = 61
            await cluster.until(lambda: not any(cluster.taints().values()) and not cluster.phases(), within_s=60)
            assert pool.count_of("Attach") == 1
        cluster.balanced(pool)


async def test_row_04_what_is_attached_too_late_is_given_back(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.attaching = True
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await pool.until(pool.live)
            cluster.late_s = 541
            await cluster.until(lambda: cluster.condition("a", "attach-failed"), within_s=60)
            assert not cluster.condition("a", "attached")
            await pool.until(lambda: not pool.live())
            cluster.deallocate("a")
        cluster.balanced(pool)


async def test_row_05_a_controller_that_dies_before_the_attach_goes_on_from_the_intent(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        fault = pool.fault("Attach", hang=True, times=-1)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await pool.until(lambda: pool.count_of("Attach"))
            assert cluster.phases() == ["Attaching"]
        fault.times = 0
        cluster.epoch = 2
        async with cluster.controller():
            await _attached(cluster, "a")
        assert len({call.idempotency_key for verb, call in pool.calls if verb == "Attach"}) == 1
        cluster.balanced(pool)


@pytest.mark.parametrize("path", ["resourceclaims/a/status", "remoteleases/lease-"], ids=["row_06", "row_07"])
async def test_row_06_and_07_a_controller_that_dies_before_it_has_told_tells_the_same_lease(
    tmp_path: Path, path: str
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.server.fault(method="PATCH", path=path, black_hole=True, times=-1)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: cluster.server.count("PATCH", path))
            [before] = pool.live()
        cluster.server.heal()
        cluster.epoch = 2
        async with cluster.controller():
            await _attached(cluster, "a")
            assert cluster.devices("a")[0]["data"]["leaseID"] == before.lease_id
        assert len(pool.leases) == 1
        cluster.balanced(pool)


async def test_row_08_of_two_leaders_the_older_one_is_refused(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.epoch = 1
        async with cluster.controller():
            cluster.epoch = 2
            async with cluster.controller():
                cluster.claim("a", pool, 0)
                await _attached(cluster, "a")
                cluster.claim("b", pool, 1)
                await cluster.until(lambda: cluster.condition("b", "attached"))
        assert len(pool.leases) == 2
        cluster.balanced(pool)


async def test_row_09_a_scheduler_that_begins_anew_finds_all_in_the_api_and_nothing_is_attached_twice(
    tmp_path: Path,
) -> None:
    """It reserves the claim once more, as it stands: the same allocation, the same lease."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.attaching = True
        async with cluster.controller():
            body = cluster.claim("a", pool, 0)
            await pool.until(pool.live)
            again = cluster.get("a")
            again["status"]["reservedFor"] = [{"resource": "pods", "name": "pod", "uid": "uid-pod-again"}]
            cluster.server.put(f"{CLAIMS}/a", again)
            [held] = pool.live()
            pool.change(held.idempotency_key, "ATTACHED")
            await _attached(cluster, "a")
            assert cluster.get("a")["status"]["allocation"] == body["status"]["allocation"]
        assert len({call.idempotency_key for verb, call in pool.calls if verb == "Attach"}) == 1
        cluster.balanced(pool)


async def test_row_10_a_status_that_was_meant_for_the_former_allocation_is_refused(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.server.fault(method="PATCH", path="resourceclaims/a/status", delay_s=0.5)
        async with cluster.controller():
            cluster.claim("a", pool, 0, at=datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=9))
            await cluster.until(lambda: cluster.server.count("PATCH", "resourceclaims/a/status"))
            cluster.deallocate("a")
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            [held] = pool.live()
            assert cluster.devices("a")[0]["data"]["leaseID"] == held.lease_id
        cluster.balanced(pool)


async def test_row_12_a_server_that_dies_is_told_and_the_card_evicts_its_pod(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            [held] = pool.live()
            pool.change(held.idempotency_key, "LOST", "XID 79")
            await cluster.until(lambda: cluster.phases() == ["Lost"])
            await cluster.until(lambda: {"lost"} in cluster.taints().values())
            await cluster.until(lambda: not cluster.condition("a", "healthy"))
            [said] = [one for one in cluster.devices("a")[0]["conditions"] if one["type"].endswith("/healthy")]
            assert (said["status"], said["message"]) == ("False", "XID 79")
            effects = {
                taint["effect"]
                for item in cluster.server.list("resourceslices")
                for device in item["spec"]["devices"]
                for taint in device.get("taints", ())
            }
            assert effects == {"NoExecute"}
            assert pool.count_of("Attach") == 1
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.phases() == [])
        cluster.balanced(pool)


async def test_a_pool_that_lost_its_table_and_counts_anew_is_believed(tmp_path: Path) -> None:
    """What was heard of its former life has greater numbers, and is no newer for that."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            await pool.stop()
            pool.forget()
            await pool.start()
            await cluster.until(lambda: cluster.phases() == ["Lost"])
            await cluster.until(lambda: {"lost"} in cluster.taints().values())


async def test_row_14_what_a_node_could_not_give_back_stays_tainted_until_the_pool_confirms(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            fault = pool.fault("Detach", code="UNAVAILABLE", times=-1)
            [intent] = cluster.server.list("remoteleases")
            intent["status"]["phase"] = "Releasing"
            cluster.server.put(f"{LEASES}/{intent['metadata']['name']}", intent)
            cluster.deallocate("a")
            await cluster.until(lambda: {"releasing"} in cluster.taints().values())
            assert cluster.phases() == ["Releasing"]
            fault.times = 0
            await cluster.until(lambda: cluster.phases() == [], within_s=60)
            await cluster.until(lambda: not any(cluster.taints().values()))
        cluster.balanced(pool)


@pytest.mark.parametrize("how", ["out of service", "deleted"], ids=["row_17", "row_18"])
async def test_row_17_and_18_the_card_of_a_node_that_is_gone_is_given_back_without_it(tmp_path: Path, how: str) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            if how == "deleted":
                fault = pool.fault("Detach", code="UNAVAILABLE", times=2)
                cluster.server.remove("/api/v1/nodes/node1")
                await cluster.until(lambda: cluster.phases() == ["Releasing"])
                assert cluster.server.list("remoteleases")[0]["metadata"]["finalizers"]
                await pool.until(lambda: fault.times == 0)
            else:
                taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
                cluster.add_node("node1", ready=False, taints=[taint])
            await cluster.until(lambda: cluster.phases() == [], within_s=60)
            cluster.deallocate("a")
        cluster.balanced(pool)


async def test_row_20_a_claim_that_was_freed_behind_our_back_makes_room_at_once(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            cluster.server.put(
                "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a", {"status": {}, "metadata": {"uid": "a"}}
            )
            cluster.claim("b", pool, 0)
            await cluster.until(lambda: cluster.condition("b", "attached"))
            await cluster.until(lambda: cluster.phases() == ["Attached"])
        cluster.balanced(pool)


async def test_row_20_a_lease_without_an_intent_is_in_nobodys_way(tmp_path: Path) -> None:
    """The controller died, and somebody removed the RemoteLease with its finalizer: only the pool remembers."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
        [intent] = cluster.server.list("remoteleases")
        intent["metadata"]["finalizers"] = []
        cluster.server.put(f"{LEASES}/{intent['metadata']['name']}", intent)
        cluster.server.remove(f"{LEASES}/{intent['metadata']['name']}")
        cluster.deallocate("a")
        cluster.claim("b", pool, 0)
        async with cluster.controller():
            await _attached(cluster, "b")
        cluster.balanced(pool)


async def test_row_21_the_card_of_a_claim_that_vanished_is_given_back(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            body = cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a"
            body["metadata"]["finalizers"] = []
            cluster.server.put(path, body)
            cluster.server.remove(path)
            await cluster.until(lambda: cluster.phases() == [])
        cluster.balanced(pool)


async def test_row_22_a_claim_made_again_under_its_name_gets_a_lease_of_its_own(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("first", pool, 0, name="same")
            await _attached(cluster, "same")
            cluster.claim("second", pool, 0, name="same")
            await cluster.until(lambda: [one.consumer.claim_uid for one in pool.live()] == ["second"])
            await _attached(cluster, "same")
        cluster.balanced(pool)


async def test_row_23_of_two_claims_with_one_card_one_gets_it(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            cluster.claim("b", pool, 0)
            await pool.until(lambda: pool.count_of("Attach") > 2)
            assert [one.consumer.claim_uid for one in pool.live()] == ["a"]
            cluster.late_s = 541
            await cluster.until(lambda: cluster.condition("b", "attach-failed"), within_s=60)
            assert cluster.condition("a", "attached")
            cluster.deallocate("b")
        cluster.balanced(pool)


async def test_row_27_running_pods_lose_nothing_while_the_pool_cannot_be_reached(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(remote_fresh_s=1):
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            await pool.stop()
            await cluster.until(lambda: all(one == {"unreachable"} for one in cluster.taints().values()))
            assert cluster.phases() == ["Attached"]
            assert cluster.condition("a", "healthy")
            await pool.start()
            await cluster.until(lambda: not any(cluster.taints().values()), within_s=60)
        cluster.balanced(pool)


async def test_row_29_a_node_removed_before_the_pod_was_bound_fails_the_choice_at_once(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.attaching = True
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await pool.until(pool.live)
            cluster.server.remove("/api/v1/nodes/node1")
            await cluster.until(lambda: cluster.condition("a", "attach-failed"))
            await cluster.until(lambda: cluster.phases() == [])
            cluster.deallocate("a")
        cluster.balanced(pool)


async def test_row_30_a_card_that_a_claim_holds_stays_listed_when_its_pool_shrinks(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(remote_fresh_s=1):
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            held, free = sorted(pool.devices)
            pool.devices.clear()
            await cluster.until(lambda: cluster.taints() == {held: {"lost"}})
            assert free not in cluster.taints()
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.taints() == {} and cluster.phases() == [])
        cluster.balanced(pool)


async def test_row_31_a_lease_of_a_restored_clusters_former_life_is_adopted_by_nobody(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0, at=datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=60))
            await _attached(cluster, "a")
        [intent] = cluster.server.list("remoteleases")
        del cluster.server.store.objects[
            next(p for p in cluster.server.store.objects if p.name == intent["metadata"]["name"])
        ]
        cluster.claim("a", pool, 0)
        async with cluster.controller():
            await _attached(cluster, "a")
        assert [one.state for one in pool.leases.values()] == [wire.RELEASED, wire.ATTACHED]
        cluster.balanced(pool)


@pytest.mark.parametrize("off_s", [3600, -3600])
async def test_row_32_a_clock_that_is_an_hour_off_fails_nothing(tmp_path: Path, off_s: int) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.late_s = off_s
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.phases() == [])
        cluster.balanced(pool)


async def test_a_card_that_another_cluster_holds_fails_at_once(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        device = sorted(pool.devices)[0]
        pool.leases["x"] = wire.Lease(
            lease_id="x", device_id=device, state=wire.ATTACHED, owner=wire.Owner(cluster_uid="another")
        )
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: cluster.condition("a", "attach-failed"))
        assert [one.lease_id for one in pool.live()] == ["x"]


async def test_a_claim_with_cards_of_two_pools_is_told_of_both(tmp_path: Path) -> None:
    async with (
        a_cluster(tmp_path) as cluster,
        FakePool(cluster.authority) as one,
        FakePool(cluster.authority) as other,
    ):
        cluster.add_pool(one, "one")
        cluster.add_pool(other, "other")
        async with cluster.controller():
            body = cluster.claim("a", one, 0, 1, of="one")
            more: dict[str, Any] = body["status"]["allocation"]["devices"]["results"][0] | {"pool": "other"}
            body["status"]["allocation"]["devices"]["results"].append(more)
            cluster.server.put("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a", body)
            await cluster.until(lambda: len(cluster.devices("a")) == 3 and cluster.condition("a", "attached"))
        assert (len(one.live()), len(other.live())) == (2, 1)


async def test_a_lease_object_that_is_deleted_gives_its_card_back(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            [intent] = cluster.server.list("remoteleases")
            cluster.server.remove(f"{LEASES}/{intent['metadata']['name']}")
            await cluster.until(lambda: cluster.phases() == [])
            assert pool.live() == []
            await cluster.until(lambda: not cluster.condition("a", "healthy"))
            assert pool.count_of("Attach") == 1


async def test_two_remotepools_with_one_endpoint_leave_each_others_leases_alone(tmp_path: Path) -> None:
    """For two groups of nodes, say: each lists the leases of both, and by their age they could be strays."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool, "left")
        async with cluster.controller():
            cluster.claim("a", pool, 0, of="left")
            await _attached(cluster, "a")
            for held in pool.leases.values():
                held.age_ms = 600_000
            cluster.add_pool(pool, "right")
            cluster.claim("b", pool, 1, of="right")
            await _attached(cluster, "a", "b")
            cluster.deallocate("b")
            await cluster.until(lambda: cluster.phases() == ["Attached"])
            assert pool.count_of("Detach") == 1
            cluster.balanced(pool)


async def test_a_node_that_writes_objects_in_anothers_name_ends_no_session(tmp_path: Path) -> None:
    """One that copies the key of another node's lease, and one that says that another's card is lost."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("evil")
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await _attached(cluster, "a")
            [intent] = cluster.server.list("remoteleases")
            spec = intent["spec"] | {"attachedBy": "Node", "node": {"name": "evil", "uid": "uid-evil"}}
            since = intent["status"]["since"]
            cluster.server.put(f"{LEASES}/copied", {"spec": spec, "status": {"phase": "Releasing", "since": since}})
            cluster.server.put(
                f"{LEASES}/lost", {"spec": spec | {"key": "made-up"}, "status": {"phase": "Lost", "since": since}}
            )
            cluster.claim("b", pool, 1)
            await cluster.until(lambda: cluster.condition("b", "attached"))
            cluster.deallocate("b")
            await cluster.until(lambda: pool.count_of("Detach") == 1 and len(pool.live()) == 1)
            await cluster.until(lambda: not any(cluster.taints().values()))
            assert sorted(cluster.phases()) == ["Attached", "Lost", "Releasing"]
            cluster.balanced(pool)


@pytest.mark.parametrize("since", ["2026-01-01T00:00:00z", "2026-01-01T00:00:00x5Z", "9999-12-31T23:59:59Z"])
async def test_a_time_that_a_node_has_written_and_nobody_can_reckon_with_stops_nobody(
    tmp_path: Path, since: str
) -> None:
    """The API server takes all of these for a date-time."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("evil")
        for phase in ("Attaching", "Attached", "Releasing"):
            _written(cluster, "evil", "a", sorted(pool.devices)[1], phase, since=since)
        async with cluster.controller():
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: cluster.condition("a", "attached"))
            cluster.deallocate("a")
            await cluster.until(lambda: pool.count_of("Detach") and not pool.live())
            await cluster.until(lambda: len(cluster.server.list("remoteleases")) == 3)


def _written(
    cluster: Cluster,
    node: str,
    claim: str,
    device: str,
    phase: str,
    key: str = "",
    since: str = "2026-01-01T00:00:00Z",
    by: str = "Node",
) -> str:
    """A RemoteLease as the driver of a node may write it, genuine where no key is given; its key."""
    spec: dict[str, Any] = {
        "pool": "lab",
        "device": device,
        "epoch": f"made-up-{phase}",
        "claim": {"namespace": "default", "name": claim, "uid": claim},
        "node": {"name": node, "uid": f"uid-{node}"},
        "attachedBy": by,
    }
    spec["key"] = key or lease.key(
        cluster_uid=CLUSTER_UID,
        claim_uid=claim,
        driver=names.REMOTE_DRIVER,
        pool="lab",
        device=device,
        share_id="",
        node_uid=f"uid-{node}",
        epoch=spec["epoch"],
    )
    body = {"spec": spec, "status": {"phase": phase, "since": since}}
    body["metadata"] = {"finalizers": [names.LEASE_FINALIZER]}
    cluster.server.put(f"{LEASES}/{kinds.lease_name(spec['key'])}", body)
    return str(spec["key"])


async def _asked_by(cluster: Cluster, pool: FakePool, node: str, key: str, claim: str, device: str) -> None:
    """The pool lends to whoever proves to be a node: whose claim it is it cannot know."""
    spec = kinds.PoolSpec(endpoint=pool.endpoint, ca_bundle=pool.authority.pem)
    cluster.server.tokens_node = node

    async def token(_: str) -> str:
        return "a.eyJrdWJlcm5ldGVzLmlvIjp7Im5vZGUiOnsibmFtZSI6ImV2aWwifX19.b"

    api = node_poolapi.PoolAPI("lab", spec, CLUSTER_UID, token)
    wanted = kinds.LeaseSpec(
        pool="lab",
        device=device,
        key=key,
        epoch="e",
        claim=kinds.LeaseClaim(namespace="default", name=claim, uid=claim),
        node=kinds.LeaseNode(name=node, uid=f"uid-{node}"),
        attached_by=kinds.AttachedBy.NODE,
    )
    await api.attach(wanted, 60)
    await api.close()


async def test_a_node_that_means_a_claim_of_another_nodes_pod_keeps_no_card_and_taints_none(tmp_path: Path) -> None:
    """Without binding conditions any node may write an intent; of whom it speaks only the pods' nodes tell."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("evil")
        cluster.claim("a", pool, 0, conditions=False)
        held, free = sorted(pool.devices)
        seen: set[str] = set()

        def over(*, live: int) -> bool:
            seen.update(*cluster.taints().values())
            return cluster.phases() == [] and len(pool.live()) == live

        async with cluster.controller():
            await cluster.until(lambda: len(cluster.taints()) == 2)
            _written(cluster, "evil", "a", held, "Attached")  # as if the pool had ended it
            await cluster.until(lambda: over(live=0), within_s=60)
            _written(cluster, "evil", "a", free, "Releasing")  # of a card that it never had
            await cluster.until(lambda: over(live=0), within_s=60)
            assert seen == set()
            key = _written(cluster, "evil", "a", held, "Attaching")
            with contextlib.suppress(connection.Refused):  # the controller may have ended it by then
                await _asked_by(cluster, pool, "evil", key, "a", held)
            await cluster.until(lambda: over(live=0), within_s=60)
            assert "lost" not in seen
            async with cluster.node() as driver:
                await driver.prepare(cluster.allocated("a"))
                assert [one.consumer.node_name for one in pool.live()] == ["node1"]
                await cluster.until(lambda: cluster.phases() == ["Attached"])
                cluster.balanced(pool)


async def test_what_a_node_writes_taints_no_card_while_the_spec_of_the_pool_cannot_be_read(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("evil")
        one, other = sorted(pool.devices)
        async with cluster.controller():
            await cluster.until(lambda: len(cluster.taints()) == 2)
            cluster.add_pool(pool, endpoint=5)
            await cluster.until(lambda: cluster.taints() == {one: {"unreachable"}, other: {"unreachable"}})
            _written(cluster, "evil", "a", one, "Lost")
            _written(cluster, "evil", "b", other, "Lost", by="Controller")  # which no node may, and comes after
            await cluster.until(lambda: cluster.taints()[other] == {"unreachable", "lost"})
            assert cluster.taints()[one] == {"unreachable"}


async def test_a_lease_that_hides_behind_an_object_with_its_key_is_given_back(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("evil")
        _, free = sorted(pool.devices)
        key = _written(cluster, "evil", "a", free, "Attached", key="of-nothing-that-it-says")
        await _asked_by(cluster, pool, "evil", key, "a", free)
        pool.leases[key].age_ms = 600_000
        async with cluster.controller():
            await pool.until(lambda: not pool.live(), within_s=60)


async def test_a_newer_pool_that_speaks_of_what_we_do_not_know_is_heard_all_the_same(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        strange, _ = sorted(pool.devices)
        pool.devices[strange].state = 99
        cluster.add_pool(pool)
        async with cluster.controller():
            cluster.claim("a", pool, 1)
            await _attached(cluster, "a")
            await cluster.until(lambda: cluster.taints()[strange] == {"lost"})
            [held] = pool.live()
            held.state = 99
            pool.change(held.idempotency_key, "ATTACHED")
            await cluster.until(lambda: cluster.condition("a", "attached"))


async def test_a_keeper_that_fails_costs_no_other_and_is_begun_anew(tmp_path: Path) -> None:
    async with (
        a_cluster(tmp_path) as cluster,
        FakePool(cluster.authority) as bad,
        FakePool(cluster.authority) as good,
    ):
        cluster.add_pool(bad, "bad")
        cluster.add_pool(good, "good")
        body = cluster.claim("a", bad, 0, of="bad")
        body["status"]["allocation"]["allocationTimestamp"] = "no time at all"
        cluster.server.put(f"{CLAIMS}/a", body)
        async with cluster.controller():
            cluster.claim("b", good, 0, of="good")
            await cluster.until(lambda: cluster.condition("b", "attached"))
            await cluster.until(lambda: len(cluster.taints("good")) == 2)
            cluster.deallocate("a")
            await cluster.until(lambda: len(cluster.taints("bad")) == 2)
            assert bad.count_of("Attach") == 0


def _a_driver(
    cluster: Cluster, node: str, *, ready: bool, component: str = "remote", name: str = "", **meta: Any
) -> None:
    """A pod of the driver of remote cards, as the kubelet tells of it."""
    body = {
        "metadata": {"uid": f"uid-driver-{node}", "labels": {"component": component}, **meta},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    cluster.server.put(f"/api/v1/namespaces/gpu/pods/{name or f'driver-{component}-{node}'}", body)


async def test_a_card_is_attached_when_the_driver_of_its_node_is_ready_and_not_before(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("node2")
        _a_driver(cluster, "node1", ready=False)
        _a_driver(cluster, "node1", ready=True, component="relay")
        _a_driver(cluster, "node2", ready=True)
        async with cluster.controller(namespace="gpu", remote_drivers="component=remote"):
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: cluster.phases() == ["Attaching"])
            cluster.late_s = -3600.0  # however long this takes, nobody gives up
            cluster.claim("b", pool, 1, node="node2")
            await cluster.until(lambda: cluster.condition("b", "attached"))
            assert [one.consumer.claim_uid for one in pool.live()] == ["b"]
            _a_driver(cluster, "node1", ready=True)
            await _attached(cluster, "a", "b")
            cluster.balanced(pool)


async def test_a_claim_for_a_node_without_the_driver_fails_with_the_reason_and_the_pool_is_never_asked(
    tmp_path: Path,
) -> None:
    """KK#131957: the pod would be bound there, and neither start nor end."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        _a_driver(cluster, "node1", ready=True, deletionTimestamp="2026-01-01T00:00:00Z")
        async with cluster.controller(namespace="gpu", remote_drivers="component=remote"):
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: cluster.phases() == ["Attaching"])
            cluster.late_s = 31.0
            await cluster.until(lambda: cluster.condition("a", "attach-failed"))
            [failed] = cluster.devices("a")[0]["conditions"]
            assert "not ready on node node1; look why: kubectl get pods" in failed["message"]
            assert pool.count_of("Attach") == 0


async def test_a_card_that_waited_for_a_driver_in_vain_is_at_once_anothers(tmp_path: Path) -> None:
    """A pod that nothing keeps from that node comes again each half a minute, perhaps with the next card."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("node2")
        _a_driver(cluster, "node1", ready=False)
        _a_driver(cluster, "node2", ready=True)
        seen: set[str] = set()

        def said(*phases: str) -> bool:
            seen.update(*cluster.taints().values())
            return sorted(cluster.phases()) == [*phases]

        async with cluster.controller(namespace="gpu", remote_drivers="component=remote"):
            cluster.claim("a", pool, 0)
            await cluster.until(lambda: said("Attaching"))
            cluster.late_s = 31.0
            await cluster.until(lambda: said("Failed"))
            cluster.deallocate("a")
            cluster.claim("b", pool, 0, node="node2")
            await cluster.until(lambda: said("Attached", "Failed"))
            cluster.late_s += 61.0
            await cluster.until(lambda: said("Attached"))
            assert seen == set()
            cluster.balanced(pool)


async def test_what_a_node_has_attached_is_not_lost_because_the_pool_tells_of_it_later(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.fault("WatchLeases", hang=True, times=-1)
        async with cluster.controller(), cluster.node() as driver:
            await cluster.until(lambda: len(cluster.taints()) == 2)
            cluster.claim("a", pool, 0, conditions=False)
            await driver.prepare(cluster.allocated("a"))
            await pool.until(lambda: pool.count_of("GetLease") == 1)
            cluster.claim("b", pool, 1)
            await cluster.until(lambda: cluster.condition("b", "attached"))
            await cluster.until(lambda: cluster.phases() == ["Attached", "Attached"])
            cluster.balanced(pool)


async def test_a_driver_that_is_made_anew_beside_the_old_one_wakes_nobody(tmp_path: Path) -> None:
    """As each does at a rollout: with thousands of nodes each wake is a look at all claims."""
    async with a_cluster(tmp_path) as cluster, apiserver.APIServer.connect(cluster.server.kubeconfig(tmp_path)) as api:
        _a_driver(cluster, "node1", ready=True)
        watch, wake = remotewatcher.RemoteWatcher(api, "gpu", "component=remote"), asyncio.Event()
        task = asyncio.create_task(watch.run())
        await watch.synced()
        await cluster.until(lambda: cluster.server.watching == 5 and watch.served == {"node1"})
        picture = watch.picture
        watch.listen(wake)
        _a_driver(cluster, "node1", ready=False, name="driver-next")
        _a_driver(cluster, "node1", ready=True, name="driver-next")
        cluster.server.remove("/api/v1/namespaces/gpu/pods/driver-remote-node1")
        _a_driver(cluster, "node2", ready=True)
        await wake.wait()
        assert watch.served == {"node1", "node2"}
        assert watch.picture is picture
        task.cancel()


async def test_a_heartbeat_of_a_node_wakes_nobody(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, apiserver.APIServer.connect(cluster.server.kubeconfig(tmp_path)) as api:
        watch = remotewatcher.RemoteWatcher(api)
        task = asyncio.create_task(watch.run())
        await watch.synced()
        await cluster.until(lambda: cluster.server.watching == 4)
        before = watch.nodes.version
        heartbeat = {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}
        node = cluster.server.get("/api/v1/nodes/node1") or {}
        node["status"]["conditions"].append(heartbeat)
        cluster.server.put("/api/v1/nodes/node1", node)
        cluster.add_node("node7")
        assert await watch.nodes.changed(before) == before + 1
        assert "node7" in watch.nodes.objects
        task.cancel()
