"""Kubernetes, etcd, containerd and NVIDIA's container toolkit, built from pinned Go modules into the user's cache.

Each folder of `modules` is a Go module that requires one of them: what its `tools.go` imports is built with exactly the
sums of its `go.sum`. The cache directory is named after these files and the flags, and appears complete or not at all.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import commands, errors, paths, progress, state

KUBERNETES = "v1.37.2"
MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One module: how its programs are built and how long that takes on two cores with an empty cache."""

    module: Path
    flags: tuple[str, ...]
    cgo: bool
    minutes: float
    renamed: str = ""
    """The program's name where its package does not give it."""

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(re.findall(r'^\t_ "(.+)"$', (self.module / "tools.go").read_text(encoding="utf-8"), re.MULTILINE))

    @property
    def programs(self) -> tuple[str, ...]:
        return (self.renamed,) if self.renamed else tuple(package.rsplit("/", 1)[-1] for package in self.packages)


def pinned() -> tuple[str, ...]:
    """Every version of Kubernetes that can be built, oldest first."""
    return tuple(sorted((path.name for path in (MODULES / "kubernetes").iterdir()), key=_numbers))


def named(version: str) -> str:
    """The newest pinned version that `1.36`, `v1.36` or `v1.36.3` is short for."""
    wanted = _numbers(version)
    found = [known for known in pinned() if wanted and _numbers(known)[: len(wanted)] == wanted]
    if not found:
        known = ", ".join(pinned())
        raise errors.ClusterError(
            f"Kubernetes {version} is not pinned in {MODULES / 'kubernetes'}, only {known}; python3 -m hack.cluster pin adds one"
        )
    return found[-1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def groups(kubernetes: str = KUBERNETES) -> tuple[Group, ...]:
    """What is built for this version of Kubernetes."""
    kubernetes = named(kubernetes)
    module = MODULES / "kubernetes" / kubernetes
    strip = "-s -w"
    version = f"{strip} -X k8s.io/component-base/version.gitVersion={kubernetes}"
    return (
        Group(module=module, flags=("-ldflags", version), cgo=False, minutes=7),
        Group(module=MODULES / "etcd", flags=("-ldflags", strip), cgo=False, minutes=0.5, renamed="etcd"),
        Group(
            module=MODULES / "containerd",
            flags=("-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", strip),
            cgo=False,
            minutes=1,
        ),
        # The driver's library is opened while the program runs, so its symbols are unknown when it is linked.
        Group(
            module=MODULES / "toolkit", flags=("-ldflags", f"{strip} -extldflags=-Wl,-z,lazy"), cgo=True, minutes=0.5
        ),
    )


def key(wanted: tuple[Group, ...]) -> str:
    """Sixteen hex digits that change with any module file or flag."""
    digest = hashlib.sha256()
    for group in wanted:
        for name in ("go.mod", "go.sum", "tools.go"):
            digest.update((group.module / name).read_bytes())
        digest.update(repr((group.flags, group.cgo)).encode())
    return digest.hexdigest()[:16]


def directory(kubernetes: str = KUBERNETES) -> Path:
    return paths.cache() / f"bin-{key(groups(kubernetes))}"


def build(kubernetes: str = KUBERNETES) -> Path:
    """Return the directory with all programs, built first where it is missing."""
    wanted, target = groups(kubernetes), directory(kubernetes)
    if target.is_dir():
        return target
    with state.locked(paths.cache() / "building"):
        if not target.is_dir():
            _build(wanted, target)
    return target


def _build(wanted: tuple[Group, ...], target: Path) -> None:
    total = sum(len(group.programs) for group in wanted)
    progress.say(
        f"building {total} programs into {target}: once, about {sum(group.minutes for group in wanted):.0f} minutes on two cores"
    )
    for stale in (target.parent / "building").iterdir():
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent / "building") as temporary:
        done = 0
        for group in wanted:
            names = ", ".join(group.programs)
            progress.say(
                f"{done + 1} to {done + len(group.programs)} of {total}: {names} (up to {group.minutes:g} min)"
            )
            _compile(group, Path(temporary, "bin"))
            done += len(group.programs)
        Path(temporary, "bin").replace(target)
    progress.say(f"built {total} programs")


def _compile(group: Group, into: Path) -> None:
    into.mkdir(exist_ok=True)
    command = ("go", "build", "-v", "-trimpath", *group.flags, "-o", f"{into}/{group.renamed}", *group.packages)
    environment = paths.environment(CGO_ENABLED="1" if group.cgo else "0", GOFLAGS="-mod=readonly", GOWORK="off")
    commands.follow(*command, cwd=group.module, env=environment, how_far=_how_far)


def _how_far(said: Sequence[str]) -> str:
    fetched = sum(line.startswith("go: downloading") for line in said)
    return f"{len(said) - fetched} packages compiled" + (f", {fetched} modules fetched" if fetched else "")
