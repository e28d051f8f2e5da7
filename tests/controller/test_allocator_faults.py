"""What goes wrong between a choice and its write, and around it: servers, clocks, nodes, classes, pools."""

import datetime
import functools
from pathlib import Path
from typing import Any

import pytest

from allocation import pods
from api import names
from controller import mirror, offers
from tests.controller import objects
from tests.controller import test_allocating as cluster_of
from tests.controller.test_allocating import CLAIMS, NAME, allocated, card, put_cards, put_claim, put_pod, result
from tests.controller.test_flow import CLASSES, DEVICE_CLASSES, SLICES, Running, controller_of
from tests.controller.test_gangs import Store
from tests.fakes.apiserver import FakeAPIServer

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
server = cluster_of.server


@pytest.fixture
def running(server: FakeAPIServer, tmp_path: Path) -> Running:
    return functools.partial(controller_of, server, tmp_path)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500, "reason": "InternalError", "times": 5},
        {"status": 503, "reason": "ServiceUnavailable", "times": 5},
        {"status": 409, "reason": "Conflict", "times": 5},
        {"status": 429, "reason": "TooManyRequests", "retry_after": "1", "times": 5},
        {"delay_s": 1.0, "times": -1},
        {"cut": True, "times": 5},
    ],
    ids=["500", "503", "409", "429", "slow", "cut"],
)
async def test_a_server_in_trouble_delays_allocations_and_no_card_is_given_twice(
    server: FakeAPIServer, running: Running, fault: dict[str, Any]
) -> None:
    for number in range(4):
        put_claim(server, f"c{number}", cores=100)
        put_pod(server, f"p{number}", f"c{number}")
    async with running():
        server.fault(method="PATCH", path="resourceclaims/", **fault)
        await allocated(server, *(f"c{number}" for number in range(4)), within_s=60)
    assert len({card(server, f"c{number}") for number in range(4)}) == 4


async def test_a_claim_whose_outcome_cannot_be_found_out_keeps_no_other_waiting(
    server: FakeAPIServer, running: Running
) -> None:
    """As where the admission of one namespace refuses its claims."""
    for name in ("bad", "good"):
        put_claim(server, name, cores=100)
        found = server.get(f"{CLAIMS}/{name}") or {}
        found["metadata"]["finalizers"] = [mirror.FINALIZER]
        server.put(f"{CLAIMS}/{name}", found)
        server.fault(method="PATCH", path=f"resourceclaims/{name}/status", status=409, reason="Conflict")
    refused = server.fault(method="PATCH", path="resourceclaims/bad", status=403, reason="Forbidden", times=-1)
    async with running():
        put_pod(server, "first", "bad")
        put_pod(server, "second", "good")
        await allocated(server, "good", within_s=60)
        assert result(server, "bad") is None
        refused.times = 0
        await allocated(server, "bad", within_s=60)
    assert card(server, "bad") != card(server, "good")


async def test_a_node_that_goes_between_choice_and_write_is_not_written(
    server: FakeAPIServer, running: Running
) -> None:
    server.remove("/api/v1/nodes/node-2")
    put_claim(server, "one")
    async with running():
        server.fault(method="PATCH", path="resourceclaims/one", delay_s=1.0)
        put_pod(server, "pod", "one")
        await server.until(lambda: server.count("PATCH", "resourceclaims/one"), within_s=60)
        server.remove("/api/v1/nodes/node-1")
        cluster_of.put_node(server, "node-2")
        await allocated(server, "one", within_s=60)
    assert card(server, "one")[0] == "egpu/node-2"


async def test_a_claim_that_is_edited_or_made_anew_while_it_is_allocated_gets_what_it_asks_for_now(
    server: FakeAPIServer, running: Running
) -> None:
    put_claim(server, "edited", cores=30)
    put_claim(server, "anew", cores=30)
    async with running():
        fault = server.fault(method="PATCH", path="resourceclaims/", delay_s=1.0, times=2)
        put_pod(server, "pod", "edited")
        put_pod(server, "pod2", "anew")
        await server.until(lambda: fault.times == 0, within_s=60)
        edited = server.get(f"{CLAIMS}/edited")
        assert edited is not None
        edited["metadata"]["labels"] = {"by": "somebody"}
        server.put(f"{CLAIMS}/edited", edited)
        server.remove(f"{CLAIMS}/anew")
        put_claim(server, "anew", cores=70)
        await allocated(server, "edited", "anew", within_s=60)
    amounts = {name: result(server, name)["consumedCapacity"]["cores"] for name in ("edited", "anew")}  # type: ignore[index]
    assert amounts == {"edited": "30", "anew": "70"}
    assert (server.get(f"{CLAIMS}/edited") or {})["metadata"]["labels"] == {"by": "somebody"}


