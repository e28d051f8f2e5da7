"""Where a card sits, as the kernel tells it: NUMA node and PCIe root complex."""

import os
import re
from pathlib import Path


def place(sysfs: Path, bus_id: str) -> tuple[int | None, str | None]:
    """Node and root (pci0000:00) of the device; None for what the kernel does not tell. Blocks: call it in a thread."""
    device = sysfs / "bus/pci/devices" / bus_id
    root = re.search(r"/(pci[0-9a-f]{4,}:[0-9a-f]{2})/", os.path.realpath(device))
    try:
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        node = -1
    return (None if node < 0 else node), (None if root is None else root[1])
