"""Owns the one MPS control daemon of a node: starts it, tries it, notices when it is gone or hangs, and ends it.

    run      look -> nobody else's daemon -> launch -> `restore` -> a client's try -> well
             well -> it answers?, and now and then a client's try -> ... -> not well -> started anew

    problem  why a share cannot be held by MPS now; empty while it can

What must stay true: nothing counts before a real client was served. A daemon is ended only where it hangs, or where no
share needs it: its end is the end of all its clients. One that an earlier process of ours left is taken over, for its
clients still run; beside one that somebody else started none is started.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from api import errors
from driver import metrics, mpsclient, mpscontrol

_SILENT = 3
"""So many times without an answer, and it hangs."""
_TRIED_EVERY = 20
_LONGEST_PAUSE = 20
"""Times the period, between two starts."""
_TURNS = 100
_TURN_S = 0.1
"""How often, and how far apart, a daemon that starts is asked whether it is there."""
_log = structlog.get_logger()


class Keeper:
    """`library`: libcuda for the client. `needed`: whether any share is held by the daemon. `proc`: where processes show."""

    def __init__(
        self,
        control: mpscontrol.Control,
        *,
        library: str,
        needed: Callable[[], bool],
        period_s: float,
        client_limit_s: float = 20.0,
        proc: Path = Path("/proc"),
    ) -> None:
        self.problem = "the MPS daemon has not been started yet"
        self._control = control
        self._library = library
        self._needed = needed
        self._period_s = period_s
        self._client_limit_s = client_limit_s
        self._proc = proc
        self._pid = 0
        self._watch = -1
        self._serving = metrics.MPS_SERVING.labels(str(control.program))
        self._starts = metrics.MPS_STARTS.labels(str(control.program))
        self._ended = asyncio.Event()

    async def run(self, restore: Callable[[], Awaitable[None]], trial: Callable[[], Awaitable[bool]]) -> None:
        """Keeps it for ever. `restore`: what a fresh daemon has to be told; `trial`: a client's try, False where no
        card is free for one. Both may raise.
        """
        failures = turns = 0
        try:
            while True:
                try:
                    await self._turn(turns, restore, trial)
                    failures = 0
                    turns += 1
                except errors.ElasticGPUError as error:
                    failures += 1
                    turns = 0
                    self._tell(str(error))
                    await self._recover(failures)
                pause = self._period_s * min(2 ** max(failures - 1, 0), _LONGEST_PAUSE)
                await self._pause(pause)
        finally:
            self.problem = "this driver is stopping"
            await asyncio.shield(self._leave())

    async def serve(self, pipes: Path, card: str) -> None:
        """Has a client on this card through these pipes. Raises NotReady with what went wrong."""
        environment = {
            **self._control.environment(pipes),
            "CUDA_VISIBLE_DEVICES": card,
            "PYTHONPATH": ":".join(sys.path),
        }
        pipe = asyncio.subprocess.PIPE
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            mpsclient.__name__,
            self._library,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=environment,
        )
        assert client.stdout is not None
        try:
            async with asyncio.timeout(self._client_limit_s):
                said = (await client.stdout.readline()).decode().strip()
                if said != mpsclient.READY:
                    _, complaint = await client.communicate(b"")
                    why = said or (complaint.decode(errors="replace").strip().splitlines() or ["it died"])[-1]
                    raise errors.NotReady(f"a client of the MPS daemon fails on card {card}: {why}")
                if client.pid not in await self._control.clients():
                    raise errors.NotReady(f"a client on card {card} runs without MPS: the daemon does not list it")
                await client.communicate(b"")
        except TimeoutError as error:
            raise errors.NotReady(
                f"a client of the MPS daemon is not served on card {card} within {self._client_limit_s:g} s"
            ) from error
        finally:
            if client.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    client.kill()
                await client.wait()

    async def _turn(
        self, turns: int, restore: Callable[[], Awaitable[None]], trial: Callable[[], Awaitable[bool]]
    ) -> None:
        if not self._pid or self._ended.is_set():
            words = f": {told}" if self._pid and (told := await self._control.last_words()) else ""
            if self._pid:
                self._tell(f"the MPS daemon has ended{words}")
            await self._begin()
            await restore()
            tried = await trial()
        else:
            await self._control.answers()
            tried = await trial() if self.problem or turns % _TRIED_EVERY == 0 else True
            tried = tried or not self.problem
        self._tell("" if tried else "the MPS daemon has served no client yet, since no card is free for a try")

    async def _begin(self) -> None:
        self._unwatch()
        await self._control.look()
        ours, others = await asyncio.to_thread(self._seen)
        if others:
            raise errors.NotReady(
                f"another MPS control daemon runs on this node, which this driver did not start (process {others[0]}): "
                "two of them cannot share its cards; stop it"
            )
        if ours:
            self._watch_over(ours)
            await self._control.answers()
            _log.info("MPS daemon taken over", process=ours)
            return
        self._watch_over(await self._control.launch())
        self._starts.inc()
        _log.info("MPS daemon started", process=self._pid, interface=self._control.interface)
        await self._up()

    async def _up(self) -> None:
        for _ in range(_TURNS):
            if self._ended.is_set():
                raise errors.NotReady(
                    f"the MPS daemon ends at once: {await self._control.last_words() or 'without a word'}"
                )
            with contextlib.suppress(errors.ElasticGPUError):
                await self._control.answers()
                return
            await self._pause(_TURN_S)
        raise errors.Unavailable("the MPS daemon does not answer after its start")

    async def _recover(self, failures: int) -> None:
        """It hangs, or serves nobody: its end helps the newcomers, and costs the clients that it still has."""
        if self._pid and failures >= _SILENT and (not self._needed() or not await self._quiet()):
            _log.warning("MPS daemon ended, to be started anew", process=self._pid, reason=self.problem)
            await self._kill()

    async def _quiet(self) -> bool:
        """Whether it still answers: then only the try of a client failed, and those that it has may be well."""
        try:
            await self._control.answers()
        except errors.ElasticGPUError:
            return False
        return True

    async def _leave(self) -> None:
        """With shares to hold it stays, for the next process of ours to take over."""
        if not self._pid or self._needed():
            self._unwatch()
            return
        with contextlib.suppress(errors.ElasticGPUError):
            await self._control.quit()
        await self._kill()

    async def _kill(self) -> None:
        """The daemon and its servers, which are in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        await self._ended.wait()
        self._unwatch()

    async def _pause(self, seconds: float) -> None:
        """Shorter where the daemon ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (asyncio.Event() if self._ended.is_set() else self._ended).wait()

    def _watch_over(self, pid: int) -> None:
        """Raises Unavailable for one that is gone already."""
        try:
            self._watch = os.pidfd_open(pid)
        except OSError as error:
            raise errors.Unavailable(f"the MPS daemon cannot be watched: {error}") from error
        self._pid = pid
        self._ended.clear()
        asyncio.get_running_loop().add_reader(self._watch, self._bury)

    def _bury(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watch)
        with contextlib.suppress(ChildProcessError):  # that of a former process is not our child
            os.waitpid(self._pid, os.WNOHANG)
        self._ended.set()

    def _unwatch(self) -> None:
        if self._pid:
            asyncio.get_running_loop().remove_reader(self._watch)
            os.close(self._watch)
        self._pid = 0

    def _seen(self) -> tuple[int, list[int]]:
        """The daemon that has our pipes, from an earlier process of ours, and those that have others."""
        found = [pid for pid in _pids(self._proc) if _is_daemon(self._proc, pid)]
        mark = f"CUDA_MPS_PIPE_DIRECTORY={self._control.pipes}"
        ours = next((pid for pid in found if mark in _words(self._proc / str(pid) / "environ")), 0)
        return ours, [pid for pid in found if pid != ours]

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            (_log.warning if problem else _log.info)("MPS daemon looked at", problem=problem)
        self.problem = problem
        self._serving.set(0 if problem else 1)


def _pids(proc: Path) -> list[int]:
    return sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal())


def _is_daemon(proc: Path, pid: int) -> bool:
    """Whoever interprets it; a command that only asks is none, and neither is what waits to be buried."""
    words = _words(proc / str(pid) / "cmdline")
    names = {Path(word).name for word in words[:4]}
    return mpscontrol.PROGRAM in names and not mpscontrol.DAEMON_FLAGS.isdisjoint(words)


def _words(file: Path) -> list[str]:
    """Empty for a process that is gone."""
    try:
        return file.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
