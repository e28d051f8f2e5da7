"""Nodes as allocation sees them, and the selectors that say which of them can reach a device.

A selector that no API server would have stored raises Invalid: upstream stops the pod for it, on every node.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api import errors

JSON = Mapping[str, Any]
Requirement = tuple[str, str, tuple[str, ...]]
NAME = "metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`taints`: those that keep pods away, as (key, value, effect). `room`: what it has for pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...] = ()
    room: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One way to match: all of it must hold; nothing in it matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, node: Node) -> bool:
        return bool(self.expressions or self.fields) and all(
            (*(_holds(one, node.labels) for one in self.expressions), *(_named(one, node) for one in self.fields))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """From where a device, or all of a slice, can be used. None of the three: from nowhere that is known today."""

    node: str = ""
    everywhere: bool = False
    terms: tuple[Term, ...] | None = None

    @property
    def known(self) -> bool:
        return bool(self.node) or self.everywhere or self.terms is not None

    def reaches(self, node: Node) -> bool:
        if self.node:
            return node.name == self.node
        return self.everywhere or (self.terms is not None and any(term.matches(node) for term in self.terms))


def place(data: JSON) -> Place:
    """The node fields of a slice's spec, or of one device."""
    selector = data.get("nodeSelector")
    return Place(
        node=data.get("nodeName") or "",
        everywhere=bool(data.get("allNodes")),
        terms=None if selector is None else terms(selector),
    )


def terms(selector: JSON) -> tuple[Term, ...]:
    return tuple(
        Term(
            expressions=tuple(map(_requirement, term.get("matchExpressions") or ())),
            fields=tuple(map(_requirement, term.get("matchFields") or ())),
        )
        for term in selector.get("nodeSelectorTerms") or ()
    )


def named(name: str) -> tuple[Term, ...]:
    """The selector of one node, as kube-scheduler writes it."""
    return (Term(fields=((NAME, "In", (name,)),)),)


def only(found: tuple[Term, ...] | None) -> str:
    """The node, if it is the selector of one; else nothing."""
    match found:
        case (Term(expressions=(), fields=((_, _, (str(name),)),)),) if found == named(name):
            return name
        case _:
            return ""


def _requirement(data: JSON) -> Requirement:
    return sys.intern(data["key"]), sys.intern(data["operator"]), tuple(map(sys.intern, data.get("values") or ()))


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    found = labels.get(key)
    match operator:
        case "In":
            return found is not None and found in values
        case "NotIn":
            return found is None or found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt":
            return _compared(found, values, lambda one, other: one > other)
        case "Lt":
            return _compared(found, values, lambda one, other: one < other)
        case _:
            raise errors.Invalid(f"node selector: operator {operator!r} of {key} is not known")


def _compared(found: str | None, values: tuple[str, ...], by: Callable[[int, int], bool]) -> bool:
    try:
        return found is not None and by(int(found), int(values[0]))
    except ValueError:
        return False


def _named(requirement: Requirement, node: Node) -> bool:
    key, operator, values = requirement
    if len(values) != 1 or operator not in ("In", "NotIn"):
        raise errors.Invalid(f"node selector: matchFields {key} {operator} needs In or NotIn with one value")
    return ((node.name if key == NAME else "") == values[0]) is (operator == "In")
