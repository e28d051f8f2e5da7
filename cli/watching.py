"""`--watch`: a command's page again and again on a terminal, drawn only where it changed.

Between two looks it sleeps; an interrupt ends it. In a pipe there is nothing to draw over: ElasticGPU objects have a
real watch, and kubectl prints it.
"""

import dataclasses
import datetime
import io
import sys
import time
from collections.abc import Callable

from api import errors
from cli import commands

_PAUSE_S = 2.0
_HOME_AND_CLEAR = "\033[H\033[2J\033[3J"


def follow(asked: commands.Asked, run: Callable[[commands.Asked], int], clock: Callable[[], datetime.datetime]) -> int:
    """Does not return while all is well. Raises Invalid in a pipe."""
    if not asked.output.terminal or asked.form in ("json", "yaml", "name"):
        raise errors.Invalid(
            "--watch draws tables on a terminal; for programs there is kubectl get elasticgpus --watch"
        )
    shown = ""
    while True:
        page = io.StringIO()
        code = run(dataclasses.replace(asked, out=page, warnings=page, now=clock()))
        if page.getvalue() != shown:
            shown = page.getvalue()
            sys.stdout.write(_HOME_AND_CLEAR + shown)
            sys.stdout.flush()
        if code != commands.FOUND:
            return code
        time.sleep(_PAUSE_S)
