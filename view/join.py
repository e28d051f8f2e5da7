"""The only join of slices, claims, pods, classes, nodes and drivers.

    Objects --> cards (with holders) --> totals
                     |               --> pods, claims --> problems --> View

What it is given is all that it looks at: the same objects give the same picture, for the controller and for a user's
command line alike.
"""

from collections.abc import Mapping
from dataclasses import fields

from view import cards, objects, picture, problems, totals, users


def build(seen: objects.Objects) -> picture.View:
    pools = cards.pools(seen.slices.items)
    found = cards.build(pools, seen.claims, seen.pods)
    total = None if seen.slices.unknown else totals.tally(found)
    known = users.Known(
        seen=seen,
        claims={(claim.namespace, claim.name): claim for claim in seen.claims.items},
        cards={(card.pool, card.name): card for card in found},
        total=total,
    )
    pods = users.pods(known)
    return picture.View(
        cards=found,
        pods=pods,
        claims=users.claims(known),
        models=totals.models(found),
        nodes=() if seen.slices.unknown else totals.nodes(found, seen.nodes, seen.drivers),
        classes=totals.classes(found, seen.claims.items, seen.classes.items),
        namespaces=totals.namespaces(found),
        workload_types=totals.workload_types(found, seen.pods, seen.classes),
        total=total,
        problems=problems.find(pools, known, pods),
        unknown=_unknown(seen),
        unreadable=tuple(text for part in _parts(seen).values() for text in part.unreadable),
    )


def _parts(seen: objects.Objects) -> Mapping[str, objects.Part[object]]:
    return {field.name: getattr(seen, field.name) for field in fields(seen)}


def _unknown(seen: objects.Objects) -> dict[str, str]:
    found = {name: part.unknown for name, part in _parts(seen).items()}
    found |= {
        name: f"only those of namespace {part.namespace} could be read"
        for name, part in _parts(seen).items()
        if part.namespace
    }
    return {name: reason for name, reason in found.items() if reason}
