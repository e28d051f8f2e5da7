"""nvidia-cuda-mps-control: the program that is NVIDIA's MPS daemon, and the one that tells a running daemon what to do.

    look      which of its two interfaces the program has: 3 with named servers and namespaces (driver r615), or 2
    launch    the daemon in the foreground, as a child that outlives nobody's terminal
    the rest  one command each, answered within the limit or Unavailable

    interface 3: a server a card, a namespace a share; who may open the namespace's directory alone has its limits
    interface 2: one directory for all, and a client asks for its own limits by its environment

What is read is comma-separated, since tables are cut to fit a terminal. Nothing of the environment is inherited.
"""

import asyncio
import contextlib
import enum
import os
from dataclasses import dataclass
from pathlib import Path

from api import errors

_SHOWN = 300
_CSV = "--format=csv,noheader"
_MEMORY_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024}
PROGRAM = "nvidia-cuda-mps-control"
DAEMON_FLAGS = frozenset({"-d", "--daemon", "-f", "--foreground"})
DEFAULT = "default"
"""The namespace that every server has; nothing limits it."""


class Interface(enum.Enum):
    PIPES = 2
    """One directory of pipes for all; the client asks."""
    NAMED = 3
    """Named servers and namespaces (driver r615); the daemon limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a namespace, for each process in it. 0: no limit."""

    cores: int = 0
    memory_mib: int = 0


