"""What a demo says: a title before each step with the time since the beginning, and below it what was seen."""

import sys
import time

_START = time.monotonic()


def step(text: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}[{time.monotonic() - _START:5.0f} s] {text}{plain}", flush=True)


def show(text: str) -> None:
    print("\n".join(f"    {line}" for line in text.strip().splitlines()), flush=True)
