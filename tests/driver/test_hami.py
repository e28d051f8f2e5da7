"""The rung HAMi: what a container is given, and when it is not. The library itself is no part of this: nothing runs it."""

import hashlib
import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import errors, resource, v1alpha1
from api.v1alpha1 import Enforcement
from driver import cdi, containers, disk, hamiregion, inventory, records
from driver.backends import hami, share
from tests.contract import backend_suite

CARD = inventory.Card(uuid=inventory.CardUUID("GPU-0"), minor=3, memory_bytes=23034 * 2**20)
HOST = cdi.HostEdits(cards={"GPU-0": cdi.Edits(device_nodes=({"path": "/dev/nvidia3"},))})
ONE = containers.User(pod="p", container="main")


class Rig:
    def __init__(self, root: Path, sha256: str = "", layout: hamiregion.Layout | None = None) -> None:
        self.library = root / "libvgpu.so"
        self.library.write_bytes(b"the library")
        self.root = root / "data"
        self.core = hami.HAMi(self.library, sha256, self.root, disk.Disk(), layout)

    def subject(self, **firm: Any) -> backend_suite.Subject:
        return backend_suite.Subject(
            backend=share.Share((self.core,), 16),
            card=CARD,
            host=HOST,
            share=v1alpha1.Share(**firm),
            consumed=(("cores", "30"), ("memory", "8Gi")),
        )

    def record(self, *shares: str) -> records.Record:
        subject = self.subject()
        holdings = tuple(subject.backend.holding(subject.ask(share_id=one)) for one in shares)
        return records.Record(
            uid=resource.ClaimUID("a"),
            namespace="ns",
            name="a",
            phase=records.Phase.PREPARING,
            boot_id="b",
            holdings=holdings,
            cdi="",
            steps=subject.backend.steps(holdings),
        )


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    await made.core.check()
    return made


class TestHAMi(backend_suite.BackendSuite):
    @pytest.fixture
    async def subject(self, rig: Rig) -> backend_suite.Subject:
        return rig.subject()


async def test_a_container_gets_library_limits_and_a_directory_of_its_own(rig: Rig) -> None:
    """HAMi-core's set of edits; its card is number 0, since it has no other."""
    (holding,) = rig.record("s1").holdings
    edits = rig.core.edits(holding)
    assert edits.env == (
        "CUDA_DEVICE_MEMORY_LIMIT_0=8192m",
        "CUDA_DEVICE_SM_LIMIT_0=30",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE=/var/lib/elastic-gpu/share.cache",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "LIBCUDA_LOG_LEVEL=0",
    )
    assert [(mount["hostPath"], mount["containerPath"], mount["options"][0]) for mount in edits.mounts] == [
        (str(rig.library), "/usr/local/vgpu/libvgpu.so", "ro"),
        (f"{rig.root}/hami/ld.so.preload", "/etc/ld.so.preload", "ro"),
        (f"{rig.root}/hami/s1/region", "/var/lib/elastic-gpu", "rw"),
        (f"{rig.root}/hami/s1/lock", "/tmp/vgpulock", "rw"),
    ]


async def test_what_is_mounted_is_there_before_the_container_and_any_user_may_write(rig: Rig) -> None:
    record = rig.record("s1", "s2")
    for step in record.steps:
        await rig.core.apply(record, step)
    for holding in record.holdings:
        assert all(Path(mount["hostPath"]).exists() for mount in rig.core.edits(holding).mounts)
    assert (rig.root / "hami/s2/region").stat().st_mode & 0o777 == 0o777
    assert (rig.root / "hami/ld.so.preload").read_text() == "/usr/local/vgpu/libvgpu.so\n"


async def test_a_directory_is_fresh_and_goes_with_its_share_alone(rig: Rig) -> None:
    """HAMi-core#191, HAMi#2125: the first process that finds a region takes its limits from it."""
    first, second = rig.record("s1"), rig.record("s2")
    for record in (first, second):
        await rig.core.apply(record, record.steps[0])
    (rig.root / "hami/s1/region/share.cache").write_text("old")
    await rig.core.apply(first, first.steps[0])
    assert list((rig.root / "hami/s1/region").iterdir()) == []
    await rig.core.undo(first, first.steps[0])
    assert sorted(path.name for path in (rig.root / "hami").iterdir()) == ["ld.so.preload", "s2"]


async def test_an_account_whose_form_is_known_is_begun_before_the_container(tmp_path: Path) -> None:
    """HAMi#2125, HAMi#1112: a process without environment looks at the library's usual path, and finds the limits there."""
    known = Rig(tmp_path, layout=hamiregion.Layout.V1_2)
    await known.core.check()
    record = known.record("s1")
    await known.core.apply(record, record.steps[0])
    mounts = {mount["containerPath"]: Path(mount["hostPath"]) for mount in known.core.edits(record.holdings[0]).mounts}
    account = mounts["/var/lib/elastic-gpu/share.cache"]
    assert mounts["/tmp/cudevshr.cache"] == account
    assert account.read_bytes() == hamiregion.begun(hamiregion.Layout.V1_2, memory_bytes=8192 * 2**20, cores=30)
    assert account.stat().st_mode & 0o777 == 0o666


