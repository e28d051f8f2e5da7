"""The Go stand-in for a kubelet (`hack/reference/kubelet`), one process a plugin, ordered about over pipes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.measure import programs

Claim = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What calls took, one by one and all together, and what they were answered if not success."""

    each_ms: tuple[float, ...]
    wall_ms: float
    errors: tuple[str, ...]

    def good(self) -> "Timing":
        """Itself, or an error: a failed call is no measurement."""
        if self.errors:
            raise RuntimeError(f"{len(self.errors)} calls failed, the first: {self.errors[0]}")
        return self


class Kubelet:
    """The stand-in for one plugin."""

    def __init__(self, program: Path, registry: Path, log: Path) -> None:
        self._registry = registry
        self._program = programs.Program((program,), log, piped=True)

    def register(self, driver: str, timeout_s: float = 30) -> None:
        self._order(verb="register", registry=str(self._registry), driver=driver, timeout_s=timeout_s)

    def prepare(self, calls: list[list[Claim]], *, in_flight: int = 1, timeout_s: float = 45) -> Timing:
        return self._calls("prepare", calls, in_flight, timeout_s)

    def unprepare(self, calls: list[list[Claim]], *, in_flight: int = 1, timeout_s: float = 45) -> Timing:
        return self._calls("unprepare", calls, in_flight, timeout_s)

    def stop(self) -> None:
        self._program.stop()

    def _calls(self, verb: str, calls: list[list[Claim]], in_flight: int, timeout_s: float) -> Timing:
        said = self._order(verb=verb, calls=calls, workers=in_flight, timeout_s=timeout_s)
        return Timing(each_ms=tuple(said["ms"]), wall_ms=said["wall_ms"], errors=tuple(said["errors"] or ()))

    def _order(self, **order: object) -> dict[str, Any]:
        process = self._program.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._program.process.wait(5)
            self._program.check()
        said: dict[str, Any] = json.loads(line)
        if said["fatal"]:
            raise RuntimeError(f"kubelet stand-in: {said['fatal']}")
        return said


def one_each(claims: list[Claim]) -> list[list[Claim]]:
    """One call a claim."""
    return [[claim] for claim in claims]
