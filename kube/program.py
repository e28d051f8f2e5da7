"""What each of our long-running programs has: its version, its log, how it begins, is told to stop, and ends.

    parser -> begin: settings, log -> run: the work, until it ends or a signal comes

Each ends with 0 when told to, with 2 where a setting is wrong, with 1 where it cannot go on; the last line says why.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from importlib import metadata
from typing import Any, Protocol, TypeVar

import structlog

from api import errors

_log = structlog.get_logger()
_LEVELS = ("debug", "info", "warning", "error")


class Given(Protocol):
    """The settings of a program."""

    @property
    def log_level(self) -> str: ...


G = TypeVar("G", bound=Given)


def version() -> str:
    """Of the installed wheel; "0" for a run from the tree."""
    try:
        return metadata.version("elastic-gpu")
    except metadata.PackageNotFoundError:
        return "0"


def first(error: BaseException) -> BaseException:
    """The error that a group of tasks ended with."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def log_from(level: str) -> None:
    """Writes one JSON object a line on stderr, from this level on. Raises Invalid for a level that is none."""
    if level not in _LEVELS:
        raise errors.Invalid(f"EGPU_LOG_LEVEL is {level!r}; known: {', '.join(_LEVELS)}")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def parser(name: str, description: str, manual: str = "") -> argparse.ArgumentParser:
    """`--help`, which ends with the manual of the settings, and `--version`."""
    made = argparse.ArgumentParser(
        prog=name, description=description, epilog=manual, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--version", action="version", version=version())
    return made


def begin(asked: argparse.ArgumentParser, load: Callable[[], G]) -> G:
    """The settings, with the log at their level. Ends the program with 2 where one is wrong."""
    try:
        given = load()
        log_from(given.log_level)
    except errors.Invalid as error:
        asked.exit(2, f"{asked.prog}: {error}\n")
    return given


def run(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Works until the end; SIGTERM or SIGINT sets the event, a second one cancels. Ends the program with 1 after an error."""
    try:
        asyncio.run(_signalled(work))
    except (errors.ElasticGPUError, ExceptionGroup) as error:
        reason = first(error)
        if not isinstance(reason, errors.ElasticGPUError):
            raise
        _log.error("stopped", reason=str(reason))
        sys.exit(1)
    _log.info("stopped")


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """For work that needs no time to stop: it is cancelled once the event is set. Raises what the work raises."""
    doing, told = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        doing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await doing


async def _signalled(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop, doing = asyncio.Event(), asyncio.current_task()
    assert doing is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: doing.cancel() if stop.is_set() else stop.set())
    with contextlib.suppress(asyncio.CancelledError):
        await work(stop)
