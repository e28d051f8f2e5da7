"""What this machine has to have, told in one line together with the command that brings it."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import build, commands, errors, nodes, paths, progress

_PACKAGES = {
    "gcc": ("gcc", "libc6-dev"),
    "make": ("make",),
    "git": ("git",),
    "runc": ("runc",),
    "nft": ("nftables",),
    "openssl": ("openssl",),
    "ip": ("iproute2",),
    "nsenter": ("util-linux",),
    "unshare": ("util-linux",),
    "busybox": ("busybox-static",),
    "debootstrap": ("debootstrap",),
    "buildah": ("buildah",),
}
_FOR_TESTS = {"chromium": ("chromium", "fonts-dejavu-core"), "promtool": ("prometheus",)}
"""The demo does without, and nobody wants a Prometheus that starts by itself for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """One thing that is not here, and the Debian packages that bring it, if any do."""

    what: str
    packages: tuple[str, ...] = ()


def lacks(*, tests: bool = False) -> tuple[Lack, ...]:
    """Everything that is not here; `tests`: also what tests alone need."""
    tools = _PACKAGES | (_FOR_TESTS if tests else {})
    found = [Lack(what=tool, packages=packages) for tool, packages in tools.items() if shutil.which(tool) is None]
    if not Path(nodes.cni_plugins(), "ptp").exists():
        found.append(Lack(what="CNI plugins", packages=("containernetworking-plugins",)))
    if subprocess.run((sys.executable, "-m", "pip", "--version"), capture_output=True, check=False).returncode != 0:
        found.append(Lack(what="pip", packages=("python3-pip",)))
    if importlib.util.find_spec("ensurepip") is None:  # Debian ships it apart
        found.append(Lack(what="venv", packages=("python3-venv",)))
    return (*_beyond_packages(), *found)


def sentence(missing: Iterable[Lack]) -> str:
    """One line that names what is missing and the command that brings it; empty where nothing is."""
    missing = tuple(missing)
    if not missing:
        return ""
    packages = _packages(missing)
    bring = f"; packages: apt-get install -y --no-install-recommends {' '.join(packages)}" if packages else ""
    return f"missing: {', '.join(lack.what for lack in missing)}{bring}"


def check() -> None:
    if told := sentence(lacks()):
        raise errors.ClusterError(told)


def install(*, tests: bool = False) -> None:
    """Install what Debian's packages bring, and complain about the rest."""
    if packages := _packages(lacks(tests=tests)):
        progress.say(f"installing {' '.join(packages)}")
        quiet = paths.environment(DEBIAN_FRONTEND="noninteractive")
        try:
            commands.follow("apt-get", "update", env=quiet, how_far=_last)
        except errors.ClusterError as error:
            # One unreachable source among many need not matter to the packages wanted here.
            progress.say(str(error).splitlines()[-1])
        install = ("apt-get", "install", "-y", "--no-install-recommends", *packages)
        commands.follow(*install, env=quiet, how_far=_last)
    check()


def go_needed(modules: Iterable[str]) -> tuple[int, ...]:
    """The newest Go that any of these module files asks for."""
    asked = (re.search(r"^go ([\d.]+)$", text, re.MULTILINE) for text in modules)
    return max(tuple(map(int, found.group(1).split("."))) for found in asked if found)


def _beyond_packages() -> Iterable[Lack]:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        yield Lack(what=f"Linux on x86_64 (this is {platform.system()} on {platform.machine()})")
    if os.geteuid() != 0:
        yield Lack(what="root")
    needed = go_needed(path.read_text(encoding="utf-8") for path in build.MODULES.rglob("go.mod"))
    if (_go_here() or (0,)) < needed:
        yield Lack(what=f"Go {'.'.join(map(str, needed))} or newer")


def _go_here() -> tuple[int, ...] | None:
    if shutil.which("go") is None:
        return None
    version = commands.run("go", "env", "GOVERSION", env=paths.environment(GOTOOLCHAIN="local"))
    found = re.match(r"go(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found.group(1).split("."))) if found else None


def _packages(missing: Iterable[Lack]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(package for lack in missing for package in lack.packages))


def _last(lines: Sequence[str]) -> str:
    return lines[-1] if lines else "nothing said yet"
