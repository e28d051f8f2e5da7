"""The functions that every CEL has: operators, conversions, size, the first of the string functions."""

import decimal
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from cel import clock, functions, values
from cel.values import Failed, UInt

_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UINT = re.compile(r"[0-9]+", re.ASCII)
_DOUBLE = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_BOOLS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
_SMALLEST, _LARGEST = -4, 6
"""Powers of ten between which Go writes no exponent."""
_TWO_63, _TWO_64 = 2.0**63, 2.0**64


@functools.lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """RE2 itself: no text makes it take more than linear time. Raises Failed for what is no pattern."""
    import re2  # noqa: PLC0415  a C library that most texts do not need

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        words = (
            error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        )
        raise Failed(f"error parsing regexp: {words}") from error


def matches(text: str, expression: str) -> bool:
    return pattern(expression).search(text) is not None


def index(container: Any, at: Any) -> Any:
    """Raises Failed where it has no such element."""
    found = look(container, at)
    if found is values.NOTHING:
        if isinstance(container, list):
            raise Failed(f"index out of bounds: {at}")
        raise Failed(f"no such key: {at}")
    return found.held[0]


def look(container: Any, at: Any) -> values.Optional:
    """The element, if there is one."""
    if isinstance(container, list):
        if isinstance(at, float) and at.is_integer():
            at = int(at)
        if not isinstance(at, int) or isinstance(at, bool):
            raise Failed(f"unsupported index type {values.type_of(at)} in list")
        return values.Optional((container[at],)) if 0 <= at < len(container) else values.NOTHING
    if isinstance(container, Mapping):
        return _entry(container, at)
    if isinstance(container, values.Optional):
        return look(container.held[0], at) if container.held else values.NOTHING
    return values.NOTHING


def _entry(container: Mapping[Any, Any], at: Any) -> values.Optional:
    _keyed(container, at)
    if at is not None and not isinstance(at, (str, int, float)):
        return values.NOTHING
    name = values.key(at)
    if name in container or (type(container) is values.Entries and isinstance(name, str)):
        return values.Optional((container[name],))
    return values.NOTHING


def contains(element: Any, container: Any) -> bool:
    """Elements that cannot be compared are passed over."""
    if isinstance(container, Mapping):
        _keyed(container, element)
        try:
            return values.key(element) in container
        except Failed:
            return False
    return any(values.same(one, element) for one in container)


def contains_plain(element: Any, container: Any) -> bool:
    """In a list of literals, of which upstream makes a set: not all can be looked up in one."""
    if isinstance(element, values.NO_KEYS):
        raise Failed(f"no such overload: {values.type_of(element)} cannot be looked up")
    return contains(element, container)


def _keyed(container: Mapping[Any, Any], at: Any) -> None:
    """Raises Failed where upstream's program ends: what cannot be looked up, in a map that a text has made."""
    if isinstance(at, values.NO_KEYS) and container and type(container) is values.Made:
        raise Failed(f"no such overload: {values.type_of(at)} cannot be looked up")


