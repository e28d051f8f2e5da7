"""CEL text -> tokens, each with its offset; literals as values.

Grammar: https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from api import errors
from cel import tree, values

_SPACE = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)*")
_STRING = (
    r"""(?:[rR](?:\"{3}(?s:.)*?\"{3}|'{3}(?s:.)*?'{3}|"[^"\r\n]*"|'[^'\r\n]*')|"""
    r"""\"{3}(?:[^\\]|\\(?s:.))*?\"{3}|'{3}(?:[^\\]|\\(?s:.))*?'{3}|"""
    r""""(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*')"""
)
_TOKEN = re.compile(
    rf"""(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<int>(?:0x[0-9a-fA-F]+|\d+)[uU]?)
    |(?P<bytes>[bB]{_STRING})
    |(?P<string>{_STRING})
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>==|!=|<=|>=|&&|\|\||[\[\]{{}}().,?:+\-*/%!<>])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    mark: mark for mark in "\\?\"'`"
}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: value (a literal), name, mark (an operator, or `in`), end."""

    kind: str
    text: str
    at: int
    value: Any = None


def tokens(text: str) -> Iterator[Token]:
    """Raises Invalid with the place of what is no token."""
    at = 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if at == len(text):
            yield Token("end", "the end", at)
            return
        found = _TOKEN.match(text, at)
        if found is None:
            raise wrong(text, at, f"syntax error at {text[at : at + 1]!r}")
        yield _token(text, found, at)
        at = found.end()


def wrong(text: str, at: int, message: str) -> errors.Invalid:
    return errors.Invalid(f"{tree.place(text, at)}: {message}")


def _token(text: str, found: re.Match[str], at: int) -> Token:  # noqa: PLR0911  one a kind of token
    kind, word = found.lastgroup, found[0]
    try:
        match kind:
            case "name":
                if word in _WORDS:
                    return Token("value", word, at, _WORDS[word])
                return Token("mark" if word == "in" else "name", word, at)
            case "mark":
                return Token("mark", word, at)
            case "float":
                return Token("value", word, at, _double(word))
            case "int":
                return Token("value", word, at, _number(word))
            case "bytes":
                return Token("value", word, at, _bytes(word[1:]))
            case _:
                return Token("value", word, at, _string(word))
    except ValueError as error:
        raise wrong(text, at, str(error)) from error


def _double(word: str) -> float:
    found = float(word)
    if math.isinf(found):
        raise ValueError("invalid double literal")
    return found


def _number(word: str) -> Any:
    """An int without sign may be as large as the smallest negative one's: the parser puts the sign before it."""
    digits = word.rstrip("uU")
    number = int(digits, 16 if digits.startswith("0x") else 10)
    if digits != word:
        return values.UInt(values.within_uint(number))
    if number > -values.INT_MIN:
        raise ValueError("invalid int literal")
    return number


def _inner(word: str) -> tuple[str, bool]:
    raw = word[0] in "rR"
    quoted = word[1:] if raw else word
    width = 3 if quoted[:3] in ('"""', "'''") and len(quoted) >= 6 else 1  # noqa: PLR2004  both quotes
    return quoted[width:-width].replace("\r\n", "\n").replace("\r", "\n"), raw


def _string(word: str) -> str:
    inner, raw = _inner(word)
    return inner if raw else _ESCAPE.sub(_character, inner)


def _bytes(word: str) -> bytes:
    inner, raw = _inner(word)
    if raw:
        return inner.encode()
    made, at = b"", 0
    for found in _ESCAPE.finditer(inner):
        if found[3] or found[4]:
            raise ValueError("a bytes literal takes no \\u escape")
        code = found[1] or found[2]
        octal = bytes([int(found[5], 8)]) if found[5] else _character(found).encode()
        made += inner[at : found.start()].encode() + (bytes([int(code, 16)]) if code else octal)
        at = found.end()
    return made + inner[at:].encode()


def _character(found: re.Match[str]) -> str:
    for group in (1, 2, 3, 4):
        if found[group]:
            code = int(found[group], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004  Unicode's own limits
                raise ValueError(f"{found[0]} is no Unicode character")
            return chr(code)
    if found[5]:
        return chr(int(found[5], 8))
    if found[6] not in _PLAIN:
        raise ValueError(f"unknown escape {found[0]!r}")
    return _PLAIN[found[6]]
