"""Values as text: aligned columns, units, ages, bars, colours.

kubectl's habits: headers in capitals, two spaces between columns, no borders, `<none>` and `<unknown>` for what is
empty or not known. Nothing is shortened in a pipe. Control characters and marks that turn the writing direction are
shown as escapes, so that no name can paint over a terminal.
"""

import datetime
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

NONE = "<none>"
UNKNOWN = "<unknown>"
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "bold": "1", "dim": "2"}
_DAY = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    text: str
    colour: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`optional`: left out on a terminal that is too narrow, the last one first. `wide`: for `-o wide` alone."""

    title: str
    right: bool = False
    wide: bool = False
    optional: bool = False


Row = Sequence[str | Cell]


def table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    wide: bool = False,
    headers: bool = True,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """`rows` have a cell for every column, also for those that are not shown."""
    shown = [index for index, column in enumerate(columns) if wide or not column.wide]
    texts = {index: _texts(rows, index) for index in shown}
    sizes = {
        index: max(len(columns[index].title) if headers else 0, *map(len, found), 0) for index, found in texts.items()
    }
    while width and not wide and sum(sizes[index] + 2 for index in shown) - 2 > width:
        spare = [index for index in shown if columns[index].optional]
        if not spare:
            break
        shown.remove(spare[-1])
    if colour:
        lines = _coloured(columns, rows, shown, texts, sizes, headers=headers)
    else:
        form = "  ".join(f"%{'' if columns[index].right else '-'}{sizes[index]}s" for index in shown)
        titles = [tuple(columns[index].title for index in shown)] if headers else []
        lines = map(form.__mod__, itertools.chain(titles, zip(*(texts[index] for index in shown), strict=True)))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def painted(text: str, colour: str, *, on: bool) -> str:
    return f"\033[{_CODES[colour]}m{text}\033[0m" if on and colour else text


def clean(text: str) -> str:
    """What cannot be printed as itself is escaped."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


@functools.lru_cache(maxsize=1024)
def size(amount: int | None) -> str:
    """Bytes in the unit in which they are short: 80GiB, 22.5GiB, 512MiB."""
    if amount is None:
        return UNKNOWN
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if abs(amount) >= unit:
            return f"{amount / unit:.1f}".removesuffix(".0") + name
    return str(amount)


def age(since: str, now: datetime.datetime) -> str:
    """As kubectl has it: 40s, 5m, 3h20m, 3d4h, 40d."""
    try:
        then = datetime.datetime.fromisoformat(since)
    except ValueError:
        return UNKNOWN
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < 120:  # noqa: PLR2004  two minutes, as in kubectl
        return f"{seconds}s"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 2 * _DAY:
        return f"{seconds // 3600}h"
    days, hours = seconds // _DAY, seconds % _DAY // 3600
    return f"{days}d{hours}h" if hours and days < 8 else f"{days}d"  # noqa: PLR2004  a week


def bar(part: int, whole: int, length: int = 10) -> str:
    """How much of the whole is taken. Anything at all shows, and only all of it fills the bar."""
    filled = 0 if whole <= 0 else min(length, part * length // whole)
    filled = max(filled, 1) if part > 0 else filled
    return f"[{'#' * filled}{'.' * (length - filled)}]"


def listed(items: Iterable[str], most: int | None = None) -> str:
    """Joined by commas; at most so many, with the number of the others."""
    found = items if isinstance(items, list) else list(items)
    if not found:
        return NONE
    if most is None or len(found) <= most:
        return ",".join(found)
    return f"{','.join(found[:most])} and {len(found) - most} more"


def _texts(rows: Sequence[Row], index: int) -> Sequence[str]:
    """Of a column. That all of it can be printed is seen at once, where a look at each of many cells takes long."""
    texts = [cell if isinstance(cell, str) else cell.text for cell in map(operator.itemgetter(index), rows)]
    return texts if "".join(texts).isprintable() else list(map(clean, texts))


def _coloured(
    columns: Sequence[Column],
    rows: Sequence[Row],
    shown: Sequence[int],
    texts: Mapping[int, Sequence[str]],
    sizes: Mapping[int, int],
    *,
    headers: bool,
) -> Iterator[str]:
    padded = {
        index: map(str.rjust if columns[index].right else str.ljust, texts[index], itertools.repeat(sizes[index]))
        for index in shown
    }
    if headers:
        yield "  ".join(_head(columns[index], sizes[index]) for index in shown)
    for row, *line in zip(rows, *padded.values(), strict=True):
        yield "  ".join(_painted(text, row[index]) for index, text in zip(shown, line, strict=True))


def _head(column: Column, size: int) -> str:
    gap = " " * (size - len(column.title))
    title = painted(column.title, "bold", on=True)
    return gap + title if column.right else title + gap


def _painted(text: str, cell: str | Cell) -> str:
    """Without the spaces, so that lines can be cut where their text ends."""
    if isinstance(cell, str) or not cell.colour:
        return text
    bare = text.strip()
    return text.replace(bare, painted(bare, cell.colour, on=True)) if bare else text
