"""A pool's host as a container of our own image, on a containerd of the test's own: paused, cut off and killed for real.

    async with Containers(folder) as all: pool = all.host(cluster uid, folder); await pool.start() ...

The container has a network of its own; a wire leads from it to this machine's.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from hack.cluster import build
from hack.release import image

ROOT = Path(__file__).resolve().parents[2]
_NET = os.getpid() % 8128
_HERE, _THERE = (f"169.254.{64 + _NET // 64}.{4 * (_NET % 64) + end}" for end in (1, 2))
"""A net of two for each process, so that such tests may run side by side."""
_PORT = 7480
_RIGHTS = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE")
"""What the agent needs to put servers into namespaces of their own."""
_CONFIG = """
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
address = "{folder}/s"
"""


async def run(*words: str | Path, **more: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        cwd=ROOT,
        env=os.environ | more,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, f"{words}: {said.decode()}"
    return said.decode()


class Host:
    """One container. Its state outlives it, on this machine's disk."""

    def __init__(self, ctr: tuple[str | Path, ...], reference: str, name: str, folder: Path) -> None:
        self._ctr, self._reference, self._name, self._folder = ctr, reference, name, folder
        self._device = f"egpu{os.getpid()}"
        cards = [{"uuid": f"GPU-real{one:04d}", "productName": "NVIDIA A100", "memory": 80 << 30} for one in range(2)]
        (folder / "state").mkdir(parents=True, mode=0o700)
        (folder / "cards.yaml").write_text(json.dumps({"cards": cards}))
        self.endpoint = f"{_THERE}:{_PORT}"
        self._settings = {
            "EGPU_POOL_ID": "lab",
            "EGPU_PROFILES": "fake",
            "EGPU_CARDS_FILE": f"{folder}/cards.yaml",
            "EGPU_STATE_DIR": f"{folder}/state",
            "EGPU_LISTEN": f"0.0.0.0:{_PORT}",
            "EGPU_ADVERTISE": _THERE,
            "EGPU_METRICS_PORT": "0",
        }

    async def certificate(self, cluster_uid: str) -> Path:
        made = self._folder / "controller"
        await run(sys.executable, "-m", "pool", "controller-certificate", cluster_uid, made, **self._settings)
        return made

    async def start(self) -> None:
        rights = [word for right in _RIGHTS for word in ("--cap-add", right)]
        settings = [word for key, value in self._settings.items() for word in ("--env", f"{key}={value}")]
        place = f"type=bind,src={self._folder},dst={self._folder},options=rbind:rw"
        where = ("--cgroup", f"/{self._name}", "--mount", place)
        await self._call("run", "--detach", *rights, *settings, *where, self._reference, self._name, "egpu-pool")
        listed = await self._call("tasks", "list")
        pid = next(line.split()[1] for line in listed.splitlines() if line.startswith(f"{self._name} "))
        await run("ip", "link", "add", self._device, "type", "veth", "peer", "name", "eth0", "netns", pid)
        await run("ip", "addr", "add", f"{_HERE}/30", "dev", self._device)
        await run("ip", "link", "set", self._device, "up")
        inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
        await run(*inside, "addr", "add", f"{_THERE}/30", "dev", "eth0")
        await run(*inside, "link", "set", "lo", "up")
        await run(*inside, "link", "set", "eth0", "up")

    async def kill(self) -> None:
        """With all its servers: the container goes, and its end of the wire."""
        await self._call("tasks", "kill", "--signal", "SIGKILL", self._name)
        async with asyncio.timeout(60):
            while "STOPPED" not in await self._call("tasks", "list"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await self._call("tasks", "delete", self._name)
        await self._call("containers", "delete", self._name)
        with contextlib.suppress(AssertionError):  # it is gone with the container's network, sooner or later
            await run("ip", "link", "delete", self._device)

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        await self._call("tasks", "pause", self._name)
        try:
            yield
        finally:
            await self._call("tasks", "resume", self._name)

    @contextlib.asynccontextmanager
    async def cut_off(self) -> AsyncIterator[None]:
        await run("ip", "link", "set", self._device, "down")
        try:
            yield
        finally:
            await run("ip", "link", "set", self._device, "up")

    async def _call(self, *words: str) -> str:
        return await run(*self._ctr, *words)


@contextlib.asynccontextmanager
async def a_host(folder: Path) -> AsyncIterator[Host]:
    """A host of its own containerd, in a folder with a short name."""
    binaries = await asyncio.to_thread(build.build)
    reference, archive = await asyncio.to_thread(image)
    (folder / "config.toml").write_text(_CONFIG.format(folder=folder))
    path = f"{binaries}:{os.environ['PATH']}"
    with (folder / "log").open("wb") as log:
        daemon = await asyncio.create_subprocess_exec(
            binaries / "containerd", "--config", folder / "config.toml", env=os.environ | {"PATH": path}, stderr=log
        )
    ctr = (binaries / "ctr", "--address", f"{folder}/s", "--namespace", "egpu")
    try:
        async with asyncio.timeout(60):
            while not (folder / "s").exists():  # noqa: ASYNC110  a socket tells nobody that it is there
                await asyncio.sleep(0.1)
        await run(*ctr, "images", "import", archive)
        host = Host(ctr, reference, f"egpu-pool-{os.getpid()}", folder / "pool")
        try:
            yield host
        finally:
            with contextlib.suppress(AssertionError):
                await host.kill()
    finally:
        daemon.terminate()
        await daemon.wait()
