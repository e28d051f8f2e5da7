"""YAML documents of files that the user names."""

import sys
from pathlib import Path
from typing import Any

from api import errors


def documents(name: str) -> list[Any]:
    """The YAML documents of a file, `-` for standard input. Raises Invalid with the file's name."""
    import yaml  # noqa: PLC0415  for files alone

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise errors.Invalid(f"{name} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise errors.Invalid(f"{name} is no YAML: {' '.join(str(error).split())}") from error
