"""Our types both ways: JSON -> value, strictly, with the field's path; type -> the structural OpenAPI of a CRD.

A type is a frozen `msgspec.Struct` that forbids unknown fields. What a user reads of it stands in its docstring: a
summary, then one line `field: text` for each field (goes on where indented). `RULES`, where a type has them, are CEL
texts that the API server checks. The two directions read the same declaration, so what the API server takes and what
we take cannot differ.

What must stay true: a schema made here has no $ref, no anyOf and no additionalProperties (structural, so that the API
server prunes and fills defaults), and a refusal names the field by its path and says what would have been right.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as shapes

from api import errors

T = TypeVar("T")
Schema = dict[str, Any]

_AT = re.compile(r"(?s)(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?")
_SEGMENT = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")
_FIELD_LINE = re.compile(r"(\w+): (.*)")
_NO_PLACE = ("$ref", "anyOf", "oneOf", "allOf", "not", "uniqueItems", "patternProperties", "definitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A CEL text over `self` that must hold, and what to tell who breaks it."""

    text: str
    message: str


def decode(type_: type[T], data: Any, where: str) -> T:
    """`data`, raw JSON, as a value of `type_`.

    Raises Invalid with `where`, the path of the first bad field, and what is known there.
    """
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        raise errors.Invalid(f"{where}: {_explanation(type_, str(error))}") from error


def openapi(type_: type) -> Schema:
    """The structural schema of a type, without references."""
    return _schema(shapes.type_info(type_))


def documentation(type_: type) -> tuple[str, dict[str, str]]:
    """Summary and field texts of a type's docstring."""
    summary: list[str] = []
    fields: dict[str, list[str]] = {}
    lines = summary
    for line in inspect.cleandoc(type_.__doc__ or "").splitlines():
        if match := _FIELD_LINE.match(line):
            lines = fields.setdefault(match[1], [])
            line = match[2]  # noqa: PLW2901  the rest of the line is its text
        lines.append(line.strip())
    return " ".join(summary).strip(), {name: " ".join(text).strip() for name, text in fields.items()}


def faults(schema: Schema, path: str = "$") -> Iterator[str]:
    """What keeps a schema from being structural, of the rules that the API server has (and the few forms we use)."""
    yield from (f"{path}: {word} has no place here" for word in _NO_PLACE if word in schema)
    if "additionalProperties" in schema and ("properties" in schema or schema["additionalProperties"] is False):
        yield f"{path}: additionalProperties beside properties, or false"
    if not schema.get("type") and not schema.get("x-kubernetes-int-or-string"):
        yield f"{path}: no type"
    properties = schema.get("properties", {})
    yield from (
        f"{path}: required {name} is no property" for name in schema.get("required", ()) if name not in properties
    )
    if schema.get("x-kubernetes-list-type") == "map":
        keys = schema.get("x-kubernetes-list-map-keys", ())
        required = schema["items"].get("required", ())
        yield from (f"{path}: map key {key} is not required" for key in keys if key not in required)
        if not keys:
            yield f"{path}: a list of type map without keys"
    if schema.get("type") == "array" and "items" not in schema:
        yield f"{path}: no items"
    for name, value in properties.items():
        yield from faults(value, f"{path}.{name}")
    if "items" in schema:
        yield from faults(schema["items"], f"{path}[]")


def _explanation(type_: type, error: str) -> str:
    match = _AT.fullmatch(error)
    what, path = (match["what"], match["path"] or "$") if match else (error, "$")
    shape = _at(shapes.type_info(type_), path)
    field = _quoted(what)
    if what.startswith("Object contains unknown field"):
        known = ", ".join(sorted(f.encode_name for f in shape.fields)) if isinstance(shape, shapes.StructType) else ""
        return f'unknown field "{field}" at {path}; known: {known or "none"}'
    if what.startswith("Object missing required field"):
        return f'field "{field}" is missing at {path}'
    if what.startswith("Invalid enum value") and isinstance(shape, shapes.EnumType):
        return f"{what} at {path}; known: {', '.join(item.value for item in shape.cls)}"
    return f"{what} at {path}"


