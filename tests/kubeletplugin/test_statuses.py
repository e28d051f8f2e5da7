"""status.devices: behind the answer, written once, never in the way."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kubeletplugin import contract
from tests.kubeletplugin.worlds import CLAIMS, DRIVER, POOL, ScriptedDriver, ref, world


async def test_conditions_are_written_with_the_data_and_their_times_alone_are_no_reason_to_write(
    tmp_path: Path,
) -> None:
    driver = ScriptedDriver()

    def condition(reason: str, since: str) -> contract.Condition:
        return contract.Condition(type="Lit", status=False, reason=reason, message="it is dark", since=since)

    def told_as(found: contract.Condition) -> None:
        driver.answers = {
            uid: tuple(replace(device, conditions=(found,)) for device in devices)
            for uid, devices in driver.answers.items()
        }

    async with world(tmp_path) as w, w.serving(driver, sweep_period_s=0.1):
        await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())
        told_as(condition("NoBulb", "2026-01-01T00:00:00Z"))
        await w.server.until(lambda: w.devices_told() and w.devices_told()[0].get("conditions"))
        assert w.devices_told()[0]["conditions"] == [
            {
                "type": "Lit",
                "status": "False",
                "reason": "NoBulb",
                "message": "it is dark",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
        writes = w.server.count("PATCH", CLAIMS)
        told_as(condition("NoBulb", "2026-02-02T00:00:00Z"))
        looks = w.server.count("GET", CLAIMS)
        await w.server.until(lambda: w.server.count("GET", CLAIMS) > looks + 4)
        assert w.server.count("PATCH", CLAIMS) == writes
        told_as(condition("NoPower", "2026-02-02T00:00:00Z"))
        await w.server.until(lambda: w.devices_told()[0]["conditions"][0]["reason"] == "NoPower")


async def test_a_prepared_device_is_told_with_data_and_share(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.prepared(w.put_claim(share_id="share-1"))
        await w.server.until(w.devices_told)
        (told,) = w.devices_told()
        expected = {"driver": DRIVER, "pool": POOL, "device": "lamp-1", "shareID": "share-1", "data": {"watts": 7}}
        assert {key: told.get(key) for key in expected} == expected


async def test_what_is_stored_already_is_not_written_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.prepared(w.put_claim())
        await w.server.until(w.devices_told)
        for _ in range(3):
            await plugin.prepared(ref())
    assert w.server.count("PATCH", CLAIMS) == 1


async def test_a_device_without_data_leaves_the_status_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        async with w.serving(ScriptedDriver(data={})):
            await (await w.kubelet.plugin(DRIVER)).prepared(w.put_claim())
        assert w.server.count("PATCH", CLAIMS) == 0


async def test_a_slow_api_server_does_not_delay_the_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        claim = w.put_claim()
        w.server.fault(method="PATCH", path=CLAIMS, black_hole=True, times=-1)
        async with asyncio.timeout(9):  # the write is given up after 10 s
            await plugin.prepared(claim)
        await w.server.until(lambda: w.server.count("PATCH", CLAIMS))
        assert not w.devices_told()
        w.server.heal()
        await w.server.until(w.devices_told)


async def test_a_write_that_fails_is_tried_again_and_fails_no_prepare(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        claim = w.put_claim()
        w.server.fault(method="PATCH", path=CLAIMS, status=409, reason="Conflict", times=3)
        await plugin.prepared(claim)
        await w.server.until(w.devices_told)


async def test_a_claim_changed_since_it_was_read_is_read_again(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    driver.gate.clear()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        claim = w.put_claim()
        call = asyncio.create_task(plugin.prepared(claim))
        await driver.entered.get()
        changed = w.server.get(f"{CLAIMS}/claim-1") or {}
        changed["metadata"]["labels"] = {"touched": "yes"}
        w.server.put(f"{CLAIMS}/claim-1", changed)
        driver.gate.set()
        await call
        await w.server.until(w.devices_told)


async def test_a_claim_that_takes_no_apply_is_merged_and_the_entries_of_others_stay(tmp_path: Path) -> None:
    """Seen on 1.37.2 where the keys of an opaque config are not in Go's order."""
    other = {"driver": "other.example.com", "pool": "p", "device": "d"}
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        claim = w.put_claim()
        stored = w.server.get(f"{CLAIMS}/claim-1") or {}
        stored["status"]["devices"] = [other]
        w.server.put(f"{CLAIMS}/claim-1", stored)
        w.server.fault(method="PATCH", path=CLAIMS, status=422, reason="Invalid", times=1)
        await plugin.prepared(claim)
        await w.server.until(lambda: len(w.devices_told()) == 2)
        assert {entry["driver"] for entry in w.devices_told()} == {DRIVER, "other.example.com"}


async def test_what_is_wanted_at_the_stop_is_still_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeletplugin.plugin._FLUSH_S", 60)  # that this machine stalls is not what it is about
    async with world(tmp_path) as w:
        async with w.serving(ScriptedDriver()):
            plugin = await w.kubelet.plugin(DRIVER)
            await asyncio.gather(*(plugin.prepared(w.put_claim(number)) for number in range(10)))
        assert all(w.devices_told(number) for number in range(10))


async def test_the_status_of_a_claim_that_cannot_be_written_holds_up_no_other(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver()):
        plugin = await w.kubelet.plugin(DRIVER)
        w.server.fault(method="PATCH", path="claim-1/", status=422, reason="Invalid", times=-1)
        for number in (1, 2):
            await plugin.prepared(w.put_claim(number))
        await w.server.until(lambda: w.devices_told(2))
