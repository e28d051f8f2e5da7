"""Functions of lists, lists as sets, maps under construction, and optional values."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cel import functions, values
from cel.values import NOTHING, Failed, Optional

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROES: Mapping[str, Any] = {"int": 0, "uint": values.UInt(0), "double": 0.0, "duration": values.Duration(0)}
_LONG = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_NAMED_NEW = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "bool": "bool",
    "string": "string",
    "bytes": "bytes",
} | _LONG
_MOST = 999_980
"""Elements that no text within the cost limit can make."""


def _order(one: Any, other: Any) -> int:
    try:
        return values.order(one, other)
    except Failed:
        return 0


def _sorted_already(found: Sequence[Any]) -> bool:
    return all(_order(one, other) != 1 for one, other in itertools.pairwise(found))


def _sum(kind: str, add: Callable[[Any, Any], Any], found: Sequence[Any]) -> Any:
    return functools.reduce(add, found, _ZEROES[kind])


def _plus(one: Any, other: Any) -> Any:
    if type(one) is not type(other):
        raise Failed("no such overload")
    if isinstance(one, values.Duration):
        nanos = values.within_int(one.nanos + other.nanos)
        return values.Duration(nanos)
    if isinstance(one, float):
        return one + other
    if isinstance(one, values.UInt):
        return values.UInt(values.within_uint(int(one) + int(other)))
    return values.within_int(one + other)


def _best(word: str, preferred: int, found: Sequence[Any]) -> Any:
    if not found:
        raise Failed(f"{word} called on empty list")
    best = found[0]
    for one in found[1:]:
        if _order(best, one) == preferred:
            best = one
    return best


def _index(found: Sequence[Any], wanted: Any) -> int:
    return next((at for at, one in enumerate(found) if values.same(one, wanted)), -1)


def _last_index(found: Sequence[Any], wanted: Any) -> int:
    return next((at for at in range(len(found) - 1, -1, -1) if values.same(found[at], wanted)), -1)


def _includes(found: Any, wanted: Any) -> bool:
    return any(values.same(one, wanted) for one in found) if isinstance(found, list) else values.same(found, wanted)


def _slice(found: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise Failed(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise Failed(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(found) < end:
        raise Failed(f"cannot slice({start}, {end}), list is length {len(found)}")
    return found[start:end]


def _flatten(found: Sequence[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise Failed("level must be non-negative")
    made: list[Any] = []
    for one in found:
        made += _flatten(one, depth - 1) if isinstance(one, list) and depth else [one]
    return made


def _range(count: int) -> list[int]:
    if count < 0:
        raise Failed(f"lists.range: size must be non-negative, got {count}")
    if count > _MOST:
        raise Failed(f"lists.range({count}) is too long")
    return list(range(count))


def _distinct(found: Sequence[Any]) -> list[Any]:
    made: list[Any] = []
    for one in found:
        if not _includes(made, one):
            made.append(one)
    return made


def _sort(found: list[Any]) -> list[Any]:
    return _sort_by(found, found)


def _sort_by(found: list[Any], keys: list[Any]) -> list[Any]:
    if len({type(key) for key in keys}) > 1:
        raise Failed("list elements must have the same type")
    ordered = functools.cmp_to_key(_order)
    return [found[at] for at in sorted(range(len(found)), key=lambda at: ordered(keys[at]))]


def _has_all(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(_includes(one, element) for element in other)


def _insert(entries: dict[Any, Any], name: Any, value: Any) -> dict[Any, Any]:
    """In place: the map under construction is nobody else's."""
    key = values.key(name)
    if key in entries:
        raise Failed(f"insert failed: key {name} already exists")
    entries[key] = value
    return entries


def _insert_all(entries: dict[Any, Any], more: Mapping[Any, Any]) -> dict[Any, Any]:
    for key, value in more.items():
        _insert(entries, values.unkey(key), value)
    return entries


def _value(found: Optional) -> Any:
    if not found.held:
        raise Failed("optional.none() dereference")
    return found.held[0]


def _unless_zero(value: Any) -> Optional:
    zero = value is None or value in (False, "", b"") or (isinstance(value, (list, Mapping)) and not value)
    return NOTHING if zero or value == values.Duration(0) else Optional((value,))