def _quoted(what: str) -> str:
    return what.partition("`")[2].rpartition("`")[0]


def _at(shape: shapes.Type, path: str) -> shapes.Type | None:
    """The type at a path of msgspec's, None where the path leads nowhere we know."""
    for match in _SEGMENT.finditer(path):
        shape = _bare(shape)
        if isinstance(shape, shapes.StructType):
            found = [field.type for field in shape.fields if field.encode_name == match[1]]
            if not found:
                return None
            shape = found[0]
        elif isinstance(shape, shapes.VarTupleType):
            shape = shape.item_type
        else:
            return None
    return _bare(shape)


def _bare(shape: shapes.Type) -> shapes.Type:
    """A type without metadata and without its null."""
    while True:
        match shape:
            case shapes.Metadata():
                shape = shape.type
            case shapes.UnionType():
                rest = [member for member in shape.types if not isinstance(member, shapes.NoneType)]
                if len(rest) != 1:
                    return shape
                shape = rest[0]
            case _:
                return shape


def _schema(shape: shapes.Type) -> Schema:  # noqa: PLR0911  one answer a kind of type
    match shape:
        case shapes.Metadata():
            return _schema(shape.type) | (shape.extra_json_schema or {})
        case shapes.StructType():
            return _object(shape)
        case shapes.VarTupleType():
            sizes = _given(minItems=shape.min_length or None, maxItems=shape.max_length)
            return {"type": "array", "items": _schema(shape.item_type)} | sizes
        case shapes.EnumType():
            return {"type": "string", "enum": [item.value for item in shape.cls]}
        case shapes.StrType():
            return {"type": "string"} | _given(
                minLength=shape.min_length, maxLength=shape.max_length, pattern=shape.pattern
            )
        case shapes.IntType():
            return {"type": "integer", "format": "int64"} | _given(minimum=shape.ge, maximum=shape.le)
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.UnionType():
            return _union(shape)
        case _:
            raise TypeError(f"no structural schema for {shape}")


def _union(shape: shapes.UnionType) -> Schema:
    members = [member for member in shape.types if not isinstance(member, shapes.NoneType)]
    if len(members) == 1:
        return _schema(members[0])
    text = next(member for member in members if isinstance(member, shapes.StrType))
    if {type(member) for member in members} != {shapes.StrType, shapes.IntType}:
        raise TypeError(f"no structural schema for {shape}")
    return {"x-kubernetes-int-or-string": True} | _given(pattern=text.pattern)


def _object(shape: shapes.StructType) -> Schema:
    summary, texts = documentation(shape.cls)
    properties = {}
    for field in shape.fields:
        schema = _schema(field.type) | _default(field)
        if text := texts.get(field.name):
            schema["description"] = text
        properties[field.encode_name] = schema
    rules = [{"rule": rule.text, "message": rule.message} for rule in getattr(shape.cls, "RULES", ())]
    required = [field.encode_name for field in shape.fields if field.required]
    return {"type": "object", "description": summary, "properties": properties} | _given(
        **{"required": required or None, "x-kubernetes-validations": rules or None}
    )


def _default(field: shapes.Field) -> Schema:
    """A default is written in full: the API server judges it by the rules before it fills the defaults within."""
    if field.required or field.default in (None, (), "", msgspec.NODEFAULT):
        return {}
    return {"default": _filled(msgspec.to_builtins(field.default))}


def _filled(value: Any) -> Any:
    match value:
        case dict():
            return {name: _filled(item) for name, item in value.items() if item not in (None, (), "")}
        case tuple():
            return list(value)
        case _:
            return value


def _given(**words: Any) -> Schema:
    return {name: value for name, value in words.items() if value is not None}
