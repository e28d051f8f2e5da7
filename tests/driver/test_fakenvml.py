"""The fake NVML library, asked through NVIDIA's own binding: every symbol, every struct, every command.

In scope: what `driver/fakenvml/README.md` promises. Out of scope: our gateway, which has test_nvml.py.
"""

import ctypes
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fakes.cards import FAKE_CUDA, LIMITING, SOURCE, FakeCards


@pytest.fixture
def cards(tmp_path: Path) -> FakeCards:
    return FakeCards(tmp_path, count=4)


@pytest.fixture
def started(cards: FakeCards) -> Iterator[FakeCards]:
    use(cards)
    pynvml.nvmlInit()
    yield cards
    pynvml.nvmlShutdown()


def use(cards: FakeCards) -> None:
    pynvml.nvmlLib = ctypes.CDLL(str(cards.library))
    pynvml._nvmlGetFunctionPointer_cache.clear()


def handle(cards: FakeCards, index: int) -> Any:
    return pynvml.nvmlDeviceGetHandleByUUID(cards.uuids[index])


def refused(call: Callable[[], object]) -> int:
    with pytest.raises(pynvml.NVMLError) as caught:
        call()
    return int(caught.value.value)


def test_a_card_is_what_its_line_says(started: FakeCards) -> None:
    started.change(
        1,
        name="NVIDIA L40S",
        minor=7,
        pci="0001:c3:00.0",
        memory="46068MiB",
        arch="ada",
        cc="8.9",
        numa=1,
        used="1024MiB",
    )
    card = pynvml.nvmlDeviceGetHandleByIndex(1)
    pci = pynvml.nvmlDeviceGetPciInfo(card)
    memory = pynvml.nvmlDeviceGetMemoryInfo(card)
    assert pynvml.nvmlDeviceGetUUID(card) == started.uuids[1]
    assert pynvml.nvmlDeviceGetName(card) == "NVIDIA L40S"
    assert pynvml.nvmlDeviceGetMinorNumber(card) == 7
    assert (pci.busId, pci.busIdLegacy, pci.domain, pci.bus) == ("00000001:C3:00.0", "0001:C3:00.0", 1, 0xC3)
    assert (memory.total, memory.used, memory.free) == (46068 << 20, 1024 << 20, 45044 << 20)
    assert pynvml.nvmlDeviceGetArchitecture(card) == pynvml.NVML_DEVICE_ARCH_ADA
    assert pynvml.nvmlDeviceGetBrand(card) == pynvml.NVML_BRAND_NVIDIA
    assert pynvml.nvmlDeviceGetCudaComputeCapability(card) == (8, 9)
    assert pynvml.nvmlDeviceGetNumaNodeId(card) == 1
    assert list(pynvml.nvmlDeviceGetMemoryAffinity(card, 1, pynvml.NVML_AFFINITY_SCOPE_NODE)) == [2]


def test_the_versions_are_those_of_the_file(started: FakeCards) -> None:
    assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000


def test_a_card_is_found_by_each_of_its_names(started: FakeCards) -> None:
    by_index = pynvml.nvmlDeviceGetHandleByIndex(2)
    for found in (handle(started, 2), pynvml.nvmlDeviceGetHandleByPciBusId("00000000:0C:00.0")):
        assert ctypes.addressof(found.contents) == ctypes.addressof(by_index.contents)
    assert pynvml.nvmlDeviceGetIndex(by_index) == 2
    assert refused(lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-0")) == pynvml.NVML_ERROR_NOT_FOUND
    assert refused(lambda: pynvml.nvmlDeviceGetHandleByPciBusId("0000:ff:00.0")) == pynvml.NVML_ERROR_NOT_FOUND
    assert refused(lambda: pynvml.nvmlDeviceGetHandleByIndex(4)) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_usage_comes_from_the_file(started: FakeCards) -> None:
    started.change(0, process="4711:2048MiB", used="1MiB", temperature=61, power=350000, utilization=90)
    card = handle(started, 0)
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
    rates = pynvml.nvmlDeviceGetUtilizationRates(card)
    assert (process.pid, process.usedGpuMemory) == (4711, 2048 << 20)
    assert pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2).used == 2049 << 20
    assert (rates.gpu, rates.memory) == (90, 45)
    assert pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU) == 61
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 350000
    assert pynvml.nvmlDeviceGetRemappedRows(card) == (0, 0, 0, 0)


