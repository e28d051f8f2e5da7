"""What a text may look at: a device, from what a slice says of it."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from api import errors, quantity
from cel import kubernetes, values

Scalar = str | int | bool | values.Semver
Attribute = Scalar | tuple[Scalar, ...]
JSON = Mapping[str, Any]
_LISTS = {"strings": "string", "ints": "int", "bools": "bool", "versions": "version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A name without a domain belongs to the driver's. `odd`: why no text can be judged on it, empty where one can.

    Equal ones get the same verdicts. The hash is asked for at each, so it is kept.
    """

    driver: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, Fraction], ...] = ()
    shared: bool = False
    """allowMultipleAllocations"""
    odd: str = ""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = (self.driver, self.attributes, self.capacity, self.shared, self.odd)
        object.__setattr__(self, "_hash", hash(known))

    def __hash__(self) -> int:
        return self._hash


def device(data: JSON, driver: str) -> Device:
    """A device of a slice."""
    odd, attributes = "", []
    for name, value in sorted((data.get("attributes") or {}).items()):
        try:
            attributes.append(_pair(name, _attribute(value)))
        except errors.Invalid as error:
            odd = odd or f"attribute {name}: {error}"
    sizes = tuple(_pair(name, _amount(size["value"])) for name, size in sorted((data.get("capacity") or {}).items()))
    shared = bool(data.get("allowMultipleAllocations"))
    return Device(driver=driver, attributes=tuple(attributes), capacity=sizes, shared=shared, odd=odd)


@functools.lru_cache(maxsize=8192, typed=True)
def _pair(name: str, value: Any) -> tuple[str, Any]:
    """One object for what all cards of a kind have in common."""
    return (name, value)


@functools.lru_cache(maxsize=4096)
def _amount(text: str | int) -> Fraction:
    return quantity.parse(text)


def _attribute(value: JSON) -> Attribute:
    found = list(_read(value))
    if len(found) != 1:
        raise errors.Invalid("unsupported attribute value")
    return found[0]


def _read(value: JSON) -> Iterator[Attribute]:
    for kind, given in value.items():
        if kind in _LISTS:
            yield tuple(_scalar(_LISTS[kind], one) for one in given)
        else:
            yield _scalar(kind, given)


def _scalar(kind: str, given: Any) -> Scalar:
    if kind == "version":
        return kubernetes.to_semver(given)
    if kind not in ("string", "int", "bool"):
        raise errors.Invalid("unsupported attribute value")
    found: Scalar = given
    return found