class Control:
    """`directory` holds pipes, logs and shared memory, at the same path on the host. `library_path`: the driver's libraries."""

    def __init__(self, program: Path, directory: Path, library_path: str, limit_s: float) -> None:
        self.interface: Interface | None = None
        self.program = program
        self.pipes = directory / "pipe"
        self.logs = directory / "log"
        self.memory = directory / "shm"
        self._library_path = library_path
        self._limit_s = limit_s

    async def look(self) -> None:
        """Which interface it is. Raises NotReady where there is no such program."""
        if not await asyncio.to_thread(self.program.is_file):
            raise errors.NotReady(f"{self.program} is not there: it comes with NVIDIA's driver")
        try:
            told = await self._run("-p", "3", "-h")
        except errors.NotReady:  # an older one does not know the words
            told = ""
        self.interface = Interface.NAMED if "namespace" in told else Interface.PIPES

    async def launch(self) -> int:
        """Starts the daemon, for clients of all users; its process. It has a session of its own, and outlives this process.

        Raises Unavailable.
        """
        arguments = ("-p", "3", "-m", "-f") if self.interface is Interface.NAMED else ("-M", "-f")
        return await asyncio.to_thread(self._launch, arguments)

    async def answers(self) -> None:
        """Raises NotReady or Unavailable where no daemon answers."""
        await (
            self.servers() if self.interface is Interface.NAMED else self._say("get_default_active_thread_percentage")
        )

    async def last_words(self) -> str:
        """The end of the daemon's log; nothing where it wrote none."""
        return await asyncio.to_thread(_tail, self.logs / "control.log")

    async def quit(self) -> None:
        """Ends the daemon, its servers and their clients."""
        await (self._run("-p", "3", "-q") if self.interface is Interface.NAMED else self._say("quit"))

    async def servers(self) -> dict[str, str]:
        """By name: what each of them is at."""
        return {row[0]: row[3] for row in _rows(await self._ask("server", "list", _CSV), 4)}

    async def make_server(self, name: str, card: str) -> None:
        """It is there when `servers` says so: one for a card that is not there ends at once, without a word."""
        await self._ask("server", "create", name, f"--allowed-devices={card}", "--uid=0")

    async def drop_server(self, name: str) -> None:
        """With its clients."""
        await self._ask("server", "delete", name, "--force")

    async def namespaces(self, server: str) -> dict[str, Limits]:
        """Those that somebody made, each with its limits."""
        rows = _rows(await self._ask("namespace", "list", f"--server={server}", _CSV), 5)
        return {row[0]: Limits(cores=_percent(row[4]), memory_mib=_mib(row[3])) for row in rows if row[0] != DEFAULT}

    async def make_namespace(self, name: str, server: str) -> None:
        await self._ask("namespace", "create", name, f"--server={server}")

    async def limit(self, name: str, server: str, limits: Limits) -> None:
        """Refused while the namespace has clients."""
        words = [f"--pinned-memory-limit={limits.memory_mib}M"] if limits.memory_mib else []
        words += [f"--active-thread-percentage={limits.cores}"] if limits.cores else []
        if words:
            await self._ask("namespace", "set", name, f"--server={server}", *words)

    async def drop_namespace(self, name: str, server: str) -> None:
        """With its clients."""
        await self._ask("namespace", "delete", name, f"--server={server}", "--force")

    async def clients(self) -> frozenset[int]:
        """The processes that are connected to any server."""
        if self.interface is Interface.NAMED:
            told = await self._ask("client", "list", "--all", _CSV)
            return frozenset(int(row[0]) for row in _rows(told, 1) if row[0].isdecimal())
        found: set[int] = set()
        for server in (await self._say("get_server_list")).split():
            if server.isdecimal():
                found |= {
                    int(word) for word in (await self._say(f"get_client_list {server}")).split() if word.isdecimal()
                }
        return frozenset(found)

    def environment(self, pipes: Path) -> dict[str, str]:
        """Of a program that shall talk through these pipes."""
        return {
            "PATH": f"{self.program.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
            **({"LD_LIBRARY_PATH": self._library_path} if self._library_path else {}),
        }

    def _launch(self, arguments: tuple[str, ...]) -> int:
        for directory, mode in ((self.pipes, 0o755), (self.logs, 0o755), (self.memory, 0o1777)):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)
        silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        command, environment = (str(self.program), *arguments), self.environment(self.pipes)
        try:
            return os.posix_spawn(self.program, command, environment, file_actions=silent, setsid=True)
        except OSError as error:
            raise errors.Unavailable(f"{self.program} does not start: {error}") from error

    async def _ask(self, *words: str) -> str:
        return await self._run("-p", "3", *words)

    async def _say(self, line: str) -> str:
        return await self._run(text=line + "\n")

    async def _run(self, *arguments: str, text: str = "") -> str:
        """What it answers. Raises NotReady with its last words where it refuses, Unavailable where it is silent."""
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                self.program,
                *arguments,
                stdin=pipe if text else null,
                stdout=pipe,
                stderr=asyncio.subprocess.STDOUT,
                env=self.environment(self.pipes),
            )
        except OSError as error:
            raise errors.Unavailable(f"{self.program} does not start: {error}") from error
        about = " ".join((PROGRAM, *arguments, text.strip()))
        try:
            async with asyncio.timeout(self._limit_s):
                out, _ = await process.communicate(text.encode() or None)
        except TimeoutError as error:
            raise errors.Unavailable(f"{about}: no answer within {self._limit_s:g} s") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        said = out.decode(errors="replace").strip()
        if process.returncode:
            raise errors.NotReady(f"{about}: {said.splitlines()[-1][:_SHOWN] if said else 'refused without a word'}")
        return said


def _rows(text: str, width: int) -> list[list[str]]:
    """Lines with at least so many fields; a word of welcome is none."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) >= width and row[0]]


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:_SHOWN] if lines else ""


def _percent(text: str) -> int:
    """100 is no limit, and neither is what is no number."""
    try:
        found = round(float(text.rstrip("%")))
    except ValueError:
        return 0
    return found if found < 100 else 0  # noqa: PLR2004 all of the card


def _mib(text: str) -> int:
    unit = _MEMORY_UNITS.get(text[-1:].upper())
    try:
        return 0 if unit is None else int(float(text[:-1]) * unit)
    except ValueError:
        return 0
