"""The GPU driver does what every driver must."""

from pathlib import Path

import pytest

from driver import node
from tests.contract import driver_suite
from tests.fakes.machine import Machine


class TestNode(driver_suite.DriverSuite):
    @pytest.fixture
    async def subject(self, tmp_path: Path) -> driver_suite.Subject:
        machine = Machine(tmp_path, count=2)

        async def restart() -> node.Node:
            """A driver that has looked at its cards once: what it does in the background is not asked here."""
            async with machine.node() as driver:
                await driver.looked()
            return driver

        async def reboot() -> node.Node:
            for path in machine.cdi_dir.iterdir():
                path.unlink()
            return await restart()

        def resolves(cdi_id: str) -> bool:
            return any(cdi_id.partition("=")[2] in path.read_text() for path in machine.cdi_dir.glob("*.json"))

        return driver_suite.Subject(
            driver=await restart(),
            name="gpu.elasticgpu.io",
            pool="egpu/node1",
            devices=(machine.device(0), machine.device(1)),
            restart=restart,
            reboot=reboot,
            resolves=resolves,
        )
