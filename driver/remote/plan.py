"""A claim, and what was recorded of it before -> the record by which its cards are attached and confirmed.

What must stay true: a card that we attach ourselves keeps the epoch, and with it the key, of our first try; one that was attached
before the pod was bound has the key of this very allocation.
"""

from collections.abc import Callable, Iterable

from api import errors, lease, names, resource
from api import remote as kinds
from driver.remote import records


def planned(
    claim: resource.Claim,
    results: Iterable[resource.Result],
    before: records.Record | None,
    *,
    cluster_uid: str,
    node_uid: str,
    mint: Callable[[], str],
) -> records.Record:
    """The record to attach by. Raises Invalid for what a remote card cannot give."""
    kept = {holding.place: holding for holding in (before.holdings if before else ())}
    protocol = kinds.protocol(claim)
    holdings = []
    for result in results:
        if result.admin_access:
            raise errors.Invalid(f"claim {claim} asks for admin access; a remote card gives none, it holds a lease")
        by_node = names.ATTACHED not in result.conditions
        old = kept.get(result.place)
        epoch = claim.allocated_at
        if by_node:
            epoch = old.epoch if old is not None and old.by_node else mint()
        key = lease.key(
            cluster_uid=cluster_uid,
            claim_uid=claim.uid,
            driver=names.REMOTE_DRIVER,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            node_uid=node_uid,
            epoch=epoch,
        )
        holdings.append(
            records.Holding(
                request=result.request,
                pool=result.pool,
                device=result.device,
                share_id=result.share_id,
                key=key,
                epoch=epoch,
                by_node=by_node,
                protocol=protocol,
            )
        )
    return records.Record(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        phase=records.Phase.ATTACHING,
        holdings=tuple(holdings),
        allocated_at=claim.allocated_at,
        pods=tuple(uid for _, uid in claim.reserved_for),
    )


def over(before: records.Record | None, now: records.Record) -> tuple[records.Holding, ...]:
    """What was held by an allocation that is over."""
    keys = {one.key for one in now.holdings}
    return tuple(one for one in (before.holdings if before else ()) if one.key not in keys)


def same(record: records.Record, claim: resource.Claim, results: tuple[resource.Result, ...]) -> bool:
    kept = [(one.request, one.place) for one in record.holdings]
    return record.allocated_at == claim.allocated_at and kept == [(one.request, one.place) for one in results]
