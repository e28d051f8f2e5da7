"""Runs every test, unit to end-to-end. `make test`; arguments go to pytest.

Where the real cluster cannot run, one line says what is missing; the rest still runs. With CI=true that is a failure.
"""

import os
import subprocess
import sys

from hack.cluster import requirements


def main() -> None:
    missing = requirements.sentence(requirements.lacks())
    if missing:
        print(f"the end-to-end part cannot run here: {missing}", flush=True)
        if os.environ.get("CI") == "true":  # noqa: TID251  a program for a terminal, not a part of the product
            sys.exit(1)
    else:
        subprocess.run([sys.executable, "-m", "hack.cluster", "build"], check=True)
    selection = ["-m", "not e2e and not gpu"] if missing else ["-m", "not gpu"]
    done = subprocess.run([sys.executable, "-m", "pytest", *selection, *sys.argv[1:]], check=False)
    if missing:
        print(f"NOT RUN: the end-to-end part: {missing}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
