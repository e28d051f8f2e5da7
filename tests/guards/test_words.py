"""Words that must not appear: names of machines' folders, and words the field does not use for our notions."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = {".png", ".tar", ".gz", ".whl", ".sum"}
FORBIDDEN = {
    r"(?<![\w.])/work/": "a path of one machine",
    r"(?<![\w.])/root/": "a path of one machine",
    r"\bvGPU\b|\bfractional GPU\b": "a part of a card is a share, in every text",
}


def _files() -> list[Path]:
    """Ours, not what builds leave beside them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines()]


def test_no_file_holds_a_forbidden_word() -> None:
    found = []
    for path in _files():
        if path.suffix in BINARY or path == Path(__file__) or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        found += [f"{path}: {pattern} ({why})" for pattern, why in FORBIDDEN.items() if re.search(pattern, text)]
    assert not found, found


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {"manager", "helper", "helpers", "util", "utils", "common", "base", "misc"}
    assert not [path for path in _files() if path.suffix == ".py" and path.stem in names]


def test_modules_stay_small() -> None:
    """A file that passes 400 lines is split by notion (CONTRIBUTING)."""
    packages = (
        "api",
        "cel",
        "translate",
        "allocation",
        "explain",
        "view",
        "kube",
        "poolclient",
        "kubeletplugin",
        "driver",
        "controller",
        "webhook",
        "cli",
        "pool",
        "hack",
    )
    long = {
        str(path.relative_to(ROOT)): lines
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if "_pb2" not in path.name and (lines := len(path.read_text().splitlines())) > 400
    }
    assert not long, long
