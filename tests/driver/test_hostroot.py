"""What the host gives to containers: NVIDIA's tool where it is of use, our own look where not."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from driver import cdi, hostroot, inventory
from tests.fakes.cards import DRIVER
from tests.fakes.machine import LIBRARIES, Machine

COMMON = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
GENERATE = """#!/bin/sh
echo "$@" >> {root}/calls
cat {root}/answer
exit $(cat {root}/code)
"""


class Host:
    """A machine's driver root, and an nvidia-ctk that answers what it is told to."""

    def __init__(self, root: Path) -> None:
        self.machine = Machine(root, count=2)
        self.root = self.machine.driver_root
        self.state = root / "ctk"
        self.state.mkdir()
        self.seen = inventory.Inventory(
            driver_version=DRIVER,
            cards=tuple(
                inventory.Card(uuid=inventory.CardUUID(uuid), minor=minor, pci_bus_id=f"0000:0{minor}:00.0")
                for minor, uuid in enumerate(self.machine.cards.uuids)
            ),
        )

    def hostroot(self, **more: Any) -> hostroot.HostRoot:
        facts: dict[str, Any] = {"driver_root": self.root, "dev_root": None, "host_root": "/", "toolkit": None}
        facts |= {"sysfs": self.machine.root / "sys", "hook": ""}
        return hostroot.HostRoot(hostroot.Places(**{**facts, **more}))

    def add_hook(self) -> None:
        self._program("nvidia-cdi-hook", "#!/bin/sh\n")

    def add_toolkit(self, answer: str, code: int = 0) -> None:
        (self.state / "answer").write_text(answer)
        (self.state / "code").write_text(str(code))
        self._program("nvidia-ctk", GENERATE.format(root=self.state))

    def generated(self, *missing: str) -> str:
        def node(path: str) -> dict[str, str]:
            return {"path": path, "hostPath": f"{self.root}{path}"}

        devices = [
            {"name": uuid, "containerEdits": {"deviceNodes": [node(f"/dev/nvidia{minor}")]}}
            for minor, uuid in enumerate(self.machine.cards.uuids)
        ]
        mount = {"hostPath": f"{self.root}/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1"}
        common = {"deviceNodes": [node(path) for path in COMMON if path not in missing], "mounts": [mount]}
        return json.dumps({"devices": devices, "containerEdits": common})

    @property
    def calls(self) -> list[str]:
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def _program(self, name: str, text: str) -> None:
        path = self.root / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_the_toolkit_is_asked_once_and_its_paths_become_the_hosts(host: Host) -> None:
    host.add_hook()
    host.add_toolkit(host.generated())
    root = host.hostroot(host_root="/run/nvidia/driver")
    edits = await root.refresh(host.seen)
    assert edits.source.endswith("nvidia-ctk")
    assert edits.common.mounts[0]["hostPath"] == "/run/nvidia/driver/usr/lib/libcuda.so.1"
    assert edits.of_card(host.seen.cards[1].uuid).device_nodes == (
        {"path": "/dev/nvidia1", "hostPath": "/run/nvidia/driver/dev/nvidia1"},
    )
    assert await root.refresh(host.seen) is edits
    (call,) = host.calls
    assert f"--driver-root {host.root} --dev-root {host.root}" in call
    assert "--nvidia-cdi-hook-path /run/nvidia/driver/usr/bin/nvidia-cdi-hook" in call
    assert all(f"--device-id {card.uuid}" in call for card in host.seen.cards)


async def test_a_host_path_is_left_out_where_it_says_nothing(host: Host) -> None:
    host.add_hook()
    host.add_toolkit(host.generated())
    edits = await host.hostroot().refresh(host.seen)
    assert edits.of_card(host.seen.cards[0].uuid).device_nodes == ({"path": "/dev/nvidia0"},)


@pytest.mark.parametrize("harm", ["a failure", "no JSON", "no spec", "a list"])
async def test_where_the_toolkit_fails_our_own_look_serves(host: Host, harm: str) -> None:
    host.add_hook()
    answer = {"no JSON": "{", "no spec": '{"devices": [3]}', "a list": "[]"}.get(harm, host.generated())
    host.add_toolkit(answer, code=1 if harm == "a failure" else 0)
    edits = await host.hostroot().refresh(host.seen)
    assert edits.source == "the driver's files"
    assert edits.of_card(host.seen.cards[0].uuid).paths == {"/dev/nvidia0"}


async def test_a_spec_that_lacks_a_node_is_not_kept(host: Host) -> None:
    """NV#1144, NV#1380, CTK: a missing uvm node is skipped with a warning."""
    host.add_hook()
    host.add_toolkit(host.generated("/dev/nvidia-uvm"))
    root = host.hostroot()
    edits = await root.refresh(host.seen)
    assert set(edits.problems.values()) == {"the host has no /dev/nvidia-uvm"}
    host.add_toolkit(host.generated())
    assert not (await root.refresh(host.seen)).problems


async def test_a_node_that_one_card_lacks_costs_only_that_card(host: Host) -> None:
    host.machine.remove_node("nvidia1")
    edits = await host.hostroot().refresh(host.seen)
    assert edits.of_card(host.seen.cards[0].uuid)
    assert edits.problems == {host.seen.cards[1].uuid: "the host has no /dev/nvidia1"}


