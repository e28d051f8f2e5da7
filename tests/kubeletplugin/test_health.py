import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeletplugin import contract
from tests.kubeletplugin.worlds import DRIVER, POOL, ScriptedDriver, world


def lamp(health: contract.Health, message: str = "", since_s: int = 0) -> tuple[contract.DeviceHealth, ...]:
    return (contract.DeviceHealth(pool=POOL, device="lamp-1", health=health, message=message, since_s=since_s),)


@pytest.mark.parametrize("service", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_the_full_list_comes_at_once_and_changes_follow(tmp_path: Path, service: str) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path, services=("v1.DRAPlugin", service)) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        assert plugin.health_service == service
        await plugin.health_of(POOL, "lamp-1", "HEALTHY")
        driver.healths.put_nowait(lamp(contract.Health.UNHEALTHY, "burnt out", 1234))
        assert await plugin.health_of(POOL, "lamp-1", "UNHEALTHY") == "burnt out"
        assert plugin.health[POOL, "lamp-1"].last_updated_time == 1234
        driver.healths.put_nowait(lamp(contract.Health.HEALTHY))
        await plugin.health_of(POOL, "lamp-1", "HEALTHY")


async def test_the_list_is_repeated_before_the_kubelet_forgets(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.serving(ScriptedDriver(), health_repeat_s=0.05):
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.health_when(lambda: plugin.health_messages >= 5)
        assert plugin.health[POOL, "lamp-1"].health_check_timeout_seconds == 30


async def test_several_streams_get_the_same_and_the_driver_is_asked_once(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        other = type(plugin)(await _info(plugin), ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth"), plugin.socket)
        for one in (plugin, other):
            await one.health_of(POOL, "lamp-1", "HEALTHY")
        driver.healths.put_nowait(lamp(contract.Health.UNHEALTHY))
        for one in (plugin, other):
            await one.health_of(POOL, "lamp-1", "UNHEALTHY")
        await plugin.drop_connection()
        await plugin.health_of(POOL, "lamp-1", "UNHEALTHY")
        await other.close()


async def _info(plugin: object) -> object:
    from api.protos import registration_v1_pb2

    return registration_v1_pb2.PluginInfo(
        name=plugin.name,  # type: ignore[attr-defined]
        endpoint=plugin.endpoint,  # type: ignore[attr-defined]
        supported_versions=["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"],
    )


async def test_a_long_message_is_cut_to_what_a_kubelet_takes(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    async with world(tmp_path) as w, w.serving(driver):
        plugin = await w.kubelet.plugin(DRIVER)
        driver.healths.put_nowait(lamp(contract.Health.UNHEALTHY, "x" * 2000))
        message = await plugin.health_of(POOL, "lamp-1", "UNHEALTHY")
        assert len(message) == 1024
        assert message.endswith("...")


async def test_a_driver_whose_health_fails_is_not_vouched_for_and_asked_again(tmp_path: Path) -> None:
    well, asked = asyncio.Event(), asyncio.Event()
    well.set()

    class Meter(ScriptedDriver):
        async def health(self) -> AsyncIterator[tuple[contract.DeviceHealth, ...]]:
            asked.set()
            await well.wait()
            async for told in super().health():
                yield told

    driver = Meter()
    async with world(tmp_path) as w, w.serving(driver, health_repeat_s=0.05):
        plugin = await w.kubelet.plugin(DRIVER)
        await plugin.health_of(POOL, "lamp-1", "HEALTHY")
        well.clear()
        asked.clear()
        driver.healths.put_nowait(RuntimeError("the meter fell off"))
        await asyncio.wait_for(asked.wait(), 60)
        seen = plugin.health_messages
        await asyncio.sleep(0.2)  # four repeats
        assert plugin.health_messages == seen
        well.set()
        await plugin.health_when(lambda: plugin.health_messages > seen)
