"""Cards and claims -> ElasticGPU objects and series, all of it real but the API server."""

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller import __main__ as controller
from controller import observer, settings, watcher
from kube import apiserver
from tests.cli.conftest import put
from tests.fakes import ports
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import (
    JSON,
    a_card,
    a_claim,
    a_driver,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_node,
    a_pod,
    a_pool,
    a_result,
    a_rule,
    a_slice,
    name_of,
)

GPUS = "/apis/elasticgpu.io/v1alpha1/elasticgpus"


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        yield server


@contextlib.asynccontextmanager
async def running(server: FakeAPIServer, folder: Path, port: int = 0, *, remote: bool = False) -> AsyncIterator[None]:
    """A whole controller, stopped as SIGTERM stops it."""
    async with apiserver.APIServer.connect(server.kubeconfig(folder)) as api:
        given = settings.Settings(namespace="egpu", pod_name="one", port=port, page_port=0, remote=remote)
        task = asyncio.create_task(controller.serve(api, given), name="controller")
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def shown(server: FakeAPIServer, number: int) -> JSON:
    found: JSON = (server.get(f"{GPUS}/{name_of(number)}") or {}).get("status", {})
    return found


async def test_a_card_is_shown_free_then_held_then_free_then_gone(server: FakeAPIServer, tmp_path: Path) -> None:
    put(server, a_slice(a_card(1), a_card(2)))
    async with running(server, tmp_path):
        await server.until(lambda: shown(server, 1).get("state") == "Free", within_s=60)
        put(server, a_claim("c", a_result(1), pods=("pod",)), a_pod(claim="c"))
        await server.until(lambda: shown(server, 1).get("heldBy") == "ml/pod", within_s=60)
        assert shown(server, 2)["state"] == "Free"
        server.remove("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c")
        await server.until(lambda: shown(server, 1).get("state") == "Free", within_s=60)
        put(server, a_slice(a_card(1)))
        await server.until(lambda: not shown(server, 2), within_s=60)
    assert server.count("PATCH", GPUS) == 4


