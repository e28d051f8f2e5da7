"""Quantities and semantic versions."""

import math
import re
from fractions import Fraction
from typing import Any

from api import quantity
from cel import functions, values
from cel.values import Failed, Quantity, Semver

_QUANTITY = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+)|(n|u|m|k|[KMGTPE]i|[MGTPE])?)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{mark}i": 10 * power for power, mark in enumerate("KMGTPE", start=1)}
_PRECISE, _PRECISE_BINARY, _BILLION, _FAR = 18, 15, 10**9, 400
"""Digits that upstream keeps as an integer; powers of ten beyond which the amount is nothing or the most."""
_VERSION = re.compile(
    r"(?P<major>0|[1-9]\d*)\.(?P<minor>0|[1-9]\d*)\.(?P<patch>0|[1-9]\d*)"
    r"(?:-(?P<before>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def to_quantity(text: str) -> Quantity:
    """As the API server reads it: rounded up to billionths, held down to what 64 bits take."""
    found = _QUANTITY.fullmatch(text)
    if found is None or not text:
        raise Failed(f"quantity {text[:40]!r}: quantities must match the regular expression of Kubernetes' API")
    sign, whole, part, exponent, suffix = found.groups(default="")
    digits = (whole + part).lstrip("0") or "0"
    if suffix.endswith("i"):
        power, shift = _BINARY[suffix], 0
        exact = not part and len(whole.lstrip("0") or "0") + power * 3 // 10 < _PRECISE_BINARY
        amount = Fraction(int(digits) << power, 10 ** len(part))
    else:
        power, shift = 0, (max(min(int(exponent), _FAR), -_FAR) if exponent else _DECIMAL[suffix]) - len(part)
        exact = shift >= 0 and len(whole.lstrip("0") or "0") + len(part) <= _PRECISE
        amount = int(digits) * Fraction(10) ** shift
    limited = min(Fraction(math.ceil(amount * _BILLION), _BILLION), Fraction(values.INT_MAX))
    return Quantity(-limited if sign == "-" else limited, exact and limited == amount)


def of_amount(amount: Fraction) -> Quantity:
    """A capacity, as the API server writes and reads it."""
    return to_quantity(quantity.text(int(amount))) if amount.denominator == 1 else Quantity(amount, whole=False)


def _combined(one: Quantity, other: Quantity | int, sign: int) -> Quantity:
    more = Quantity(Fraction(other)) if isinstance(other, int) else other
    wraps = one.whole and more.whole and more.amount == values.INT_MIN  # its negation is itself in 64 bits
    amount = one.amount + (1 if wraps else sign) * more.amount
    fits = values.INT_MIN <= amount <= values.INT_MAX
    return Quantity(amount, one.whole and more.whole and fits, summed=True)


def to_semver(text: str, loose: bool = False) -> Semver:  # noqa: FBT001, FBT002  CEL's own bool
    found = _VERSION.fullmatch(_normal(text) if loose else text)
    before = tuple(map(_identifier, found["before"].split("."))) if found and found["before"] else ()
    if (
        found is None
        or None in before
        or any(int(found[part]) > values.UINT_MAX for part in ("major", "minor", "patch"))
    ):
        raise Failed(f"{text[:60]!r} is no semantic version")
    major, minor, patch = (int(found[part]) for part in ("major", "minor", "patch"))
    return Semver(text, major, minor, patch, tuple(one for one in before if one is not None))


def _identifier(word: str) -> tuple[bool, int, str] | None:
    """A number is less than a word, and has no leading zero."""
    if not word.isdigit():
        return (True, 0, word)
    return None if len(word) > 1 and word[0] == "0" else (False, int(word), "")


def _normal(text: str) -> str:
    """Shortened and padded versions in full: v1.02 is 1.2.0."""
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[at] = bare if bare[:1].isdigit() else f"0{bare}"
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):  # noqa: PLR2004  major, minor, patch
        raise Failed("short version cannot contain PreRelease/Build meta data")
    return ".".join(([*parts, "0", "0"])[:3])


def _is(convert: Any, *arguments: Any) -> bool:
    try:
        convert(*arguments)
    except Failed:
        return False
    return True


def _whole(one: Quantity) -> int:
    if not _is_whole(one):
        raise Failed("cannot convert value to integer")
    return int(one.amount)


def _is_whole(one: Quantity) -> bool:
    return one.whole


def _sign(amount: Any) -> int:
    return int(amount > 0) - int(amount < 0)


def _order(one: Semver, other: Semver) -> int:
    return int(one.key > other.key) - int(one.key < other.key)


ROWS: list[functions.Row] = [
    ("quantity: (string) -> quantity", "string_to_quantity", to_quantity),
    ("isQuantity: (string) -> bool", "is_quantity_string", lambda text: _is(to_quantity, text)),
    ("sign: (quantity) -> int", "quantity_sign", lambda one: _sign(one.amount)),
    (
        "quantity.isGreaterThan(quantity) -> bool",
        "quantity_is_greater_than",
        lambda one, other: one.amount > other.amount,
    ),
    ("quantity.isLessThan(quantity) -> bool", "quantity_is_less_than", lambda one, other: one.amount < other.amount),
    ("quantity.compareTo(quantity) -> int", "quantity_compare_to", lambda one, other: _sign(one.amount - other.amount)),
    ("quantity.asApproximateFloat() -> double", "quantity_get_float", lambda one: float(one.amount)),
    ("quantity.asInteger() -> int", "quantity_get_int", _whole),
    ("quantity.isInteger() -> bool", "quantity_is_integer", _is_whole),
    ("quantity.add(quantity) -> quantity", "quantity_add", lambda one, other: _combined(one, other, 1)),
    ("quantity.add(int) -> quantity", "quantity_add_int", lambda one, other: _combined(one, other, 1)),
    ("quantity.sub(quantity) -> quantity", "quantity_sub", lambda one, other: _combined(one, other, -1)),
    ("quantity.sub(int) -> quantity", "quantity_sub_int", lambda one, other: _combined(one, other, -1)),
    ("semver: (string) -> semver", "string_to_semver", to_semver),
    ("semver: (string, bool) -> semver", "string_bool_to_semver", to_semver),
    ("isSemver: (string) -> bool", "is_semver_string", lambda text: _is(to_semver, text)),
    ("isSemver: (string, bool) -> bool", "is_semver_string_bool", lambda text, loose: _is(to_semver, text, loose)),
    ("semver.isGreaterThan(semver) -> bool", "semver_is_greater_than", lambda one, other: one.key > other.key),
    ("semver.isLessThan(semver) -> bool", "semver_is_less_than", lambda one, other: one.key < other.key),
    ("semver.compareTo(semver) -> int", "semver_compare_to", _order),
    ("semver.major() -> int", "semver_major", lambda one: one.major),
    ("semver.minor() -> int", "semver_minor", lambda one: one.minor),
    ("semver.patch() -> int", "semver_patch", lambda one: one.patch),
]
