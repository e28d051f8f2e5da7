"""The driver root of a node with cards: what an installed NVIDIA driver leaves at /run/nvidia/driver, with stand-ins.

The stand-in for NVML reads the cards from a text file beside it, which may be changed while the node runs; `fake-cuda`,
beside it too, uses their memory. Device nodes are real ones without a driver behind them: a container sees them, opening
them fails. `install` replaces the driver by one of another version, as a package does.
"""

import os
import re
import shutil
import stat
import uuid
from pathlib import Path

from hack.cluster import cgroups, commands, paths, state

DRIVER_ROOT = "/run/nvidia/driver"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
CARDS_FILE = f"{LIBRARIES}/fake-nvml.cards"
DRIVER = "580.95.05"
LIMITING = "615.43.02"
"""A driver that limits the memory of control groups, for `install`."""
MEMORY = "/var/lib/kubelet/plugins/fake-nvml"
"""Where the stand-in keeps who uses how much: like the driver's own memory it is the node's, and every process sees it."""

_FAKE_NVML = Path(__file__).parents[2] / "driver" / "fakenvml"
_NVIDIA, _UVM = 195, 511
_CONTROL = {
    "nvidiactl": (_NVIDIA, 255),
    "nvidia-modeset": (_NVIDIA, 254),
    "nvidia-uvm": (_UVM, 0),
    "nvidia-uvm-tools": (_UVM, 1),
}
_HOOK = """#!/bin/sh
case "$1 $2" in
"apply-cuda-memory-limits --driver-root")
	exec /usr/bin/unshare --mount /bin/sh -c '/bin/mount -t cgroup2 none /sys/fs/cgroup && exec "$0" "$@"' "$0.real" "$@" ;;
esac
exec "$0.real" "$@"
"""
_SMI = f"""#!/bin/sh
# A stand-in: names the device nodes it sees, on a node those of the driver root, in a container its own.
echo "NVIDIA-SMI stand-in, driver {DRIVER}"
ls "$(dirname "$0")"/../../dev/nvidia[0-9]* | sed 's,.*/dev/,/dev/,'
"""


def lay_out(instance: state.Instance, node: state.Node) -> None:
    """Make the driver root of a node; a node without cards gets none."""
    if not node.cards:
        return
    root = instance.node_directory(node) / "run/nvidia/driver"
    for name in ("dev", LIBRARIES, "usr/bin"):
        (root / name).mkdir(parents=True)
    for name, (major, minor) in {
        **_CONTROL,
        **{f"nvidia{card}": (_NVIDIA, card) for card in range(node.cards)},
    }.items():
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (root / "dev" / name).chmod(0o666)
    commons = instance.node_directory(node) / MEMORY.removeprefix("/var/")
    commons.mkdir(parents=True)
    commons.chmod(0o777)
    _libraries(root / LIBRARIES, DRIVER)
    (root / CARDS_FILE).write_text(cards_file(instance.name, node), encoding="utf-8")
    for program in ("nvidia-ctk", "nvidia-cdi-hook"):
        shutil.copy2(instance.bin / program, root / "usr/bin" / program)
    (root / "usr/bin/nvidia-smi").write_text(_SMI, encoding="utf-8")
    (root / "usr/bin/nvidia-smi").chmod(0o755)


def cards_file(name: str, node: state.Node) -> str:
    """The node's cards as text; a card's UUID follows from the names, so it is the same the next time."""
    lines = [f"# The cards of {node.name}; read again whenever this file changes.", f"driver {DRIVER}", "cuda 13.0"]
    lines.append(f"memory-file {MEMORY}/memory")
    for card in range(node.cards):
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{card}.{node.name}.{name}.elasticgpu.io")
        lines.append(
            f"card uuid=GPU-{identity} minor={card} pci=0000:{0x0A + 0x10 * card:02x}:00.0 numa={card * 2 // max(node.cards, 2)}"
        )
    return "\n".join(lines) + "\n"


def install(root: Path, version: str) -> None:
    """Replaces the driver below this driver root; containers that run keep what they have mounted."""
    if (root / LIBRARIES / f"libcuda.so.{version}").exists():
        return
    for old in (root / LIBRARIES).glob("lib*.so*"):
        old.unlink()
    _libraries(root / LIBRARIES, version)
    _stand_on_unified_groups(root / "usr/bin/nvidia-cdi-hook")
    cards = root / CARDS_FILE
    fresh = cards.with_suffix(".new")
    fresh.write_text(re.sub(r"(?m)^driver .*$", f"driver {version}", cards.read_text()), encoding="utf-8")
    fresh.replace(cards)


def _stand_on_unified_groups(hook: Path) -> None:
    """NVIDIA's hook looks for control groups of version 2 at /sys/fs/cgroup alone. Where this machine has them elsewhere
    too, it is run with them there, in a mount namespace of its own."""
    if cgroups.unified() == Path("/sys/fs/cgroup") or hook.with_suffix(".real").exists():
        return
    hook.rename(hook.with_suffix(".real"))
    hook.write_text(_HOOK, encoding="utf-8")
    hook.chmod(0o755)


def _libraries(into: Path, version: str) -> None:
    with state.locked(paths.cache() / "making"):
        commands.run("make", "-C", _FAKE_NVML)
        shutil.copy2(_FAKE_NVML / "build/libnvidia-ml.so.1", into / f"libnvidia-ml.so.{version}")
        shutil.copy2(_FAKE_NVML / "build/fake-cuda", into / "fake-cuda")
    (into / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
    linked = ("-shared", "-Wl,-soname,libcuda.so.1", "-o", into / f"libcuda.so.{version}", "-xc", "-")
    commands.run("gcc", *linked)
    (into / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (into / "libcuda.so").symlink_to("libcuda.so.1")
