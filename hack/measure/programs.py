"""A program that the benchmark starts: its log, what it costs, and its end, also when the benchmark is killed."""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Program:
    """Started at once; `stop` may be repeated."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        self.name, self.log = Path(argv[0]).name, log
        pipe = subprocess.PIPE if piped else None
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(str, argv)],
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or output,
                stderr=output,
                env=environment,
                start_new_session=True,
                text=True,
            )

    def cpu_ms(self) -> float:
        """CPU time of the program itself so far, in steps of a clock tick."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / _TICKS

    def rss_mib(self) -> float:
        line = next(line for line in self._proc("status").splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def check(self) -> None:
        """Raise with the end of its log where the program has ended by itself."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        return "\n".join(line[-1500:] for line in self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _proc(self, name: str) -> str:
        self.check()
        return Path(f"/proc/{self.process.pid}/{name}").read_text()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback device that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
