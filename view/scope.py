"""What of the picture somebody may see: all numbers, and the names of the namespaces that are theirs.

    picture + Scope --> the same picture, with the names of other namespaces left out

What must stay true: numbers are those of the whole cluster for everybody, so that a card is as full for one reader as
for the other; what is left out is counted or empty, and never looks as if it were not there.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import structs

from view import picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """`namespaces` whose claims and pods may be named; None for all."""

    namespaces: frozenset[str] | None = None

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


def card(found: picture.Card, scope: Scope) -> picture.Card:
    """A holder of another namespace keeps its amounts, its class and its time."""
    if scope.namespaces is None:
        return found
    return structs.replace(
        found,
        holders=tuple(_holder(one, scope) for one in found.holders),
        observers=tuple(_holder(one, scope) for one in found.observers),
        ending=tuple(structs.replace(one, reason="") for one in found.ending),
    )


def pods(found: Iterable[picture.Pod], scope: Scope) -> tuple[picture.Pod, ...]:
    return tuple(one for one in found if scope.sees(one.namespace))


def leases(found: Iterable[picture.Lease], scope: Scope) -> tuple[picture.Lease, ...]:
    """One of another namespace keeps its card, its node and its phase."""
    return tuple(
        one if scope.sees(one.namespace) else structs.replace(one, namespace="", claim="", pods=(), reason="")
        for one in found
    )


def booked(found: Iterable[picture.Booked], scope: Scope) -> tuple[picture.Booked, ...]:
    """Of sums by namespace, those that may be named."""
    return tuple(one for one in found if scope.sees(one.name))


def problems(found: Iterable[picture.Problem], scope: Scope) -> tuple[picture.Problem, ...]:
    """Those of cards, nodes and classes are for everybody."""
    return tuple(one for one in found if not one.namespace or scope.sees(one.namespace))


def _holder(found: picture.Holder, scope: Scope) -> picture.Holder:
    if scope.sees(found.namespace):
        return found
    attached = found.attachment and structs.replace(found.attachment, reason="")
    return structs.replace(found, namespace="", claim="", uid="", request="", pods=(), attachment=attached)
