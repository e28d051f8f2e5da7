"""Upstream's CEL environment of DRA as a program that judges: the oracle of tests."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack.measure import plugins


class Judge:
    """Questions go in, verdicts come out, one at a time (`hack/reference/cel` has them). Use it in a `with`."""

    def __init__(self, program: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [program or plugins.build_reference() / "cel"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def judge(self, text: str, devices: Sequence[Mapping[str, Any]], *, stored: bool = False) -> dict[str, Any]:
        """`refused`, `cost` and `verdicts` as the program gives them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"text": text, "stored": stored, "devices": devices}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
