"""All that is checked without running the code: format, lint, types, layers, generated files. `make check`."""

import subprocess
import sys
import time
from pathlib import Path

from hack import generate

BIN = Path(sys.executable).parent
CHECKS = (
    ("format", ["ruff", "format", "--check", "-q", "."]),
    ("lint", ["ruff", "check", "-q", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("layers", ["lint-imports", "--no-cache"]),
)


def main() -> None:
    failed = []
    for name, (program, *arguments) in CHECKS:
        started = time.monotonic()
        done = subprocess.run([BIN / program, *arguments], capture_output=True, text=True, check=False)
        print(f"{name:10} {'ok' if done.returncode == 0 else 'FAILED'}  {time.monotonic() - started:.1f} s", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout + done.stderr)
    stale = generate.stale()
    print(f"{'generated':10} {'stale: ' + ', '.join(stale) + ' (make generate)' if stale else 'ok'}")
    if failed or stale:
        sys.exit(1)


if __name__ == "__main__":
    main()
