"""Records that cannot be read, disks that are full, CDI files that vanish: one claim is touched, nothing is lost."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api import errors, resource
from driver import disk
from tests.fakes.machine import Machine, until

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "the record is cut off": lambda text: text[: len(text) // 2],
    "the record is empty": lambda _: b"",
    "some byte of it has changed": lambda text: text.replace(b"Prepared", b"PreparEd"),
    "the record is of version v2": lambda text: text.replace(b'"version":"v1"', b'"version":"v2"'),
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, count=3)


@pytest.mark.parametrize("reason", DAMAGE)
async def test_a_bad_record_is_set_aside_and_costs_one_claim(
    machine: Machine, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """NV#1100, NV PR#1326: one flipped byte was an endless crash loop.

    Its card stays withheld while the text still tells which that is: the claim's containers may run.
    """
    async with machine.node() as node:
        await node.prepare(machine.claim("bad", 0))
        answer = await node.prepare(machine.claim("good", 1))
    bad = DAMAGE[reason](machine.record("bad").read_bytes())
    machine.record("bad").write_bytes(bad)
    async with machine.node() as node:
        assert reason in capsys.readouterr().out
        tells = bad != b""
        assert [ref for ref in await node.prepared() if ref.uid == "bad"] == ([machine.ref("bad")] if tells else [])
        assert await node.prepare(machine.claim("good", 1)) == answer
        kept = machine.record("bad").with_name("bad.json.corrupt-1")
        assert kept.read_bytes() == bad
        assert machine.spec("bad") is not None, "a pod of that claim may still start"
        if tells:
            with pytest.raises(errors.Conflict, match="held by claim default/claim-bad"):
                await node.prepare(machine.claim("other", 0))
        assert await node.prepare(machine.claim("bad", 0))
        await node.unprepare(machine.ref("bad"))
        assert kept.read_bytes() == bad
        assert machine.spec("bad") is None


async def test_a_second_bad_record_overwrites_no_first(machine: Machine) -> None:
    for number in (1, 2):
        machine.record("bad").parent.mkdir(parents=True, exist_ok=True)
        machine.record("bad").write_text(f"{number}")
        async with machine.node():
            pass
    assert [machine.record("bad").with_name(f"bad.json.corrupt-{n}").read_text() for n in (1, 2)] == ["1", "2"]


async def test_a_card_that_a_bad_record_still_names_is_withheld_over_restarts_until_its_claim_is_released(
    machine: Machine,
) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("bad", 0))
    machine.record("bad").write_bytes(DAMAGE["the record is cut off"](machine.record("bad").read_bytes()))
    for _ in range(2):
        async with machine.node() as node:
            with pytest.raises(errors.Conflict, match="claim-bad"):
                await node.prepare(machine.claim("other", 0))
    async with machine.node() as node:
        await node.unprepare(machine.ref("bad"))
        assert machine.spec("bad") is None
        await node.prepare(machine.claim("other", 0))
    assert len(list(machine.record("bad").parent.glob("bad.json.corrupt-*"))) == 1


async def test_unprepare_of_a_claim_with_a_bad_record_succeeds(machine: Machine) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        machine.record("a").write_bytes(b"\0" * 100)
        await node.unprepare(machine.ref("a"))
        assert machine.spec("a") is None
        await node.prepare(machine.claim("b", 0))


@pytest.mark.parametrize("rebooted", [False, True])
async def test_cdi_files_come_back_after_the_directory_was_emptied(machine: Machine, rebooted: bool) -> None:
    """AMD#75, KK#141433; and without any call of the kubelet. After a boot the minor numbers may be others."""
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        before = machine.spec("a")
    machine.spec_file("a").unlink()
    if rebooted:
        age(machine.record("a"))
        machine.cards.change(0, minor=2)
        machine.cards.change(2, minor=0)
    async with machine.node() as node:
        await until(lambda: machine.spec("a"))
        after = machine.spec("a")
        assert after is not None
        env = after["devices"][0]["containerEdits"]["env"]
        assert env == [f"ELASTIC_GPU_CARD_{2 if rebooted else 0}={machine.cards.uuids[0]}"]
        assert (after == before) is not rebooted
        assert await node.prepare(machine.claim("a", 0))


