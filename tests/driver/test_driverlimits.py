"""The rung Driver: what it needs, what a container is given, and whose control group gets the limit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import errors, resource, v1alpha1
from api.v1alpha1 import Rung
from driver import cdi, cgroups, containers, nvml, records
from driver.backends import driverlimits, share
from tests.contract import backend_suite
from tests.fakes.cards import LIMITING, FakeCards

POD = "3462c116-846c-48fe-8658-52e3af21cbb5"
OTHER = "00000000-846c-48fe-8658-52e3af21cbb5"
MIB = 2**20
MAIN = containers.User(pod="p", container="main", pod_uid=POD)
SECOND = containers.User(pod="p", container="second", pod_uid=POD)


class Rig:
    """A rung on fake cards whose driver is real to everybody who speaks NVML."""

    def __init__(self, root: Path) -> None:
        self.root = root / "groups"
        self.pod = self.root / f"kubepods/pod{POD}"
        self.pod.mkdir(parents=True)
        (self.root / "cgroup.controllers").touch()
        self.cards = FakeCards(root / "nvml", count=1, driver=LIMITING)
        self.cards.group(self.root)
        self.nvml = nvml.NVML(libraries=(self.cards.library,), limit_s=2, groups=self.root)
        self.hook = ("/run/nvidia/driver/usr/bin/nvidia-cdi-hook", "")
        self.rung = driverlimits.DriverLimits(
            self.nvml, cgroups.Cgroups(self.root, root), self.find_hook, "/run/nvidia/driver"
        )

    async def find_hook(self) -> tuple[str, str]:
        return self.hook

    async def ready(self) -> "Rig":
        (self.card,) = (await self.nvml.inventory()).cards
        await self.rung.look()
        return self

    def subject(self) -> backend_suite.Subject:
        node = cdi.Edits(device_nodes=({"path": "/dev/nvidia0"},))
        return backend_suite.Subject(
            backend=share.Share((self.rung,), 16),
            card=self.card,
            host=cdi.HostEdits(cards={self.card.uuid: node}),
            share=v1alpha1.Share(accept=(Rung.DRIVER,)),
            consumed=(("cores", "30"), ("memory", "8Gi")),
        )

    def record(self, *users: containers.User) -> records.Record:
        subject = self.subject()
        holding = subject.backend.holding(replace(subject.ask(), users=users))
        return records.Record(
            uid=resource.ClaimUID("a"),
            namespace="ns",
            name="a",
            phase=records.Phase.PREPARING,
            boot_id="b",
            holdings=(holding,),
            cdi="",
            steps=subject.backend.steps((holding,)),
        )

    async def limit(self) -> int | None:
        return await self.nvml.memory_limit(self.card.uuid, self.pod)


@pytest.fixture
async def rig(tmp_path: Path) -> Any:
    made = await Rig(tmp_path).ready()
    yield made
    await made.nvml.close()


class TestDriverLimits(backend_suite.BackendSuite):
    @pytest.fixture
    async def subject(self, rig: Rig) -> backend_suite.Subject:
        return rig.subject()


async def test_one_container_gets_its_limit_from_the_hook_each_time_it_starts(rig: Rig) -> None:
    record = rig.record(MAIN)
    (holding,) = record.holdings
    assert (record.steps, holding.enforcement, holding.group) == ((), "driver", "")
    edits = rig.rung.edits(holding)
    assert edits.env == ("NVIDIA_GPU_MEMORY_REQUEST=0", "NVIDIA_GPU_MEMORY_LIMIT=8192")
    (hook,) = edits.hooks
    assert (hook["hookName"], hook["path"]) == ("createRuntime", rig.hook[0])
    assert hook["args"] == [
        "nvidia-cdi-hook",
        "apply-cuda-memory-limits",
        "--driver-root",
        "/run/nvidia/driver",
        "--gpu-id",
        rig.card.uuid,
    ]


@pytest.mark.parametrize("users", [(MAIN, SECOND), (replace(MAIN, devices=2),), (replace(MAIN, others=("nic",)),)])
async def test_containers_that_share_one_limit_get_it_on_the_group_of_their_pod(
    rig: Rig, users: tuple[containers.User, ...]
) -> None:
    """HAMi#592, #863: the second container was charged to another card, or to nobody."""
    record = rig.record(*users)
    assert record.holdings[0].group == POD
    assert rig.rung.edits(record.holdings[0]) == cdi.Edits()
    for _ in range(2):
        await rig.rung.apply(record, record.steps[0])
        assert await rig.limit() == 8192 * MIB
    for _ in range(2):
        await rig.rung.undo(record, record.steps[0])
        assert await rig.limit() is None