async def test_own_edits_hold_nodes_libraries_links_and_render_nodes(host: Host) -> None:
    host.add_hook()
    drm = host.machine.root / "sys/bus/pci/devices/0000:00:00.0/drm"
    (drm / "renderD128").mkdir(parents=True)
    host.machine.add_node("dri")  # a file of that name, no directory: it is passed over
    (host.root / "dev/dri").unlink()
    (host.root / "dev/dri").mkdir()
    (host.root / "dev/dri/renderD128").symlink_to("/dev/null")
    edits = await host.hostroot().refresh(host.seen)
    card = edits.of_card(host.seen.cards[0].uuid)
    assert card.paths == {"/dev/nvidia0", "/dev/dri/renderD128"}
    null = Path("/dev/null").stat()
    assert card.device_nodes[0] == {
        "path": "/dev/nvidia0",
        "type": "c",
        "major": os.major(null.st_rdev),
        "minor": os.minor(null.st_rdev),
        "fileMode": stat.S_IMODE(null.st_mode),
        "permissions": "rwm",
    }
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits.common.mounts}
    assert mounts == {
        f"/{LIBRARIES}/{stem}.so.{DRIVER}": f"/{LIBRARIES}/{stem}.so.{DRIVER}" for stem in ("libcuda", "libnvidia-ml")
    }
    links, cache = edits.common.hooks
    assert links["args"][:4] == [
        "nvidia-cdi-hook",
        "create-symlinks",
        "--link",
        f"libcuda.so.{DRIVER}::/{LIBRARIES}/libcuda.so.1",
    ]
    assert cache["args"] == ["nvidia-cdi-hook", "update-ldcache", "--folder", f"/{LIBRARIES}"]


async def test_links_that_lead_nowhere_or_to_the_same_place_are_no_trouble(host: Host) -> None:
    folder = host.root / LIBRARIES
    for name, target in {
        f"libloop.so.{DRIVER}": f"libloop.so.{DRIVER}",
        f"libgone.so.{DRIVER}": "nowhere",
        "libcuda.so.9": "libcuda.so.9",
    }.items():
        (folder / name).symlink_to(target)
    (host.root / "usr/lib64").symlink_to(folder)
    edits = await host.hostroot().refresh(host.seen)
    inside = sorted(mount["containerPath"] for mount in edits.common.mounts)
    assert inside == [f"/{LIBRARIES}/{stem}.so.{end}" for stem in ("libcuda", "libnvidia-ml") for end in ("1", DRIVER)]


async def test_debians_links_to_absolute_paths_are_passed_over(host: Host) -> None:
    """Seen from under another root, /etc/alternatives is ours and not the driver's."""
    usual = host.root / LIBRARIES
    current = usual / "nvidia/current"
    current.mkdir(parents=True)
    for library in sorted(usual.glob("lib*.so*")):
        library.rename(current / library.name)
        library.symlink_to(Path("/etc/alternatives") / library.name)
    edits = await host.hostroot().refresh(host.seen)
    folders = {Path(mount["hostPath"]).parent for mount in edits.common.mounts if ".so" in mount["hostPath"]}
    assert folders == {Path("/", LIBRARIES, "nvidia/current")}


async def test_the_real_toolkit_works_on_the_fake_library(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("nvidia-ctk")
    if program is None or os.geteuid():
        pytest.skip("needs nvidia-ctk in PATH, and root to make device nodes")
    for path in (host.root / "dev").iterdir():
        path.unlink()
    for name, major, minor in (
        ("nvidiactl", 195, 255),
        ("nvidia-uvm", 511, 0),
        ("nvidia0", 195, 0),
        ("nvidia1", 195, 1),
    ):
        os.mknod(host.root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    shutil.copy(host.machine.cards.library, host.root / LIBRARIES / f"libnvidia-ml.so.{DRIVER}")
    monkeypatch.setenv("FAKE_NVML_CARDS", str(host.machine.cards.file))
    host.add_hook()
    edits = await host.hostroot(toolkit=Path(program)).refresh(host.seen)
    assert edits.source == program
    assert edits.common.paths >= set(cdi.CONTROL_NODES)
    assert f"/{LIBRARIES}/libcuda.so.{DRIVER}" in {mount["hostPath"] for mount in edits.common.mounts}
    assert edits.of_card(host.seen.cards[1].uuid).device_nodes[0]["minor"] == 1


async def test_the_hook_is_tried_for_memory_limits_once_a_file_and_named_as_the_host_does(host: Host) -> None:
    root = host.hostroot(host_root="/run/nvidia/driver")
    path, problem = await root.limits_hook()
    assert path == ""
    assert problem == f"NVIDIA's nvidia-cdi-hook, which is not below {host.root}"
    host._program("nvidia-cdi-hook", f'#!/bin/sh\necho "$@" >> {host.state}/asked\nexit 1\n')
    path, problem = await root.limits_hook()
    assert path == ""
    assert "that knows apply-cuda-memory-limits (NVIDIA container toolkit 1.20.1 or newer): " in problem
    host._program("nvidia-cdi-hook", f'#!/bin/sh\necho "$@" >> {host.state}/asked\n')
    for _ in range(2):
        assert await root.limits_hook() == ("/run/nvidia/driver/usr/bin/nvidia-cdi-hook", "")
    assert (host.state / "asked").read_text().splitlines() == ["apply-cuda-memory-limits --help"] * 2


async def test_a_hook_named_by_the_admin_is_looked_for_below_the_driver_root(host: Host) -> None:
    host.add_hook()
    named = "/run/nvidia/driver/usr/bin/nvidia-cdi-hook"
    assert await host.hostroot(host_root="/run/nvidia/driver", hook=named).limits_hook() == (named, "")
    _, problem = await host.hostroot(hook="/somewhere/nvidia-cdi-hook").limits_hook()
    assert problem
