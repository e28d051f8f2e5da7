"""Objects -> DeviceClasses and conditions, all of it real but the API server."""

import asyncio
import contextlib
import datetime
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controller import __main__ as controller
from controller import metrics, reconciler, settings, snapshot, watcher
from kube import apiserver
from tests.controller import objects
from tests.fakes.apiserver import FakeAPIServer

CLASSES = "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
Running = Callable[..., contextlib.AbstractAsyncContextManager[asyncio.Task[None]]]


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        yield server


@contextlib.asynccontextmanager
async def controller_of(server: FakeAPIServer, folder: Path, name: str = "one") -> AsyncIterator[asyncio.Task[None]]:
    """A whole controller, stopped as SIGTERM stops it."""
    given = settings.Settings(namespace="egpu", pod_name=name, port=0, page_port=0)
    async with apiserver.APIServer.connect(server.kubeconfig(folder)) as api:
        task = asyncio.create_task(controller.serve(api, given), name=f"controller {name}")
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def running(server: FakeAPIServer, tmp_path: Path) -> Running:
    return functools.partial(controller_of, server, tmp_path)


def put_class(server: FakeAPIServer, name: str = objects.NAME, **spec: Any) -> None:
    data = objects.a_class(name, **spec)
    held = server.get(f"{CLASSES}/{name}")
    if held:
        data["status"] = held.get("status", {})
    server.put(f"{CLASSES}/{name}", data)


def condition(server: FakeAPIServer, type_: str, name: str = objects.NAME) -> tuple[str, str, str]:
    data = server.get(f"{CLASSES}/{name}") or {}
    for found in data.get("status", {}).get("conditions", ()):
        if found["type"] == type_:
            return found["status"], found["reason"], found["message"]
    return "", "", ""


async def ready(server: FakeAPIServer, status: str = "True", name: str = objects.NAME) -> None:
    await server.until(lambda: condition(server, "Ready", name)[0] == status)


async def test_a_class_becomes_a_device_class_and_says_so(server: FakeAPIServer, running: Running) -> None:
    server.put(f"{SLICES}/s1", objects.a_slice(objects.a_device("gpu-1"), objects.a_device("gpu-2")))
    async with running():
        await server.until(lambda: server.count("GET", SLICES, watch=True))
        put_class(server, workloadTypes=["training"], cards={"minMemory": "24Gi"})
        await ready(server)
    made = server.get(f"{DEVICE_CLASSES}/{objects.NAME}")
    assert made
    assert made["metadata"]["ownerReferences"][0]["name"] == objects.NAME
    assert made["spec"]["selectors"][0]["cel"]["expression"].startswith('device.driver == "gpu.elasticgpu.io" && ')
    assert condition(server, "Matching") == ("True", "CardsFound", "2 matching")


async def test_nothing_is_written_over_a_restart(server: FakeAPIServer, running: Running) -> None:
    put_class(server)
    async with running():
        await ready(server)
    writes = sum(server.count(method, "classes") for method in ("POST", "PATCH", "DELETE"))
    assert writes == 2
    async with running("two"):
        await server.until(lambda: server.count("PUT", "leases") + server.count("PATCH", "leases"))
        server.put(f"{SLICES}/s1", objects.a_slice(objects.a_device("gpu-1")))
        await server.until(lambda: condition(server, "Matching")[0] == "True")
    assert sum(server.count(method, "classes") for method in ("POST", "PATCH", "DELETE")) == 3


async def test_a_device_class_deleted_by_hand_comes_back(server: FakeAPIServer, running: Running) -> None:
    put_class(server)
    async with running():
        await ready(server)
        server.remove(f"{DEVICE_CLASSES}/{objects.NAME}")
        await server.until(lambda: server.get(f"{DEVICE_CLASSES}/{objects.NAME}"))


async def test_a_device_class_changed_by_hand_is_put_right(server: FakeAPIServer, running: Running) -> None:
    put_class(server)
    async with running():
        await ready(server)
        made = server.get(f"{DEVICE_CLASSES}/{objects.NAME}")
        assert made
        server.put(f"{DEVICE_CLASSES}/{objects.NAME}", made | {"spec": {"extendedResourceName": "example.com/gpu"}})
        await server.until(lambda: (server.get(f"{DEVICE_CLASSES}/{objects.NAME}") or {})["spec"] == made["spec"])


async def test_a_hand_made_device_class_is_left_alone_until_it_is_gone(server: FakeAPIServer, running: Running) -> None:
    server.put(f"{DEVICE_CLASSES}/{objects.NAME}", objects.a_device_class(selectors=[]))
    put_class(server)
    async with running():
        await ready(server, "False")
        assert condition(server, "Ready")[1] == "NameTaken"
        server.remove(f"{DEVICE_CLASSES}/{objects.NAME}")
        await ready(server)