def test_topology_is_plain_pcie(started: FakeCards) -> None:
    started.change(3, numa=1)
    one, two, far = handle(started, 0), handle(started, 1), handle(started, 3)
    fabric = pynvml.c_nvmlGpuFabricInfo_v3_t()
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(one, two) == pynvml.NVML_TOPOLOGY_HOSTBRIDGE
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(one, far) == pynvml.NVML_TOPOLOGY_SYSTEM
    assert pynvml.nvmlDeviceGetP2PStatus(one, two, 0) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    assert refused(lambda: pynvml.nvmlDeviceGetNvLinkState(one, 0)) == pynvml.NVML_ERROR_NOT_SUPPORTED
    pynvml.nvmlDeviceGetGpuFabricInfoV(one, ctypes.byref(fabric))
    assert (fabric.state, fabric.cliqueId) == (0, 0)
    assert pynvml.nvmlDeviceGetAddressingMode(one) == pynvml.NVML_DEVICE_ADDRESSING_MODE_HMM
    assert list(pynvml.nvmlDeviceGetCpuAffinity(one, 2)) == [1, 0]
    assert pynvml.nvmlDeviceGetModuleId(two) == 1
    assert pynvml.nvmlDeviceGetPersistenceMode(one) == 1


def test_mig_tells_its_mode_and_has_no_instances(started: FakeCards) -> None:
    started.change(1, mig="on")
    started.change(2, mig="unsupported")
    assert pynvml.nvmlDeviceGetMigMode(handle(started, 0)) == [0, 0]
    assert pynvml.nvmlDeviceGetMigMode(handle(started, 1)) == [1, 1]
    assert refused(lambda: pynvml.nvmlDeviceGetMigMode(handle(started, 2))) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle(started, 1)) == 7
    assert (
        refused(lambda: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(started, 1), 0))
        == pynvml.NVML_ERROR_NOT_FOUND
    )
    assert (
        refused(lambda: pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle(started, 1), 0))
        == pynvml.NVML_ERROR_NOT_SUPPORTED
    )


SYMBOLS = [
    "nvmlInitWithFlags",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlErrorString",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceSetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceDestroy",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlComputeInstanceDestroy",
    "nvmlEventSetCreate",
    "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
    "nvmlDeviceRegisterEvents",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetCpuAffinity",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetComputeRunningProcesses_v3",
]


@pytest.mark.parametrize("name", SYMBOLS)
def test_a_symbol_is_there_and_survives_null_arguments(started: FakeCards, name: str) -> None:
    """All but the three that start, stop and name: those are used by every other test."""
    call = getattr(pynvml.nvmlLib, name)
    if name not in {"nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown", "nvmlErrorString"}:
        arguments = [None, None, 0, None] if name.startswith("nvmlSystem") else [None, 0, None, None]
        assert call(*arguments) in {0, 2} if name == "nvmlEventSetFree" else call(*arguments) == 2


@pytest.mark.parametrize(
    "name", [name for name in SYMBOLS if name.startswith("nvmlDeviceGet") and "Handle" not in name]
)
def test_a_lost_card_refuses_every_call_and_the_others_none(started: FakeCards, name: str) -> None:
    room = (ctypes.c_char * 4096)()
    card = handle(started, 1)
    started.lose(1)
    if name != "nvmlDeviceGetCount_v2":
        assert getattr(pynvml.nvmlLib, name)(card, room, room, room, room) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.nvmlDeviceGetCount() == 4
    assert pynvml.nvmlDeviceGetUUID(handle(started, 2)) == started.uuids[2]


def test_a_returned_card_answers_on_the_old_handle(started: FakeCards) -> None:
    card = handle(started, 0)
    started.lose(0)
    assert refused(lambda: pynvml.nvmlDeviceGetName(card)) == pynvml.NVML_ERROR_GPU_IS_LOST
    started.return_(0)
    assert pynvml.nvmlDeviceGetName(card) == "NVIDIA H100 80GB HBM3"


def test_a_removed_card_is_not_counted_and_its_handle_is_lost(started: FakeCards) -> None:
    card = handle(started, 0)
    started.remove(0)
    assert pynvml.nvmlDeviceGetCount() == 3
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == started.uuids[1]
    assert refused(lambda: pynvml.nvmlDeviceGetName(card)) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert refused(lambda: handle(started, 0)) == pynvml.NVML_ERROR_NOT_FOUND


def test_one_call_of_one_card_can_be_made_to_fail(started: FakeCards) -> None:
    started.fail(1, "nvmlDeviceGetPciInfo_v3", "NOT_SUPPORTED")
    assert refused(lambda: pynvml.nvmlDeviceGetPciInfo(handle(started, 1))) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMinorNumber(handle(started, 1)) == 1
    assert pynvml.nvmlDeviceGetPciInfo(handle(started, 0)).bus == 0x0A


