"""The server of a lease: started apart from everything else, reached through its own network, ended as a tree.

    start -> launcher (pool/launcher.py) -> server as process 1 of its namespaces, a user of its own
    connect: a socket made inside the server's network, which has no other way in or out

What must stay true: `end` returns only when every process of the tree is gone, and raises where that does not happen;
a tree does not outlive the agent.
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from api import errors

_LAUNCHER = Path(__file__).with_name("launcher.py")
_NEWNET = 0x40000000
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WORDS = 2048
_CONNECT_S = 5.0
_DOORS = 4  # threads a server: one that takes nobody in holds up its own clients only
_log = structlog.get_logger("pool")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A server to start. `uid`: nobody else's. `port`: where it listens, on 127.0.0.1 of its own network."""

    lease: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    uid: int
    port: int
    ready_within_s: float


class Server:
    """One that was started."""

    def __init__(self, plan: Plan, process: asyncio.subprocess.Process, root: int, pidfd: int, network: int) -> None:
        self.lease = plan.lease
        self.pid = root
        self._port = plan.port
        self._process = process
        self._pidfd = pidfd
        self._network = network
        self._doors = concurrent.futures.ThreadPoolExecutor(_DOORS, thread_name_prefix=f"doors of {plan.lease}")
        self._words = b""
        self._reading = asyncio.create_task(self._read(), name=f"words of {plan.lease}")

    async def _read(self) -> None:
        """The last words are why it died."""
        assert self._process.stdout is not None
        while text := await self._process.stdout.read(_WORDS):
            self._words = (self._words + text)[-_WORDS:]

    async def ended(self) -> str:
        """Returns when the server ended by itself or by `end`: how, and its last words."""
        code = await self._process.wait()
        await asyncio.wait({self._reading}, timeout=1)
        words = " ".join(self._words.decode(errors="replace").split())[-300:]
        how = f"signal {code - 128}" if code > 128 else f"status {code}"  # noqa: PLR2004  as shells tell it
        return f"the server ended with {how}" + (f": {words}" if words else "")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises Unavailable."""
        try:
            door = await asyncio.get_running_loop().run_in_executor(self._doors, _inside, self._network, self._port)
        except OSError as error:
            raise errors.Unavailable(f"the server of {self.lease} does not answer: {error}") from error
        return await asyncio.open_connection(sock=door)

    async def end(self, within_s: float) -> None:
        """Kills the tree. May be repeated. Raises Unavailable where it does not die: a hung driver holds it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(within_s):
                await self._process.wait()
                await _gone(self._pidfd)
        except TimeoutError as error:
            text = (
                f"the server of {self.lease} (process {self.pid}) does not die within {within_s:g} s; it is tried again"
            )
            raise errors.Unavailable(text) from error
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._doors.shutdown(wait=False)
        for fd in (self._pidfd, self._network):
            if fd >= 0:
                os.close(fd)
        self._pidfd = self._network = -1


class Stuck(errors.Unavailable):
    """It did not come up and cannot be seen dead: whoever gets this goes on ending `server`."""

    def __init__(self, server: Server, why: BaseException) -> None:
        super().__init__(f"the server did not come up, and is not seen dead yet: {why}")
        self.server = server


class Servers:
    """Starts them. `lock`: a file that stays open until the last tree is gone. `cgroup`: each gets a group of its own in it."""

    def __init__(self, *, lock: int, cgroup: Path | None) -> None:
        self._lock = lock
        self._cgroup = cgroup

    async def start(self, plan: Plan) -> Server:
        """Returns when it listens. Raises Unavailable where it does not come up, and then nothing of it is left, but by Stuck."""
        spawning = asyncio.create_task(self._spawn(plan), name=f"start of {plan.lease}")
        try:
            server = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await asyncio.wait({spawning})
            if spawning.exception() is None:
                await _over(spawning.result(), plan.ready_within_s)
            raise
        try:
            await self._listening(server, plan)
        except BaseException:
            await _over(server, plan.ready_within_s)
            raise
        return server

    async def _spawn(self, plan: Plan) -> Server:
        try:
            receive, send = os.pipe()
        except OSError as error:
            raise errors.Unavailable(f"no server can be started: {error}") from error
        given = {
            "command": plan.command,
            "environment": {"PATH": _PATH, **plan.environment},
            "uid": plan.uid,
            "pid_fd": send,
            "keep": [self._lock],
            "cgroup": "" if self._cgroup is None else str(self._cgroup / plan.lease),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(given)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=[send, self._lock],
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except OSError as error:
            os.close(receive)
            raise errors.Unavailable(f"no server can be started: {error}") from error
        finally:
            os.close(send)
        told = await _line(receive)
        pidfd, network = _open(int(told)) if told else (-1, -1)
        return Server(plan, process, int(told or 0), pidfd, network)

    async def _listening(self, server: Server, plan: Plan) -> None:
        end = asyncio.create_task(server.ended(), name=f"end of {plan.lease}")
        try:
            async with asyncio.timeout(plan.ready_within_s):
                while not end.done():
                    with contextlib.suppress(errors.Unavailable):
                        _, writer = await server.connect()
                        writer.close()
                        return
                    await asyncio.wait({end}, timeout=0.02)
        except TimeoutError as error:
            text = f"the server does not listen on port {plan.port} within {plan.ready_within_s:g} s"
            raise errors.Unavailable(text) from error
        finally:
            end.cancel()
            await asyncio.wait({end})
        raise errors.Unavailable(await server.ended())


async def _over(server: Server, within_s: float) -> None:
    """Ended, or handed on: a server that nobody has keeps its card unseen."""
    try:
        await server.end(within_s)
    except (errors.Unavailable, asyncio.CancelledError) as error:
        raise Stuck(server, error) from error


def _open(pid: int) -> tuple[int, int]:
    """The process and its network, by descriptors that stay theirs whatever becomes of the number."""
    try:
        pidfd = os.pidfd_open(pid)
        return pidfd, os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1, -1  # it is gone already, and the launcher tells why


def _inside(network: int, port: int) -> socket.socket:
    """A connection made in another network. In a thread that ends with it: a thread stays where it went."""
    made: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            if _libc.setns(network, _NEWNET) < 0:
                raise OSError(ctypes.get_errno(), "the server's network cannot be entered")  # noqa: TRY301
            made.append(socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter, name="into the server's network")
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    made[0].setblocking(False)
    return made[0]


async def _line(fd: int) -> str:
    """What comes through a pipe until its other end is closed."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    text = await reader.read()
    transport.close()
    return text.decode().strip()


async def _gone(pidfd: int) -> None:
    if pidfd < 0:
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    loop.add_reader(pidfd, done.cancel)
    try:
        await asyncio.wait({done})
    finally:
        loop.remove_reader(pidfd)
