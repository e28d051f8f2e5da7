"""Slices as wanted, whoever changes them: deleted, altered, dropped fields, fights, outages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api.resource import Device, Pool, RequestPolicy, Taint
from kube import slices
from kube.apiserver import APIServer
from kube.publisher import Publisher
from kube.slices import Scope
from tests.fakes.apiserver import FakeAPIServer

SCOPE = Scope(driver="gpu.example.io", node_name="n1", node_uid="u1")
WELL = Device(name="well", attributes=(("kind", "a"),))
SICK = Device(name="sick", taints=(Taint(key="example.io/sick", effect="NoSchedule"),))
POLICY = RequestPolicy(default=100, least=0, step=1)
POOL = Pool(name="egpu/n1", devices=(WELL,))
NAME = slices.slice_name(SCOPE, POOL.name, 0)
PATH = f"{slices.PATH}/{NAME}"
NODE = "/api/v1/nodes/n1"


@pytest.fixture(autouse=True)
def node(server: FakeAPIServer) -> None:
    server.put(NODE, {"metadata": {"uid": SCOPE.node_uid}})


@dataclass
class Running:
    publisher: Publisher
    dropped: list[frozenset[str]] = field(default_factory=list)


@contextlib.asynccontextmanager
async def publishing(
    server: FakeAPIServer, folder: Path, *pools: Pool, begin: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[Running]:
    async with APIServer.connect(server.kubeconfig(folder)) as api:
        told: list[frozenset[str]] = []

        async def on_dropped(fields: frozenset[str]) -> None:
            told.append(fields)

        publisher = Publisher(api, SCOPE, on_dropped, begin)
        if pools:
            publisher.want(pools)
        task = asyncio.create_task(publisher.run(), name="publisher")
        try:
            yield Running(publisher, told)
        finally:
            task.cancel()
            await asyncio.wait([task])


def devices(server: FakeAPIServer) -> list[str]:
    return [device["name"] for item in server.list("resourceslices") for device in item["spec"].get("devices", [])]


def writes(server: FakeAPIServer) -> int:
    return sum(request.method != "GET" and "dryRun" not in request.query for request in server.requests)


async def quiet(server: FakeAPIServer, *, for_s: float = 0.4) -> int:
    """Lets everything settle; how many calls came in meanwhile."""
    before = len(server.requests)
    await asyncio.sleep(for_s)
    return len(server.requests) - before


async def test_a_pool_is_published_at_once_and_then_nothing_is_written(server: FakeAPIServer, tmp_path: Path) -> None:
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"])
        await server.until(lambda: server.watching)
        assert await quiet(server) == 0
        assert writes(server) == 1


async def test_the_first_slice_waits_for_its_beginning_and_no_other_does(server: FakeAPIServer, tmp_path: Path) -> None:
    begun, began = asyncio.Event(), asyncio.Event()

    async def begin() -> None:
        began.set()
        await begun.wait()

    async with publishing(server, tmp_path, POOL, begin=begin):
        await asyncio.wait_for(began.wait(), 60)
        await quiet(server)
        assert writes(server) == 0
        begun.set()
        await server.until(lambda: devices(server) == ["well"])
    began.clear()
    async with publishing(server, tmp_path, Pool(name="egpu/n1", devices=(WELL, SICK)), begin=begin):
        await server.until(lambda: devices(server) == ["well", "sick"])
        assert not began.is_set()


async def test_a_restart_writes_nothing(server: FakeAPIServer, tmp_path: Path) -> None:
    """NVIDIA's driver: the slice was rewritten at each restart."""
    pool = Pool(name="egpu/n1", devices=(*(Device(name=f"d{n}") for n in range(200)), SICK))
    async with publishing(server, tmp_path, pool):
        await server.until(lambda: len(devices(server)) == 201)
    before = writes(server)
    async with publishing(server, tmp_path, pool):
        await server.until(lambda: server.watching)
        await quiet(server)
        assert writes(server) == before


async def test_nothing_is_touched_before_something_is_wanted(server: FakeAPIServer, tmp_path: Path) -> None:
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"])
    async with publishing(server, tmp_path) as running:
        await server.until(lambda: server.watching)
        await quiet(server)
        assert devices(server) == ["well"]
        running.publisher.want(())
        await server.until(lambda: devices(server) == [])


async def test_a_deleted_slice_is_back_however_often_and_whenever(server: FakeAPIServer, tmp_path: Path) -> None:
    """Go's helper: after an update within a minute it never came back."""
    async with publishing(server, tmp_path, POOL) as running:
        await server.until(lambda: devices(server) == ["well"])
        for number in range(5):
            name = f"d{number}"
            running.publisher.want((Pool(name="egpu/n1", devices=(Device(name=name),)),))
            await server.until(lambda: devices(server) == [name], within_s=9)  # noqa: B023
            server.remove(PATH)
            await server.until(lambda: devices(server) == [name], within_s=9)  # noqa: B023
            server.remove(PATH)
            await server.until(lambda: devices(server) == [name], within_s=9)  # noqa: B023


