"""Claims that are gone from the API server are given back. Replays NV#1278 and NV#840."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.kubeletplugin.worlds import CLAIMS, DRIVER, ScriptedDriver, ref, world

PERIOD_S = 0.1


async def _until_free(driver: ScriptedDriver, uid: str) -> None:
    async with asyncio.timeout(60):
        while uid in driver.held:
            await driver.released.get()


async def test_a_claim_deleted_while_the_plugin_was_down_is_given_back(tmp_path: Path) -> None:
    driver = ScriptedDriver(held={"uid-1": ref(1), "uid-2": ref(2)})
    async with world(tmp_path) as w:
        w.put_claim(2)
        async with w.serving(driver, sweep_period_s=PERIOD_S):
            await _until_free(driver, "uid-1")
    assert list(driver.held) == ["uid-2"]


async def test_a_claim_of_the_same_name_and_another_uid_does_not_keep_the_old_one(tmp_path: Path) -> None:
    driver = ScriptedDriver(held={"uid-1": ref(1)})
    async with world(tmp_path) as w:
        w.put_claim(1, uid="uid-new")
        async with w.serving(driver, sweep_period_s=PERIOD_S):
            await _until_free(driver, "uid-1")


async def test_a_claim_is_looked_up_twice_before_it_counts_as_gone(tmp_path: Path) -> None:
    driver = ScriptedDriver(held={"uid-1": ref(1)})
    async with world(tmp_path) as w:
        async with w.serving(driver, sweep_period_s=60):
            await w.server.until(lambda: w.server.count("GET", "claim-1") == 1)
        assert driver.calls == []


async def test_an_api_server_that_fails_proves_nothing(tmp_path: Path) -> None:
    driver = ScriptedDriver(held={"uid-1": ref(1)})
    async with world(tmp_path) as w:
        w.put_claim()
        w.server.fault(path=CLAIMS, status=403, reason="Forbidden", times=-1)
        async with w.serving(driver, sweep_period_s=PERIOD_S):
            await w.server.until(lambda: w.server.count("GET", CLAIMS) > 5)
        assert driver.calls == []


async def test_a_server_that_does_not_serve_the_api_proves_nothing(tmp_path: Path) -> None:
    driver = ScriptedDriver(held={"uid-1": ref(1)})
    async with world(tmp_path) as w:
        w.server.fault(path="/apis/resource.k8s.io/v1/", status=404, reason="NotFound", times=-1)
        async with w.serving(driver, sweep_period_s=PERIOD_S):
            await w.server.until(lambda: w.server.count("GET", CLAIMS) > 5)
        assert driver.calls == []


async def test_a_status_that_a_killed_process_did_not_write_is_written_by_the_next(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w:
        w.server.fault(method="PATCH", path=CLAIMS, status=503, reason="ServiceUnavailable", times=-1)
        async with w.serving(driver):
            await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())
        assert not w.devices_told()
        w.server.heal()
        async with w.serving(driver):
            await w.server.until(w.devices_told)
            (told,) = w.devices_told()
            assert told["data"] == {"watts": 7}
        assert w.server.count("PATCH", CLAIMS) > 0
        before = w.server.count("PATCH", CLAIMS)
        async with w.serving(driver, sweep_period_s=PERIOD_S):
            looks = w.server.count("GET", CLAIMS)
            await w.server.until(lambda: w.server.count("GET", CLAIMS) > looks + 2)
        assert w.server.count("PATCH", CLAIMS) == before, "what is stored is not written again"


async def test_a_status_that_a_server_does_not_store_is_tried_once_and_not_at_each_look(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w:
        async with w.serving(driver):
            await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())
        w.put_claim()  # without status.devices, as from a server that drops them
        before = w.server.count("PATCH", CLAIMS)
        async with w.serving(driver, sweep_period_s=PERIOD_S):
            looks = w.server.count("GET", CLAIMS)
            await w.server.until(lambda: w.server.count("PATCH", CLAIMS) > before)
            w.put_claim()
            await w.server.until(lambda: w.server.count("GET", CLAIMS) > looks + 4)
        assert w.server.count("PATCH", CLAIMS) == before + 1


async def test_a_status_that_a_driver_changes_is_written_again_and_the_claim_is_shown_to_it(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w, w.serving(driver, sweep_period_s=PERIOD_S):
        await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())
        await w.server.until(w.devices_told)
        assert (await driver.claims_seen.get()).uid == "uid-1"
        driver.answers = {
            uid: tuple(replace(device, data={"watts": 8}) for device in devices)
            for uid, devices in driver.answers.items()
        }
        await w.server.until(lambda: w.devices_told()[0]["data"] == {"watts": 8})


async def test_a_claim_that_cannot_be_freed_does_not_hold_up_the_others(tmp_path: Path) -> None:
    driver = ScriptedDriver(held={"uid-1": ref(1), "uid-2": ref(2)}, failures={"uid-1": RuntimeError("stuck")})
    async with world(tmp_path) as w, w.serving(driver, sweep_period_s=PERIOD_S):
        await _until_free(driver, "uid-2")
        driver.failures.clear()
        await _until_free(driver, "uid-1")
