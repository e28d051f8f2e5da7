"""Upstream's structured allocator as a program that answers: the oracle of tests, and what benchmarks stand beside."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack.measure import plugins

JSON = Mapping[str, Any]


class Allocator:
    """Orders go in, answers come out, one at a time (`hack/reference/allocator` has them). Use it in a `with`."""

    def __init__(self, program: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [program or plugins.build_reference() / "allocator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cluster(
        self, *, nodes: Sequence[JSON], slices: Sequence[JSON], classes: Sequence[JSON], claims: Sequence[JSON] = ()
    ) -> None:
        """From now on this is the cluster; `claims` are allocated ones."""
        self._ask({"verb": "cluster", "nodes": nodes, "slices": slices, "classes": classes, "claims": claims})

    def allocate(self, claims: Sequence[JSON], **how: Any) -> dict[str, Any]:
        """`nodes`, `all`, `keep`, `limit_s` as the program knows them."""
        return self._ask({"verb": "allocate", "claims": claims, **how})

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, order: JSON) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference allocator ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise RuntimeError(f"the reference allocator refuses the order: {answer['error']}")
        return answer
