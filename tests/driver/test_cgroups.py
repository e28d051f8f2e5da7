"""Control groups of pods are found in both layouts, below any root; the kernel is a directory here."""

from pathlib import Path

import pytest

from driver import cgroups

UID = "3462c116-846c-48fe-8658-52e3af21cbb5"
BARE = f"egpu/kubepods/besteffort/pod{UID}"
SLICED = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3462c116_846c_48fe_8658_52e3af21cbb5.slice"


@pytest.mark.parametrize("path", [BARE, SLICED, f"kubepods/pod{UID}", f"kubelet.slice/kubelet-{SLICED}"])
async def test_a_pod_is_found_by_its_uid_and_so_are_its_containers(tmp_path: Path, path: str) -> None:
    for name in ("a", "b"):
        (tmp_path / path / name).mkdir(parents=True)
    (tmp_path / "system.slice/some.service/pod").mkdir(parents=True)
    groups = cgroups.Cgroups(tmp_path, tmp_path)
    for _ in range(2):
        pod = await groups.of_pod(UID)
        assert pod == tmp_path / path
        assert [group.name for group in await groups.within(pod)] == ["a", "b"]
    assert await groups.of_pod(UID.replace("3", "4")) is None
    assert await groups.within(tmp_path / "gone") == ()


@pytest.mark.parametrize(
    ("group", "uid"),
    [
        (f"/{BARE}/0123abcd", UID),
        (f"/{SLICED}/cri-containerd-0123.scope", UID),
        (f"/{SLICED}", UID),
        ("/system.slice/podman.service", ""),
        ("/", ""),
    ],
)
def test_a_group_tells_whose_pod_it_is(group: str, uid: str) -> None:
    assert cgroups.pod_of(group) == uid


async def test_a_process_is_in_one_group_of_the_unified_hierarchy_or_has_ended(tmp_path: Path) -> None:
    for pid, text in ((1, "1:cpu:/v1\n0::/kubepods/pod1/a\n"), (2, "1:cpu:/v1\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    assert await cgroups.Cgroups(tmp_path, tmp_path).of_processes((1, 2, 3)) == {1: "/kubepods/pod1/a"}


async def test_a_host_without_the_unified_hierarchy_is_told_apart(tmp_path: Path) -> None:
    groups = cgroups.Cgroups(tmp_path, tmp_path)
    assert await groups.problem() == f"control groups of version 2: {tmp_path} has no cgroup.controllers"
    (tmp_path / "cgroup.controllers").touch()
    assert await groups.problem() == ""