async def test_a_pod_without_a_group_is_waited_for(rig: Rig) -> None:
    record = rig.record(replace(MAIN, pod_uid=OTHER), replace(SECOND, pod_uid=OTHER))
    with pytest.raises(errors.NotReady, match=f"pod {OTHER} has no control group here yet"):
        await rig.rung.apply(record, record.steps[0])


async def test_a_group_that_is_gone_before_unprepare_took_its_limit_with_it(rig: Rig) -> None:
    record = rig.record(MAIN, SECOND)
    await rig.rung.apply(record, record.steps[0])
    rig.pod.rmdir()
    await rig.rung.undo(record, record.steps[0])


async def test_a_card_that_is_lost_keeps_no_claim_from_being_released(rig: Rig) -> None:
    record = rig.record(MAIN, SECOND)
    await rig.rung.apply(record, record.steps[0])
    rig.cards.lose(0)
    await rig.rung.undo(record, record.steps[0])


async def test_a_limit_that_the_driver_refuses_is_no_limit(rig: Rig) -> None:
    record = rig.record(MAIN, SECOND)
    rig.cards.fail(0, "nvmlDeviceSetMemoryLimits_v1", "NO_PERMISSION")
    with pytest.raises(errors.Invalid, match="Insufficient Permissions"):
        await rig.rung.apply(record, record.steps[0])


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ("driver", "a driver with memory limits for control groups, which NVIDIA's has from r615 on"),
        ("card", "a driver with memory limits for control groups, which NVIDIA's has from r615 on"),
        ("groups", "control groups of version 2: .* has no cgroup.controllers"),
        ("hook", "NVIDIA's nvidia-cdi-hook, which is nowhere"),
    ],
)
async def test_what_is_missing_is_named(rig: Rig, spoil: str, text: str) -> None:
    """An old driver, toolkit or kernel took the limit without a word."""
    if spoil == "driver":
        rig.cards.set_driver("580.95.05")
    if spoil == "card":
        rig.cards.fail(0, "nvmlDeviceGetMemoryLimits_v1", "NOT_SUPPORTED")
    if spoil == "groups":
        (rig.root / "cgroup.controllers").unlink()
    if spoil == "hook":
        rig.hook = ("", "NVIDIA's nvidia-cdi-hook, which is nowhere")
    await rig.ready()
    assert dict(rig.subject().backend.offer(rig.card).attributes)["memoryEnforcement"] == "none"
    with pytest.raises(errors.Invalid, match=f"What is missing: Driver: {text}"):
        rig.record(MAIN)


async def test_a_claim_of_several_pods_is_refused_in_words(rig: Rig) -> None:
    """k8s-dra-driver PR#25"""
    with pytest.raises(errors.Invalid, match="a pod for each share: container main of pod p, container main of pod q"):
        rig.record(MAIN, replace(MAIN, pod="q", pod_uid=OTHER))


async def test_a_hook_that_was_not_found_yet_is_waited_for(rig: Rig) -> None:
    record = rig.record(MAIN)
    fresh = Rig(rig.root.parent / "fresh")
    with pytest.raises(errors.NotReady, match="not known yet"):
        fresh.rung.edits(record.holdings[0])