def _unwrapped(found: Sequence[Optional]) -> list[Any]:
    return [one.held[0] for one in found if one.held]


ROWS: list[functions.Row] = [
    *((f"list({kind}).isSorted() -> bool", f"list_{kind}_is_sorted_bool", _sorted_already) for kind in _COMPARABLE),
    *(
        (f"list({kind}).sum() -> {kind}", f"list_{kind}_sum_{kind}", functools.partial(_sum, kind, _plus))
        for kind in _ZEROES
    ),
    *(
        (f"list({kind}).max() -> {kind}", f"list_{kind}_max_{kind}", functools.partial(_best, "max", -1))
        for kind in _COMPARABLE
    ),
    *(
        (f"list({kind}).min() -> {kind}", f"list_{kind}_min_{kind}", functools.partial(_best, "min", 1))
        for kind in _COMPARABLE
    ),
    ("list(A).indexOf(A) -> int", "list_a_index_of_int", _index),
    ("list(A).lastIndexOf(A) -> int", "list_a_last_index_of_int", _last_index),
    ("dyn.includes(dyn) -> bool", "list_includes_dyn_dyn", _includes),
    ("list(A).slice(int, int) -> list(A)", "list_slice", _slice),
    ("list(list(A)).flatten() -> list(A)", "list_flatten", _flatten),
    ("list(dyn).flatten(int) -> list(dyn)", "list_flatten_int", _flatten),
    *((f"list({kind}).sort() -> list({kind})", f"list_{_NAMED_NEW[kind]}_sort", _sort) for kind in _COMPARABLE),
    *(
        (
            f"list(T).@sortByAssociatedKeys(list({kind})) -> list(T)",
            f"list_{_NAMED_NEW[kind]}_sortByAssociatedKeys",
            _sort_by,
        )
        for kind in _COMPARABLE
    ),
    ("lists.range: (int) -> list(int)", "lists_range", _range),
    ("list(A).reverse() -> list(A)", "list_reverse", lambda found: found[::-1]),
    ("list(A).distinct() -> list(A)", "list_distinct", _distinct),
    ("sets.contains: (list(A), list(A)) -> bool", "list_sets_contains_list", _has_all),
    (
        "sets.equivalent: (list(A), list(A)) -> bool",
        "list_sets_equivalent_list",
        lambda one, other: _has_all(one, other) and _has_all(other, one),
    ),
    (
        "sets.intersects: (list(A), list(A)) -> bool",
        "list_sets_intersects_list",
        lambda one, other: any(_includes(one, element) for element in other),
    ),
    ("cel.@mapInsert: (map(K, V), K, V) -> map(K, V)", "@mapInsert_map_key_value", _insert),
    ("cel.@mapInsert: (map(K, V), map(K, V)) -> map(K, V)", "@mapInsert_map_map", _insert_all),
    ("optional.of: (V) -> optional(V)", "optional_of", lambda value: Optional((value,))),
    ("optional.ofNonZeroValue: (V) -> optional(V)", "optional_ofNonZeroValue", _unless_zero),
    ("optional.none: () -> optional(V)", "optional_none", lambda: NOTHING),
    ("optional(V).value() -> V", "optional_value", _value),
    ("optional(V).hasValue() -> bool", "optional_hasValue", lambda found: bool(found.held)),
    (
        "optional(V).or(optional(V)) -> optional(V)",
        "optional_or_optional",
        lambda one, other: one if one.held else other,
    ),
    ("optional(V).orValue(V) -> V", "optional_orValue_value", lambda one, other: one.held[0] if one.held else other),
    ("list(T).first() -> optional(T)", "list_first", lambda found: Optional((found[0],)) if found else NOTHING),
    ("list(T).last() -> optional(T)", "list_last", lambda found: Optional((found[-1],)) if found else NOTHING),
    ("optional.unwrap: (list(optional(V))) -> list(V)", "optional_unwrap", _unwrapped),
    ("list(optional(V)).unwrapOpt() -> list(V)", "optional_unwrapOpt", _unwrapped),
]
