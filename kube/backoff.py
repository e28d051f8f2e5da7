"""Pauses between failures: doubling, jittered so that a fleet does not move in step, forgotten after success."""

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """`next_s` is the pause before the next try; `reset` after something went well."""

    first_s: float
    most_s: float
    failures: int = 0

    def next_s(self) -> float:
        pause_s = min(self.first_s * 2.0 ** min(self.failures, 30), self.most_s)
        self.failures += 1
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self) -> None:
        self.failures = 0
