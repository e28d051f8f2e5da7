import json

import pytest
import structlog

from api import errors
from kube import program


@pytest.fixture
def fresh():
    yield
    structlog.reset_defaults()


def test_a_log_line_is_one_json_object_with_level_and_time(fresh, capsys) -> None:
    program.log_from("info")
    structlog.get_logger().debug("too little")
    structlog.get_logger().warning("seen", what=object)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line).keys() == {"event", "what", "level", "timestamp"}


def test_an_unknown_level_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(errors.Invalid, match="EGPU_LOG_LEVEL is 'loud'; known: debug, info, warning, error"):
        program.log_from("loud")
