import asyncio
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import errors
from kubeletplugin import contract, registration, sockets
from kubeletplugin.metrics import Metrics

UID = "0a1b2c3d-0000-4000-8000-000000000001"
DRIVER = "gpu.example.com"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sockets-") as name:
        yield Path(name)


def options(root: Path, *, driver: str = DRIVER, uid: str = "") -> contract.Options:
    return contract.Options(
        driver_name=driver,
        node_name="node-1",
        registry_dir=root / "plugins_registry",
        plugin_dir=root / "plugins",
        pod_uid=uid,
    )


def listener(path: Path) -> sockets.Listener:
    return sockets.Listener(path, (registration.Registration(DRIVER, path, (), Metrics(DRIVER)).handler(),))


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def leave_dead(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


@pytest.mark.parametrize(
    ("root", "driver", "uid", "registration_name", "dra_name"),
    [
        ("/var/lib/kubelet", DRIVER, "", f"{DRIVER}-reg.sock", "dra.sock"),
        ("/var/lib/kubelet", DRIVER, UID, f"{DRIVER}-{UID}-reg.sock", f"dra-{UID}.sock"),
        ("/var/lib/kubelet", "d" * 50, UID, f"{'d' * 50}-H887FDW9MY4-reg.sock", "dra-H887FDW9MY4.sock"),
        ("/var/lib/kubelet", "d" * 63, UID, "dra-8AzUA25xNnu2P2zztqjw_Q-reg.sock", "H887FDW9MY4.sock"),
    ],
)
def test_names_are_the_first_that_fit_into_the_kernels_limit(
    root: str, driver: str, uid: str, registration_name: str, dra_name: str
) -> None:
    given = options(Path(root), driver=driver, uid=uid)
    for path in (sockets.registration_socket(given), sockets.dra_socket(given)):
        assert len(str(path)) <= 107
    assert sockets.registration_socket(given) == given.registry_dir / registration_name
    assert sockets.dra_socket(given) == given.data_dir / dra_name


def test_a_path_that_cannot_fit_is_refused_with_its_length() -> None:
    with pytest.raises(errors.Invalid, match=r"has 1\d\d bytes, the kernel takes 107"):
        sockets.registration_socket(options(Path("/" + "x" * 80)))


async def test_the_path_appears_when_it_answers_and_goes_with_the_server(folder: Path) -> None:
    one = listener(folder / "new" / "dra.sock")
    await one.open()
    assert answers(one.path)
    assert [path.name for path in one.path.parent.iterdir()] == ["dra.sock"]
    await one.close()
    assert list(one.path.parent.iterdir()) == []


async def test_a_stopping_server_leaves_the_path_of_its_successor_alone(folder: Path) -> None:
    """A plain gRPC server would unlink it."""
    old, path = listener(folder / "dra.sock"), folder / "dra.sock"
    await old.open()
    path.unlink()
    new = listener(path)
    await new.open()
    await old.close()
    assert answers(path)
    await new.close()
    assert not path.exists()


async def test_a_socket_that_nobody_serves_is_replaced(folder: Path) -> None:
    """kill -9."""
    leave_dead(folder / "dra.sock")
    one = listener(folder / "dra.sock")
    await one.open()
    assert answers(one.path)
    await one.close()


async def test_a_predecessor_that_is_stopping_is_waited_for(folder: Path) -> None:
    old, new = listener(folder / "dra.sock"), listener(folder / "dra.sock")
    await old.open()
    opening = asyncio.create_task(new.open())
    await asyncio.sleep(0.1)
    assert not opening.done()
    await old.close()
    await opening
    assert answers(new.path)
    await new.close()


async def test_a_path_that_another_process_keeps_serving_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_PATIENCE_S", 0.5)
    old, new = listener(folder / "dra.sock"), listener(folder / "dra.sock")
    await old.open()
    with pytest.raises(errors.Conflict, match=r"another process serves .*dra.sock: stop it, or give each"):
        await new.open()
    assert answers(old.path)
    await old.close()


async def test_a_socket_that_was_removed_is_served_again(folder: Path) -> None:
    one = listener(folder / "registry" / "reg.sock")
    await one.open()
    keeping = asyncio.create_task(one.keep())
    one.path.unlink()
    one.path.parent.rmdir()
    async with asyncio.timeout(60):
        while not answers(one.path):  # noqa: ASYNC110  a path has no event
            await asyncio.sleep(0.02)
    keeping.cancel()
    await asyncio.wait([keeping])
    await one.close()
    assert not one.path.exists()


async def test_a_directory_that_cannot_be_used_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(errors.Unavailable, match=r"cannot serve at .*/file/dra.sock"):
        await listener(folder / "file" / "dra.sock").open()


async def test_leftovers_of_this_driver_go_and_nothing_else_does(folder: Path) -> None:
    """k8s#132660: a kubelet dials dead sockets for half an hour."""
    given = options(folder, uid=UID)
    registry, data = given.registry_dir, given.data_dir
    dead = [
        registry / f"{DRIVER}-reg.sock",
        registry / f"{DRIVER}-{UID[:-1]}9-reg.sock",
        registry / f"{DRIVER}-Abcdefgh_-1-reg.sock",
        data / "dra.sock",
        data / f"dra-{UID[:-1]}9.sock",
    ]
    others = [registry / "other.example.com-reg.sock", registry / f"{DRIVER}-more-reg.sock"]
    for path in (*dead, *others):
        leave_dead(path)
    alive = listener(registry / f"{DRIVER}-{UID[:-1]}8-reg.sock")
    await alive.open()
    await sockets.clear_leftovers(given)
    assert sorted(registry.iterdir()) == sorted([*others, alive.path])
    assert list(data.iterdir()) == []
    await alive.close()