def age(path: Path) -> None:
    """Makes a record one of an earlier boot."""
    from dataclasses import replace

    from driver import records

    record = records.decode(path.read_bytes(), path.stem)
    path.write_bytes(records.encode(replace(record, boot_id="an earlier one")))


async def test_a_vanished_or_changed_cdi_file_is_put_back_while_running(machine: Machine) -> None:
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        text = machine.spec_file("a").read_text()
        for harm in ("unlink", "change", "remove the directory"):
            if harm == "change":
                machine.spec_file("a").write_text("{}")
            else:
                machine.spec_file("a").unlink()
            if harm == "remove the directory":
                machine.cdi_dir.rmdir()
            await until(lambda: machine.spec_file("a").exists() and machine.spec_file("a").read_text() == text)


async def test_a_claim_that_another_instance_prepared_with_older_files_gets_those_of_today(machine: Machine) -> None:
    from dataclasses import replace

    from driver import records

    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        await until(lambda: node._repairer._current)
        old = records.decode(machine.record("a").read_bytes(), "a")
        name = resource.ClaimUID("b")
        machine.record("b").write_bytes(records.encode(replace(old, uid=name, cdi=old.cdi.replace("580.95.05", "570"))))
        await node.prepared()
        await until(lambda: machine.spec("b"))
        assert "libcuda.so.580.95.05" in machine.spec_file("b").read_text()


async def test_a_cdi_file_without_a_claim_is_removed_and_others_are_left_alone(machine: Machine) -> None:
    machine.cdi_dir.mkdir()
    machine.spec_file("nobody").write_text("{}")
    (machine.cdi_dir / "nvidia.yaml").write_text("x")
    async with machine.node():
        await until(lambda: not machine.spec_file("nobody").exists())
        assert (machine.cdi_dir / "nvidia.yaml").exists()


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Callable[[Path], Path]]:
    """Mounts 64 KiB on a directory; gives the file that fills it."""
    if os.geteuid():
        pytest.skip("mounts a small file system: needs root")
    mounted: list[Path] = []

    def mount(directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(directory)], check=True)
        mounted.append(directory)
        return directory / "ballast"

    yield mount
    for directory in mounted:
        subprocess.run(["umount", str(directory)], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass


@pytest.mark.parametrize("place", ["record", "CDI file"])
async def test_a_full_disk_is_told_and_loses_nothing(
    machine: Machine, small_disk: Callable[[Path], Path], place: str
) -> None:
    directory = machine.data_dir / "claims" if place == "record" else machine.cdi_dir
    ballast = small_disk(directory)
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        fill(ballast)
        with pytest.raises(errors.Unavailable, match=f"no space left for {directory}.*: free some; nothing is lost"):
            await node.prepare(machine.claim("b", 1))
        assert await node.prepare(machine.claim("a", 0)) if place == "record" else True
        assert not list(directory.glob(f"*{disk.TEMPORARY}"))
        assert {ref.uid for ref in await node.prepared()} == ({"a"} if place == "record" else {"a", "b"})
        await node.unprepare(machine.ref("a"))
        ballast.unlink()
        assert await node.prepare(machine.claim("b", 1))
        assert machine.spec("b") is not None


async def test_after_a_driver_update_on_a_full_disk_the_new_files_come_as_soon_as_they_can(
    machine: Machine, small_disk: Callable[[Path], Path]
) -> None:
    ballast = small_disk(machine.cdi_dir)
    async with machine.node() as node:
        await node.prepare(machine.claim("a", 0))
        fill(ballast)
        machine.install_driver("590.10.01")
        await until(lambda: node._watcher.world.host.cards and "590" in str(node._watcher.world.host))
        await asyncio.sleep(0.3)  # some turns of the repairer
        assert "580.95.05" in machine.spec_file("a").read_text()
        ballast.unlink()
        await until(lambda: "libcuda.so.590.10.01" in machine.spec_file("a").read_text())