async def test_a_slice_deleted_while_the_watch_is_down_is_back(server: FakeAPIServer, tmp_path: Path) -> None:
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: server.watching)
        await server.until(lambda: devices(server) == ["well"])
        await server.stop()
        server.remove(PATH)
        server.compact()
        await server.start()
        await server.until(lambda: devices(server) == ["well"], within_s=9)


async def test_a_slice_altered_by_hand_is_put_right(server: FakeAPIServer, tmp_path: Path) -> None:
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"])
        altered = server.get(PATH)
        assert altered is not None
        server.put(PATH, altered | {"spec": altered["spec"] | {"devices": []}})
        await server.until(lambda: devices(server) == ["well"], within_s=9)


async def test_only_the_own_drivers_slices_of_this_node_are_touched(server: FakeAPIServer, tmp_path: Path) -> None:
    place = {"name": "x", "generation": 1, "resourceSliceCount": 1}
    for name, spec in {
        "other": {"driver": "other", "nodeName": "n1"},
        "far": {"driver": SCOPE.driver, "nodeName": "n2"},
    }.items():
        server.put(f"{slices.PATH}/{name}", {"spec": spec | {"pool": place}})
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"])
        await quiet(server)
        assert writes(server) == 1


async def test_a_failed_publication_is_retried(server: FakeAPIServer, tmp_path: Path) -> None:
    """NV#904."""
    server.fault(method="POST", status=500, reason="InternalError", times=2)
    server.fault(method="POST", status=422, reason="Invalid", times=1)
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"], within_s=9)


async def test_new_wishes_do_not_wait_for_the_retry_of_old_ones(server: FakeAPIServer, tmp_path: Path) -> None:
    refusal = server.fault(method="POST", status=422, reason="Invalid", times=-1)
    async with publishing(server, tmp_path, POOL) as running:
        await server.until(lambda: server.count("POST") >= 8, within_s=60)  # the next pause is one of 6 s or more
        refusal.times = 0
        running.publisher.want((Pool(name="egpu/n1", devices=(Device(name="new"),)),))
        await server.until(lambda: devices(server) == ["new"], within_s=5.5)


async def test_a_creation_whose_answer_is_lost_makes_one_slice(server: FakeAPIServer, tmp_path: Path) -> None:
    server.fault(method="POST", lose_answer=True)
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"])
        await server.until(lambda: server.watching)
        await quiet(server)
        assert devices(server) == ["well"]


async def test_a_conflict_is_resolved_by_what_is_there_now(server: FakeAPIServer, tmp_path: Path) -> None:
    async with publishing(server, tmp_path, POOL) as running:
        await server.until(lambda: devices(server) == ["well"])
        server.fault(method="PUT", status=409, reason="Conflict", times=2)
        running.publisher.want((Pool(name="egpu/n1", devices=(Device(name="new"),)),))
        await server.until(lambda: devices(server) == ["new"], within_s=9)


async def test_a_server_without_taints_never_gets_a_sick_device(server: FakeAPIServer, tmp_path: Path) -> None:
    """1.34 stores slices without their taints. The sick card must not look well for a moment."""
    server.drops("devices.taints")
    seen: list[list[str]] = []

    def look() -> list[str]:
        seen.append(devices(server))
        return seen[-1]

    async with publishing(server, tmp_path, Pool(name="egpu/n1", devices=(WELL, SICK))) as running:
        await server.until(lambda: look() == ["well"])
        await server.until(lambda: server.watching and running.dropped)
        await quiet(server)
        assert writes(server) == 1
        assert all("sick" not in names for names in seen)
        assert running.dropped == [frozenset({"devices.taints"})]
        assert server.count("POST") <= 3  # one real, the others dry runs


async def test_a_server_that_learns_taints_gets_them_after_a_reconnect(server: FakeAPIServer, tmp_path: Path) -> None:
    server.drops("devices.taints")
    async with publishing(server, tmp_path, Pool(name="egpu/n1", devices=(WELL, SICK))) as running:
        await server.until(lambda: devices(server) == ["well"])
        await server.until(lambda: server.watching)
        await server.stop()
        server.drops()
        await server.start()
        await server.until(lambda: devices(server) == ["well", "sick"])
        assert running.dropped == [frozenset({"devices.taints"}), frozenset()]


