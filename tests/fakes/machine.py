"""A node's disk and cards under one directory, and the driver assembled on it as `egpu-node` does.

    machine = Machine(tmp_path, count=4)
    async with machine.node() as driver:        # started, looking at its cards, ready to prepare
        await driver.prepare(machine.claim("a", 0))
    machine.spec("a")                           # what a runtime would read, None if it finds no file

A new `node()` on the same machine is a restart. Device nodes are links to /dev/null, so that no test needs root.
"""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from api import names, resource
from driver import __main__ as program
from driver import disk, hamiregion, node, nvml, settings
from kubeletplugin import contract
from tests.fakes import cards as fake_cards
from tests.fakes import mpsdriver

LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Machine:
    def __init__(self, root: Path, *, count: int = 2) -> None:
        self.root = root
        self.cards = fake_cards.FakeCards(root / "nvml", count=count)
        self.driver_root = root / "host"
        self.cdi_dir = root / "cdi"
        self.data_dir = root / "plugins" / names.LOCAL_DRIVER
        self.pods: list[dict[str, Any]] = []
        self.hami_library: Path | None = None
        self.hami_region: hamiregion.Layout | None = None
        self.mps: mpsdriver.MPSDriver | None = None
        self.cgroups = root / "cgroups"
        self.proc = root / "proc"
        self.unbooked_taint_mib = 0
        for directory in (self.driver_root / "dev", self.driver_root / LIBRARIES, root / "sys"):
            directory.mkdir(parents=True)
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").touch()
        self.cards.group(self.cgroups)
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(count))):
            self.add_node(name)
        self.install_driver(fake_cards.DRIVER)

    def install_driver(self, version: str) -> None:
        """The driver's libraries as its package leaves them, with their links."""
        for stem in ("libcuda", "libnvidia-ml"):
            directory = self.driver_root / LIBRARIES
            for old in directory.glob(f"{stem}.so*"):
                old.unlink()
            (directory / f"{stem}.so.{version}").touch()
            (directory / f"{stem}.so.1").symlink_to(f"{stem}.so.{version}")
        self.cards.set_driver(version)

    def add_hook(self, *, knows_limits: bool = True) -> Path:
        """NVIDIA's CDI hook, as far as it is asked what it can do."""
        hook = self.driver_root / "usr/bin/nvidia-cdi-hook"
        hook.parent.mkdir(parents=True, exist_ok=True)
        hook.write_text(f"#!/bin/sh\nexit {0 if knows_limits else 3}\n")
        hook.chmod(0o755)
        return hook

    def add_pod(self, uid: str, *containers: str) -> Path:
        """The control groups of a pod; its own."""
        pod = self.cgroups / f"kubepods/burstable/pod{uid}"
        for container in containers:
            (pod / container).mkdir(parents=True)
        pod.mkdir(parents=True, exist_ok=True)
        return pod

    def add_process(self, pid: int, group: Path) -> None:
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(f"3:cpu:/x\n0::/{group.relative_to(self.cgroups)}\n")

    def install_mps(self) -> mpsdriver.MPSDriver:
        """The programs of NVIDIA's driver for MPS, and a libcuda that speaks to them; the node is set up for it."""
        self.mps = mpsdriver.MPSDriver()
        shutil.copy2(self.mps.library, self.driver_root / LIBRARIES / f"libcuda.so.{fake_cards.DRIVER}")
        return self.mps

    def add_node(self, name: str) -> None:
        (self.driver_root / "dev" / name).symlink_to("/dev/null")

    def remove_node(self, name: str) -> None:
        (self.driver_root / "dev" / name).unlink()

    @property
    def settings(self) -> settings.Settings:
        return settings.Settings(
            node_name="node1",
            cdi_dir=self.cdi_dir,
            driver_root=self.driver_root,
            nvml_library=self.cards.library,
            nvml_limit_s=6,
            sysfs=self.root / "sys",
            poll_s=0.05,
            repair_s=0.05,
            hami_library=self.hami_library,
            hami_region=self.hami_region,
            mps_dir=self.mps and self.mps.pipes.parent,
            mps_control=self.mps and self.mps.program,
            cgroups=self.cgroups,
            proc=self.mps.proc if self.mps else self.proc,
            measure_s=0.05,
            unbooked_s=0.1,
            unbooked_taint_mib=self.unbooked_taint_mib,
        )

    @contextlib.asynccontextmanager
    async def node(self, writer: disk.Disk | None = None) -> AsyncIterator[node.Node]:
        """A driver process, until the block ends; what was in memory is forgotten then."""
        gateway = nvml.NVML(libraries=(self.cards.library,), limit_s=6, sysfs=self.root / "sys", groups=self.cgroups)
        driver = await program.assembled(self.settings, self.data_dir, gateway, writer or disk.Disk(), self.read_pods)
        await driver.start()
        task = asyncio.create_task(driver.run())
        try:
            yield driver
        finally:
            task.cancel()
            await asyncio.wait([task])
            await gateway.close()

    async def read_pods(self, claim: resource.Claim) -> tuple[dict[str, Any], ...]:
        """The pods as the API server would give them."""
        return tuple(pod for pod in self.pods if claim.name in json.dumps(pod))

    def device(self, index: int) -> str:
        return self.cards.uuids[index].lower()

    def claim(self, uid: str, *indexes: int, admin: bool = False, **more: Any) -> resource.Claim:
        """An allocated claim of these cards."""
        results = tuple(
            resource.Result(
                request=f"request-{number}",
                driver=names.LOCAL_DRIVER,
                pool="egpu/node1",
                device=self.device(index),
                admin_access=admin,
            )
            for number, index in enumerate(indexes)
        )
        facts: dict[str, Any] = {"namespace": "default", "name": f"claim-{uid}", "results": results} | more
        return resource.Claim(uid=resource.ClaimUID(uid), **facts)

    def share(
        self, uid: str, *indexes: int, cores: int = 25, memory: str = "8Gi", firm: Mapping[str, str] | None = None
    ) -> resource.Claim:
        """An allocated claim of one such share on each of these cards; its class is as `firm` as that says."""
        amounts = (("cores", str(cores)), ("memory", memory), ("shares", "1"))
        whole = self.claim(uid, *indexes)
        results = tuple(
            replace(result, consumed_capacity=amounts, share_id=f"{uid}-{number}")
            for number, result in enumerate(whole.results)
        )
        parameters = {"apiVersion": names.API_VERSION, "kind": "ShareConfig", "memory": "BestEffort", **(firm or {})}
        of_class = resource.Config(driver=names.LOCAL_DRIVER, requests=(), from_class=True, parameters=parameters)
        return replace(whole, results=results, configs=(of_class,))

    @staticmethod
    def ref(uid: str) -> contract.ClaimRef:
        return contract.ClaimRef(uid=resource.ClaimUID(uid), namespace="default", name=f"claim-{uid}")

    def record(self, uid: str) -> Path:
        return self.data_dir / "claims" / f"{uid}.json"

    def spec_file(self, uid: str) -> Path:
        return self.cdi_dir / f"k8s.gpu.elasticgpu.io-claim_{uid}.json"

    def spec(self, uid: str) -> dict[str, Any] | None:
        with contextlib.suppress(FileNotFoundError):
            spec: dict[str, Any] = json.loads(self.spec_file(uid).read_text())
            return spec
        return None


async def until(condition: Callable[[], object], within_s: float = 60) -> None:
    """Waits for what another thread or process makes true."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 the other side is a thread, a process or a disk
            await asyncio.sleep(0.01)
