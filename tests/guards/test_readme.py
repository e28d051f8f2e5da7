"""tests/README.md names tests that there are."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_every_test_that_the_list_of_reports_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (TESTS / "README.md").read_text())
    assert len(named) > 40
    missing = [f"{file}::{test}" for file, test in named if not _has(TESTS / file, test)]
    assert missing == []


def _has(file: Path, test: str) -> bool:
    return file.exists() and re.search(rf"def {test}\(", file.read_text()) is not None
