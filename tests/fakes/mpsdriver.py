"""What NVIDIA's driver brings for MPS, as stand-ins: the control program and a libcuda, with faults to be set.

driver = MPSDriver()
driver.fault("wedged")
driver.client(pipes, 512)      # a program that takes so many MiB: what it says
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).parent / "mps"
_PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
place = ctypes.c_void_p()
for name, *arguments in (
    ("cuInit", 0),
    ("cuCtxCreate_v2", ctypes.byref(place), 0, 0),
    ("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(int(sys.argv[2]) << 20)),
):
    if error := getattr(cuda, name)(*arguments):
        sys.exit(f"{name} answers {error}")
print("ready", flush=True)
sys.stdin.read()
"""


class MPSDriver:
    """The program and the library in a directory of their own, with a name that is short enough for sockets."""

    def __init__(self) -> None:
        self._directory = directory = Path(tempfile.mkdtemp(prefix="mps"))
        self.program = directory / "bin" / "nvidia-cuda-mps-control"
        self.library = directory / "bin" / "libcuda.so.1"
        self.proc = directory / "bin" / "proc"
        self.pipes = directory / "mps" / "pipe"
        self.proc.mkdir(parents=True)
        shutil.copy2(SOURCE / "nvidia-cuda-mps-control", self.program)
        command = ("gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", self.library, SOURCE / "libcuda.c")
        subprocess.run(command, check=True)

    def fault(self, *words: str) -> None:
        (self.program.parent / "faults").write_text("\n".join(words))

    def daemons(self) -> list[int]:
        """Those that run."""
        return [int(path.name) for path in self.proc.iterdir() if path.exists() and (path / "exe").exists()]

    def ask(self, *words: str) -> str:
        """What the daemon answers to an admin."""
        environment = {"PATH": os.defpath, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes)}
        command = [self.program, "-p", "3", *words, "--format=csv,noheader"]
        return subprocess.run(command, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout

    def start_by_hand(self, pipes: Path) -> subprocess.Popen[bytes]:
        """A daemon that somebody starts without asking us."""
        pipes.mkdir(parents=True)
        environment = {"PATH": os.defpath, "CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(pipes)}
        return subprocess.Popen([self.program, "-p", "3", "-m", "-f"], env=environment)

    def program_with(self, pipes: str, mib: int, **environment: str) -> subprocess.Popen[str]:
        """A program of a container that takes so much memory, and stays until its input ends."""
        command = [sys.executable, "-c", _PROGRAM, str(self.library), str(mib)]
        env = {"CUDA_MPS_PIPE_DIRECTORY": pipes, **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe)

    def takes(self, pipes: str, mib: int, **environment: str) -> str:
        """What such a program says: `ready`, or what it was refused."""
        out, complaint = self.program_with(pipes, mib, **environment).communicate("")
        return (out or complaint).strip()

    def kill_all(self) -> None:
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        while self.daemons():
            self.kill_all()  # again: one may just have been starting
            time.sleep(0.01)
        shutil.rmtree(self._directory, ignore_errors=True)  # a server that dies behind its daemon may still write
