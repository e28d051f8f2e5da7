"""The driver in the README keeps the contract and runs."""

import asyncio
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.contract import driver_suite
from tests.kubeletplugin import worlds


class TestLamps(driver_suite.DriverSuite):
    @pytest.fixture
    async def subject(self, lamps: ModuleType, tmp_path: Path) -> driver_suite.Subject:
        async def restart() -> Any:
            return lamps.Lamps(tmp_path, "lamps/node-1", ("desk", "floor"))

        async def reboot() -> Any:
            for path in tmp_path.iterdir():
                path.unlink()
            return await restart()

        def resolves(cdi_id: str) -> bool:
            kind, _, name = cdi_id.partition("=")
            specs = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
            return any(spec["kind"] == kind and any(d["name"] == name for d in spec["devices"]) for spec in specs)

        return driver_suite.Subject(
            driver=await restart(),
            name=lamps.DRIVER,
            pool="lamps/node-1",
            devices=("desk", "floor"),
            restart=restart,
            reboot=reboot,
            resolves=resolves,
        )


def test_the_readme_names_every_module() -> None:
    folder = Path(driver_suite.__file__).parents[2] / "kubeletplugin"
    text = (folder / "README.md").read_text()
    assert [p.name for p in folder.glob("*.py") if p.name not in text and p.name != "__init__.py"] == []


async def test_its_main_serves_a_kubelet(lamps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, but for the directories: those belong to the machine."""
    async with worlds.world(tmp_path) as world:
        monkeypatch.setattr(lamps, "Options", world.options)
        stop = asyncio.Event()
        serving = asyncio.create_task(lamps.main("node-1", stop, tmp_path / "kubeconfig"))
        try:
            plugin = await world.kubelet.plugin(lamps.DRIVER)
            assert await plugin.health_of("lamps/node-1", "desk", "HEALTHY") == ""
            await world.server.until(lambda: world.server.list("resourceslices"))
        finally:
            stop.set()
            await serving
        await world.kubelet.gone(lamps.DRIVER)
