import asyncio
import json
import os
import signal

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


class _Given:
    log_level = "info"


def test_a_wrong_setting_ends_a_program_with_two_and_its_reason(capsys) -> None:
    def load() -> _Given:
        raise errors.Invalid("EGPU_PORT is 'http'; it must be a number")

    with pytest.raises(SystemExit) as ended:
        program.begin(program.parser("egpu-some", "Does something."), load)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "egpu-some: EGPU_PORT is 'http'; it must be a number\n"


def test_the_error_of_a_task_among_many_ends_a_program_with_one_and_its_reason_in_a_line(fresh, capsys) -> None:
    async def fail() -> None:
        raise errors.Unavailable("the disk is full")

    async def work(stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(fail())

    program.begin(program.parser("egpu-some", "Does something."), _Given)
    with pytest.raises(SystemExit) as ended:
        program.run(work)
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().err)["reason"] == "the disk is full"


def test_an_error_that_is_none_of_ours_is_shown_whole() -> None:
    async def work(stop: asyncio.Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program.run(work)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_work_that_wants_time_end_by_itself(number: signal.Signals) -> None:
    order = []

    async def work(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()
        order.append("told")
        await asyncio.sleep(0)
        order.append("cleared away")

    program.run(work)
    assert order == ["told", "cleared away"]


def test_a_second_signal_ends_what_will_not_end() -> None:
    async def work(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    program.run(work)


def test_work_that_needs_no_time_is_cancelled_and_awaited() -> None:
    order = []

    async def for_ever() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("given back")

    program.run(lambda stop: program.until(stop, for_ever()))
    assert order == ["given back"]


def test_work_that_ends_by_itself_or_fails_ends_the_waiting() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    program.run(lambda stop: program.until(stop, asyncio.sleep(0)))
    with pytest.raises(ZeroDivisionError):
        program.run(lambda stop: program.until(stop, fail()))
