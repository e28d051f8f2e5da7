"""Claims of classes that say `by: Controller`: the whole controller, all of it real but the API server."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api import names
from controller import mirror
from tests.controller import objects
from tests.controller.test_flow import CLASSES, SLICES, Running, controller_of
from tests.fakes.apiserver import FakeAPIServer

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
NAME = "packed.example.com"
LONG_AGO = "2026-01-01T00:00:00Z"
GIB = "Gi"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeAPIServer]:
    """Two nodes with two cards each, both given to the controller, and a class of theirs."""
    async with FakeAPIServer() as server:
        for node in ("node-1", "node-2"):
            put_node(server, node)
            put_cards(server, node)
        put_class(server)
        yield server


@pytest.fixture
def running(server: FakeAPIServer, tmp_path: Path) -> Running:
    return functools.partial(controller_of, server, tmp_path)


def put_class(server: FakeAPIServer, mode: str = "WaitForFirstConsumer", policy: str = "BinPack", **more: Any) -> None:
    share = {"memory": "BestEffort", "cores": "BestEffort"}
    allocation = {"by": "Controller", "mode": mode, "policy": policy}
    server.put(f"{CLASSES}/{NAME}", objects.a_class(NAME, backend="Share", share=share, allocation=allocation, **more))


def put_node(server: FakeAPIServer, name: str, cpu: str = "8", **labels: str) -> None:
    has = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}
    server.put(f"/api/v1/nodes/{name}", body | {"status": {"allocatable": has}})


def put_cards(server: FakeAPIServer, node: str, since: str = LONG_AGO, **more: Any) -> None:
    taint = {"key": names.ALLOCATED_BY_TAINT, "value": "controller", "effect": "NoSchedule"}
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"type": {"string": "gpu"}, "allocatedBy": {"string": "controller"}},
            "allowMultipleAllocations": True,
            "capacity": {
                "cores": {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "0", "step": "1"}}},
                "memory": {
                    "value": "80Gi",
                    "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
                },
            },
            "taints": [taint | ({"timeAdded": since} if since else {})],
        }
        | more
        for number in range(2)
    ]
    body = objects.a_slice(*devices, pool=f"egpu/{node}", name=f"slice-{node}")
    body["spec"]["nodeName"] = node
    server.put(f"{SLICES}/slice-{node}", body)


def put_claim(server: FakeAPIServer, name: str, cores: int = 50, **exactly: Any) -> None:
    amounts = {"requests": {"cores": str(cores), "memory": f"{cores // 2}Gi"}}
    request = {"name": "card", "exactly": {"deviceClassName": NAME, "capacity": amounts, "count": 1} | exactly}
    meta = {"name": name, "namespace": "default", "creationTimestamp": LONG_AGO}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta}
    server.put(f"{CLAIMS}/{name}", body | {"spec": {"devices": {"requests": [request]}}})


def put_pod(
    server: FakeAPIServer,
    name: str,
    *claims: str,
    cpu: str = "1",
    created: str = LONG_AGO,
    gang: str = "",
    of: int = 0,
    **spec: Any,
) -> None:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    named = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    meta: dict[str, Any] = {"name": name, "namespace": "default", "creationTimestamp": created}
    if gang:
        meta["annotations"] = {names.GANG_ANNOTATION: gang, names.GANG_SIZE_ANNOTATION: str(of)}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    server.put(f"{PODS}/{name}", body | {"spec": {"containers": [container], "resourceClaims": named, **spec}})


def result(server: FakeAPIServer, name: str) -> dict[str, Any] | None:
    allocation = ((server.get(f"{CLAIMS}/{name}") or {}).get("status") or {}).get("allocation")
    return None if allocation is None else allocation["devices"]["results"][0]


def card(server: FakeAPIServer, name: str) -> tuple[str, str]:
    found = result(server, name)
    assert found is not None
    return found["pool"], found["device"]


async def allocated(server: FakeAPIServer, *claims: str, within_s: float = 25) -> None:
    await server.until(lambda: all(result(server, claim) for claim in claims), within_s=within_s)


async def told(server: FakeAPIServer, text: str) -> None:
    await server.until(lambda: any(text in one["message"] for one in server.list("events")), within_s=60)


async def test_a_claim_waits_for_its_pod_and_then_has_finalizer_time_and_node(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        put_claim(server, "one")
        put_claim(server, "other")
        put_pod(server, "pod", "one")
        await allocated(server, "one")
        assert result(server, "other") is None
        found = server.get(f"{CLAIMS}/one")
        assert found is not None
        assert mirror.FINALIZER in found["metadata"]["finalizers"]
        allocation = found["status"]["allocation"]
        assert allocation["allocationTimestamp"]
        assert result(server, "one")["consumedCapacity"] == {"cores": "50", "memory": "25Gi"}  # type: ignore[index]
        (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == [card(server, "one")[0].removeprefix("egpu/")]
        (user,) = found["status"]["reservedFor"]
        pod = server.get(f"{PODS}/pod")
        assert pod is not None
        assert user == {"resource": "pods", "name": "pod", "uid": pod["metadata"]["uid"]}


async def test_at_once_means_without_a_pod(server: FakeAPIServer, running: Running) -> None:
    async with running():
        put_class(server, mode="Immediate")
        put_claim(server, "one")
        await allocated(server, "one")
        found = server.get(f"{CLAIMS}/one")
        assert found is not None
        assert "reservedFor" not in found["status"]


async def test_a_write_that_hangs_holds_up_none_of_the_others(server: FakeAPIServer, running: Running) -> None:
    everybody = [f"c{number:02}" for number in range(40)]
    for name in everybody:
        put_claim(server, name, cores=2)
        put_pod(server, name, name, cpu="100m")
    server.fault(method="PATCH", path="resourceclaims/c00", black_hole=True)
    async with running():
        await allocated(server, *everybody[1:], within_s=60)
        assert result(server, "c00") is None
        server.heal()
        await allocated(server, "c00", within_s=60)


async def test_three_halves_are_packed_on_two_cards_of_one_node(server: FakeAPIServer, running: Running) -> None:
    async with running():
        for number in range(3):
            put_claim(server, f"c{number}")
            put_pod(server, f"p{number}", f"c{number}")
        await allocated(server, "c0", "c1", "c2")
        cards = [card(server, f"c{number}") for number in range(3)]
        assert sorted(cards.count(one) for one in set(cards)) == [1, 2]
        assert len({pool for pool, _ in cards}) == 1


async def test_the_pod_says_where_by_selector_taints_and_room(server: FakeAPIServer, running: Running) -> None:
    async with running():
        put_node(server, "node-2", cpu="2", zone="b")
        put_claim(server, "zoned")
        put_pod(server, "zoned", "zoned", nodeSelector={"zone": "b"})
        put_claim(server, "large")
        put_pod(server, "large", "large", cpu="5")
        await allocated(server, "zoned", "large")
        assert card(server, "zoned")[0] == "egpu/node-2"
        assert card(server, "large")[0] == "egpu/node-1"


async def test_pods_whose_claims_are_allocated_take_room_before_they_are_bound(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        for number in range(3):
            put_claim(server, f"c{number}", cores=10)
            put_pod(server, f"p{number}", f"c{number}", cpu="4")
        await allocated(server, "c0", "c1", "c2")
        assert sorted([card(server, f"c{number}")[0] for number in range(3)]).count("egpu/node-1") in (1, 2)


async def test_a_claim_that_changed_meanwhile_is_read_again_and_allocated_once(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        server.fault(method="PATCH", path="resourceclaims/one/status", status=409, reason="Conflict")
        put_claim(server, "one")
        put_pod(server, "pod", "one")
        await allocated(server, "one")
        put_claim(server, "two")
        put_pod(server, "pod2", "two")
        await allocated(server, "two")
        assert card(server, "one") == card(server, "two")


async def test_what_is_not_written_is_not_booked(server: FakeAPIServer, running: Running) -> None:
    """A write that fails for good must not keep the card from the next claim."""
    async with running():
        server.fault(method="PATCH", path="resourceclaims/bad", status=422, reason="Invalid", times=-1)
        put_claim(server, "bad", cores=100)
        put_pod(server, "bad", "bad")
        for number in range(4):
            put_claim(server, f"c{number}", cores=100)
            put_pod(server, f"p{number}", f"c{number}", created="2026-02-01T00:00:00Z")
        await allocated(server, *(f"c{number}" for number in range(4)), within_s=25)


async def test_an_answer_that_was_lost_does_not_allocate_twice(server: FakeAPIServer, running: Running) -> None:
    async with running():
        server.fault(method="PATCH", path="resourceclaims/one/status", lose_answer=True)
        put_claim(server, "one", cores=100)
        put_pod(server, "pod", "one")
        await allocated(server, "one")
        first = card(server, "one")
        put_claim(server, "two", cores=100)
        put_pod(server, "pod2", "two")
        await allocated(server, "two")
        assert card(server, "two") != first == card(server, "one")


@pytest.mark.parametrize("watch", [True, None], ids=["unwatched", "unreadable"])
async def test_a_card_whose_write_had_no_answer_is_not_given_to_another_before_it_is_known(
    server: FakeAPIServer, running: Running, watch: bool | None
) -> None:
    for name in ("zero", "one", "two"):
        put_claim(server, name, cores=100)
    async with running():
        put_pod(server, "pod0", "zero")
        await allocated(server, "zero")
        server.fault(method="GET", path="resourceclaims", watch=watch, times=-1, status=403, reason="Forbidden")
        asked = server.count("GET", "resourceclaims", watch=True)
        server.cut_streams()
        await server.until(lambda: server.count("GET", "resourceclaims", watch=True) > asked)
        server.fault(method="PATCH", path="resourceclaims/one/status", lose_answer=True)
        put_pod(server, "pod", "one")
        await allocated(server, "one")
        put_pod(server, "first", "two", created="2025-01-01T00:00:00Z")  # it is decided before the other
        await allocated(server, "two")
        assert len({card(server, name) for name in ("zero", "one", "two")}) == 3


async def test_a_write_that_is_stored_after_its_caller_gave_up_books_no_card_twice(
    server: FakeAPIServer, running: Running
) -> None:
    """The call hangs somewhere on its way, and the claim, read meanwhile, is not allocated yet."""
    for name in ("one", "two"):
        put_claim(server, name, cores=100)
    async with running():
        fault = server.fault(method="PATCH", path="resourceclaims/one/status", late=True, times=-1)
        put_pod(server, "pod", "one")
        await server.until(lambda: server.late)
        put_pod(server, "first", "two", created="2025-01-01T00:00:00Z")  # it is decided before the other
        await allocated(server, "two", within_s=60)
        asked = server.count("PATCH", "resourceclaims/one/status")
        await server.until(lambda: server.count("PATCH", "resourceclaims/one/status") > asked, within_s=60)
        fault.times = 0
        server.carry_out()
        await allocated(server, "one", within_s=60)
        assert card(server, "one") != card(server, "two")


async def test_it_stays_so_where_the_watch_has_told_of_the_finalizer_alone(
    server: FakeAPIServer, running: Running
) -> None:
    for name in ("one", "two"):
        put_claim(server, name, cores=100)
    async with running():
        await server.until(lambda: server.count("GET", "resourceclaims", watch=True))
        server.fault(method="PATCH", path="resourceclaims/one/status", delay_s=0.5, lose_answer=True)
        put_pod(server, "pod", "one")
        await server.until(lambda: server.count("PATCH", "resourceclaims/one/status"))
        await asyncio.sleep(0.1)  # the watch tells of the finalizer, and then no more
        server.fault(method="GET", path="resourceclaims", times=-1, status=403, reason="Forbidden")
        server.cut_streams()
        await allocated(server, "one")
        put_pod(server, "first", "two", created="2025-01-01T00:00:00Z")
        await allocated(server, "two")
        assert card(server, "one") != card(server, "two")


async def test_an_allocation_that_was_given_back_goes_to_another_node(server: FakeAPIServer, running: Running) -> None:
    async with running():
        put_claim(server, "one")
        put_pod(server, "pod", "one")
        await allocated(server, "one")
        before = card(server, "one")[0]
        put_claim(server, "one")  # without status, as kube-scheduler leaves it where the pod cannot run there
        await allocated(server, "one")
        assert card(server, "one")[0] != before


async def test_a_card_without_the_taint_or_with_a_fresh_one_is_left_alone(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        put_cards(server, "node-1", taints=[])
        put_cards(server, "node-2", since="2999-01-01T00:00:00Z")
        put_claim(server, "one")
        put_pod(server, "pod", "one")
        await server.until(lambda: server.list("events"), within_s=25)
        assert "no node gives its cards to the controller" in server.list("events")[0]["message"]
        assert result(server, "one") is None


async def test_a_claim_that_never_fits_is_told_so_once_on_itself_and_its_pod(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        put_claim(server, "huge", count=3)
        put_pod(server, "pod", "huge")
        put_claim(server, "fits")
        put_pod(server, "pod2", "fits", created="2026-02-01T00:00:00Z")
        await allocated(server, "fits")
        await server.until(lambda: len(server.list("events")) > 1, within_s=25)
        told = {(one["involvedObject"]["kind"], one["involvedObject"]["name"]): one for one in server.list("events")}
        assert set(told) == {("ResourceClaim", "huge"), ("Pod", "pod")}
        assert told["Pod", "pod"]["reason"] == "NeverFits"
        assert "2 nodes give cards" in told["Pod", "pod"]["message"]


async def test_a_hundred_refused_pods_are_ten_events_a_second(server: FakeAPIServer, running: Running) -> None:
    for number in range(100):
        put_claim(server, f"huge{number}", count=3)
        put_pod(server, f"pod{number}", f"huge{number}")
    async with running():
        await server.until(lambda: server.list("events"), within_s=25)
        started = asyncio.get_running_loop().time()
        await server.until(lambda: len(server.list("events")) >= 11, within_s=25)
        assert asyncio.get_running_loop().time() - started >= 0.9


async def test_a_card_that_is_cordoned_by_a_rule_is_not_given_out(server: FakeAPIServer, running: Running) -> None:
    served = {"resources": [{"name": "devicetaintrules"}]}
    server.said["/apis/resource.k8s.io/v1"] = served
    for node in ("node-1", "node-2"):
        spec = {
            "deviceSelector": {"pool": f"egpu/{node}", "device": "gpu-0"},
            "taint": {"key": "k", "effect": "NoSchedule"},
        }
        server.put(f"/apis/resource.k8s.io/v1/devicetaintrules/{node}", {"kind": "DeviceTaintRule", "spec": spec})
    far = {"deviceSelector": {"driver": "remote.gpu.elasticgpu.io"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    server.put("/apis/resource.k8s.io/v1/devicetaintrules/far", {"kind": "DeviceTaintRule", "spec": far})
    async with running():
        await server.until(lambda: server.count("GET", "devicetaintrules", watch=True))
        for number in range(2):
            put_claim(server, f"c{number}", cores=100)
            put_pod(server, f"p{number}", f"c{number}")
        await allocated(server, "c0", "c1")
    assert {card(server, f"c{number}")[1] for number in range(2)} == {"gpu-1"}


async def test_a_gang_is_allocated_when_all_of_it_is_there_and_fits_and_else_holds_nothing(
    server: FakeAPIServer, running: Running
) -> None:
    for number in range(3):
        put_claim(server, f"big{number}", count=2, cores=100)
        put_pod(server, f"big{number}", f"big{number}", gang="big", of=3)
    async with running():
        for number in range(2):
            put_claim(server, f"pair{number}", cores=100, count=2)
        put_pod(server, "pair0", "pair0", gang="pair", of=2, created="2026-02-01T00:00:00Z")
        await server.until(lambda: any("1 of 2 pods of gang pair" in one["message"] for one in server.list("events")))
        put_pod(server, "pair1", "pair1", gang="pair", of=2, created="2026-02-01T00:00:00Z")
        await allocated(server, "pair0", "pair1")
        await told(server, "gang big: 2 of 3 pods fit")
    assert not any(result(server, f"big{number}") for number in range(3))


def put_group(server: FakeAPIServer, name: str, **policy: Any) -> None:
    server.said["/apis/scheduling.k8s.io/v1beta1"] = {"resources": [{"name": "podgroups"}]}
    body = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "spec": {"schedulingPolicy": policy}}
    server.put(f"/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/{name}", body)


def put_members(server: FakeAPIServer, group: str, count: int, cores: int = 100, cards: int = 2) -> None:
    for number in range(count):
        put_claim(server, f"{group}{number}", cores=cores, count=cards)
        put_pod(server, f"{group}{number}", f"{group}{number}", schedulingGroup={"podGroupName": group})


async def test_pods_of_a_pod_group_are_allocated_when_as_many_fit_as_it_needs(
    server: FakeAPIServer, running: Running
) -> None:
    put_group(server, "g", gang={"minCount": 3})
    put_members(server, "g", 3)
    async with running():
        await told(server, "PodGroup g: 2 of 3 pods fit")
        assert not any(result(server, f"g{number}") for number in range(3))
        put_group(server, "g", gang={"minCount": 2})
        await server.until(lambda: sum(bool(result(server, f"g{number}")) for number in range(3)) == 2, within_s=60)


async def test_pods_of_a_pod_group_without_a_gang_are_allocated_one_by_one(
    server: FakeAPIServer, running: Running
) -> None:
    put_group(server, "g", basic={})
    async with running():
        put_members(server, "g", 3)
        await server.until(lambda: sum(bool(result(server, f"g{number}")) for number in range(3)) == 2, within_s=60)


async def test_where_there_are_no_pod_groups_their_pods_wait_and_are_told_and_others_do_not(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        put_members(server, "g", 1)
        await told(server, "PodGroup g is not there")
        put_claim(server, "one")
        put_pod(server, "pod", "one", created="2026-02-01T00:00:00Z")
        await allocated(server, "one")
        assert not server.count("GET", "podgroups")
        assert result(server, "g0") is None


async def test_what_kube_scheduler_gives_back_of_a_pod_group_before_it_has_seen_all_goes_to_the_same_node_once_more(
    server: FakeAPIServer, running: Running
) -> None:
    server.remove("/api/v1/nodes/node-2")
    server.remove(f"{SLICES}/slice-node-2")
    put_group(server, "g", gang={"minCount": 2})
    put_members(server, "g", 2, cards=1)
    async with running():
        await allocated(server, "g0", "g1", within_s=60)
        put_claim(server, "g0", cores=100)  # without status, as kube-scheduler leaves it
        await allocated(server, "g0", within_s=60)
        put_claim(server, "g0", cores=100)
        await told(server, "kube-scheduler gave the allocation there back")
        assert result(server, "g0") is None


async def test_small_claims_do_not_take_for_ever_what_a_large_one_waits_for(
    server: FakeAPIServer, running: Running
) -> None:
    """Each node has one card free; the large one needs both of a node."""
    put_class(server, policy="Spread")
    async with running():
        for number in range(2):
            put_claim(server, f"first{number}", cores=100)
            put_pod(server, f"first{number}", f"first{number}")
        await allocated(server, "first0", "first1")
        put_claim(server, "large", cores=100, count=2)
        put_pod(server, "large", "large")
        await server.until(lambda: server.list("events"), within_s=25)
        for number in range(2):
            put_claim(server, f"small{number}", cores=100)
            put_pod(server, f"small{number}", f"small{number}", created="2999-01-01T00:00:00Z")
        kept = "keeping the node for pod default/large"
        await server.until(lambda: any(kept in one["message"] for one in server.list("events")))
        await server.until(lambda: result(server, "small0") or result(server, "small1"))
        (free,) = {f"egpu/node-{number}" for number in (1, 2)} - {card(server, _small(server))[0]}
        (holder,) = [name for name in ("first0", "first1") if card(server, name)[0] == free]
        server.remove(f"{PODS}/{holder}")
        put_claim(server, holder)  # without status, as it is freed when its pod is gone
        await allocated(server, "large")
        assert card(server, "large")[0] == free


def _small(server: FakeAPIServer) -> str:
    (found,) = [name for name in ("small0", "small1") if result(server, name)]
    return found


async def test_two_controllers_book_no_card_twice(server: FakeAPIServer, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(controller_of(server, tmp_path))
        await stack.enter_async_context(controller_of(server, tmp_path, "two"))
        for number in range(4):
            put_claim(server, f"c{number}", cores=100)
            put_pod(server, f"p{number}", f"c{number}")
            if number == 1:
                await allocated(server, "c0", "c1")
                first.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await first
        await allocated(server, *(f"c{number}" for number in range(4)), within_s=60)
    assert len({card(server, f"c{number}") for number in range(4)}) == 4


async def test_a_leader_that_is_lost_between_choice_and_write_leaves_the_card_to_the_next(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """Its write is on its way when it ends, and arrives when the other has chosen anew: refused, for the claim is another by then."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(controller_of(server, tmp_path))
        put_claim(server, "one", cores=100)
        server.fault(method="PATCH", path="resourceclaims/one/status", late=True, times=-1)
        put_pod(server, "pod", "one")
        await server.until(lambda: server.late, within_s=60)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        server.heal()
        put_claim(server, "two", cores=100)
        put_pod(server, "before", "two", created="2025-01-01T00:00:00Z")  # it is decided first, for the same card
        await stack.enter_async_context(controller_of(server, tmp_path, "two"))
        await allocated(server, "one", "two", within_s=60)
        chosen = card(server, "one")
        server.carry_out()
        assert card(server, "one") == chosen != card(server, "two")


async def test_a_server_that_has_no_time_for_writes_is_asked_again_when_it_says(
    server: FakeAPIServer, running: Running
) -> None:
    async with running():
        busy = {"status": 429, "reason": "TooManyRequests", "retry_after": "1", "times": 3}
        server.fault(method="PATCH", path="resourceclaims/one", **busy)
        put_claim(server, "one", cores=100)
        put_pod(server, "pod", "one")
        await allocated(server, "one", within_s=60)
        put_claim(server, "two", cores=100)
        put_pod(server, "pod2", "two")
        await allocated(server, "two", within_s=60)
        assert card(server, "one") != card(server, "two")
