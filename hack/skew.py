"""Runs the end-to-end tests that every Kubernetes should pass on each pinned version, oldest first. `make test-skew`.

    python -m hack.skew [--kubernetes 1.34 1.36] [-- words for pytest]

Each version gets a cluster of its own; what a version has not is skipped with the feature's name, as the server told it.
At the end one line a version. The exit code is 0 where every version passed.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from hack.cluster import build, requirements

ROOT = Path(__file__).resolve().parents[1]
SUITE = (
    "test_skew", "test_pods", "test_slices", "test_classes", "test_faults", "test_crds", "test_rights", "test_view",
    "test_shares", "test_controller_allocated", "test_retain", "test_remote", "test_translation", "test_newcomer",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m hack.skew", description="The tests on several versions.")
    parser.add_argument("--kubernetes", nargs="+", type=build.named, default=build.pinned(), metavar="VERSION")
    parser.add_argument("pytest", nargs="*", help="instead of the suite: paths and options of pytest, after --")
    options = parser.parse_args()
    requirements.check()
    told = [_run(version, options.pytest) for version in options.kubernetes]
    print("\n".join(line for _, line in told))
    return max(code for code, _ in told)


def _run(version: str, words: list[str]) -> tuple[int, str]:
    """The exit code, and what is to be told of it."""
    print(f"Kubernetes {version}", flush=True)
    binaries = build.build(version)
    environment = os.environ | {
        "TEST_KUBERNETES": version,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
    }
    suite = words or [f"tests/e2e/{name}.py" for name in SUITE]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [sys.executable, "-m", "pytest", "-m", "e2e", f"--junitxml={report}", *suite]
        code = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
        return code, f"{version}: {summary(report.read_text(encoding='utf-8')) if report.exists() else 'not run'}"


def summary(report: str) -> str:
    """Passed, failed, and skipped by which feature, of a report in JUnit's form."""
    cases = list(ET.fromstring(report).iter("testcase"))
    reasons = [found.get("message", "") for case in cases if (found := case.find("skipped")) is not None]
    bad = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = collections.Counter(re.sub(r"^Kubernetes \S+ has ", "", reason) for reason in reasons)
    by_reason = "".join(f"; {count} skipped: {reason}" for reason, count in sorted(skipped.items()))
    return f"{len(cases) - bad - len(reasons)} passed, {bad} failed{by_reason}"


if __name__ == "__main__":
    sys.exit(main())
