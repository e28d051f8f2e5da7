"""The controller with the real agent, as processes on one machine: what each of them takes the other for is the same."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes import ports
from tests.fakes.remotes import CLUSTER_UID, POOLS, Cluster, a_cluster

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent puts servers into namespaces of their own")


class Agent:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.endpoint = folder, f"127.0.0.1:{port}"
        cards = [
            {"uuid": f"GPU-real{number:04d}", "productName": "NVIDIA A100", "memory": 80 << 30} for number in range(2)
        ]
        folder.mkdir()
        (folder / "state").mkdir(mode=0o700)
        (folder / "cards.yaml").write_text(json.dumps({"cards": cards}))
        self._environment = {
            "PATH": os.environ["PATH"],
            "EGPU_POOL_ID": "lab",
            "EGPU_PROFILES": "fake",
            "EGPU_CARDS_FILE": str(folder / "cards.yaml"),
            "EGPU_STATE_DIR": str(folder / "state"),
            "EGPU_LISTEN": self.endpoint,
            "EGPU_ADVERTISE": "127.0.0.1",
            "EGPU_METRICS_PORT": "0",
            "EGPU_FIRST_UID": "61000",
        }
        self._process: asyncio.subprocess.Process | None = None

    async def certificate(self) -> Path:
        made = self.folder / "controller"
        process = await self._program("controller-certificate", CLUSTER_UID, str(made))
        assert await process.wait() == 0
        return made

    async def start(self) -> None:
        self._process = await self._program()
        assert self._process.stderr is not None
        async with asyncio.timeout(60):
            while b'"started"' not in await self._process.stderr.readline():
                pass

    async def stop(self, number: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            await process.communicate()

    async def _program(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pool", *arguments),
            cwd=ROOT,
            env=self._environment,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )


@contextlib.asynccontextmanager
async def an_agent(cluster: Cluster, folder: Path) -> AsyncIterator[Agent]:
    agent = Agent(folder, ports.free())
    cluster.credentials = await agent.certificate()
    authority = (cluster.credentials / "ca.crt").read_text()
    cluster.server.put(f"{POOLS}/lab", {"spec": {"endpoint": agent.endpoint, "caBundle": authority}})
    await agent.start()
    try:
        yield agent
    finally:
        await agent.stop()


def _claim(cluster: Cluster, name: str) -> None:
    class Real:
        devices = ("gpu-real0000", "gpu-real0001")

    cluster.claim(name, Real, 0)  # type: ignore[arg-type]


async def test_a_card_is_attached_and_given_back(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, an_agent(cluster, tmp_path / "pool") as agent, cluster.controller():
        await cluster.until(lambda: sorted(cluster.taints()) == ["gpu-real0000", "gpu-real0001"], within_s=60)
        _claim(cluster, "a")
        await cluster.until(lambda: cluster.condition("a", "attached"), within_s=60)
        [device] = cluster.devices("a")
        assert device["data"]["clientProfile"] == "fake"
        assert device["data"]["endpoint"] == agent.endpoint
        cluster.deallocate("a")
        await cluster.until(lambda: cluster.phases() == [], within_s=60)
        _claim(cluster, "b")
        await cluster.until(lambda: cluster.condition("b", "attached"), within_s=60)


async def test_row_13_an_agent_that_is_killed_has_lost_what_it_lent(tmp_path: Path) -> None:
    async with (
        a_cluster(tmp_path) as cluster,
        an_agent(cluster, tmp_path / "pool") as agent,
        cluster.controller(),
    ):
        _claim(cluster, "a")
        await cluster.until(lambda: cluster.condition("a", "attached"), within_s=60)
        await agent.stop(signal.SIGKILL)
        await agent.start()
        await cluster.until(lambda: cluster.phases() == ["Lost"], within_s=60)
        await cluster.until(lambda: not cluster.condition("a", "healthy"), within_s=60)
        cluster.deallocate("a")
        await cluster.until(lambda: cluster.phases() == [], within_s=60)
        _claim(cluster, "b")
        await cluster.until(lambda: cluster.condition("b", "attached"), within_s=60)


async def test_a_certificate_of_another_pool_is_refused_and_said_so(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, an_agent(cluster, tmp_path / "pool"):
        cluster.credentials = cluster.authority.write(tmp_path / "foreign", "controller")
        async with cluster.controller():

            def reachable() -> list[tuple[str, str]]:
                status = cluster.server.list("remotepools")[0].get("status") or {}
                return [(one["status"], one["reason"]) for one in status.get("conditions") or ()]

            await cluster.until(lambda: reachable() == [("False", "PoolUnreachable")], within_s=60)
