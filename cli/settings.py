"""What the terminal and the environment say about output: the only reader of either.

Colour is for a terminal that has it, and for nobody who set NO_COLOR; meaning never hangs on it.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_NARROWEST = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """`width` is None where it goes to a pipe or a file: nothing is shortened there."""

    colour: bool
    width: int | None

    @property
    def terminal(self) -> bool:
        return self.width is not None


def output(colour: str) -> Output:
    """For stdout as it is now; `colour` is auto, always or never."""
    terminal = sys.stdout.isatty()
    width = max(_NARROWEST, shutil.get_terminal_size().columns) if terminal else None
    return Output(colour=coloured(colour, os.environ, terminal=terminal), width=width)


def coloured(wish: str, environment: Mapping[str, str], *, terminal: bool) -> bool:
    if wish != "auto":
        return wish == "always"
    refused = environment.get("NO_COLOR") or environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb"
    return terminal and not refused
