"""Real compute on a lent card: ggml's RPC server behind the pool's door, the client in a network of its own.

The card is this host's processor, so the numbers can be compared with those computed at home. Needs root; the first run
builds ggml.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.protos import pool_v1alpha1_pb2 as wire
from hack import ggml
from tests.fakes.lender import Lender, state
from tests.pool.borrowing import LOST, RELEASED, detaching, lent, trusted

pytestmark = pytest.mark.e2e
_NET = os.getpid() % 16384
_HERE, _THERE = (f"10.98.{_NET // 64}.{4 * (_NET % 64) + end}" for end in (1, 2))
_USER = 1_000_000 + 2 * os.getpid()
"""Net and users of the process's own, so that such tests run side by side, and beside pools of other tests."""


@pytest.fixture(scope="module")
def libraries() -> Iterator[Path]:
    """Where the server's own user may read them, which pytest's folders do not let him."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield ggml.lay_out(Path(name))


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A network that reaches this host by one cable and has no other."""
    name = f"egpu-{uuid.uuid4().hex[:6]}"

    def ip(*words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check)

    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{_HERE}/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "addr", "add", f"{_THERE}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        yield name
    finally:
        ip("link", "del", name, check=False)
        ip("netns", "del", name)


def lender(tmp_path: Path, libraries: Path) -> Lender:
    profiles = tmp_path / "profiles.yaml"
    command = ["python3", str(libraries / ggml.SERVER.name), str(libraries), "{port}"]
    profiles.write_text(json.dumps({"profiles": [{"protocol": "ggml-rpc", "command": command, "port": 50052}]}))
    return Lender(
        tmp_path,
        EGPU_PROFILES="ggml-rpc",
        EGPU_PROFILES_FILE=str(profiles),
        EGPU_FIRST_UID=str(_USER),
        address=_HERE,
    )


async def far(
    network: str, libraries: Path, made: wire.Lease, credentials: Path, times: int
) -> asyncio.subprocess.Process:
    """The client program on a host without cards."""
    return await asyncio.create_subprocess_exec(
        *("nsenter", f"--net=/run/netns/{network}"),
        *(sys.executable, str(ggml.MULTIPLY), str(libraries), "remote", str(times)),
        env={
            "PATH": os.environ["PATH"],
            "REMOTE_GPU_ENDPOINTS": f"{made.endpoint.host}:{made.endpoint.port}",
            "REMOTE_GPU_CREDENTIALS": str(credentials),
            "GGML_NO_BACKTRACE": "1",  # it ends itself where the card is gone
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def handed_out(tmp_path: Path, pool: Lender, made: wire.Lease) -> Path:
    """The folder that the node's driver gives a container."""
    folder = tmp_path / "credentials"
    folder.mkdir(exist_ok=True)
    (folder / "tls.pem").write_bytes((pool.folder / f"client-{made.lease_id}.pem").read_bytes())
    (folder / "ca.crt").write_bytes((pool.state / "ca.pem").read_bytes())
    return folder


async def test_a_host_without_cards_multiplies_on_a_lent_one_and_gets_the_numbers_of_home(
    tmp_path: Path, libraries: Path, elsewhere: str
) -> None:
    async with lender(tmp_path, libraries) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        await trusted(pool, node, made)
        client = await far(elsewhere, libraries, made, handed_out(tmp_path, pool, made), 3)
        said, wrong = await client.communicate()
        assert client.returncode == 0, wrong.decode()
        assert said.decode() == ggml.at_home(3)
        await api.Detach(detaching(made))
        await state(api, made, RELEASED)
        late = await far(elsewhere, libraries, made, handed_out(tmp_path, pool, made), 1)
        said, _ = await late.communicate()
        assert (late.returncode != 0, said) == (True, b"")


async def test_a_server_that_is_killed_in_the_middle_ends_the_session_and_the_lease_is_lost(
    tmp_path: Path, libraries: Path, elsewhere: str
) -> None:
    """Row 12, with a real computation under way."""
    async with lender(tmp_path, libraries) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        await trusted(pool, node, made)
        client = await far(elsewhere, libraries, made, handed_out(tmp_path, pool, made), 1_000_000)
        assert client.stdout is not None
        assert await client.stdout.readline()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # others end meanwhile
                if path.stat().st_uid == _USER:
                    os.kill(int(path.name), 9)
        assert (await state(api, made, LOST)).reason.startswith("the server ended with signal 9")
        await client.communicate()
        assert client.returncode != 0
