"""Lines for whoever waits: what happens now and how long it took so far. They go to stderr; results go to stdout."""

import sys
import time

_START = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", file=sys.stderr, flush=True)
