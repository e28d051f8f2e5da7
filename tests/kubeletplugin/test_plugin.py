"""A plugin's life: start, kubelet restarts, rolling updates, faults, stop."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from prometheus_client import REGISTRY

from api import errors, resource
from tests.kubeletplugin.worlds import DRIVER, NODE, POOL, ScriptedDriver, World, ref, world

ROOT = Path(__file__).parents[2]
OLD_UID, NEW_UID = (f"0a1b2c3d-0000-4000-8000-00000000000{number}" for number in (1, 2))
PROCESS = """
import asyncio, sys
from pathlib import Path
from kube import apiserver
from kubeletplugin import contract, plugin
from tests.kubeletplugin import worlds

async def main(kubeconfig, registry, plugins, uid):
    options = contract.Options(driver_name=worlds.DRIVER, node_name=worlds.NODE, registry_dir=Path(registry),
                               plugin_dir=Path(plugins), pod_uid=uid)
    async with apiserver.APIServer.connect(Path(kubeconfig)) as api:
        await plugin.serve(worlds.ScriptedDriver(), options, api, stop=asyncio.Event())

asyncio.run(main(*sys.argv[1:]))
"""


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"driver": DRIVER} | labels)


@contextlib.contextmanager
def process(w: World, uid: str = "") -> Iterator[subprocess.Popen[bytes]]:
    arguments = [w.root / "kubeconfig", w.kubelet.registry_dir, w.kubelet.plugin_dir, uid]
    running = subprocess.Popen([sys.executable, "-c", PROCESS, *map(str, arguments)], cwd=ROOT)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


async def test_a_plugin_registers_and_publishes_its_pools(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()) as served:
        plugin = await w.kubelet.plugin(DRIVER)
        assert plugin.endpoint == str(w.kubelet.plugin_dir / DRIVER / "dra.sock")
        assert served.registered
        assert value("dra_plugin_registered") == 1
        await w.server.until(lambda: w.server.list("resourceslices"))
        (stored,) = w.server.list("resourceslices")
        assert (stored["spec"]["nodeName"], stored["spec"]["pool"]["name"]) == (NODE, POOL)


async def test_no_card_is_offered_before_the_kubelet_knows_who_prepares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod bound before is tried again by the kubelet after a minute and a half (k8s#128964)."""
    monkeypatch.setattr("kubeletplugin.plugin._REMIND_S", 0.3)
    with structlog.testing.capture_logs() as logs:

        def said() -> list[str]:
            return [line["socket"] for line in logs if line["event"] == "no slices are published yet"]

        async with world(tmp_path) as w, contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
            async with w.kubelet.stopped():
                served = await stack.enter_async_context(w.serving(ScriptedDriver()))
                while not said():  # noqa: ASYNC110  a log has no event
                    await asyncio.sleep(0.05)
                assert not w.server.list("resourceslices")
                assert served.unready == "the kubelet has not registered this driver yet"
                assert [Path(said()[0])] == list(w.kubelet.registry_dir.glob("*.sock"))
            await w.server.until(lambda: w.server.list("resourceslices"))
            assert not served.unready


async def test_a_restart_keeps_its_slices_true_before_the_kubelet_has_registered_it(tmp_path: Path) -> None:
    class OneLampMore(ScriptedDriver):
        async def pools(self) -> AsyncIterator[tuple[resource.Pool, ...]]:
            lamps = (resource.Device(name="lamp-1"), resource.Device(name="lamp-2"))
            yield (resource.Pool(name=POOL, devices=lamps),)

    def lamps() -> list[str]:
        return [lamp["name"] for found in w.server.list("resourceslices") for lamp in found["spec"]["devices"]]

    async with world(tmp_path) as w:
        async with w.serving(ScriptedDriver()):
            await w.server.until(lambda: lamps() == ["lamp-1"])
        (before,) = w.server.list("resourceslices")
        async with w.kubelet.stopped(), w.serving(OneLampMore()):
            await w.server.until(lambda: lamps() == ["lamp-1", "lamp-2"])
        (after,) = w.server.list("resourceslices")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_restarted_kubelet_finds_the_plugin_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        await w.kubelet.plugin(DRIVER)
        await w.kubelet.restart()
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.health_of(POOL, "lamp-1", "HEALTHY")
        await plugin.prepared(w.put_claim())


async def test_a_kubelet_that_wipes_its_registry_finds_the_plugin_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        await w.kubelet.plugin(DRIVER)
        async with w.kubelet.stopped():
            for path in w.kubelet.registry_dir.iterdir():
                path.unlink()
            w.kubelet.registry_dir.rmdir()
        await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())


async def test_a_dropped_connection_costs_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.prepared(w.put_claim())
        await plugin.drop_connection()
        await plugin.prepared(ref())
        await plugin.health_of(POOL, "lamp-1", "HEALTHY")


async def test_a_kubelet_that_refuses_is_heard(tmp_path: Path) -> None:
    async with world(tmp_path, services=("v2.DRAPlugin",)) as w, w.serving(ScriptedDriver()) as served:
        await w.kubelet.when(lambda: bool(w.kubelet.refusals))
        assert "none of ['v1.DRAPlugin', 'v1beta1.DRAPlugin'" in w.kubelet.refusals[0]
        assert not served.registered
        assert served.unready == f"the kubelet refuses this driver: {w.kubelet.refusals[0]}"
        assert not w.server.list("resourceslices")
        assert value("dra_plugin_registered") == 0


