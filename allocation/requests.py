"""Claims and classes as allocation sees them: what is asked.

    ResourceClaim's JSON --> claim --> Claim of Requests, each with one Option, or several of which the first that fits

Texts and names stay as they are written; nothing is judged here.
"""

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocation import amounts

JSON = Mapping[str, Any]
EXACT, ALL = "ExactCount", "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def to_json(self) -> dict[str, Any]:
        told = {"key": self.key, "operator": self.operator, "value": self.value, "effect": self.effect}
        out: dict[str, Any] = {name: value for name, value in told.items() if value}
        return out | ({} if self.seconds is None else {"tolerationSeconds": self.seconds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to meet a request. `name` as results have it: `request`, or `request/subrequest`.

    selectors: CEL texts; None for a kind of selector that is not known.
    """

    name: str
    class_name: str
    mode: str = EXACT
    count: int = 1
    admin: bool = False
    selectors: tuple[str | None, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    asked: tuple[tuple[str, amounts.Amount], ...] = ()
    derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`listed`: the options are alternatives, the first that fits is taken."""

    name: str
    options: tuple[Option, ...]
    listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """`distinct`: all values differ; else all are the same. No requests: it is about all of them."""

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False

    def about(self, option: Option) -> bool:
        return not self.requests or option.name in self.requests or option.name.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a claim asks, without who asks: equal wishes are met alike."""

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claim:
    namespace: str
    name: str
    uid: str
    wish: Wish
    configs: tuple[JSON, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Class:
    name: str
    selectors: tuple[str | None, ...] = ()
    configs: tuple[JSON, ...] = ()


def claim(data: JSON) -> Claim:
    """Any ResourceClaim. One that an API server stored has its defaults filled; they are filled here too."""
    meta, spec = data["metadata"], data.get("spec") or {}
    return Claim(
        namespace=sys.intern(meta.get("namespace", "")),
        name=sys.intern(meta["name"]),
        uid=sys.intern(meta.get("uid", "")),
        wish=wish(spec),
        configs=tuple((spec.get("devices") or {}).get("config") or ()),
    )


def wish(spec: JSON) -> Wish:
    """A claim's spec, or that of a template."""
    devices = spec.get("devices") or {}
    asked = tuple(map(_request, devices.get("requests") or ()))
    return _alike(Wish(requests=asked, constraints=tuple(map(_constraint, devices.get("constraints") or ()))))


@functools.lru_cache(maxsize=8192, typed=True)
def _alike(found: Wish) -> Wish:
    """One for all claims that ask the same, as those of a template do: a hundred thousand may wait."""
    return found


def class_(data: JSON) -> Class:
    spec = data.get("spec") or {}
    return Class(
        name=data["metadata"]["name"],
        selectors=_selectors(spec),
        configs=tuple(spec.get("config") or ()),
    )


def _request(data: JSON) -> Request:
    name = data["name"]
    if listed := data.get("firstAvailable"):
        options = tuple(_option(one, f"{name}/{one['name']}") for one in listed)
        return Request(name=name, options=options, listed=True)
    return Request(name=name, options=(_option(data.get("exactly") or {}, name),))


def _option(data: JSON, name: str) -> Option:
    asked = (data.get("capacity") or {}).get("requests") or {}
    return Option(
        name=name,
        class_name=data.get("deviceClassName") or "",
        mode=data.get("allocationMode") or EXACT,
        count=data.get("count") or 1,
        admin=bool(data.get("adminAccess")),
        selectors=_selectors(data),
        tolerations=tuple(map(_toleration, data.get("tolerations") or ())),
        asked=tuple(sorted((key, amounts.amount(value)) for key, value in asked.items())),
        derived=bool(data.get("derivedAttributes")),
    )


def _selectors(data: JSON) -> tuple[str | None, ...]:
    return tuple((one.get("cel") or {}).get("expression") for one in data.get("selectors") or ())


def _toleration(data: JSON) -> Toleration:
    return Toleration(
        key=data.get("key") or "",
        operator=data.get("operator") or "Equal",
        value=data.get("value") or "",
        effect=data.get("effect") or "",
        seconds=data.get("tolerationSeconds"),
    )


def _constraint(data: JSON) -> Constraint:
    distinct = data.get("distinctAttribute")
    attribute = distinct or data.get("matchAttribute") or ""
    return Constraint(attribute=attribute, requests=tuple(data.get("requests") or ()), distinct=bool(distinct))