async def test_a_class_that_asks_for_what_is_not_built_loses_its_device_class(
    server: FakeAPIServer, running: Running
) -> None:
    put_class(server)
    async with running():
        await ready(server)
        put_class(server, backend="Remote")
        await ready(server, "False")
        await server.until(lambda: server.get(f"{DEVICE_CLASSES}/{objects.NAME}") is None)
    assert condition(server, "Ready")[1] == "NotImplemented"


async def test_a_class_of_shares_becomes_a_device_class_whose_config_says_so(
    server: FakeAPIServer, running: Running
) -> None:
    put_class(server, backend="Share", share={"memory": "BestEffort"})
    async with running():
        await ready(server)
    [config] = (server.get(f"{DEVICE_CLASSES}/{objects.NAME}") or {})["spec"]["config"]
    assert (config["opaque"]["parameters"]["kind"], config["opaque"]["parameters"]["memory"]) == (
        "ShareConfig",
        "BestEffort",
    )


async def test_the_servers_words_about_a_cel_text_become_the_condition(server: FakeAPIServer, running: Running) -> None:
    words = "spec.selectors[1].cel.expression: Invalid value: compilation failed"
    refusal = server.fault(method="POST", path="deviceclasses", status=422, reason="Invalid", message=words, times=-1)
    put_class(server, cards={"expression": "device."})
    async with running():
        await ready(server, "False")
        assert condition(server, "Ready")[1] == "Refused"
        assert words in condition(server, "Ready")[2]
        assert server.count("POST", "deviceclasses") == 1
        refusal.times = 0
        put_class(server, cards={"expression": "true"})
        await ready(server)


async def test_a_write_that_got_no_answer_is_decided_anew(server: FakeAPIServer, running: Running) -> None:
    server.fault(method="POST", path="deviceclasses", lose_answer=True)
    put_class(server)
    async with running():
        await ready(server)


async def test_the_controller_goes_on_when_the_api_server_comes_back(server: FakeAPIServer, running: Running) -> None:
    put_class(server)
    async with running() as task:
        await ready(server)
        await server.stop()
        put_class(server, "debug.example.com")
        await server.start()
        await server.until(lambda: condition(server, "Ready", "debug.example.com")[0] == "True", within_s=60)
        assert not task.done()


async def test_of_two_controllers_one_writes_and_the_other_takes_over_at_once(
    server: FakeAPIServer, running: Running
) -> None:
    """The first is stopped as by SIGTERM: it gives the lease back before it ends."""
    async with contextlib.AsyncExitStack() as later:
        async with running("one"):
            put_class(server)
            await ready(server)
            await later.enter_async_context(running("two"))
            await server.until(lambda: server.count("GET", "leases") > 1)
            put_class(server, "second.example.com")
            await ready(server, name="second.example.com")
            assert holder(server) == "one"
        put_class(server, "third.example.com")
        await ready(server, name="third.example.com")
        assert holder(server) == "two"
    assert server.count("POST", "deviceclasses") == 3


def holder(server: FakeAPIServer) -> str:
    name: str = server.list("leases")[0]["spec"]["holderIdentity"]
    return name.partition("_")[0]


async def test_a_resource_name_that_an_older_server_drops_is_told(server: FakeAPIServer, running: Running) -> None:
    server.drops("deviceclasses:extendedResourceName")
    put_class(server, extendedResourceName="nvidia.com/gpu")
    async with running():
        await ready(server, "False")
    status, reason, message = condition(server, "Ready")
    assert (status, reason) == ("False", "Refused")
    assert "did not store spec.extendedResourceName" in message


async def test_while_cards_come_one_by_one_their_number_is_written_now_and_then_and_the_last_one_in_the_end(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    shown, loop = asyncio.Condition(), asyncio.get_running_loop()
    latest: list[snapshot.Snapshot] = []

    async def until(count: int) -> None:
        async with asyncio.timeout(60), shown:
            await shown.wait_for(lambda: latest and sum(latest[-1].cards.values()) == count)

    def show(now: snapshot.Snapshot) -> None:
        latest.append(now)
        told.append(loop.create_task(tell()))

    async def tell() -> None:
        async with shown:
            shown.notify_all()

    told: list[asyncio.Task[None]] = []
    put_class(server)
    async with apiserver.APIServer.connect(server.kubeconfig(tmp_path)) as api:
        watch = watcher.Watcher(api)
        work = reconciler.Reconciler(api, watch, metrics.Metrics(), lambda: datetime.datetime.now(datetime.UTC))
        tasks = [asyncio.create_task(watch.run(show)), asyncio.create_task(work.run())]
        await ready(server)
        started, before = loop.time(), server.count("PATCH", "/status")
        for number in range(30):
            server.put(
                f"{SLICES}/s{number}", objects.a_slice(objects.a_device("gpu"), pool=f"p{number}", name=f"s{number}")
            )
            await until(number + 1)
        took_s = loop.time() - started
        assert server.count("PATCH", "/status") - before <= 2 + took_s / 5  # it went from none to one, too
        await server.until(
            lambda: (server.get(f"{CLASSES}/{objects.NAME}") or {})["status"]["matchingCards"] == 30, within_s=60
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *told, return_exceptions=True)
