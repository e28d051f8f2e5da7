"""The picture as JSON: for `-o json|yaml` and for whoever asks over HTTP, the same words.

Field names are those of the values, in camel case. What is not known is null, and `unknown` says why. Fields may be
added; none changes its meaning within a version.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from view import join

API_VERSION = "view.elasticgpu.io/v1alpha1"


def listing(kind: str, items: Iterable[Any], of: join.View) -> dict[str, Any]:
    """`kind` is the singular: Card gives a CardList."""
    found = [{"kind": kind} | plain(item) for item in items]
    return {"apiVersion": API_VERSION, "kind": f"{kind}List", "items": found} | _limits(of)


def single(kind: str, item: Any, of: join.View) -> dict[str, Any]:
    found: dict[str, Any] = plain(item)
    return {"apiVersion": API_VERSION, "kind": kind} | found | _limits(of)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
    match value:
        case msgspec.Struct():
            return {_camel(name): plain(getattr(value, name)) for name in value.__struct_fields__}
        case enum.Enum():
            return value.value
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case _:
            return value


def _limits(of: join.View) -> dict[str, Any]:
    return {"unknown": dict(of.unknown), "unreadable": list(of.unreadable)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
