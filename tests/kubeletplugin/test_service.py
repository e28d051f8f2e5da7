"""Prepare and Unprepare over real sockets: an answer for every claim, one flight a claim."""

import asyncio
from pathlib import Path

import grpc
import pytest

from api import errors
from api.protos import registration_v1_pb2, registration_v1_pb2_grpc
from tests.kubeletplugin.worlds import CLAIMS, DRIVER, POOL, ScriptedDriver, ref, world


async def test_a_prepared_claim_has_its_devices_in_the_answer(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        (device,) = await plugin.prepared(w.put_claim(share_id="share-1"))
        assert plugin.service == "v1.DRAPlugin"
        assert list(device.request_names) == ["gpu"]  # never gpu/big
        assert (device.pool_name, device.device_name, device.share_id) == (POOL, "lamp-1", "share-1")
        assert list(device.cdi_device_ids) == [f"{DRIVER}/claim=uid-1-lamp-1"]


async def test_a_device_without_a_share_has_no_share_id(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        (device,) = await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())
        assert not device.HasField("share_id")


@pytest.mark.parametrize("services", [("v1beta1.DRAPlugin",), ("v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")])
async def test_a_kubelet_that_speaks_only_v1beta1_is_served(tmp_path: Path, services: tuple[str, ...]) -> None:
    async with world(tmp_path, services=services) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        assert plugin.service == "v1beta1.DRAPlugin"
        (device,) = await plugin.prepared(w.put_claim(share_id="share-1"))
        assert device.device_name == "lamp-1"
        await plugin.released(ref())


async def test_every_claim_of_a_call_gets_an_answer_and_a_bad_one_fails_alone(tmp_path: Path) -> None:
    driver = ScriptedDriver(
        failures={"uid-5": errors.Conflict("lamp-5 is held by default/other"), "uid-6": KeyError("x")}
    )
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        w.put_claim(1)
        w.put_claim(3, uid="a-new-uid")
        w.put_claim(4, allocated=False)
        w.put_claim(5)
        w.put_claim(6)
        answers = await plugin.prepare(*map(ref, range(1, 7)))
    assert answers["uid-1"].error == ""
    assert [device.device_name for device in answers["uid-1"].devices] == ["lamp-1"]
    assert (
        answers["uid-2"].error
        == "claim default/claim-2 (uid uid-2) does not exist any more; its pod has to be made anew"
    )
    assert "was replaced: asked for uid uid-3, the API server has a-new-uid" in answers["uid-3"].error
    assert "claim default/claim-4 is not allocated yet" in answers["uid-4"].error
    assert answers["uid-5"].error == "lamp-5 is held by default/other"
    assert "default/claim-6: the driver failed unexpectedly (KeyError('x'))" in answers["uid-6"].error
    assert driver.calls == ["prepare uid-1", "prepare uid-5", "prepare uid-6"] or sorted(driver.calls) == [
        "prepare uid-1",
        "prepare uid-5",
        "prepare uid-6",
    ]


async def test_an_empty_call_succeeds(tmp_path: Path) -> None:
    """A liveness probe asks this of its own socket."""
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        assert await plugin.prepare() == {}
        assert await plugin.unprepare() == {}


async def test_claims_of_one_call_are_prepared_side_by_side(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    driver.gate.clear()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        refs = [w.put_claim(number) for number in range(8)]
        call = asyncio.create_task(plugin.prepare(*refs))
        async with asyncio.timeout(60):
            assert {await driver.entered.get() for _ in refs} == {one.uid for one in refs}
        driver.gate.set()
        assert all(answer.error == "" for answer in (await call).values())


async def test_sixteen_calls_in_flight_overlap(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    driver.gate.clear()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        calls = [asyncio.create_task(plugin.prepared(w.put_claim(number))) for number in range(16)]
        async with asyncio.timeout(60):
            for _ in calls:
                await driver.entered.get()
        driver.gate.set()
        await asyncio.gather(*calls)


async def test_the_kubelets_deadline_ends_the_call_and_not_the_work(tmp_path: Path) -> None:
    """The kubelet repeats after 45 s while the first call still runs: the work is done once."""
    driver = ScriptedDriver()
    driver.gate.clear()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        claim = w.put_claim()
        with pytest.raises(grpc.aio.AioRpcError) as given_up:
            await plugin.prepare(claim, timeout_s=0.2)
        assert given_up.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        repeat = asyncio.create_task(plugin.prepared(claim))
        await asyncio.sleep(0.1)
        driver.gate.set()
        assert [device.device_name for device in await repeat] == ["lamp-1"]
        assert driver.calls == ["prepare uid-1"]


async def test_unprepare_waits_for_the_prepare_that_runs(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    driver.gate.clear()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        prepare = asyncio.create_task(plugin.prepared(w.put_claim()))
        await driver.entered.get()
        unprepare = asyncio.create_task(plugin.released(ref()))
        await asyncio.sleep(0.1)
        assert driver.calls == ["prepare uid-1"]
        driver.gate.set()
        await asyncio.gather(prepare, unprepare)
        assert driver.held == {}


async def test_unprepare_is_answered_while_the_api_server_is_away(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w:
        await w.server.stop()
        async with w.serving(driver):
            plugin = await w.kubelet.plugin(DRIVER)
            await plugin.released(ref())
            await plugin.released(ref())
        assert driver.calls == ["unprepare uid-1", "unprepare uid-1"]


async def test_a_failed_unprepare_is_told_and_can_be_repeated(tmp_path: Path) -> None:
    driver = ScriptedDriver(failures={"uid-1": errors.Unavailable("the lamp does not answer; it is tried again")})
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        assert (await plugin.unprepare(ref()))["uid-1"].error == "the lamp does not answer; it is tried again"
        driver.failures.clear()
        await plugin.released(ref())


async def test_an_api_server_that_refuses_is_named_in_the_error(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        w.put_claim()
        w.server.fault(path=CLAIMS, method="GET", status=403, reason="Forbidden", message="cannot get resourceclaims")
        assert "403" in await plugin.refused(ref())
        await plugin.prepared(ref())


async def test_registration_answers_at_once_while_all_else_is_busy(tmp_path: Path) -> None:
    """The kubelet waits 1 s for GetInfo: it is answered while a health stream and Prepare calls go on."""
    driver = ScriptedDriver()
    driver.gate.clear()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.health_of(POOL, "lamp-1", "HEALTHY")
        calls = [asyncio.create_task(plugin.prepared(w.put_claim(number))) for number in range(16)]
        async with grpc.aio.insecure_channel(f"unix:{plugin.socket}") as channel:
            stub = registration_v1_pb2_grpc.RegistrationStub(channel)
            infos = await asyncio.gather(
                *(stub.GetInfo(registration_v1_pb2.InfoRequest(), timeout=60) for _ in range(100))
            )
        assert {info.name for info in infos} == {DRIVER}
        driver.gate.set()
        await asyncio.gather(*calls)
