"""Tools that are run and waited for; when one fails, what it said is the error."""

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from hack.cluster import errors, progress

_HEARTBEAT_S = 10.0


def run(*argv: str | Path, text: str = "", cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a tool with `text` as its input and return what it printed."""
    words = tuple(map(str, argv))
    try:
        done = subprocess.run(words, input=text, text=True, capture_output=True, check=False, cwd=cwd, env=env)
    except FileNotFoundError:
        raise _missing(words) from None
    return _printed(words, done)


def feed(*argv: str | Path, stream: IO[bytes]) -> str:
    """Run a tool that reads an open file as its input."""
    words = tuple(map(str, argv))
    try:
        done = subprocess.run(words, stdin=stream, text=True, capture_output=True, check=False)
    except FileNotFoundError:
        raise _missing(words) from None
    return _printed(words, done)


def follow(
    *argv: str | Path,
    how_far: Callable[[Sequence[str]], str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a tool that takes minutes, telling now and then how far it is, judged from the lines it has printed."""
    words = tuple(map(str, argv))
    lines: list[str] = []
    with subprocess.Popen(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as tool:
        assert tool.stdout is not None
        reader = threading.Thread(
            target=lambda out: lines.extend(map(str.rstrip, out)), args=(tool.stdout,), daemon=True
        )
        reader.start()
        began = time.monotonic()
        while reader.is_alive():
            reader.join(_HEARTBEAT_S)
            if reader.is_alive():
                progress.say(f"  {time.monotonic() - began:.0f} s, {how_far(lines)}")
    if tool.returncode != 0:
        raise failed(words, tool.returncode, "\n".join(lines))


def _printed(words: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode != 0:
        raise failed(words, done.returncode, done.stderr or done.stdout)
    return done.stdout


def failed(words: tuple[str, ...], code: int, said: str) -> errors.ClusterError:
    """The error that tells which command ended how, and the last lines it said."""
    end = "\n".join(said.strip().splitlines()[-15:])
    return errors.ClusterError(f"{' '.join(words)[:300]} failed ({code}):\n{end}")


def _missing(words: tuple[str, ...]) -> errors.ClusterError:
    return errors.ClusterError(f"{words[0]} is missing: python3 -m hack.cluster requirements")
