"""Servers for real: processes in namespaces of their own. Needs root."""

import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import errors
from pool import servers
from tests.pool.borrowing import launcher

FAKE = Path(servers.__file__).with_name("fakeserver.py")
PLAN = servers.Plan(
    lease="lease-a",
    command=("python3", str(FAKE), "7000"),
    environment={"CUDA_VISIBLE_DEVICES": "GPU-a"},
    uid=64001,
    port=7000,
    ready_within_s=60,
)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@contextlib.asynccontextmanager
async def started(lock: int, plan: servers.Plan = PLAN) -> AsyncIterator[servers.Server]:
    server = await servers.Servers(lock=lock, cgroup=None).start(plan)
    try:
        yield server
    finally:
        await server.end(60)


async def ask(server: servers.Server, **call: Any) -> dict[str, Any]:
    reader, writer = await server.connect()
    writer.write(json.dumps(call).encode() + b"\n")
    told: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    await writer.wait_closed()
    return told


def alive(uid: int) -> list[str]:
    """Commands of the processes of a user, from the kernel's list."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdecimal() and path.stat().st_uid == uid:
                found.append((path / "cmdline").read_text())
    return [command for command in found if command]  # what is dead and not reaped yet has none


async def test_a_server_runs_as_a_user_of_its_own_with_its_card_and_no_other_variable(lock: int) -> None:
    async with started(lock) as server:
        told = await ask(server, say="hello")
    assert (told["said"], told["pid"], told["uid"], told["card"]) == ("hello", 1, 64001, "GPU-a")
    assert set(told["variables"]) <= {"CUDA_VISIBLE_DEVICES", "LC_CTYPE", "PATH"}


async def test_nobody_on_the_host_reaches_the_server_but_through_the_agent(lock: int) -> None:
    async with started(lock) as server:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", 7000)
        assert (await ask(server, say=1))["said"] == 1


async def test_two_servers_on_the_same_port_do_not_meet(lock: int) -> None:
    async with started(lock) as one, started(lock, replace(PLAN, lease="lease-b", uid=64002)) as other:
        assert [(await ask(server, say=1))["uid"] for server in (one, other)] == [64001, 64002]


async def test_a_server_ends_with_all_that_it_started(lock: int) -> None:
    """lupine PR#508, LMCache#4014: what a client leaves behind must not keep the card."""
    async with started(lock) as server:
        assert len((await ask(server, fork=3))["children"]) == 3
        assert len(alive(64001)) == 4
    assert alive(64001) == []


async def test_a_server_that_dies_takes_its_children_along_and_says_how(lock: int) -> None:
    async with started(lock) as server:
        await ask(server, fork=2)
        _, writer = await server.connect()
        writer.write(b'{"die": 7}\n')
        assert await server.ended() == "the server ended with status 7"
        assert alive(64001) == []
        writer.close()


async def test_a_server_that_cannot_start_says_why_and_leaves_nothing(lock: int) -> None:
    with pytest.raises(errors.Unavailable, match=r"status 125: /nowhere: .*No such file"):
        await servers.Servers(lock=lock, cgroup=None).start(replace(PLAN, command=("/nowhere",)))
    with pytest.raises(errors.Unavailable, match="status 3: too bad"):
        await servers.Servers(lock=lock, cgroup=None).start(
            replace(PLAN, command=("/bin/sh", "-c", "echo too bad >&2; exit 3"))
        )


async def test_a_server_that_never_listens_is_ended(lock: int) -> None:
    plan = replace(PLAN, command=("/bin/sleep", "3600"), ready_within_s=0.3)
    with pytest.raises(errors.Unavailable, match=r"does not listen on port 7000 within 0\.3 s"):
        await servers.Servers(lock=lock, cgroup=None).start(plan)
    assert alive(64001) == []


@pytest.mark.parametrize("called_off", [False, True])
async def test_a_server_that_neither_listens_nor_dies_is_handed_to_whoever_goes_on_ending_it(
    lock: int, called_off: bool
) -> None:
    """Its launcher is held as a hung driver would hold its server."""
    plan = replace(PLAN, command=("/bin/sleep", "3600"), ready_within_s=8)
    starting = asyncio.create_task(servers.Servers(lock=lock, cgroup=None).start(plan))
    held = await launcher(os.getpid())
    os.kill(held, signal.SIGSTOP)
    try:
        if called_off:
            starting.cancel()
        with pytest.raises(servers.Stuck) as told:
            await starting
        assert alive(64001)
    finally:
        os.kill(held, signal.SIGCONT)
    await told.value.server.end(60)
    assert alive(64001) == []


@pytest.mark.parametrize("room", [0, 3])
async def test_where_no_file_can_be_opened_a_start_is_refused_and_the_next_one_works(lock: int, room: int) -> None:
    """What is no error of ours would end the agent, and every lease with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    above = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 64  # other tests' files stay open
    resource.setrlimit(resource.RLIMIT_NOFILE, (above, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(room):
            os.close(taken.pop())
        with pytest.raises(errors.Unavailable, match=r"no server can be started: .*Too many open files"):
            await servers.Servers(lock=lock, cgroup=None).start(PLAN)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    async with started(lock) as server:
        assert (await ask(server, say=1))["said"] == 1


DEAF = "import socket, time; d = socket.socket(); d.bind(('127.0.0.1', 7000)); d.listen(0); time.sleep(3600)"


async def test_a_server_that_takes_nobody_in_holds_up_its_own_clients_only(lock: int) -> None:
    async with started(lock, replace(PLAN, command=("python3", "-c", DEAF))) as server:
        waiting = [asyncio.create_task(server.connect()) for _ in range(40)]
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        assert sum(task.done() for task in waiting) < 20, "others come last where the threads are everybody's"
        for task in waiting:
            task.cancel()
        for made in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(made, tuple):
                made[1].close()


@pytest.fixture
def group() -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    place = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if place is None:
        pytest.skip("no control groups of version 2 here")
    made = place / f"egpu-{os.getpid()}"
    made.mkdir()
    yield made
    made.rmdir()


async def test_a_server_has_a_control_group_of_its_own_that_goes_with_it(lock: int, group: Path) -> None:
    server = await servers.Servers(lock=lock, cgroup=group).start(PLAN)
    try:
        await ask(server, fork=1)
        own = group / "lease-a"
        assert len((own / "cgroup.procs").read_text().split()) == 2
    finally:
        await server.end(60)
    assert not own.exists()


AGENT = """
import asyncio, os, sys
from pool import servers
from tests_plan import PLAN
async def main():
    lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    server = await servers.Servers(lock=lock, cgroup=None).start(PLAN)
    print(server.pid, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


async def test_an_agent_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    fields = {name: getattr(PLAN, name) for name in PLAN.__slots__}
    (tmp_path / "tests_plan.py").write_text(f"from pool import servers\nPLAN = servers.Plan(**{fields!r})\n")
    root = str(FAKE.parents[1])
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AGENT, str(tmp_path / "lock")),
        env={"PYTHONPATH": f"{root}:{tmp_path}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert agent.stdout is not None
    tree = os.pidfd_open(int(await agent.stdout.readline()))
    agent.send_signal(signal.SIGKILL)
    await agent.wait()
    await asyncio.wait_for(asyncio.to_thread(select.select, [tree], [], []), 60)
    os.close(tree)
    assert alive(64001) == []
