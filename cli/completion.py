"""Completion by the shell: kubectl asks a program called `kubectl_complete-egpu` in PATH, since 1.26.

It gets the words so far, the last one unfinished, and answers candidates, one a line, and at the end a directive.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence

_NO_FILES = ":4"
_FORMS = ("table", "wide", "json", "yaml", "name")
_FLAGS = ("--namespace", "--all-namespaces", "--output", "--no-headers", "--color", "--quiet", "--context", "--help")
_SCRIPT = """#!/bin/sh
# kubectl asks this program for completions of `kubectl egpu`: save it in PATH as kubectl_complete-egpu, executable.
exec kubectl egpu __complete "$@"
"""


def explain() -> int:
    """The script on stdout, so that it can be redirected; what to do with it on stderr."""
    sys.stdout.write(_SCRIPT)
    sys.stderr.write(
        "Save this as kubectl_complete-egpu in PATH and make it executable; kubectl's own completion finds it.\n"
    )
    return 0


def complete(words: Sequence[str], commands: Mapping[str, str]) -> int:
    *before, last = words or [""]
    told = [word for word in before if not word.startswith("-")]
    if before and before[-1] in ("-o", "--output"):
        found: Iterable[str] = _FORMS
    elif last.startswith("-"):
        found = (*_FLAGS, *(("--remote",) if told == ["cards"] else ()))
    elif not told:
        found = [f"{name}\t{text}" for name, text in commands.items()]
    elif told == ["card"]:
        found = _cards()
    else:
        found = ()
    sys.stdout.write("".join(f"{one}\n" for one in found if one.startswith(last)) + f"{_NO_FILES}\n")
    return 0


def _cards() -> Sequence[str]:
    """Nothing where the cluster cannot be asked: a completion has no room for errors."""
    from api import errors  # noqa: PLC0415  for this question alone
    from cli import gatherer, kubectl, queries  # noqa: PLC0415

    try:
        seen = gatherer.gather(kubectl.Kubectl(("--request-timeout=2s",)), queries.slices())
    except errors.ElasticGPUError:
        return ()
    return sorted({device.name for item in seen.slices.items for device in item.devices})
