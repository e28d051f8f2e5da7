"""Kubernetes quantities: equal by value, one canonical text.

`80Gi` and `85899345920` are one amount; comparing their texts rewrites slices for ever. Rules of the text form:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from decimal import Decimal
from fractions import Fraction

from api import errors

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
} | {f"{prefix}i": Fraction(1024**power) for power, prefix in enumerate("KMGTPE", start=1)}
_TEXT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|[MGTPE]i?|Ki)?)")
_BINARY = tuple((f"{prefix}i", 1024**power) for power, prefix in reversed(list(enumerate("KMGTPE", start=1))))


def parse(text: str | float) -> Fraction:
    """The amount that a quantity's text stands for.

    Raises Invalid for anything that the API server would not take.
    """
    match = _TEXT.fullmatch(str(text).strip())
    if match is None:
        raise errors.Invalid(f"quantity {str(text)[:40]!r} is not a number with an optional suffix such as Mi or Gi")
    number, exponent, suffix = match.groups()
    if exponent:
        return Fraction(Decimal(number + exponent))
    return Fraction(Decimal(number)) * _SUFFIXES[suffix or ""]


def text(amount: int) -> str:
    """The canonical text of a whole amount: the largest binary suffix that divides it, else plain digits.

    Differs from the API server's own form only where both are valid texts of the same amount.
    """
    for suffix, size in _BINARY:
        if amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)