async def test_the_objects_of_the_cards_are_listed_when_the_first_picture_is_there(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    put(server, a_slice(a_card(1)))
    async with running(server, tmp_path):
        await server.until(lambda: shown(server, 1).get("state") == "Free", within_s=60)
    asked = [request.path.rpartition("/")[2] for request in server.requests if request.method == "GET"]
    first = {kind: asked.index(kind) for kind in ("elasticgpus", "resourceclaims", "pods", "nodes", "resourceslices")}
    assert max(first, key=first.__getitem__) == "elasticgpus"


async def test_a_card_that_somebody_tainted_by_a_rule_is_blocked(server: FakeAPIServer, tmp_path: Path) -> None:
    server.said["/apis/resource.k8s.io/v1"] = {"resources": [{"name": "devicetaintrules"}]}
    put(server, a_slice(a_card(1), a_card(2)))
    async with running(server, tmp_path):
        await server.until(lambda: shown(server, 2).get("state") == "Free", within_s=60)
        server.put("/apis/resource.k8s.io/v1/devicetaintrules/r", a_rule("r", device=name_of(2)))
        await server.until(lambda: shown(server, 2).get("state") == "Blocked", within_s=60)
        assert shown(server, 1)["state"] == "Free"


async def test_a_change_by_hand_is_undone(server: FakeAPIServer, tmp_path: Path) -> None:
    put(server, a_slice(a_card(1)))
    async with running(server, tmp_path):
        await server.until(lambda: shown(server, 1), within_s=60)
        found = server.get(f"{GPUS}/{name_of(1)}") or {}
        server.put(f"{GPUS}/{name_of(1)}", found | {"status": found["status"] | {"state": "Held"}})
        await server.until(lambda: shown(server, 1)["state"] == "Free", within_s=60)


async def test_an_object_that_keeps_less_than_was_written_is_let_be_until_its_card_changes(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """With CRDs of an older version; else the same cards were written for ever, and others never."""
    server.drops("elasticgpus:status.place")
    put(server, a_slice(a_card(1), a_card(2)))
    async with running(server, tmp_path):
        for number in range(3):
            claim = f"c{number}"
            put(server, a_claim(claim, a_result(1), pods=("pod",)), a_pod(claim=claim))
            await server.until(lambda: shown(server, 1).get("heldBy") == "ml/pod", within_s=60)
            server.remove(f"/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/{claim}")
            await server.until(lambda: shown(server, 1).get("state") == "Free", within_s=60)
        assert shown(server, 2)["state"] == "Free"
        assert "place" not in shown(server, 2)
    assert server.count("PATCH", f"{GPUS}/{name_of(2)}") <= 2


async def test_without_the_right_to_list_claims_nothing_is_written_and_classes_go_on(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    server.fault(path="resourceclaims", status=403, reason="Forbidden", times=-1)
    put(server, a_slice(a_card(1)))
    async with running(server, tmp_path):
        server.put(
            "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses/x.example.com",
            {"kind": "ElasticGPUClass", "spec": {"backend": "Whole"}},
        )
        await server.until(lambda: server.list("deviceclasses"), within_s=60)
    assert server.list("elasticgpus") == []


async def test_the_first_picture_waits_for_what_is_being_listed_and_for_nothing_that_cannot_be(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """Each list that came later made all of a large cluster's picture anew."""
    put(server, a_slice(a_card(1)), a_claim("c", a_result(1)), a_node(), a_driver())
    server.fault(path="/pods", status=403, reason="Forbidden", times=-1)
    server.fault(path="resourceclaims", watch=False, delay_s=1.0)
    seen: list[observer.Scene] = []
    async with apiserver.APIServer.connect(server.kubeconfig(tmp_path)) as api, asyncio.TaskGroup() as group:
        watch = watcher.Watcher(api)
        look = observer.Observer(api, watch)
        tasks = [group.create_task(watch.run(lambda _: None)), group.create_task(look.run(seen.append))]
        await server.until(lambda: seen, within_s=30)
        for task in tasks:
            task.cancel()
    first = seen[0].seen
    assert (first.slices.unknown, first.claims.unknown, first.nodes.unknown) == ("", "", "")
    assert first.pods.unknown == "not listed yet"


async def test_an_object_that_was_written_makes_no_new_picture(server: FakeAPIServer, tmp_path: Path) -> None:
    """They are written a hundred a second while a large cluster comes up."""
    put(server, a_slice(a_card(1)), a_node(), a_driver())
    seen: list[observer.Scene] = []
    async with apiserver.APIServer.connect(server.kubeconfig(tmp_path)) as api, asyncio.TaskGroup() as group:
        watch = watcher.Watcher(api)
        look = observer.Observer(api, watch)
        tasks = [group.create_task(watch.run(lambda _: None)), group.create_task(look.run(seen.append))]
        await server.until(lambda: server.watching == 8, within_s=30)
        before, last = None, await look.newer(0, within_s=30)
        while last is not before:  # until nothing is new
            before, last = last, await look.newer(last.number, within_s=6)
        server.put(f"{GPUS}/{name_of(1)}", {})
        after = await look.newer(before.number, within_s=30)
        while not after.gpus:
            after = await look.newer(after.number, within_s=30)
        put(server, a_slice(a_card(1), a_card(2)))
        last = await look.newer(after.number, within_s=30)
        for task in tasks:
            task.cancel()
    assert after.view is before.view
    assert last.view is not after.view


async def test_the_sums_are_series_and_nothing_unknown_is_0(server: FakeAPIServer, tmp_path: Path) -> None:
    put(server, a_slice(a_card(1), a_card(2)), a_claim("c", a_result(1)), a_node(), a_driver())
    put(server, a_pod("late", claim="gone", phase="Pending"))
    port = ports.free()
    async with running(server, tmp_path, port):
        text = await _until_told(port, 'elasticgpu_problems{kind="ClaimUnused"} 1.0')
    assert 'elasticgpu_waiting_pods{reason="ClaimMissing"} 1.0' in text
    assert 'elasticgpu_waiting_pods{reason="WaitsForCard"} 0.0' in text
    model = 'model="NVIDIA H100 80GB HBM3"'
    assert f'elasticgpu_cards{{{model},state="Held"}} 1.0' in text
    assert f"elasticgpu_memory_free_bytes{{{model}}} 8.589934592e+10" in text
    assert 'elasticgpu_node_cards{node="node1",state="Free"} 1.0' in text
    assert 'namespace="ml"' not in text, "names are for who may have them"
    assert "ClassNotReady" not in text


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


async def test_remote_cards_are_shown_and_counted_with_the_leases_that_hold_them(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """Another replica leads, which writes; this one shows what it sees."""
    lead = {"kind": "Lease", "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}
    server.put("/apis/coordination.k8s.io/v1/namespaces/egpu/leases/elastic-gpu-controller", lead)
    put(
        server,
        a_slice(a_card(1)),
        a_far_slice(a_card(2), a_card(3)),
        a_pool(),
        a_far_claim("c", 2),
        a_lease(2, claim="c"),
    )
    port = ports.free()
    async with running(server, tmp_path, port, remote=True):
        text = await _until_told(port, 'elasticgpu_problems{kind="LeaseUnclaimed"} 0.0')  # once all is listed
        assert 'elasticgpu_pool_cards{pool="lab",state="Held"} 1.0' in text
        assert 'elasticgpu_pool_cards{pool="lab",state="Free"} 1.0' in text
        assert 'elasticgpu_cards{model="NVIDIA H100 80GB HBM3",state="Free"} 2.0' in text, "near and far together"
        assert 'elasticgpu_node_cards{node="lab"' not in text
        server.remove("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c")
        await _until_told(port, 'elasticgpu_problems{kind="LeaseUnclaimed"} 1.0')


async def test_what_was_left_of_remote_cards_is_shown_where_they_are_off(server: FakeAPIServer, tmp_path: Path) -> None:
    put(server, a_far_slice(a_card(2)))
    async with running(server, tmp_path):
        await server.until(lambda: shown(server, 2).get("place") == "pool/lab", within_s=60)
    assert server.count("GET", "remotepools") == server.count("GET", "remoteleases") == 0


async def _until_told(port: int, wanted: str) -> str:
    """A scrape that has the line."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                if wanted in (text := await asyncio.to_thread(_scrape, port)):
                    return text
            await asyncio.sleep(0.1)
