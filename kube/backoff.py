"""Pauses between failures: doubling up to the longest, however many failures there were.

`Backoff` jitters them, so that a fleet does not move in step, and forgets them after success.
"""

import random
from dataclasses import dataclass

_MOST_DOUBLINGS = 30
"""A float holds no 2**1024: an outage of hours must not end in an OverflowError."""


def pause_s(first_s: float, most_s: float, failures: int) -> float:
    return min(first_s * 2.0 ** min(failures, _MOST_DOUBLINGS), most_s)


@dataclass(slots=True)
class Backoff:
    """`next_s` is the pause before the next try; `reset` after something went well."""

    first_s: float
    most_s: float
    failures: int = 0

    def next_s(self) -> float:
        longest_s = pause_s(self.first_s, self.most_s, self.failures)
        self.failures += 1
        return longest_s * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self) -> None:
        self.failures = 0
