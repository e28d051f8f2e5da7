"""Strict decoding: the message names the field's path and what is known there. Schemas: structural, with texts."""

import enum
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from api import errors, schema


class Colour(enum.Enum):
    RED = "Red"
    BLUE = "Blue"


class Leaf(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A leaf
    of a tree.

    cores: How many,
        at most.
    """

    cores: Annotated[int, Meta(ge=0, le=100)] = 0
    memory_size: str | None = None
    colour: Colour = Colour.RED


class Tree(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    leaf: Leaf = Leaf(cores=3)
    leaves: tuple[Leaf, ...] = ()
    maybe: Leaf | None = None
    amount: Annotated[str, Meta(pattern="^[0-9]+$")] | int | None = None
    name: str


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": "a", "leaf": {"memry": 1}}, 'w: unknown field "memry" at $.leaf; known: colour, cores, memorySize'),
        (
            {"name": "a", "leaves": [{}, {"x": 1}]},
            'w: unknown field "x" at $.leaves[1]; known: colour, cores, memorySize',
        ),
        ({"name": "a", "maybe": {"x": 1}}, 'w: unknown field "x" at $.maybe; known: colour, cores, memorySize'),
        ({"name": "a", "nme": 1}, 'w: unknown field "nme" at $; known: amount, leaf, leaves, maybe, name'),
        ({}, 'w: field "name" is missing at $'),
        ({"name": 3}, "w: Expected `str`, got `int` at $.name"),
        ({"name": "a", "leaf": {"cores": "50"}}, "w: Expected `int`, got `str` at $.leaf.cores"),
        ({"name": "a", "leaf": {"cores": 101}}, "w: Expected `int` <= 100 at $.leaf.cores"),
        (
            {"name": "a", "leaf": {"colour": "Green"}},
            "w: Invalid enum value 'Green' at $.leaf.colour; known: Red, Blue",
        ),
        ({"name": "a", "leaves": {}}, "w: Expected `array`, got `object` at $.leaves"),
        ([], "w: Expected `object`, got `array` at $"),
        (None, "w: Expected `object`, got `null` at $"),
    ],
)
def test_a_refusal_names_the_path_and_what_is_known_there(data: Any, text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        schema.decode(Tree, data, "w")
    assert str(caught.value) == text


def test_a_field_name_of_a_user_cannot_blow_up_the_message() -> None:
    with pytest.raises(errors.Invalid) as caught:
        schema.decode(Tree, {"name": "a", "x" * 5000: 1}, "w")
    assert len(str(caught.value)) <= errors.MESSAGE_LIMIT


def test_a_schema_is_inline_and_has_texts_and_defaults() -> None:
    leaf = {
        "type": "object",
        "description": "A leaf of a tree.",
        "properties": {
            "cores": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 100, "default": 0}
            | {"description": "How many, at most."},
            "memorySize": {"type": "string"},
            "colour": {"type": "string", "enum": ["Red", "Blue"], "default": "Red"},
        },
    }
    assert schema.openapi(Tree) == {
        "type": "object",
        "description": "",
        "properties": {
            "leaf": leaf | {"default": {"cores": 3, "colour": "Red"}},
            "leaves": {"type": "array", "items": leaf},
            "maybe": leaf,
            "amount": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+$"},
            "name": {"type": "string"},
        },
        "required": ["name"],
    }


def test_our_own_schema_is_structural() -> None:
    assert list(schema.faults(schema.openapi(Tree))) == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ({"$ref": "#/x"}, "$: $ref has no place here"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "$: anyOf has no place here"),
        ({"properties": {}}, "$: no type"),
        ({"type": "object", "additionalProperties": False}, "$: additionalProperties beside properties, or false"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "$.a: no items"),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, "$: required b is no property"),
        ({"type": "array", "items": {"properties": {}}}, "$[]: no type"),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
            | {"items": {"type": "object"}},
            "$: map key k is not required",
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
            "$: a list of type map without keys",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_found_out(bad: dict[str, Any], fault: str) -> None:
    assert fault in list(schema.faults(bad))


def test_a_type_without_a_structural_form_is_refused() -> None:
    class Loose(msgspec.Struct):
        anything: dict[str, int] = {}

    with pytest.raises(TypeError):
        schema.openapi(Loose)
