"""Remote pools and leases as the picture shows them.

    slices of pools, RemotePools --> a row a pool: its cards by state, whether it answers, what is wrong with its cards
    leases, claims               --> a row a lease: who it is for, and whether that claim holds the card

What the objects do not tell is None, with the reason beside it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from view import cards, lent, objects, picture, totals, users


def pools(
    found: Iterable[cards.Pool], of: Iterable[picture.Card], seen: objects.Objects
) -> tuple[picture.RemotePool, ...]:
    """Those that have slices, and those that an admin has written, by name."""
    lending = by_pool(of)
    published = {pool.name for pool in found if pool.remote}
    known = {one.name: one for one in seen.remote_pools.items}
    return tuple(pool(name, lending.get(name, ()), known.get(name), seen) for name in sorted(published | known.keys()))


def by_pool(of: Iterable[picture.Card]) -> Mapping[str, Sequence[picture.Card]]:
    found: defaultdict[str, list[picture.Card]] = defaultdict(list)
    for card in of:
        if card.remote:
            found[card.pool].append(card)
    return found


def pool(
    name: str, of: Sequence[picture.Card], known: objects.RemotePool | None, seen: objects.Objects
) -> picture.RemotePool:
    part = seen.remote_pools
    here = True if known else False if part.whole else None
    reason = known.reason if known else "its RemotePool is gone" if part.whole else part.unknown or "could not be read"
    return picture.RemotePool(
        name=name,
        models=tuple(sorted({card.model or "" for card in of})),
        tally=totals.tally(of),
        known=here,
        reachable=known.reachable if known else None,
        reason=reason,
        since=known.since if known else "",
        endpoint=known.endpoint if known else "",
        version=known.version if known else "",
        created=known.created if known else "",
        leases=known.leases if known else None,
        troubles=_troubles(of),
    )


def leases(known: users.Known) -> tuple[picture.Lease, ...]:
    """By pool and card, the newest first."""
    ordered = sorted(known.seen.leases.items, key=lambda one: (one.created, one.name), reverse=True)
    return tuple(
        lease(one, known.claims, known.seen) for one in sorted(ordered, key=lambda one: (one.pool, one.device))
    )


def lease(
    one: objects.Lease, claims: Mapping[objects.Reference, objects.Claim], seen: objects.Objects
) -> picture.Lease:
    claim = claims.get((one.namespace, one.claim))
    mine = claim if claim and claim.uid == one.uid else None
    held = any((result.pool, result.device) == (one.pool, one.device) for result in mine.results) if mine else False
    return picture.Lease(
        name=one.name,
        pool=one.pool,
        device=one.device,
        namespace=one.namespace,
        claim=one.claim,
        node=one.node,
        phase=one.phase,
        since=one.since,
        reason=one.reason,
        runs_out=lent.runs_out(one),
        attached_by=one.by,
        created=one.created,
        pods=tuple(name for name, _ in mine.reserved_for) if mine else (),
        held=held if mine or seen.claims.whole else None,
    )


def _troubles(of: Iterable[picture.Card]) -> tuple[picture.Trouble, ...]:
    since: defaultdict[str, list[str]] = defaultdict(list)
    for card in of:
        for key, at in {taint.key: taint.since for taint in card.taints}.items():
            since[key].append(at)
    return tuple(picture.Trouble(taint=key, cards=len(at), since=min(at)) for key, at in sorted(since.items()))
