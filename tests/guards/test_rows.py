"""Every row of the failure matrix of remote cards has a test by its number."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_ROWS = 32


def test_every_row_of_the_failure_matrix_has_a_test_that_bears_its_number() -> None:
    named = (
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"def test_row_(\d\d(?:_and_\d\d)*)", path.read_text())
    )
    tested = {int(row) for name in named for row in name.split("_and_")}
    assert tested == set(range(1, _ROWS + 1))