def test_a_call_on_a_hanging_card_comes_back_when_the_card_does(started: FakeCards) -> None:
    card = handle(started, 1)
    started.hang(1)
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(pynvml.nvmlDeviceGetName(card)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    assert pynvml.nvmlDeviceGetName(handle(started, 0)) == "NVIDIA H100 80GB HBM3"
    started.return_(1)
    thread.join(60)
    assert names == ["NVIDIA H100 80GB HBM3"]


def test_after_a_driver_reload_cards_answer_only_to_a_new_start(started: FakeCards) -> None:
    card = handle(started, 0)
    started.set_driver("590.10.01")
    assert pynvml.nvmlSystemGetDriverVersion() == "590.10.01"
    assert refused(lambda: pynvml.nvmlDeviceGetName(card)) == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetName(card) == "NVIDIA H100 80GB HBM3"


def test_without_a_driver_nothing_starts_until_it_comes(cards: FakeCards) -> None:
    use(cards)
    cards.unload()
    assert refused(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert refused(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    cards.load()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 4
    cards.unload()
    assert refused(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    pynvml.nvmlShutdown()


def test_without_a_cards_file_the_driver_is_not_loaded(cards: FakeCards) -> None:
    use(cards)
    cards.file.unlink()
    assert refused(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def watch(cards: FakeCards, *indices: int) -> Any:
    events = pynvml.nvmlEventSetCreate()
    for index in indices:
        pynvml.nvmlDeviceRegisterEvents(handle(cards, index), pynvml.nvmlEventTypeXidCriticalError, events)
    return events


def test_an_xid_is_told_once_to_every_set_that_watches_the_card(started: FakeCards) -> None:
    started.xid(0, 31)  # before anybody watches
    first, second = watch(started, 0, 1), watch(started, 0)
    started.xid(0, 79)
    started.xid(1, 48)
    for events, expected in ((first, [(0, 79), (1, 48)]), (second, [(0, 79)])):
        for index, number in expected:
            data = pynvml.nvmlEventSetWait_v2(events, 1000)
            assert (pynvml.nvmlDeviceGetUUID(data.device), data.eventData) == (started.uuids[index], number)
            assert data.eventType == pynvml.nvmlEventTypeXidCriticalError
        assert refused(partial(pynvml.nvmlEventSetWait_v2, events, 0)) == pynvml.NVML_ERROR_TIMEOUT
        pynvml.nvmlEventSetFree(events)


def test_a_wait_honours_its_timeout(started: FakeCards) -> None:
    events = watch(started, 0)
    before = time.monotonic()
    assert refused(lambda: pynvml.nvmlEventSetWait_v2(events, 150)) == pynvml.NVML_ERROR_TIMEOUT
    assert 0.15 <= time.monotonic() - before < 20
    pynvml.nvmlEventSetFree(events)


def test_a_half_written_line_waits_for_its_end_and_nonsense_is_passed_over(started: FakeCards) -> None:
    events = watch(started, 0)
    path = started.file.with_name(started.file.name + ".events")
    with path.open("a") as file:
        file.write(f"# a note\n\nnonsense {'x' * 9000}\nxid {started.uuids[0]} 7")
        file.flush()
        assert refused(lambda: pynvml.nvmlEventSetWait_v2(events, 50)) == pynvml.NVML_ERROR_TIMEOUT
        file.write("9\n")
        file.flush()
        assert pynvml.nvmlEventSetWait_v2(events, 1000).eventData == 79
    pynvml.nvmlEventSetFree(events)


def test_the_wait_fails_each_time_while_a_watched_card_is_lost(started: FakeCards) -> None:
    events, others = watch(started, 0, 1), watch(started, 1)
    started.xid(1, 13)
    started.lose(0)
    assert pynvml.nvmlEventSetWait_v2(events, 1000).eventData == 13
    for _ in range(3):
        assert refused(lambda: pynvml.nvmlEventSetWait_v2(events, 1000)) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.nvmlEventSetWait_v2(others, 1000).eventData == 13
    assert refused(lambda: pynvml.nvmlEventSetWait_v2(others, 0)) == pynvml.NVML_ERROR_TIMEOUT
    pynvml.nvmlEventSetFree(events)
    pynvml.nvmlEventSetFree(others)


def test_a_wait_can_be_made_to_fail_once(started: FakeCards) -> None:
    events = watch(started, 0)
    started.wait_error("GPU_IS_LOST")
    assert refused(lambda: pynvml.nvmlEventSetWait_v2(events, 1000)) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert refused(lambda: pynvml.nvmlEventSetWait_v2(events, 0)) == pynvml.NVML_ERROR_TIMEOUT
    pynvml.nvmlEventSetFree(events)


BAD_LINES = {
    "nonsense": "line 3: cannot use nonsense",
    "driver": "line 3: cannot use driver",
    "driver 1 2": "line 3: cannot use driver",
    "cuda thirteen": "line 3: cannot use cuda",
    "init MAYBE": "line 3: cannot use init",
    "card": "line 3: cannot use no uuid",
    "card name=x": "line 3: cannot use no uuid",
    "card uuid=GPU-": "line 3: cannot use uuid",
    "card uuid=GPU-../x": "line 3: cannot use uuid",
    "card uuid=GPU-1": "line 3: cannot use a uuid used before",
    "card uuid=GPU-2 colour=red": "line 3: cannot use colour",
    "card uuid=GPU-2 minor=-1": "line 3: cannot use minor",
    "card uuid=GPU-2 minor=99999999999999999999": "line 3: cannot use minor",
    "card uuid=GPU-2 memory=1TiB": "line 3: cannot use memory",
    "card uuid=GPU-2 pci=0a:00": "line 3: cannot use pci",
    "card uuid=GPU-2 cc=9": "line 3: cannot use cc",
    "card uuid=GPU-2 fail=nvmlDeviceGetName": "line 3: cannot use fail",
    "card uuid=GPU-2 fail=nvmlDeviceGetName:MAYBE": "line 3: cannot use fail",
    "card uuid=GPU-2 process=1": "line 3: cannot use process",
    'card uuid=GPU-2 name="open': "line 3: cannot use an open quote",
    "card uuid=GPU-2 name=" + "x" * 200: "line 3: cannot use name",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_named_and_nothing_starts(cards: FakeCards, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    use(cards)
    cards.file.write_text(f"# first\ncard uuid=GPU-1\n{line}\n")
    assert refused(pynvml.nvmlInit) == pynvml.NVML_ERROR_UNKNOWN
    assert capfd.readouterr().err == f"fakenvml: {cards.file}: {BAD_LINES[line]}\n"


def test_too_many_cards_are_refused(cards: FakeCards, capfd: pytest.CaptureFixture[str]) -> None:
    use(cards)
    cards.file.write_text("".join(f"card uuid=GPU-{index:x}\n" for index in range(65)))
    assert refused(pynvml.nvmlInit) == pynvml.NVML_ERROR_UNKNOWN
    assert "line 65: cannot use more than 64 cards" in capfd.readouterr().err


def test_a_bad_text_under_a_running_process_is_named_once_and_the_last_good_one_stays(
    started: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    good = started.file.read_text()
    started.file.write_text(good + "nonsense\n")
    assert pynvml.nvmlDeviceGetCount() == pynvml.nvmlDeviceGetCount() == 4
    assert capfd.readouterr().err.count("cannot use nonsense") == 1
    started.file.write_text(good + "card uuid=GPU-5\n")
    assert pynvml.nvmlDeviceGetCount() == 5


@pytest.mark.parametrize("example", sorted((SOURCE / "cards").glob("*.cards")), ids=lambda path: path.name)
def test_an_example_can_be_loaded(example: Path, tmp_path: Path) -> None:
    """In a process of its own, by the variable and the loader's search path: the other way in."""
    cards = FakeCards(tmp_path)
    program = "import pynvml, json; pynvml.nvmlInit(); print(json.dumps(pynvml.nvmlDeviceGetCount()))"
    environment = {"LD_LIBRARY_PATH": str(cards.library.parent), "FAKE_NVML_CARDS": str(example)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == example.read_text().count("\ncard ")


@pytest.fixture
def groups(started: FakeCards, tmp_path: Path) -> Path:
    """A pod with two containers, on cards whose driver limits control groups."""
    root = tmp_path / "groups"
    for container in ("a", "b"):
        (root / "pod" / container).mkdir(parents=True)
    started.group(root)
    started.set_driver(LIMITING)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    return root


def set_limits(card: Any, group: Path, soft: int, hard: int) -> None:
    pynvml.nvmlDeviceSetMemoryLimits_v1(card, pynvml.c_nvmlSetMemoryLimits_v1_t(str(group).encode(), soft, hard))


def limits(card: Any, group: Path) -> tuple[int, int, int]:
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t()
    asked.nameSpace = str(group).encode()
    pynvml.nvmlDeviceGetMemoryLimits_v1(card, asked)
    return asked.softLimit, asked.hardLimit, asked.currentUsed


def cuda(cards: FakeCards, group: str, *words: object) -> "subprocess.Popen[str]":
    environment = {"FAKE_NVML_CARDS": str(cards.file), "FAKE_CUDA_GROUP": group}
    command = [str(FAKE_CUDA), cards.uuids[0], *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def said(program: "subprocess.Popen[str]", lines: int) -> list[str]:
    assert program.stdout is not None
    return [program.stdout.readline().strip() for _ in range(lines)]


def test_a_limit_is_kept_for_its_card_and_group_until_it_is_taken_away_or_the_group_is(
    started: FakeCards, groups: Path
) -> None:
    card, other = handle(started, 0), handle(started, 1)
    pod = groups / "pod"
    set_limits(card, pod, 1 << 20, 2 << 20)
    assert limits(card, pod) == (1 << 20, 2 << 20, 0)
    for where in ((other, pod), (card, pod / "a")):
        assert refused(lambda where=where: limits(*where)) == pynvml.NVML_ERROR_NOT_FOUND
    set_limits(card, pod, 0, pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)
    assert refused(lambda: limits(card, pod)) == pynvml.NVML_ERROR_NOT_FOUND
    set_limits(card, pod / "a", 0, 1 << 20)
    (pod / "a").rmdir()
    (pod / "a").mkdir()
    set_limits(card, pod / "b", 0, 1 << 20)
    (pod / "b").rmdir()
    set_limits(card, pod, 0, 1 << 20)
    (pod / "b").mkdir()
    assert refused(lambda: limits(card, pod / "b")) == pynvml.NVML_ERROR_NOT_FOUND


@pytest.mark.parametrize(
    ("where", "soft", "hard", "code"),
    [
        ("gone", 0, 1, pynvml.NVML_ERROR_OPERATING_SYSTEM),
        ("..", 0, 1, pynvml.NVML_ERROR_OPERATING_SYSTEM),
        ("pod", 2, 1, pynvml.NVML_ERROR_INVALID_ARGUMENT),
        ("pod", 0, 81560 << 20, pynvml.NVML_ERROR_INVALID_ARGUMENT),
    ],
)
def test_limits_that_cannot_be_are_refused(
    started: FakeCards, groups: Path, where: str, soft: int, hard: int, code: int
) -> None:
    assert refused(lambda: set_limits(handle(started, 0), groups / where, soft, hard)) == code


def test_an_older_driver_knows_no_limits_and_the_kernel_s_groups_are_asked_for(
    started: FakeCards, groups: Path, tmp_path: Path
) -> None:
    started._head.pop("cgroups")
    started.set_driver(LIMITING)
    assert refused(lambda: limits(handle(started, 0), tmp_path)) == pynvml.NVML_ERROR_OPERATING_SYSTEM
    started.set_driver("580.95.05")
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert refused(lambda: limits(handle(started, 0), groups)) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_a_program_gets_what_its_groups_leave_it_and_what_it_has_goes_with_it(started: FakeCards, groups: Path) -> None:
    card = handle(started, 0)
    set_limits(card, groups / "pod", 0, 1000 << 20)
    set_limits(card, groups / "pod/a", 0, 600 << 20)
    with cuda(started, "/pod/a", "hold", 500, 200) as first:
        assert said(first, 2) == ["allocated 500 MiB", "out of memory: 200 MiB asked, 100 of 600 MiB free"]
        assert limits(card, groups / "pod")[2] == limits(card, groups / "pod/a")[2] == 500 << 20
        with cuda(started, "/pod/b", "alloc", 600) as second:
            assert said(second, 1) == ["out of memory: 600 MiB asked, 500 of 81559 MiB free"]
        assert second.returncode == 2
        (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
        assert (process.pid, process.usedGpuMemory) == (first.pid, 500 << 20)
        assert pynvml.nvmlDeviceGetMemoryInfo(card).used == 500 << 20
        first.kill()
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(card) == []
    with cuda(started, "/pod/b", "alloc", 600) as last:
        assert said(last, 1) == ["allocated 600 MiB"]
    assert last.returncode == 0


def test_processes_tell_how_busy_they_keep_a_card(started: FakeCards) -> None:
    assert refused(lambda: pynvml.nvmlDeviceGetProcessUtilization(handle(started, 0), 0)) == pynvml.NVML_ERROR_NOT_FOUND
    started.process(0, "17:100:30", "18:50")
    card = handle(started, 0)
    assert [(one.pid, one.usedGpuMemory >> 20) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(card)] == [
        (17, 100),
        (18, 50),
    ]
    assert [(one.pid, one.smUtil) for one in pynvml.nvmlDeviceGetProcessUtilization(card, 0)] == [(17, 30)]
