"""Comparing JSON that was sent or is wanted with what the API server stored.

A server fills in defaults, writes amounts in its own way, and silently leaves out fields whose feature it lacks. So
equality is by meaning, and a loss is named by the path of the field, such as `devices.taints`.
"""

import datetime
from collections.abc import Iterable
from typing import Any, Final

from api import errors, quantity

_NAMED: Final = frozenset({"attributes", "capacity", "counters"})
"""Maps whose keys are names that users chose: they are no part of a field's path."""
_AMOUNTS: Final = frozenset({"capacity", "counters"})
_SECOND: Final = datetime.timedelta(seconds=1)


def equal(want: Any, have: Any) -> bool:
    """Order counts; absent and empty are one; amounts by value; a taint's time that only the server set is fine."""
    return _equal(want, have, key="", amounts=False)


def lost(sent: Any, stored: Any, path: str = "", *, named: bool = False) -> Iterable[str]:
    """The paths of the fields that were sent and are not in what was stored. `named`: the keys are names, not fields."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key, value in sent.items():
            inner = path if named else f"{path}.{key}".lstrip(".")
            if key in stored:
                yield from lost(value, stored[key], inner, named=not named and key in _NAMED)
            elif not named and not _empty(value):
                yield inner
    elif isinstance(sent, list) and isinstance(stored, list):
        if len(sent) != len(stored):
            yield path
        for ours, theirs in zip(sent, stored, strict=False):
            yield from lost(ours, theirs, path)


def remove(tree: Any, path: list[str]) -> None:
    """Takes a field out of everything on its path."""
    if isinstance(tree, list):
        for item in tree:
            remove(item, path)
    elif isinstance(tree, dict) and len(path) == 1:
        tree.pop(path[0], None)
    elif isinstance(tree, dict) and path[0] in tree:
        inner = tree[path[0]]
        remove(list(inner.values()) if path[0] in _NAMED else inner, path[1:])


def _equal(want: Any, have: Any, *, key: str, amounts: bool) -> bool:
    if key == "timeAdded":
        return want is None or (have is not None and abs(_moment(want) - _moment(have)) <= _SECOND)
    if _empty(want) or _empty(have):
        return _empty(want) and _empty(have)
    if isinstance(want, dict) and isinstance(have, dict):
        inside = amounts or key in _AMOUNTS
        return all(_equal(want.get(k), have.get(k), key=k, amounts=inside) for k in want.keys() | have.keys())
    if isinstance(want, list) and isinstance(have, list):
        pairs = zip(want, have, strict=False)
        return len(want) == len(have) and all(_equal(w, h, key=key, amounts=amounts) for w, h in pairs)
    if type(want) is not type(have) and not amounts:
        return False  # True is not 1
    return bool(want == have or (amounts and _amount(want) == _amount(have)))


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, (list, dict)) and not value)


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _amount(value: Any) -> object:
    try:
        return quantity.parse(value)
    except errors.Invalid:
        return value  # other text among the amounts, such as a default's name
