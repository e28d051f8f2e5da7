"""String functions beyond the standard ones, and finding by regular expression."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cel import functions, standard, values
from cel.values import Failed

_SPACE = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {small: large for large, small in _LOWER.items()}
_ESCAPES = {ord(mark): f"\\{word}" for mark, word in zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True)}
_NUMBERS = ("int", "uint")
_TAKE: Mapping[str, tuple[str, ...]] = {
    "s": (
        *("list", "map", *_NUMBERS, "double", "bool", "string", "bytes", "type", "null_type"),
        *("google.protobuf.Timestamp", "google.protobuf.Duration"),
    ),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": (*_NUMBERS, "bool"),
    "x": (*_NUMBERS, "string", "bytes"),
    "X": (*_NUMBERS, "string", "bytes"),
    "d": _NUMBERS,
    "o": _NUMBERS,
}
_WORDS_OF_NUMBERS: Mapping[Any, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
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


def fitting(text: str, kinds: Sequence[tuple[str, ...]]) -> None:
    """Raises Failed where the text does not go with arguments of these types, each with those of what it lists."""
    verbs = [found[3] for _, found in _clauses(text) if found is not None and not found[1]]
    for verb, listed in zip(verbs, kinds, strict=False):
        for kind in listed if verb == "s" else listed[:1]:
            if kind not in ("dyn", *_TAKE[verb]):
                raise Failed(f"error during formatting: %{verb} takes no {kind}")
    if len(verbs) != len(kinds):
        raise Failed(f"the text has {len(verbs)} clauses, and there are {len(kinds)} arguments")


def _clauses(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """What stands before each clause, and the clause; the last has none."""
    at = 0
    while (start := text.find("%", at)) >= 0:
        found = _VERB.match(text, start)
        if found is None:
            raise Failed(f"could not parse formatting clause: {text[start : start + 10]!r}")
        yield text[at:start], found
        at = found.end()
    yield text[at:], None


def _format(text: str, arguments: Sequence[Any]) -> str:
    made, used = "", 0
    for before, found in _clauses(text):
        made += before
        if found is None:
            return made
        if found[1]:
            made += "%"
            continue
        if used >= len(arguments):
            raise Failed(f"index {used} out of range")
        made += _formatted(found[3], None if found[2] is None else int(found[2]), arguments[used])
        used += 1
    return made


def _formatted(verb: str, precision: int | None, value: Any) -> str:
    kind = values.type_of(value)
    if kind not in _TAKE[verb]:
        raise Failed(f"error during formatting: %{verb} takes no {kind}")
    match verb:
        case "s":
            return _shown(value)
        case "e":
            raise Failed("error during formatting: %e is not judged here")
        case "f":
            return _fixed(value, 6 if precision is None else precision)
        case "x" | "X" if isinstance(value, (str, bytes)):
            data = (value.encode() if isinstance(value, str) else value).hex()
            return data.upper() if verb == "X" else data
        case _:
            return format(int(value), verb)


def _fixed(value: Any, figures: int) -> str:
    number = _WORDS_OF_NUMBERS.get(value, value)
    if isinstance(number, str):
        raise Failed(f"error during formatting: %f takes no {value!r}")
    if math.isfinite(number):
        return format(number, f",.{figures}f")
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case list():
            return f"[{', '.join(map(_inside, value))}]"
        case Mapping():
            return (
                f"{{{', '.join(sorted(f'{_inside(values.unkey(key))}:{_inside(one)}' for key, one in value.items()))}}}"
            )
        case values.Type():
            return value.name
        case _:
            return str(standard.text_of(value))


def _inside(value: Any) -> str:
    match value:
        case str():
            return _quote(value)
        case float():
            return format(value, ".6f")
        case values.Type():
            return f"type({value.name})"
        case _:
            return _shown(value)


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
