"""`kubectl egpu` as a user runs it: a process of its own, the real kubectl, a pipe or a terminal of some width."""

import asyncio
import fcntl
import os
import pty
import shutil
import struct
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hack.cluster import build

ROOT = Path(__file__).resolve().parents[2]


def kubectl() -> str:
    """The one in PATH, else the one that the real cluster was built with."""
    found = shutil.which("kubectl") or shutil.which("kubectl", path=str(build.directory()))
    if found is None:
        pytest.skip("needs kubectl, in PATH or built by hack.cluster")
    return found


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class User:
    """Someone with a kubeconfig. `home` is theirs alone, kubectl keeps a cache there."""

    home: Path
    kubeconfig: Path
    kubectl: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(self.kubectl).parent), str(self.home / "bin"), "/usr/bin", "/bin"])
        return {"HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), "PATH": path, "TERM": "xterm", **self.more}

    async def egpu(self, *arguments: str) -> Done:
        """Into pipes."""
        return await self.run(sys.executable, "-m", "cli", *arguments)

    async def run(self, *command: str) -> Done:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        return Done(process.returncode or 0, out.decode(), err.decode())

    async def sees(self, *arguments: str, width: int = 200) -> str:
        """What it writes to a terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cli", *arguments), cwd=ROOT, env=self.environment, stdout=theirs, stderr=theirs
            )
            os.close(theirs)
            reading = asyncio.to_thread(_everything, ours)
            text, _ = await asyncio.gather(reading, process.wait())
            return text.replace("\r\n", "\n")
        finally:
            os.close(ours)


def _everything(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)
