"""nvidia-ctk: NVIDIA's own program knows best which files and nodes a container needs of this driver.

Runs it for some cards, and gives back the CDI spec that it wrote. Never asked while a claim waits.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from api import errors

_LIMIT_S = 30.0
_SHOWN = 300


async def generate(
    program: Path, *, driver_root: Path, dev_root: Path, hook: str, cards: Iterable[str]
) -> dict[str, Any]:
    """The spec for these cards, in the paths of `driver_root` and `dev_root`; `hook` is a path on the host.

    Raises Unavailable where the program cannot be run or gives up, with its last words.
    """
    command = [
        *(str(program), "cdi", "generate", "--mode", "nvml", "--format", "json", "--no-all-device"),
        *("--device-name-strategy", "uuid", "--driver-root", str(driver_root), "--dev-root", str(dev_root)),
        *("--nvidia-cdi-hook-path", hook),
    ]
    if (driver_root / "sbin/ldconfig.real").exists():  # Ubuntu: /sbin/ldconfig is a shell script there
        command += ["--ldconfig-path", "/sbin/ldconfig.real"]
    for card in cards:
        command += ["--device-id", card]
    out = await _run(command)
    try:
        spec = msgspec.json.decode(out)
    except msgspec.MsgspecError as error:
        raise errors.Unavailable(f"{program} wrote no CDI spec: {error}") from error
    if not isinstance(spec, dict):
        raise errors.Unavailable(f"{program} wrote no CDI spec but {type(spec).__name__}")
    return spec


async def lacks(hook: Path, verb: str) -> str:
    """Why this CDI hook cannot be used for `verb`; empty where it can."""
    try:
        await _run([str(hook), verb, "--help"])
    except errors.Unavailable as error:
        return f"an nvidia-cdi-hook that knows {verb} (NVIDIA container toolkit 1.20.1 or newer): {error}"
    return ""


async def _run(command: list[str]) -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise errors.Unavailable(f"{command[0]} does not start: {error}") from error
    try:
        async with asyncio.timeout(_LIMIT_S):
            out, said = await process.communicate()
    except TimeoutError as error:
        raise errors.Unavailable(f"{command[0]} has not ended within {_LIMIT_S:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        words = said.decode(errors="replace").strip().splitlines()[-1:] or ["without a word"]
        raise errors.Unavailable(f"{command[0]} ended with {process.returncode}: {words[0][:_SHOWN]}")
    return out
