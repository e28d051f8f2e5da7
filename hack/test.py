"""Runs every test, unit to end-to-end. `make test`; arguments go to pytest.

Where the real cluster cannot run, one line says what is missing; the rest still runs. With CI=true that is a failure.
"""

import os
import subprocess
import sys

from hack.cluster import build, requirements


def main() -> None:
    environment = dict(os.environ)
    missing = requirements.sentence(requirements.lacks())
    if missing:
        print(f"the end-to-end part cannot run here: {missing}", flush=True)
        if environment.get("CI") == "true":
            sys.exit(1)
    else:
        environment["PATH"] = f"{build.build(build.KUBERNETES)}{os.pathsep}{environment['PATH']}"
    selection = "not gpu and not skew" + (" and not e2e" if missing else "")
    command = [sys.executable, "-m", "pytest", "-m", selection, *sys.argv[1:]]
    done = subprocess.run(command, env=environment, check=False)
    if missing:
        print(f"NOT RUN: the end-to-end part: {missing}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