async def test_a_limit_that_another_rung_holds_is_not_set_twice(rig: Rig) -> None:
    subject = rig.subject(memory=Enforcement.BEST_EFFORT)
    holding = subject.backend.holding(subject.ask(consumed_capacity=(("cores", "0"), ("memory", "8Gi"))))
    assert (holding.enforcement, holding.cores_enforcement) == ("hami", "none")
    assert not any("SM_LIMIT" in text for text in rig.core.edits(holding).env)


@pytest.mark.parametrize(
    ("users", "text"),
    [
        ((), ""),
        ((ONE,), ""),
        (
            (ONE, containers.User(pod="p", container="log")),
            "a container for each share: container main of pod p, container log of pod p use this one together",
        ),
        (
            (ONE, containers.User(pod="q", container="main")),
            "a container for each share: container main of pod p, container main of pod q use this one together",
        ),
        (
            (containers.User(pod="p", container="main", others=("nic",)),),
            "a container with this share alone: container main of pod p uses nic too",
        ),
        (
            (containers.User(pod="p", container="main", devices=2),),
            "a container with this share alone: container main of pod p uses more of its claim too",
        ),
    ],
)
async def test_containers_that_the_library_cannot_keep_apart_are_refused_in_words(
    rig: Rig, users: tuple[containers.User, ...], text: str
) -> None:
    """HAMi#592, #863, k8s-dra-driver PR#25"""
    assert ", ".join(rig.core.lacking(CARD, users)) == text


async def test_a_library_that_is_not_there_holds_nothing(rig: Rig) -> None:
    """HAMi#777, #1346: an empty library was mounted, and the pod had the whole card."""
    rig.library.unlink()
    await rig.core.check()
    assert rig.subject().backend.offer(CARD).attributes[1] == ("memoryEnforcement", "none")
    with pytest.raises(errors.Invalid, match=r"HAMi: the library cannot be read: .*libvgpu\.so"):
        rig.record("s1")


async def test_a_library_that_comes_later_is_noticed_and_so_is_its_loss(rig: Rig) -> None:
    rig.library.unlink()
    await rig.core.look()
    assert rig.core.lacking(CARD)
    rig.library.write_bytes(b"the library")
    await rig.core.look()
    assert rig.core.lacking(CARD) == ()
    rig.library.write_bytes(b"another one")
    await rig.core.look()
    assert "is another one" in rig.core.lacking(CARD)[0]


async def test_a_library_that_was_swapped_is_given_to_nobody(rig: Rig) -> None:
    record = rig.record("s1")
    rig.library.write_bytes(b"")
    with pytest.raises(errors.NotReady, match="another one: its SHA-256 is e3b0c44298fc"):
        await rig.core.apply(record, record.steps[0])
    assert not (rig.root / "hami").exists()
    with pytest.raises(errors.Invalid, match="is another one"):
        rig.record("s2")
    rig.library.write_bytes(b"the library")
    await rig.core.apply(record, record.steps[0])


@pytest.mark.parametrize(("content", "well"), [(b"the library", True), (b"another", False)])
async def test_the_admin_may_name_the_library_by_its_checksum(tmp_path: Path, content: bytes, well: bool) -> None:
    named = Rig(tmp_path, hashlib.sha256(content).hexdigest().upper())
    assert (await named.core.check() == "") is well


async def test_where_the_account_is_known_it_proves_the_limits_and_takes_another_one_while_programs_run(
    tmp_path: Path,
) -> None:
    """HAMi#740, HAMi-core#21: the library reads its limit of memory anew each time."""
    known = Rig(tmp_path, layout=hamiregion.Layout.V1_2)
    await known.core.check()
    record = known.record("s1")
    (holding,) = record.holdings
    await known.core.apply(record, record.steps[0])
    file = known.root / "hami/s1/region/share.cache"
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        assert await known.core.holds(holding, frozenset())
        smaller = replace(holding, limit_mib=2048)
        assert not await known.core.holds(smaller, frozenset())
        await known.core.resize(smaller, frozenset())
        assert await known.core.holds(smaller, frozenset())
        assert hamiregion.limits(mapped[: hamiregion.HEAD]) == (2048 * 2**20, 30)
    assert share.Share((known.core,), 16).elastic == {"hami"}
    file.write_bytes(b"what the container made of it")
    assert not await known.core.holds(smaller, frozenset())


async def test_where_the_account_is_not_known_nothing_is_proven_and_nothing_is_changed(rig: Rig) -> None:
    record = rig.record("s1")
    await rig.core.apply(record, record.steps[0])
    assert not await rig.core.holds(record.holdings[0], frozenset())
    assert share.Share((rig.core,), 16).elastic == frozenset()
