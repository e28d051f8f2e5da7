"""The program `egpu-node` as a process, between a kubelet and an API server; kill -9 is a real one."""

import asyncio
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import grpc
import pytest

from api import names
from kubeletplugin import contract
from tests.fakes import ports
from tests.fakes.apiserver import FakeAPIServer
from tests.fakes.kubelet import FakeKubelet, Plugin
from tests.fakes.machine import Machine

ROOT = Path(__file__).parents[2]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Setup:
    """One machine with a kubelet and an API server, on which the program can be started."""

    def __init__(self, machine: Machine, kubelet: FakeKubelet, server: FakeAPIServer) -> None:
        self.machine, self.kubelet, self.server = machine, kubelet, server

    def claim(self, uid: str, index: int, config: Any = (), **more: Any) -> contract.ClaimRef:
        result = {"request": "gpu", "driver": names.LOCAL_DRIVER, "pool": "egpu/node1"}
        allocation = {
            "devices": {"results": [{**result, "device": self.machine.device(index), **more}], "config": config}
        }
        body = {"metadata": {"uid": uid}, "spec": {}, "status": {"allocation": allocation}}
        self.server.put(f"{CLAIMS}/claim-{uid}", body)
        return self.machine.ref(uid)

    async def next_plugin(self, dead: Plugin) -> Plugin:
        """The kubelet's connection to the next process: the sockets of a killed one stay until then."""
        await self.kubelet.when(lambda: dead not in self.kubelet.instances(dead.name))
        plugin = await self.kubelet.plugin(dead.name)
        async with asyncio.timeout(60):
            while True:  # gRPC waits a second before it tries the same path again; a kubelet repeats its calls too
                try:
                    await plugin.prepare()
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
                else:
                    return plugin

    @asynccontextmanager
    async def program(self, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The running program; ended by SIGTERM if it still runs at the end of the block."""
        chosen = self.machine.settings
        values = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
        values |= {"registry_dir": self.kubelet.registry_dir, "plugin_dir": self.kubelet.plugin_dir, "metrics_port": 0}
        environment = {
            f"EGPU_{name.upper()}": str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values.items()
            if value not in (None, "")
        }
        environment |= {
            "KUBECONFIG": str(self.server.kubeconfig(self.machine.root)),
            **more,
        }
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "driver", cwd=ROOT, env=environment)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) in {0, -signal.SIGKILL}


@asynccontextmanager
async def a_setup(tmp_path: Path) -> AsyncIterator[Setup]:
    machine = Machine(tmp_path, count=2)
    async with FakeKubelet() as kubelet, FakeAPIServer() as server:
        server.put("/api/v1/nodes/node1", {})
        machine.data_dir = kubelet.plugin_dir / names.LOCAL_DRIVER
        yield Setup(machine, kubelet, server)


async def test_a_claim_is_prepared_and_its_status_tells_which_card(tmp_path: Path) -> None:
    async with a_setup(tmp_path) as setup:
        ref = setup.claim("a", 1)
        async with setup.program():
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            (device,) = await plugin.prepared(ref)
            assert device.device_name == setup.machine.device(1)
            spec = setup.machine.spec("a")
            assert spec is not None
            assert list(device.cdi_device_ids) == [f"{spec['kind']}={spec['devices'][0]['name']}"]
            await setup.server.until(lambda: _statuses(setup, "a"))
            (told,) = _statuses(setup, "a")
            assert told["data"] == {
                "uuid": setup.machine.cards.uuids[1],
                "model": "NVIDIA H100 80GB HBM3",
                "enforcement": "whole",
            }
            await setup.server.until(lambda: setup.server.list("resourceslices"))
            (found,) = setup.server.list("resourceslices")
            assert [item["name"] for item in found["spec"]["devices"]] == [
                setup.machine.device(0),
                setup.machine.device(1),
            ]
            await plugin.released(ref)
            assert setup.machine.spec("a") is None


async def test_two_shares_of_a_card_from_kubelet_to_status_and_metrics(tmp_path: Path) -> None:
    """HAMi#1794: series are there from the allocation on."""
    parameters = {"apiVersion": names.API_VERSION, "kind": "ShareConfig", "memory": "BestEffort"}
    config = [{"source": "FromClass", "opaque": {"driver": names.LOCAL_DRIVER, "parameters": parameters}}]
    async with a_setup(tmp_path) as setup:
        amounts = {"cores": "50", "memory": "8Gi", "shares": "1"}
        refs = [setup.claim(uid, 0, config, shareID=f"share-{uid}", consumedCapacity=amounts) for uid in ("a", "b")]
        port = ports.free()
        async with setup.program(EGPU_METRICS_PORT=str(port)):
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            for ref in refs:
                (device,) = await plugin.prepared(ref)
                assert device.share_id == f"share-{ref.uid}"
            await setup.server.until(lambda: _statuses(setup, "b"))
            (told,) = _statuses(setup, "b")
            assert (told["shareID"], told["data"]["memory"]) == ("share-b", "8Gi")
            assert told["data"]["enforcement"] == {"memory": "none", "cores": "none"}
            text = await _told(port, "elasticgpu_shares_stored 1.0")
            series = [line for line in text.splitlines() if 'claim_uid="b"' in line]
            assert any(
                line.startswith("elasticgpu_claim_memory_bytes{") and line.endswith(" 8.589934592e+09")
                for line in series
            )
            assert any(line.startswith("elasticgpu_claim_cores_percent{") and line.endswith(" 50.0") for line in series)
            assert sum('rung="none"' in line for line in series) == 2


async def test_a_server_that_stores_no_shares_is_told_of_in_the_metrics(tmp_path: Path) -> None:
    async with a_setup(tmp_path) as setup:
        setup.server.drops("devices.allowMultipleAllocations", "devices.capacity.requestPolicy")
        port = ports.free()
        async with setup.program(EGPU_METRICS_PORT=str(port)):
            await setup.kubelet.plugin(names.LOCAL_DRIVER)
            await _told(port, "elasticgpu_shares_stored 0.0")


async def test_after_kill_9_the_next_process_goes_on(tmp_path: Path) -> None:
    async with a_setup(tmp_path) as setup:
        ref = setup.claim("a", 0)
        async with setup.program() as process:
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            before = await plugin.prepared(ref)
            process.kill()
            await process.wait()
        async with setup.program():
            plugin = await setup.next_plugin(plugin)
            assert await plugin.prepared(ref) == before
            assert "held by claim default/claim-a" in await plugin.refused(setup.claim("b", 0))
            await plugin.released(ref)
            await plugin.prepared(setup.claim("b", 0))


@pytest.mark.parametrize("delay_ms", [1, 2, 3, 4, 6, 8])
async def test_kill_9_in_the_middle_of_a_call_costs_nothing(tmp_path: Path, delay_ms: int) -> None:
    async with a_setup(tmp_path) as setup:
        refs = [setup.claim("a", 0), setup.claim("b", 1)]
        async with setup.program() as process:
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            call = asyncio.create_task(plugin.prepare(*refs))
            await asyncio.sleep(delay_ms / 1000)
            process.kill()
            await process.wait()
            await asyncio.gather(call, return_exceptions=True)
        async with setup.program():
            plugin = await setup.next_plugin(plugin)
            for ref in refs:
                await plugin.prepared(ref)
            for ref in refs:
                await plugin.released(ref)
            assert not list(setup.machine.cdi_dir.glob("*.json"))


@pytest.mark.parametrize("fault", [{"delay_s": 1.0}, {"black_hole": True}], ids=["it ends in time", "it hangs"])
async def test_an_update_that_stops_an_instance_in_the_middle_of_a_prepare_costs_nothing(
    tmp_path: Path, fault: dict[str, Any]
) -> None:
    """The old instance finishes what it can; what it cannot, the new one does at the kubelet's next try."""
    uids = [f"0a1b2c3d-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    async with a_setup(tmp_path) as setup:
        ref = setup.claim("a", 0)
        async with setup.program(EGPU_POD_UID=uids[0]) as old:
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            setup.server.fault(method="GET", path="claim-a", **fault)
            call = asyncio.create_task(plugin.prepare(ref))
            await setup.server.until(lambda: setup.server.count("GET", "claim-a"), within_s=60)
            async with setup.program(EGPU_POD_UID=uids[1]):
                await setup.kubelet.plugin(names.LOCAL_DRIVER, instances=2, timeout_s=60)
                await setup.server.until(lambda: setup.server.list("resourceslices"), within_s=60)
                (slice_before,) = setup.server.list("resourceslices")
                old.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(old.wait(), 60) == 0
                (outcome,) = await asyncio.gather(call, return_exceptions=True)
                # a kubelet drops the connection of a plugin that leaves, so that an answer in time may come or be lost
                assert isinstance(outcome, Exception) or "black_hole" not in fault, outcome
                plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER, instances=1)
                (device,) = await plugin.prepared(ref)
                assert device.device_name == setup.machine.device(0)
                assert setup.machine.spec("a") is not None
                assert setup.server.list("resourceslices") == [slice_before]
                await plugin.released(ref)
                assert setup.machine.spec("a") is None


async def test_probes_and_metrics_name_the_holder(tmp_path: Path) -> None:
    """dcgm-exporter#718"""
    async with a_setup(tmp_path) as setup:
        ref = setup.claim("a", 0)
        port = ports.free()
        async with setup.program(EGPU_METRICS_PORT=str(port)):
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            await plugin.prepared(ref)
            assert await asyncio.to_thread(_get, port, "/healthz") == (200, "ok\n")
            assert await asyncio.to_thread(_get, port, "/readyz") == (200, "ok\n")
            text = await _told(port, 'elasticgpu_cards{health="healthy"} 2.0')
            labels = f'claim_name="claim-a",claim_namespace="default",claim_uid="a",device="{setup.machine.device(0)}"'
            (line,) = [line for line in text.splitlines() if line.startswith("elasticgpu_claim_holds_card{")]
            assert all(label in line for label in labels.split(","))


async def test_unprepare_is_answered_without_nvml_and_without_the_api_server(tmp_path: Path) -> None:
    async with a_setup(tmp_path) as setup:
        ref = setup.claim("a", 0)
        async with setup.program():
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            await plugin.prepared(ref)
        setup.machine.cards.unload()
        await setup.server.stop()
        async with setup.program():
            plugin = await setup.kubelet.plugin(names.LOCAL_DRIVER)
            await plugin.released(ref)
            assert setup.machine.spec("a") is None


async def test_a_wrong_setting_stops_the_start_with_its_name() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "driver"),
        cwd=ROOT,
        env={"EGPU_POLL_S": "soon"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert "EGPU_NODE_NAME is not set" in said.decode()
    assert "EGPU_POLL_S='soon'" in said.decode()


def _statuses(setup: Setup, uid: str) -> list[Any]:
    claim = setup.server.get(f"{CLAIMS}/claim-{uid}") or {}
    return list(claim.get("status", {}).get("devices") or ())


async def _told(port: int, wanted: str) -> str:
    """The series, from when this line is among them."""
    async with asyncio.timeout(60):
        while wanted not in (text := (await asyncio.to_thread(_get, port, "/metrics"))[1]):  # noqa: ASYNC110  a process tells nobody
            await asyncio.sleep(0.05)
        return text


def _get(port: int, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.status, answer.read().decode()


async def test_the_label_of_the_node_says_who_allocates_its_cards_also_at_the_first_look(tmp_path: Path) -> None:
    """A card must not be offered to kube-scheduler for a moment, only because its driver has just started."""
    async with a_setup(tmp_path) as setup:
        setup.server.put("/api/v1/nodes/node1", {"metadata": {"labels": {names.ALLOCATED_BY_LABEL: "controller"}}})
        async with setup.program():
            await setup.server.until(lambda: setup.server.list("resourceslices"))
            assert {_fence(device) for device in _offered(setup)} == {("controller", True)}
            created = setup.server.count("POST", "resourceslices")
            setup.server.put("/api/v1/nodes/node1", {"metadata": {"labels": {}}})
            await setup.server.until(lambda: {_fence(one) for one in _offered(setup)} == {("scheduler", True)})
        bodies = [r.body for r in setup.server.requests if r.method == "POST" and r.path.endswith("resourceslices")]
        assert len(bodies) >= created
        assert all(_fence(device) == ("controller", True) for device in bodies[-1]["spec"]["devices"])


def _offered(setup: Setup) -> list[dict[str, Any]]:
    return [device for found in setup.server.list("resourceslices") for device in found["spec"]["devices"]]


def _fence(device: dict[str, Any]) -> tuple[str, bool]:
    taints = {taint["key"] for taint in device.get("taints", ())}
    return device["attributes"]["allocatedBy"]["string"], names.ALLOCATED_BY_TAINT in taints
