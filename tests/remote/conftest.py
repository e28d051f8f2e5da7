"""After each test of the remote road: no secret in API objects, files, variables or logs."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import secrets


@pytest.fixture(autouse=True)
def nothing_secret_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """API objects are among the files: `a_cluster` writes at its end what its server holds."""
    yield
    said = capfd.readouterr()
    sys.stdout.write(said.out)  # for the report of a test that has failed
    sys.stderr.write(said.err)
    secrets.none_in({"stdout": said.out, "stderr": said.err, "variables": json.dumps(dict(os.environ))})
    secrets.none_below(tmp_path)
