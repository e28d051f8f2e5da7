"""The driver root of a node with cards: what an installed NVIDIA driver leaves at /run/nvidia/driver, with stand-ins.

The stand-in for NVML reads the cards from a text file beside it, which may be changed while the node runs. Device nodes
are real ones without a driver behind them: a container sees them, opening them fails.
"""

import os
import shutil
import stat
import uuid
from pathlib import Path

from hack.cluster import commands, paths, state

DRIVER_ROOT = "/run/nvidia/driver"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
CARDS_FILE = f"{LIBRARIES}/fake-nvml.cards"
DRIVER = "580.95.05"

_FAKE_NVML = Path(__file__).parents[2] / "driver" / "fakenvml"
_NVIDIA, _UVM = 195, 511
_CONTROL = {
    "nvidiactl": (_NVIDIA, 255),
    "nvidia-modeset": (_NVIDIA, 254),
    "nvidia-uvm": (_UVM, 0),
    "nvidia-uvm-tools": (_UVM, 1),
}
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
    _libraries(root / LIBRARIES)
    (root / CARDS_FILE).write_text(cards_file(instance.name, node), encoding="utf-8")
    for program in ("nvidia-ctk", "nvidia-cdi-hook"):
        shutil.copy2(instance.bin / program, root / "usr/bin" / program)
    (root / "usr/bin/nvidia-smi").write_text(_SMI, encoding="utf-8")
    (root / "usr/bin/nvidia-smi").chmod(0o755)


def cards_file(name: str, node: state.Node) -> str:
    """The node's cards as text; a card's UUID follows from the names, so it is the same the next time."""
    lines = [f"# The cards of {node.name}; read again whenever this file changes.", f"driver {DRIVER}", "cuda 13.0"]
    for card in range(node.cards):
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{card}.{node.name}.{name}.elasticgpu.io")
        lines.append(
            f"card uuid=GPU-{identity} minor={card} pci=0000:{0x0A + 0x10 * card:02x}:00.0 numa={card * 2 // max(node.cards, 2)}"
        )
    return "\n".join(lines) + "\n"


def _libraries(into: Path) -> None:
    with state.locked(paths.cache() / "making"):
        commands.run("make", "-C", _FAKE_NVML)
        shutil.copy2(_FAKE_NVML / "build/libnvidia-ml.so.1", into / f"libnvidia-ml.so.{DRIVER}")
    (into / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{DRIVER}")
    linked = ("-shared", "-Wl,-soname,libcuda.so.1", "-o", into / f"libcuda.so.{DRIVER}", "-xc", "-")
    commands.run("gcc", *linked)
    (into / "libcuda.so.1").symlink_to(f"libcuda.so.{DRIVER}")
    (into / "libcuda.so").symlink_to("libcuda.so.1")