async def test_a_node_that_appears_later_gets_its_slices_and_calls_are_served_before(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.server.remove(f"/api/v1/nodes/{NODE}")
        async with w.serving(ScriptedDriver()):
            plugin = await w.kubelet.plugin(DRIVER)
            await plugin.released(ref())
            await plugin.prepared(w.put_claim())
            w.server.put(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "uid": "node-uid"}})
            await w.server.until(lambda: w.server.list("resourceslices"))


async def test_a_stop_deregisters_first_lets_flights_end_and_undoes_nothing(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w:
        async with w.serving(driver):
            plugin = await w.kubelet.plugin(DRIVER)
            await w.server.until(lambda: w.server.list("resourceslices"))
            await plugin.prepared(w.put_claim(1))
            driver.gate.clear()
            call = asyncio.create_task(plugin.prepared(w.put_claim(2)))
            await driver.entered.get()
            await driver.entered.get()
            asyncio.get_running_loop().call_later(0.3, driver.gate.set)
        call.cancel()
        await asyncio.wait([call])
        await w.kubelet.gone(DRIVER)
        assert sorted(driver.held) == ["uid-1", "uid-2"]
        assert w.server.list("resourceslices")
        assert list(w.kubelet.registry_dir.iterdir()) == []
        assert [path.name for path in (w.kubelet.plugin_dir / DRIVER).iterdir()] == ["claims.lock"]


async def test_two_instances_run_side_by_side_and_the_old_one_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """A rolling update: the kubelet calls the newer one, and the older again where the newer fails."""
    old, new = ScriptedDriver(), ScriptedDriver()
    async with world(tmp_path) as w:
        claim = w.put_claim()
        async with contextlib.AsyncExitStack() as stack:
            async with w.serving(old, pod_uid=OLD_UID):
                await (await w.kubelet.plugin(DRIVER)).prepared(claim)
                await stack.enter_async_context(w.serving(new, pod_uid=NEW_UID))
                plugin = await w.kubelet.plugin(DRIVER, instances=2)
                await plugin.prepared(claim)
            plugin = await w.kubelet.plugin(DRIVER, instances=1)
            await plugin.released(claim)
            await plugin.health_of(POOL, "lamp-1", "HEALTHY")
    assert (old.calls, new.calls) == (["prepare uid-1"], ["prepare uid-1", "unprepare uid-1"])


async def test_one_claim_is_in_one_instance_at_a_time(tmp_path: Path) -> None:
    old, new = ScriptedDriver(), ScriptedDriver()
    old.gate.clear()
    async with world(tmp_path) as w, w.serving(old, pod_uid=OLD_UID):
        prepare = asyncio.create_task((await w.kubelet.plugin(DRIVER)).prepared(w.put_claim()))
        await old.entered.get()
        async with w.serving(new, pod_uid=NEW_UID):
            plugin = await w.kubelet.plugin(DRIVER, instances=2)
            unprepare = asyncio.create_task(plugin.released(ref()))
            await asyncio.sleep(0.1)
            assert new.calls == []
            old.gate.set()
            await asyncio.gather(prepare, unprepare)
            assert new.calls == ["unprepare uid-1"]


@pytest.mark.parametrize("uid", ["", OLD_UID])
async def test_a_plugin_that_was_killed_is_followed_by_one_that_works(tmp_path: Path, uid: str) -> None:
    async with world(tmp_path) as w:
        with process(w, uid) as first:
            await w.kubelet.plugin(DRIVER, timeout_s=60)
            first.send_signal(signal.SIGKILL)
            first.wait()
        left = list(w.kubelet.registry_dir.glob("*.sock"))
        assert len(left) == 1
        driver = ScriptedDriver()
        async with w.serving(driver, pod_uid=uid and NEW_UID):
            async with asyncio.timeout(60):
                while not driver.calls:
                    with contextlib.suppress(Exception):
                        await (await w.kubelet.plugin(DRIVER)).prepare(w.put_claim())
            assert len(list(w.kubelet.registry_dir.glob("*.sock"))) == 1
            if uid:
                assert not left[0].exists()


async def test_a_second_plugin_without_pod_uids_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.sockets._PATIENCE_S", 0.5)
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        with pytest.raises(errors.Conflict, match="another process serves"):
            async with w.serving(ScriptedDriver()):
                pass
        await plugin.prepared(w.put_claim())
        assert w.kubelet.instances(DRIVER) == [plugin]


async def test_metrics_count_calls_by_outcome(tmp_path: Path) -> None:
    def counted(method: str, outcome: str) -> float:
        return value("dra_plugin_claims_total", method=method, outcome=outcome) or 0

    async with world(tmp_path) as w, w.serving(ScriptedDriver(failures={"uid-2": errors.Conflict("held")})):
        assert value("dra_plugin_claims_total", method="prepare", outcome="corrupt") == 0  # there from the start
        plugin = await w.kubelet.plugin(DRIVER)
        before = [counted("prepare", "ok"), counted("prepare", "conflict"), counted("unprepare", "ok")]
        await plugin.prepare(w.put_claim(1), w.put_claim(2))
        await plugin.released(ref(1))
        after = [counted("prepare", "ok"), counted("prepare", "conflict"), counted("unprepare", "ok")]
        assert [one - other for one, other in zip(after, before, strict=True)] == [1, 1, 1]
        assert value("dra_plugin_claims_in_flight", method="prepare") == 0
