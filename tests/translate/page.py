"""The pairs of the page about moving here: what was written before, and what it is now."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_PAGE = Path(__file__).resolve().parents[2] / "examples" / "coming-from" / "README.md"


@dataclass(frozen=True, slots=True)
class Pair:
    title: str
    old: str
    new: str

    def documents(self, text: str) -> list[dict[str, Any]]:
        return list(yaml.safe_load_all(text))


def pairs() -> list[Pair]:
    sections = re.split(r"^## Coming from ", _PAGE.read_text(), flags=re.MULTILINE)[1:]
    return [Pair(text.partition("\n")[0], *re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)) for text in sections]


def by_name() -> dict[str, Any]:
    """The class that serves a resource name without admission."""
    (first, *_) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(first)
    return found
