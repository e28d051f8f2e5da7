"""The values that CEL computes with, where Python has none of its own: and what is equal, what is less.

CEL's int, double, string, bytes, bool, null, list are Python's; a map is a dict whose keys went through `key`. Two
traps that everything here is about: in Python True is 1, in CEL it is not; in CEL numbers of all three types are one
order.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from api import errors

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
NANOS = 10**9
Frame = list[Any]
Closure = Callable[[Frame], Any]


class Failed(errors.Invalid):
    """A device on which a text cannot be judged. kube-scheduler then gives up the pod on all nodes."""


class UInt(int):
    """CEL's unsigned number: another type, the same order."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Nanoseconds since 1970, UTC."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Duration:
    nanos: int


@dataclass(frozen=True, slots=True)
class Type:
    """A type as a value: what type(x) gives."""

    name: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """`whole`: kept as an integer, not as a decimal; only such a one counts as an integer, whatever its amount.

    `summed`: by add() or sub(); upstream cannot have one on the right of an equals sign.
    """

    amount: Fraction
    whole: bool = field(default=True, compare=False)
    summed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Semver:
    """`key` is what versions are ordered by; the build part is not in it."""

    text: str = field(compare=False)
    major: int
    minor: int
    patch: int
    before: tuple[tuple[bool, int, str], ...] = ()
    """Identifiers of a pre-release: (is a word, number, word)."""

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.major, self.minor, self.patch, not self.before, self.before)


@dataclass(frozen=True, slots=True)
class IP:
    number: int
    bits: int


@dataclass(frozen=True, slots=True)
class CIDR:
    number: int
    bits: int
    length: int


@dataclass(frozen=True, slots=True)
class URL:
    text: str


@dataclass(frozen=True, slots=True)
class Format:
    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """`held` is empty, or has the one value."""

    held: tuple[Any, ...] = ()


NOTHING = Optional()


class Made(dict[Any, Any]):
    """A map that a text has made."""


class Entries(Mapping[str, Any]):
    """The domains of a device: one that it has not got is an empty map, whoever looks there, but is not `in` it."""

    __slots__ = ("found",)

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.found = found

    def __getitem__(self, key: str) -> Any:
        return self.found.get(key, _EMPTY)

    def __contains__(self, key: object) -> bool:
        return key in self.found

    def __iter__(self) -> Any:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


_EMPTY: dict[str, Any] = {}
_TRUE, _FALSE = ("bool", True), ("bool", False)


def key(value: Any) -> Any:
    """What a map has `value` under: numbers of one amount are one key, and no bool is a number."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if isinstance(value, (str, int)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, float) or value is None:
        return value
    raise Failed(f"unsupported key type: {type_of(value)}")


def unkey(found: Any) -> Any:
    return found[1] if type(found) is tuple else found


def within_int(number: int) -> int:
    if INT_MIN <= number <= INT_MAX:
        return number
    raise Failed("integer overflow")


def within_uint(number: int) -> int:
    if 0 <= number <= UINT_MAX:
        return number
    raise Failed("unsigned integer overflow")


_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    Made: "map",
    Entries: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    Type: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    IP: "net.IP",
    CIDR: "net.CIDR",
    URL: "kubernetes.URL",
    Format: "kubernetes.NamedFormat",
}


def type_of(value: Any) -> str:
    return _NAMES.get(type(value), "kubernetes.DRADevice")


NO_KEYS = (Semver, bytes)
"""Kinds that upstream has as Go slices: to look one up in a set or a map ends its program with an error."""
_STRICT = (Quantity, Semver, IP, CIDR, URL, Format)


def equal(one: Any, other: Any) -> bool:
    """Values of types that have nothing in common are not equal; with Kubernetes' own on the left it is an error."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one is other if isinstance(one, bool) or isinstance(other, bool) else one == other
    if isinstance(one, _STRICT) and other is not None and type(one) is not type(other):
        raise Failed("no such overload")
    if isinstance(one, Quantity) and other is not None and other.summed:
        raise Failed("no such overload")
    if type(one) is not type(other):
        return isinstance(one, Mapping) and isinstance(other, Mapping) and _same_entries(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_not_unequal, one, other))
    if isinstance(one, Mapping):
        return _same_entries(one, other)
    if isinstance(one, Optional):
        return len(one.held) == len(other.held) and all(map(equal, one.held, other.held))
    return bool(one == other)


def same(one: Any, other: Any) -> bool:
    """Equal, and nothing is wrong."""
    try:
        return equal(one, other)
    except Failed:
        return False


def _not_unequal(one: Any, other: Any) -> bool:
    """Inside lists and maps upstream takes an error for no difference."""
    try:
        return equal(one, other)
    except Failed:
        return True


def _same_entries(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    return len(one) == len(other) and all(
        name in other and _not_unequal(value, other[name]) for name, value in one.items()
    )


def order(one: Any, other: Any) -> int:
    """-1, 0 or 1. Raises Failed for what has no order, NaN among it."""
    if type(one) is not type(other) and not (_number(one) and _number(other)):
        raise Failed("no such overload")
    match one:
        case str() | bytes() | bool() | int() | float():
            if (isinstance(one, float) and math.isnan(one)) or (isinstance(other, float) and math.isnan(other)):
                raise Failed("NaN values cannot be ordered")
            return int(one > other) - int(one < other)
        case Timestamp() | Duration():
            return int(one.nanos > other.nanos) - int(one.nanos < other.nanos)
        case _:
            raise Failed("no such overload")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
