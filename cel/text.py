"""String functions beyond the standard ones, and finding by regular expression."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cel import clock, functions, standard, values
from cel.values import Failed

_SPACE = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {small: large for large, small in _LOWER.items()}
_ESCAPES = {ord(mark): f"\\{word}" for mark, word in zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True)}
_VERB = re.compile(r"%(?:(%)|(?:\.(\d+))?([sdfebxXo]))")


def _at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise Failed(f"index out of range: {index}")
    return text[index : index + 1]


def _index(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise Failed(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return len(text) if not part else text.rfind(part)
    if start < 0:
        raise Failed(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, times: int = -1) -> str:
    return text.replace(old, new, times)


def _split(text: str, mark: str, times: int = -1) -> list[str]:
    if times == 0:
        return []
    if mark:
        return text.split(mark, times - 1 if times > 0 else -1)
    if times < 0 or times >= len(text):
        return list(text)
    return [*text[: times - 1], text[times - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if end is not None and start > end:
        raise Failed(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, last):
        if not 0 <= index <= len(text):
            raise Failed(f"index out of range: {index}")
    return text[start:last]


def _join(parts: Sequence[Any], mark: str = "") -> str:
    for part in parts:
        if not isinstance(part, str):
            raise Failed(f"join: invalid input: {part}")
    return mark.join(parts)


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _find(text: str, expression: str) -> str:
    found = standard.pattern(expression).search(text)
    return "" if found is None else str(found[0])


def _find_all(text: str, expression: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    found = [match[0] for match in standard.pattern(expression).finditer(text)]
    return found if most < 0 else found[:most]


def _format(text: str, arguments: Sequence[Any]) -> str:
    made, at, used = "", 0, 0
    while (start := text.find("%", at)) >= 0:
        found = _VERB.match(text, start)
        if found is None:
            raise Failed(f"could not parse formatting clause: {text[start : start + 10]!r}")
        made += text[at:start]
        at = found.end()
        if found[1]:
            made += "%"
            continue
        if used >= len(arguments):
            raise Failed(f"index {used} out of range")
        made += _formatted(found[3], None if found[2] is None else int(found[2]), arguments[used])
        used += 1
    return made + text[at:]


def _formatted(verb: str, precision: int | None, value: Any) -> str:  # noqa: PLR0911  one a verb
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match verb:
        case "s":
            return _shown(value)
        case "d" if isinstance(value, int) and number:
            return str(int(value))
        case "f" | "e" if number:
            figures = 6 if precision is None else precision
            return format(float(value), f".{figures}{verb}")
        case "b" if isinstance(value, int):
            return format(int(value), "b")
        case "o" if isinstance(value, int) and number:
            return format(int(value), "o")
        case "x" | "X" if isinstance(value, int) and number:
            return format(int(value), verb)
        case "x" | "X" if isinstance(value, (str, bytes)):
            data = (value.encode() if isinstance(value, str) else value).hex()
            return data.upper() if verb == "X" else data
        case _:
            raise Failed(f"no formatting function for {values.type_of(value)} with %{verb}")


def _shown(value: Any, *, inside: bool = False) -> str:  # noqa: C901, PLR0911  one a type
    match value:
        case str():
            return f'"{value}"' if inside else value
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int():
            return str(int(value))
        case float():
            return standard.double_text(value)
        case bytes():
            return value.decode(errors="replace")
        case values.Timestamp():
            return clock.timestamp_text(value)
        case values.Duration():
            return clock.duration_text(value)
        case values.Type():
            return value.name
        case list():
            return f"[{', '.join(_shown(one, inside=True) for one in value)}]"
        case Mapping():
            pairs = sorted(
                (_shown(values.unkey(key), inside=True), _shown(one, inside=True)) for key, one in value.items()
            )
            return f"{{{', '.join(f'{key}: {one}' for key, one in pairs)}}}"
        case _:
            raise Failed(
                f"string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {values.type_of(value)}"
            )


ROWS: list[functions.Row] = [
    ("string.charAt(int) -> string", "string_char_at_int", _at),
    ("string.indexOf(string) -> int", "string_index_of_string", _index),
    ("string.indexOf(string, int) -> int", "string_index_of_string_int", _index),
    ("string.lastIndexOf(string) -> int", "string_last_index_of_string", _last_index),
    ("string.lastIndexOf(string, int) -> int", "string_last_index_of_string_int", _last_index),
    ("string.lowerAscii() -> string", "string_lower_ascii", lambda text: text.translate(_LOWER)),
    ("string.upperAscii() -> string", "string_upper_ascii", lambda text: text.translate(_UPPER)),
    ("string.replace(string, string) -> string", "string_replace_string_string", _replace),
    ("string.replace(string, string, int) -> string", "string_replace_string_string_int", _replace),
    ("string.split(string) -> list(string)", "string_split_string", _split),
    ("string.split(string, int) -> list(string)", "string_split_string_int", _split),
    ("string.substring(int) -> string", "string_substring_int", _substring),
    ("string.substring(int, int) -> string", "string_substring_int_int", _substring),
    ("string.trim() -> string", "string_trim", lambda text: text.strip(_SPACE)),
    ("string.format(list(dyn)) -> string", "string_format", _format),
    ("strings.quote: (string) -> string", "strings_quote", _quote),
    ("list(string).join() -> string", "list_join", _join),
    ("list(string).join(string) -> string", "list_join_string", _join),
    ("string.find(string) -> string", "string_find_string", _find),
    ("string.findAll(string) -> list(string)", "string_find_all_string", _find_all),
    ("string.findAll(string, int) -> list(string)", "string_find_all_string_int", _find_all),
]