async def test_claims_of_a_class_that_is_deleted_wait_and_are_allocated_when_it_comes_back(
    server: FakeAPIServer, running: Running
) -> None:
    share = {"memory": "BestEffort", "cores": "BestEffort"}
    body = objects.a_class("other.example.com", created="2026-02-01T00:00:00Z", backend="Share", share=share)
    body["spec"] |= {"allocation": {"by": "Controller"}, "workloadTypes": ["x"]}
    cluster_of.put_class(server, workloadTypes=["x"])
    server.put(f"{CLASSES}/other.example.com", body)
    async with running():
        put_claim(server, "full", cores=100, count=2)
        put_pod(server, "full", "full")
        await allocated(server, "full", within_s=60)
        server.remove(f"{CLASSES}/{NAME}")
        server.remove(f"{DEVICE_CLASSES}/{NAME}")  # as the garbage collector does
        await server.until(lambda: server.get(f"{DEVICE_CLASSES}/other.example.com"), within_s=60)  # its type is free
        put_claim(server, "one")
        put_pod(server, "pod", "one")
        put_claim(server, "other", deviceClassName="other.example.com")
        put_pod(server, "pod2", "other", created="2026-02-01T00:00:00Z")
        await allocated(server, "other", within_s=60)
        assert result(server, "one") is None
        assert result(server, "full")
        cluster_of.put_class(server)
        await allocated(server, "one", within_s=60)


async def told_of(server: FakeAPIServer, pod: str) -> None:
    await server.until(lambda: any(one["involvedObject"]["name"] == pod for one in server.list("events")), within_s=60)


async def test_cards_of_a_pool_that_is_incomplete_or_contradicts_itself_are_not_given_until_it_is_whole(
    server: FakeAPIServer, running: Running
) -> None:
    whole = {node: server.get(f"{SLICES}/slice-{node}") or {} for node in ("node-1", "node-2")}
    half = server.get(f"{SLICES}/slice-node-1") or {}
    half["spec"]["pool"]["resourceSliceCount"] = 2
    server.put(f"{SLICES}/slice-node-1", half)
    doubled = server.get(f"{SLICES}/slice-node-2") or {}
    doubled["spec"]["devices"][1]["name"] = doubled["spec"]["devices"][0]["name"]
    server.put(f"{SLICES}/slice-node-2", doubled)
    put_claim(server, "one")
    put_pod(server, "pod", "one")
    async with running():
        await told_of(server, "pod")
        assert result(server, "one") is None
        server.put(f"{SLICES}/slice-node-1", whole["node-1"])
        await allocated(server, "one", within_s=60)
        put_claim(server, "two", cores=100, count=2)
        put_pod(server, "pod2", "two")
        await told_of(server, "pod2")
        server.put(f"{SLICES}/slice-node-2", whole["node-2"])
        await allocated(server, "two", within_s=60)
    assert (card(server, "one")[0], card(server, "two")[0]) == ("egpu/node-1", "egpu/node-2")


def taken(known: mirror.Mirror, slices: dict[str, offers.Slice], at: datetime.datetime) -> None:
    node = pods.node({"metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}})
    known.take(slices=slices, nodes={"node-1": node}, claims={}, pods={}, rules={}, at=at)


def test_a_clock_that_is_set_back_hides_no_change_of_cards_that_were_given_before() -> None:
    store: Any = Store()
    since = (NOW - datetime.timedelta(minutes=1)).isoformat()
    ours = {"key": names.ALLOCATED_BY_TAINT, "effect": "NoSchedule", "timeAdded": since}
    put_cards(store, "node-1", since=since)
    known, first = mirror.Mirror(), offers.slice_(store.kinds["resourceslices"]["slice-node-1"])
    back = NOW - datetime.timedelta(hours=1)
    taken(known, {"slice-node-1": first}, back)
    assert known.unsettled  # kube-scheduler may not have seen it yet, for all that is known
    assert not list(known.cluster.published())
    taken(known, {"slice-node-1": first}, NOW)
    assert len(list(known.cluster.published())) == 2
    put_cards(store, "node-1", taints=[ours, {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule"}])
    second = offers.slice_(store.kinds["resourceslices"]["slice-node-1"])
    taken(known, {"slice-node-1": second}, back)
    assert all(device.look.taints for device in known.cluster.published())
    taken(known, {}, back)
    taken(known, {"slice-node-1": second}, back)
    assert not list(known.cluster.published())