def compared(wanted: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    def compare(one: Any, other: Any) -> bool:
        return wanted(values.order(one, other))

    return compare


def _int(of: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda one, other: values.within_int(of(one, other))


def _uint(of: Callable[[int, int], int]) -> Callable[[int, int], UInt]:
    return lambda one, other: UInt(values.within_uint(of(int(one), int(other))))


def _quotient(one: int, other: int) -> int:
    if other == 0:
        raise Failed("division by zero")
    return abs(one) // abs(other) * (-1 if (one < 0) != (other < 0) else 1)


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise Failed("modulus by zero")
    if one == values.INT_MIN and other == -1:
        raise Failed("integer overflow")
    return int(math.copysign(1, one)) * (abs(one) % abs(other))


def _divided(one: float, other: float) -> float:
    if other != 0:
        return one / other
    return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)


def _times(one: float, other: float) -> float:
    return one * other


def _to_int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise Failed(f"type conversion error from 'string' to 'int': {text!r}")
    return values.within_int(int(text))


def _to_uint(text: str) -> UInt:
    if not _UINT.fullmatch(text):
        raise Failed(f"type conversion error from 'string' to 'uint': {text!r}")
    return UInt(values.within_uint(int(text)))


def _to_double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise Failed(f"type conversion error from 'string' to 'double': {text!r}")
    found = float(text)
    if math.isinf(found) and "inf" not in text.lower():
        raise Failed("value out of range")
    return found


def _whole(number: float) -> int:
    if math.isnan(number) or not -_TWO_63 < number < _TWO_63:
        raise Failed("integer overflow")
    return int(number)


def _unsigned(number: float) -> UInt:
    if math.isnan(number) or not 0 <= number < _TWO_64:
        raise Failed("unsigned integer overflow")
    return UInt(int(number))


def _to_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise Failed(f"type conversion error from 'string' to 'bool': {text!r}")
    return _BOOLS[text]


def double_text(number: float) -> str:
    """As Go's %g writes it: the fewest digits that stand for the number, an exponent where it is small or large."""
    if math.isnan(number) or math.isinf(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    sign, digits, scale = decimal.Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(scale, int)
    figures, power = "".join(map(str, digits)), len(digits) + scale - 1
    minus = "-" if sign else ""
    if number == 0:
        return f"{minus}0"
    if power < _SMALLEST or power >= _LARGEST:
        tail = f".{figures[1:]}" if len(figures) > 1 else ""
        return f"{minus}{figures[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{figures}"
    whole, part = figures[: power + 1].ljust(power + 1, "0"), figures[power + 1 :]
    return f"{minus}{whole}.{part}" if part else f"{minus}{whole}"


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failed("invalid UTF-8 in bytes, cannot convert to string") from error


def text_of(value: Any) -> str:
    """What string(value) gives."""
    return str(_TEXTS.call(False, (value,)))


def _same(value: Any) -> Any:
    return value


def _type(value: Any) -> values.Type:
    return values.Type(values.type_of(value))


def _not(value: bool) -> bool:  # noqa: FBT001  CEL's own bool
    return not value


def _size(value: Any) -> int:
    return len(value)


_LESS, _AT_MOST = compared(lambda found: found < 0), compared(lambda found: found <= 0)
_MORE, _AT_LEAST = compared(lambda found: found > 0), compared(lambda found: found >= 0)
_ORDERS = (
    ("_<_", "less", _LESS),
    ("_<=_", "less_equals", _AT_MOST),
    ("_>_", "greater", _MORE),
    ("_>=_", "greater_equals", _AT_LEAST),
)
_NUMBERS = {"int": "int64", "uint": "uint64", "double": "double"}
_PAIRS = [("bool", "bool", "bool")]
_PAIRS += [
    (one, other, _NUMBERS[one] if one == other else f"{_NUMBERS[one]}_{_NUMBERS[other]}")
    for one in _NUMBERS
    for other in _NUMBERS
]
_PAIRS += [(kind, kind, kind) for kind in ("string", "bytes", "timestamp", "duration")]

ROWS: list[functions.Row] = [
    ("_?_:_: (bool, A, A) -> A", "conditional", _same),
    ("_&&_: (bool, bool) -> bool", "logical_and", _same),
    ("_||_: (bool, bool) -> bool", "logical_or", _same),
    ("!_: (bool) -> bool", "logical_not", _not),
    ("@not_strictly_false: (bool) -> bool", "not_strictly_false", _same),
    ("_==_: (A, A) -> bool", "equals", values.equal),
    ("_!=_: (A, A) -> bool", "not_equals", lambda one, other: not values.same(one, other)),
    ("_+_: (bytes, bytes) -> bytes", "add_bytes", lambda one, other: one + other),
    ("_+_: (double, double) -> double", "add_double", lambda one, other: one + other),
    ("_+_: (duration, duration) -> duration", "add_duration_duration", clock.add),
    ("_+_: (duration, timestamp) -> timestamp", "add_duration_timestamp", clock.add),
    ("_+_: (timestamp, duration) -> timestamp", "add_timestamp_duration", clock.add),
    ("_+_: (int, int) -> int", "add_int64", _int(lambda one, other: one + other)),
    ("_+_: (list(A), list(A)) -> list(A)", "add_list", lambda one, other: one + other),
    ("_+_: (string, string) -> string", "add_string", lambda one, other: one + other),
    ("_+_: (uint, uint) -> uint", "add_uint64", _uint(lambda one, other: one + other)),
    ("_-_: (double, double) -> double", "subtract_double", lambda one, other: one - other),
    ("_-_: (duration, duration) -> duration", "subtract_duration_duration", clock.subtract),
    ("_-_: (int, int) -> int", "subtract_int64", _int(lambda one, other: one - other)),
    ("_-_: (timestamp, duration) -> timestamp", "subtract_timestamp_duration", clock.subtract),
    ("_-_: (timestamp, timestamp) -> duration", "subtract_timestamp_timestamp", clock.subtract),
    ("_-_: (uint, uint) -> uint", "subtract_uint64", _uint(lambda one, other: one - other)),
    ("_*_: (double, double) -> double", "multiply_double", _times),
    ("_*_: (int, int) -> int", "multiply_int64", _int(lambda one, other: one * other)),
    ("_*_: (uint, uint) -> uint", "multiply_uint64", _uint(lambda one, other: one * other)),
    ("_/_: (double, double) -> double", "divide_double", _divided),
    ("_/_: (int, int) -> int", "divide_int64", _int(_quotient)),
    ("_/_: (uint, uint) -> uint", "divide_uint64", _uint(_quotient)),
    ("_%_: (int, int) -> int", "modulo_int64", _remainder),
    ("_%_: (uint, uint) -> uint", "modulo_uint64", _uint(_remainder)),
    ("-_: (double) -> double", "negate_double", lambda one: -one),
    ("-_: (int) -> int", "negate_int64", lambda one: values.within_int(-one)),
    ("_[_]: (list(A), int) -> A", "index_list", index),
    ("_[_]: (map(A, B), A) -> B", "index_map", index),
    ("@in: (A, list(A)) -> bool", "in_list", contains),
    ("@in: (A, map(A, B)) -> bool", "in_map", contains),
    *(
        (f"size: ({kind}) -> int", f"size_{name}", _size)
        for kind, name in (("bytes", "bytes"), ("list(A)", "list"), ("map(A, B)", "map"), ("string", "string"))
    ),
    *(
        (f"{kind}.size() -> int", f"{name}_size", _size)
        for kind, name in (("bytes", "bytes"), ("list(A)", "list"), ("map(A, B)", "map"), ("string", "string"))
    ),
    ("type: (A) -> type(A)", "type", _type),
    ("dyn: (A) -> dyn", "to_dyn", _same),
    ("bool: (bool) -> bool", "bool_to_bool", _same),
    ("bool: (string) -> bool", "string_to_bool", _to_bool),
    ("bytes: (bytes) -> bytes", "bytes_to_bytes", _same),
    ("bytes: (string) -> bytes", "string_to_bytes", lambda text: text.encode()),
    ("double: (double) -> double", "double_to_double", _same),
    ("double: (int) -> double", "int64_to_double", float),
    ("double: (string) -> double", "string_to_double", _to_double),
    ("double: (uint) -> double", "uint64_to_double", float),
    ("int: (int) -> int", "int64_to_int64", _same),
    ("int: (double) -> int", "double_to_int64", _whole),
    ("int: (duration) -> int", "duration_to_int64", lambda span: span.nanos),
    ("int: (string) -> int", "string_to_int64", _to_int),
    ("int: (timestamp) -> int", "timestamp_to_int64", lambda moment: moment.nanos // values.NANOS),
    ("int: (uint) -> int", "uint64_to_int64", lambda number: values.within_int(int(number))),
    ("string: (string) -> string", "string_to_string", _same),
    ("string: (bool) -> string", "bool_to_string", lambda value: "true" if value else "false"),
    ("string: (bytes) -> string", "bytes_to_string", _text),
    ("string: (double) -> string", "double_to_string", double_text),
    ("string: (duration) -> string", "duration_to_string", clock.duration_text),
    ("string: (int) -> string", "int64_to_string", str),
    ("string: (timestamp) -> string", "timestamp_to_string", clock.timestamp_text),
    ("string: (uint) -> string", "uint64_to_string", lambda number: str(int(number))),
    ("uint: (uint) -> uint", "uint64_to_uint64", _same),
    ("uint: (double) -> uint", "double_to_uint64", _unsigned),
    ("uint: (int) -> uint", "int64_to_uint64", lambda number: UInt(values.within_uint(number))),
    ("uint: (string) -> uint", "string_to_uint64", _to_uint),
    ("string.contains(string) -> bool", "contains_string", lambda text, part: part in text),
    ("string.endsWith(string) -> bool", "ends_with_string", str.endswith),
    ("string.startsWith(string) -> bool", "starts_with_string", str.startswith),
    ("matches: (string, string) -> bool", "matches", matches),
    ("string.matches(string) -> bool", "matches_string", matches),
    *(
        (f"{name}: ({one}, {other}) -> bool", f"{word}_{id_}", call)
        for name, word, call in _ORDERS
        for one, other, id_ in _PAIRS
    ),
]

OPTIONAL: list[functions.Row] = [
    ("_?._: (dyn, string) -> optional(V)", "select_optional_field", look),
    ("_[?_]: (list(V), int) -> optional(V)", "list_optindex_optional_int", look),
    ("_[?_]: (optional(list(V)), int) -> optional(V)", "optional_list_optindex_optional_int", look),
    ("_[?_]: (map(K, V), K) -> optional(V)", "map_optindex_optional_value", look),
    ("_[?_]: (optional(map(K, V)), K) -> optional(V)", "optional_map_optindex_optional_value", look),
    ("_[_]: (optional(list(V)), int) -> optional(V)", "optional_list_index_int", look),
    ("_[_]: (optional(map(K, V)), K) -> optional(V)", "optional_map_index_value", look),
]
_TEXTS = functions.table(row for row in ROWS if row[0].startswith("string: "))["string"]
