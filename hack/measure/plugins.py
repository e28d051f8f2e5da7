"""The two plugins under measure: where each one lives, how it is started, and what is asked of either in the same way."""

import hashlib
import os
import shutil
import stat
import statistics
import subprocess
import time
import tomllib
import venv
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hack.cluster import paths
from hack.measure import apiserver, kubelet, programs

ROOT = Path(__file__).resolve().parents[2]
_CONTROL = {"nvidiactl": (195, 255), "nvidia-modeset": (195, 254), "nvidia-uvm": (511, 0), "nvidia-uvm-tools": (511, 1)}
LIBRARIES = "usr/lib/x86_64-linux-gnu"
VERSION = "580.95.05"

Command = Callable[["Side"], tuple[list[str | Path], Mapping[str, str]]]


class Side:
    """One plugin with a node, directories and a kubelet of its own, and all that was measured of it, by name."""

    def __init__(
        self, name: str, driver: str, directory: Path, api: apiserver.APIServer, stand_in: Path, command: Command
    ) -> None:
        self.name, self.driver, self.node, self.api = name, driver, f"bench-{name}", api
        self.directory, self.registry, self.plugins, self.cdi = (
            directory,
            *(directory / part for part in ("registry", "plugins", "cdi")),
        )
        for part in (self.registry, self.plugins, self.cdi):
            part.mkdir(parents=True)
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.devices: list[tuple[str, str]] = []
        self._command, self._made = command, 0
        self._program: programs.Program | None = None
        self.kubelet = kubelet.Kubelet(stand_in, self.registry, directory / "kubelet.log")
        api.make_node(self.node)

    @property
    def program(self) -> programs.Program:
        assert self._program is not None
        return self._program

    def start(self) -> float:
        """Start the plugin; seconds until it is registered, as at once as its socket is there, and its slices are published."""
        argv, environment = self._command(self)
        began = time.monotonic()
        self._program = programs.Program(
            argv, self.directory / "plugin.log", environment=paths.environment(**environment)
        )
        self.kubelet.register(self.driver)
        self.wait_for_slices()
        took = time.monotonic() - began
        self.devices = [
            (item["spec"]["pool"]["name"], device["name"])
            for item in self.slices()
            for device in item["spec"]["devices"]
        ]
        return took

    def slices(self) -> list[dict[str, Any]]:
        return self.api.slices(self.driver)

    def wait_for_slices(self, timeout_s: float = 120) -> float:
        """Seconds until a slice with devices is there."""
        began = time.monotonic()
        while not any(item["spec"].get("devices") for item in self.slices()):
            self.program.check()
            if time.monotonic() - began > timeout_s:
                raise RuntimeError(f"{self.name}: no slice after {timeout_s:.0f} s:\n{self.program.tail()}")
            time.sleep(0.01)
        return time.monotonic() - began

    def claims(
        self, count: int, *, admin: bool = False, skip: int = 0, part: Mapping[str, str] | None = None
    ) -> list[kubelet.Claim]:
        """New claims, allocated to one device after the other; admin access where more claims are held than devices.

        `part`: what of its device each has, where it is a share.
        """
        names = [f"{self.name}-{self._made + index}" for index in range(count)]
        self._made += count
        return self.api.make_claims(names, self.driver, self.node, self.devices[skip:], admin=admin, part=part)

    def p50(self, what: str) -> float:
        return statistics.median(self.samples[what])

    def mean(self, what: str) -> float:
        return statistics.fmean(self.samples[what])

    def stop(self) -> None:
        if self._program is not None:
            self._program.stop()
            self._program = None

    def close(self) -> None:
        self.stop()
        self.kubelet.stop()


def build_reference() -> Path:
    """Build the Go programs; the directory that holds them."""
    target = ROOT / "build" / "reference"
    command = ("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{target}/", "./...")
    environment = paths.environment(CGO_ENABLED="0", GOFLAGS="-mod=readonly", GOWORK="off")
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, cwd=ROOT / "hack" / "reference", env=environment, check=True)
    return target


def reference(program: Path, kubeconfig: Path, edits: Path, *, lean: bool) -> Command:
    """How the Go reference is started; its devices get the edits of this CDI spec, one that ours wrote."""

    def command(side: Side) -> tuple[list[str | Path], Mapping[str, str]]:
        flags = {
            "driver": side.driver,
            "node": side.node,
            "kubeconfig": kubeconfig,
            "registry": side.registry,
            "plugins": side.plugins,
            "cdi": side.cdi,
            "edits": edits,
            "lean": str(lean).lower(),
        }
        return [program, *(f"-{name}={value}" for name, value in flags.items())], {}

    return command


def runtime() -> Path:
    """An interpreter with the packages that the image has and no others: some import what else they find."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    folder = ROOT / "build" / f"runtime-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run((folder / "bin/pip", "install", "-q", "--disable-pip-version-check", *wanted), check=True)
        (folder / "complete").touch()
    return folder / "bin" / "python"


def ours(python: Path, kubeconfig: Path, library: Path, driver_root: Path) -> Command:
    """How our driver is started: its defaults, with the paths of this side, stand-in cards and a port that is free."""

    def command(side: Side) -> tuple[list[str | Path], Mapping[str, str]]:
        settings = {
            "NODE_NAME": side.node,
            "REGISTRY_DIR": side.registry,
            "PLUGIN_DIR": side.plugins,
            "CDI_DIR": side.cdi,
            "DRIVER_ROOT": driver_root,
            "HOST_DRIVER_ROOT": driver_root,
            "NVML_LIBRARY": library,
            "METRICS_PORT": programs.free_ports(1)[0],
        }
        environment = {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
        return [python, "-m", "driver"], environment | {f"EGPU_{key}": str(value) for key, value in settings.items()}

    return command


def lay_out_driver_root(root: Path, cards: int, toolkit: Path | None) -> None:
    """What an installed driver leaves on a host, beside the stand-in for NVML that is there already."""
    for name in ("dev", "usr/bin"):
        (root / name).mkdir(parents=True)
    for name, (major, minor) in {**_CONTROL, **{f"nvidia{card}": (195, card) for card in range(cards)}}.items():
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    libraries = root / LIBRARIES
    (libraries / f"libnvidia-ml.so.{VERSION}").symlink_to("libnvidia-ml.so.1")
    linked = ("gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", libraries / f"libcuda.so.{VERSION}", "-xc", "-")
    subprocess.run(linked, stdin=subprocess.DEVNULL, check=True)
    (libraries / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    for program in ("nvidia-ctk", "nvidia-cdi-hook"):
        if toolkit is not None:
            shutil.copy2(toolkit / program, root / "usr/bin" / program)
