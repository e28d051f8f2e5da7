"""Timestamps and durations: values from text, never the time of day. UTC and fixed offsets; no named time zones."""

import datetime
import re
from collections.abc import Callable
from typing import Any

from cel import functions, values
from cel.values import NANOS, Duration, Failed, Timestamp

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FIRST, _LAST = -62135596800, 253402300799
"""The seconds of the years 1 to 9999."""
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d?):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def timestamp(text: str) -> Timestamp:
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise Failed(f"type conversion error from 'string' to 'google.protobuf.Timestamp': {text!r}")
    try:
        moment = datetime.datetime.strptime(" ".join(found.groups()[:6]), "%Y %m %d %H %M %S").replace(
            tzinfo=datetime.UTC
        )
    except ValueError as error:
        raise Failed(f"invalid timestamp {text!r}: {error}") from error
    offset = (int(found[9]) * 3600 + int(found[10]) * 60) * (-1 if found[8] == "-" else 1) if found[8] else 0
    return _moment(
        ((moment - _EPOCH).days * 86400 + (moment - _EPOCH).seconds - offset) * NANOS
        + int((found[7] or "0").ljust(9, "0"))
    )


def duration(text: str) -> Duration:
    sign, rest = (-1 if text[:1] == "-" else 1), text.lstrip("+-") if text[:1] in ("+", "-") else text
    parts = list(_PART.finditer(rest))
    if rest == "0" or (parts and "".join(part[0] for part in parts) == rest):
        total = sum(_nanos(part[1], _UNITS[part[2]]) for part in parts)
        return _span(sign * total)
    raise Failed(f"type conversion error from 'string' to 'google.protobuf.Duration': {text!r}")


def add(one: Any, other: Any) -> Any:
    total = one.nanos + other.nanos
    return _span(total) if isinstance(one, Duration) and isinstance(other, Duration) else _moment(total)


def subtract(one: Any, other: Any) -> Any:
    left = one.nanos - other.nanos
    return _span(left) if type(one) is type(other) else _moment(left)


def timestamp_text(moment: Timestamp) -> str:
    seconds, nanos = divmod(moment.nanos, NANOS)
    at = _EPOCH + datetime.timedelta(seconds=seconds)
    part = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{at.year:04d}-{at:%m-%dT%H:%M:%S}{part}Z"


def duration_text(span: Duration) -> str:
    whole, part = divmod(abs(span.nanos), NANOS)
    return f"{'-' if span.nanos < 0 else ''}{whole}{f'.{part:09d}'.rstrip('0') if part else ''}s"


def _nanos(number: str, unit: int) -> int:
    whole, _, part = number.partition(".")
    return int(whole or "0") * unit + (int(part) * unit // 10 ** len(part) if part else 0)


def _span(nanos: int) -> Duration:
    if not values.INT_MIN <= nanos <= values.INT_MAX:
        raise Failed("duration overflow")
    return Duration(nanos)


def _moment(nanos: int) -> Timestamp:
    if not _FIRST <= nanos // NANOS <= _LAST:
        raise Failed("timestamp overflow")
    return Timestamp(nanos)


def _zone(text: str) -> datetime.timedelta:
    if text in ("UTC", ""):
        return datetime.timedelta()
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise Failed(f"time zone {text[:40]!r}: only UTC and offsets such as +02:00 are judged here")
    span = datetime.timedelta(hours=int(found[2]), minutes=int(found[3]))
    return -span if found[1] == "-" else span


def _of_date(part: Callable[[datetime.datetime], int]) -> Callable[..., int]:
    def read(moment: Timestamp, zone: str = "") -> int:
        return part(_EPOCH + datetime.timedelta(microseconds=moment.nanos // 1000) + _zone(zone))

    return read


def _whole(span: Duration, unit: int) -> int:
    return abs(span.nanos) // unit * (-1 if span.nanos < 0 else 1)


_DATES: tuple[tuple[str, str, Callable[[datetime.datetime], int]], ...] = (
    ("getFullYear", "year", lambda at: at.year),
    ("getMonth", "month", lambda at: at.month - 1),
    ("getDayOfYear", "day_of_year", lambda at: at.timetuple().tm_yday - 1),
    ("getDayOfMonth", "day_of_month", lambda at: at.day - 1),
    ("getDate", "day_of_month_1_based", lambda at: at.day),
    ("getDayOfWeek", "day_of_week", lambda at: at.isoweekday() % 7),
    ("getHours", "hours", lambda at: at.hour),
    ("getMinutes", "minutes", lambda at: at.minute),
    ("getSeconds", "seconds", lambda at: at.second),
    ("getMilliseconds", "milliseconds", lambda at: at.microsecond // 1000),
)

ROWS: list[functions.Row] = [
    ("duration: (duration) -> duration", "duration_to_duration", lambda span: span),
    ("duration: (string) -> duration", "string_to_duration", duration),
    ("timestamp: (timestamp) -> timestamp", "timestamp_to_timestamp", lambda moment: moment),
    ("timestamp: (int) -> timestamp", "int64_to_timestamp", lambda seconds: _moment(seconds * NANOS)),
    ("timestamp: (string) -> timestamp", "string_to_timestamp", timestamp),
    *((f"timestamp.{name}() -> int", f"timestamp_to_{id_}", _of_date(part)) for name, id_, part in _DATES),
    *(
        (f"timestamp.{name}(string) -> int", f"timestamp_to_{id_}_with_tz", _of_date(part))
        for name, id_, part in _DATES
    ),
    ("duration.getHours() -> int", "duration_to_hours", lambda span: _whole(span, 3600 * NANOS)),
    ("duration.getMinutes() -> int", "duration_to_minutes", lambda span: _whole(span, 60 * NANOS)),
    ("duration.getSeconds() -> int", "duration_to_seconds", lambda span: _whole(span, NANOS)),
    ("duration.getMilliseconds() -> int", "duration_to_milliseconds", lambda span: _whole(span, 10**6)),
]
