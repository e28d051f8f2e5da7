"""Pins what the image is made of, by hash: `python -m hack.lock` writes requirements.lock from pyproject.toml.

dependencies --> pip's own resolver, once an architecture, wheels alone --> versions and SHA-256 of both --> requirements.lock

It resolves anew, so versions move within their bounds; a test compares the file with pyproject.toml.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
ARCHITECTURES = ("x86_64", "aarch64")
_GLIBCS = (17, 26, 28, 36)
"""manylinux_2_<n>; the last is the base's."""
_PYTHON = "3.11"
_HEAD = """\
# Made by `python -m hack.lock`. Every package of the image for Python 3.11 on x86_64 and aarch64, pip with them:
#   python3 -m pip download --require-hashes --only-binary :all: --dest dist/wheels -r requirements.lock
"""


def text() -> str:
    """The lock file as it would be now. Asks the package index. Exits where an architecture lacks a wheel, with pip's words."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions: dict[str, str] = {}
    hashes: dict[str, set[str]] = defaultdict(set)
    for architecture in ARCHITECTURES:
        for name, version, digest in _resolved([*project["dependencies"], "pip"], architecture):
            if versions.setdefault(name, version) != version:
                sys.exit(f"lock: {name} is {versions[name]} and {version} by architecture; narrow it in pyproject.toml")
            hashes[name].add(digest)
    lines = [
        f"{name}=={versions[name]} " + " ".join(f"--hash=sha256:{digest}" for digest in sorted(hashes[name]))
        for name in sorted(versions)
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _resolved(wanted: list[str], architecture: str) -> list[tuple[str, str, str]]:
    platforms = [f"--platform=manylinux_2_{glibc}_{architecture}" for glibc in _GLIBCS]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        target = ("--python-version", _PYTHON, "--implementation", "cp", "--target", folder, *platforms)
        command = (sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet")
        done = subprocess.run(
            [*command, "--only-binary", ":all:", *target, "--report", report, *wanted],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"lock: {architecture}: {done.stderr.strip()}")
        found = json.loads(report.read_text())["install"]
    return [
        (
            item["metadata"]["name"].lower().replace("_", "-"),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in found
    ]


def main() -> None:
    LOCK.write_text(text())


if __name__ == "__main__":
    main()