async def test_harmless_losses_are_noticed_and_make_no_loop(server: FakeAPIServer, tmp_path: Path) -> None:
    server.drops("devices.attributes.string")
    async with publishing(server, tmp_path, POOL) as running:
        await server.until(lambda: bool(running.dropped))
        await server.until(lambda: server.watching)
        await quiet(server)
        assert running.dropped == [frozenset({"devices.attributes.string"})]
        assert writes(server) == 1


async def test_without_dry_runs_tainted_devices_are_withheld(server: FakeAPIServer, tmp_path: Path) -> None:
    server.fault(method="POST", status=400, reason="BadRequest", message="webhook does not support dry run")
    async with publishing(server, tmp_path, Pool(name="egpu/n1", devices=(WELL, SICK))):
        await server.until(lambda: devices(server) == ["well"])


async def test_somebody_who_fights_us_slows_us_down_but_does_not_stop_us(server: FakeAPIServer, tmp_path: Path) -> None:
    async with publishing(server, tmp_path, POOL) as running:
        await server.until(lambda: devices(server) == ["well"])

        async def fight() -> None:
            while True:
                await server.until(lambda: devices(server) == ["well"], within_s=60)
                server.remove(PATH)

        fighting = asyncio.create_task(fight(), name="fight")
        await asyncio.sleep(2)
        assert writes(server) <= 13
        fighting.cancel()
        await asyncio.wait([fighting])
        running.publisher.want((Pool(name="egpu/n1", devices=(Device(name="new"),)),))
        await server.until(lambda: devices(server) == ["new"], within_s=9)


async def test_a_missing_right_is_named_and_its_granting_is_noticed(server: FakeAPIServer, tmp_path: Path) -> None:
    refusal = server.fault(status=403, reason="Forbidden", message='User "u" cannot list resource', times=-1)
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: server.count("GET") >= 2)
        refusal.times = 0
        await server.until(lambda: devices(server) == ["well"], within_s=9)


async def test_a_restart_writes_nothing_where_all_stands_that_the_server_keeps(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """Seen on Kubernetes 1.34: each new process sent the fields again that were dropped before it."""
    shared = Device(name="shared", shareable=True, capacity=(("cores", 100),), policies=(("cores", POLICY),))
    server.drops("devices.allowMultipleAllocations", "devices.capacity.requestPolicy")
    for _ in range(2):
        async with publishing(server, tmp_path, Pool(name="egpu/n1", devices=(shared,))) as running:
            await server.until(lambda: server.watching and running.dropped)
            await quiet(server)
            assert slices.unshared(running.dropped[-1])
            assert writes(server) == 1
            assert server.list("resourceslices")[0]["metadata"]["generation"] == 1


async def test_a_server_that_stores_no_shares_gets_whole_devices_and_no_endless_writes(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """7b: a 1.34 server, and the day its feature gates are switched on."""
    shared = Device(name="shared", shareable=True, capacity=(("cores", 100),), policies=(("cores", POLICY),))
    server.drops("devices.allowMultipleAllocations", "devices.capacity.requestPolicy")
    async with publishing(server, tmp_path, Pool(name="egpu/n1", devices=(shared,))) as running:
        await server.until(lambda: bool(running.dropped))
        await server.until(lambda: server.watching)
        await quiet(server)
        assert slices.unshared(running.dropped[-1])
        assert writes(server) == 1
        assert server.list("resourceslices")[0]["spec"]["devices"] == [
            {"name": "shared", "capacity": {"cores": {"value": "100"}}}
        ]
        await server.stop()
        server.drops()
        await server.start()
        await server.until(lambda: "allowMultipleAllocations" in server.list("resourceslices")[0]["spec"]["devices"][0])
        assert running.dropped[-1] == frozenset()


def owners(server: FakeAPIServer) -> list[str]:
    return [item["metadata"]["ownerReferences"][0]["uid"] for item in server.list("resourceslices")]


async def test_a_node_that_is_made_anew_owns_the_slices_that_come_back(server: FakeAPIServer, tmp_path: Path) -> None:
    """What a dead owner owns is collected as garbage: made again with that owner it would be deleted for ever."""
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: owners(server) == ["u1"])
        server.remove(NODE)
        server.remove(PATH)
        await quiet(server)
        assert owners(server) == [], "no slices without a node"
        server.put(NODE, {"metadata": {"uid": "u2"}})
        await server.until(lambda: owners(server) == ["u2"], within_s=9)
        await quiet(server)
        assert owners(server) == ["u2"]


async def test_after_an_outage_slices_are_put_right_as_soon_as_the_server_is_back(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with publishing(server, tmp_path, POOL):
        await server.until(lambda: devices(server) == ["well"])
        await server.until(lambda: server.watching)
        await server.stop()
        await asyncio.sleep(12)  # long enough for pauses of ten seconds
        server.remove(PATH)
        await server.start()
        await server.until(lambda: devices(server) == ["well"], within_s=6)
