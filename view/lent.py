"""Leases beside the cards and claims that they are of.

    leases --> which of a card's belongs to which claim --> Attachment of a holder, or what is still ending there

A claim that was allocated anew may have two: the one that is not ending is its own.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping

from api import lease
from view import objects, picture

Key = tuple[str, str]
"""(pool, device)"""
Of = Mapping[Key, tuple[objects.Lease, ...]]
ENDING = ("Lost", "Failed", "Releasing")
"""Phases in which nobody renews: the pool ends the lease by itself after its time."""
_LIFE = datetime.timedelta(milliseconds=lease.TTL_MS)


def by_card(leases: Iterable[objects.Lease]) -> Of:
    """The newest first."""
    found: defaultdict[Key, list[objects.Lease]] = defaultdict(list)
    for one in leases:
        found[one.pool, one.device].append(one)
    return {key: tuple(sorted(of, key=lambda one: (one.created, one.name), reverse=True)) for key, of in found.items()}


def own(leases: Iterable[objects.Lease], uid: str) -> objects.Lease | None:
    """A claim that was allocated anew may have an old one that is still given back."""
    mine = [one for one in leases if one.uid == uid]
    return next((one for one in mine if one.phase not in ENDING), mine[0] if mine else None)


def attachment(one: objects.Lease) -> picture.Attachment:
    return picture.Attachment(
        lease=one.name, phase=one.phase, since=one.since, reason=one.reason, runs_out=runs_out(one)
    )


def runs_out(one: objects.Lease) -> str:
    if one.phase not in ENDING:
        return ""
    try:
        return (datetime.datetime.fromisoformat(one.since) + _LIFE).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return ""
