"""What is asked of NVML, call by call: the facts of the driver and of a card, limits, processes. All of it blocks.

`nvml` runs these in threads with a limit; nobody else does. They raise what pynvml raises.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from driver import inventory as inv
from driver import sysfs

T = TypeVar("T")

GONE = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
"""The driver under us is not the one we started with."""
_UNTOLD = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NO_DATA,
)
"""Answers of a card that is well but does not tell."""
_IDLE_BYTES = 64 << 20
"""What an idle card may show as used."""


def system_facts() -> tuple[str, str | None, int]:
    cuda = _optional(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    text = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    return pynvml.nvmlSystemGetDriverVersion(), text, pynvml.nvmlDeviceGetCount()


def facts(handle: Any, uuid: inv.CardUUID, tree: Path, groups: Path) -> inv.Card:
    pci = _optional(lambda: pynvml.nvmlDeviceGetPciInfo_v3(handle))
    bus_id = None if pci is None else f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
    node, root = (None, None) if bus_id is None else sysfs.place(tree, bus_id)
    capability = _optional(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    memory = _optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    mig = _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    return inv.Card(
        uuid=uuid,
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        pci_bus_id=bus_id,
        product_name=_optional(lambda: pynvml.nvmlDeviceGetName(handle)),
        brand=inv.BRANDS.get(_optional(lambda: pynvml.nvmlDeviceGetBrand(handle)) or 0),
        architecture=inv.ARCHITECTURES.get(_optional(lambda: pynvml.nvmlDeviceGetArchitecture(handle)) or 0),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        memory_bytes=None if memory is None else int(memory.total),
        numa_node=_affinity(handle) if node is None else node,
        pcie_root=root,
        mig_enabled=mig is not None and mig[0] == 1,
        memory_limits=_limits_memory(handle, str(groups)),
    )


def examine(uuid: inv.CardUUID) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    for ask in (
        pynvml.nvmlDeviceGetUUID,
        pynvml.nvmlDeviceGetPciInfo_v3,
        pynvml.nvmlDeviceGetMemoryInfo,
        lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        pynvml.nvmlDeviceGetUtilizationRates,
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    ):
        try:
            ask(handle)
        except pynvml.NVMLError as error:
            if error.value not in _UNTOLD:
                raise


def compute_mode(uuid: str) -> int:
    return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid)))


def set_compute_mode(uuid: str, mode: int) -> None:
    pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), mode)


def left_on(uuid: inv.CardUUID) -> str | None:
    """Processes, or memory beside what the driver keeps for itself. A card that does not tell of one is judged by the other."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    found: set[int] = set()
    for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3):
        try:
            found |= {process.pid for process in ask(handle)}
        except pynvml.NVMLError as error:
            if error.value not in _UNTOLD:
                raise
    if found:
        return f"processes {', '.join(map(str, sorted(found)))} are on the card"
    used = int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
    return f"{used >> 20} MiB of the card are in use by no process" if used > _IDLE_BYTES else None


def memory_limit(uuid: str, group: str) -> int | None:
    """How many bytes of the card a control group may have; None where it was given no limit."""
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t()
    asked.nameSpace = group.encode()
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), asked)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return None
        raise
    return None if asked.hardLimit == pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX else int(asked.hardLimit)


def limit_memory(uuid: str, group: str, limit: int | None) -> None:
    hard = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if limit is None else limit
    wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(group.encode(), 0, hard)
    pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), wanted)


def use(uuid: str, since_us: int) -> tuple[inv.Reading, int]:
    """What the card's processes have of it; how busy they kept it since a time, and the time of the newest figure.

    Processes show only to who is in the host's pid namespace. The same one may be listed for compute and for graphics.
    """
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    lists = (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle),
        _optional(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle)) or (),
        _optional(lambda: pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)) or (),
    )
    memory: dict[int, int] = {}
    for one in (one for found in lists for one in found):
        memory[one.pid] = max(memory.get(one.pid, 0), one.usedGpuMemory or 0)
    samples = _optional(lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)) or ()
    busy = {one.pid: int(one.smUtil) for one in sorted(samples, key=lambda one: int(one.timeStamp))}
    processes = tuple(
        inv.Process(pid=pid, memory_bytes=used, cores=busy.get(pid, 0)) for pid, used in sorted(memory.items())
    )
    newest = max((int(one.timeStamp) for one in samples), default=since_us)
    return inv.Reading(used_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).used), processes=processes), newest


def _affinity(handle: Any) -> int | None:
    """The NUMA node as NVML has it, for where the kernel's tree is not at hand."""
    nodes = _optional(lambda: pynvml.nvmlDeviceGetMemoryAffinity(handle, 16, pynvml.NVML_AFFINITY_SCOPE_NODE))
    bits = (
        []
        if nodes is None
        else [64 * at + bit for at, word in enumerate(nodes) for bit in range(64) if word >> bit & 1]
    )
    return bits[0] if bits else None


def _limits_memory(handle: Any, group: str) -> bool:
    """By asking for the limit of a group that has none: an older driver lacks the call, other cards do not support it."""
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t()
    asked.nameSpace = group.encode()
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, asked)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST or error.value in GONE:
            raise
        return error.value in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_OPERATING_SYSTEM)
    return True


def _optional(call: Callable[[], T]) -> T | None:
    """None for what a card does not tell; an error that says that the card or the driver is gone goes on."""
    try:
        return call()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST or error.value in GONE:
            raise
        return None
