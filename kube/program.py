"""What each of our long-running programs has: its version, its log, and the error that it ends with."""

import logging
import sys
from importlib import metadata

import structlog

from api import errors

_LEVELS = ("debug", "info", "warning", "error")


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
