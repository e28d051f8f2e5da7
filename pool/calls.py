"""What a call makes of the lease table, for who asks: Attach, renew, detach, fence, certificate.

    (table, caller, request, now) -> the next table and an answer, or Refused and no change

What must stay true: a key makes one lease, once, and none after it was cancelled; a caller touches what is its own and a
deposed controller nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from api import lease
from pool import leases

_MOST_TEXT = 253
_TOKENS_A_START = 1000
"""Tokens begin with the incarnation, so that they grow also where the state was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An Attach."""

    key: str
    device: str
    cluster: str
    epoch: int
    consumer: lease.Consumer
    protocol: str
    ttl_ms: int
    within_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A lease by id and token, or by key alone."""

    id: str = ""
    token: int = 0
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    id: str
    lease: lease.Lease | None
    renewed: bool
    reason: str = ""


def attach(
    table: leases.Table, caller: lease.Caller, request: Request, withheld: Mapping[str, str], now: int
) -> tuple[leases.Table, lease.Lease]:
    """`withheld`: every device of the pool, and why no lease may begin on it; an empty text where one may."""
    _check(request)
    if request.cluster != caller.cluster:
        raise lease.Refused(lease.Kind.FORBIDDEN, f"{caller} cannot attach for cluster {request.cluster!r}")
    who = request.consumer
    if caller.is_node and (who.node_uid, who.node_name) != (caller.node_uid, caller.node_name):
        raise lease.Refused(lease.Kind.FORBIDDEN, f"{caller} cannot attach for node {who.node_name!r}")
    table = admit(table, caller, request.epoch)
    if (known := table.leases.get(lease.lease_id(request.cluster, request.key))) is not None:
        return table, _repeated(known, request)
    if _cancels(request.cluster, "", request.key) in table.cancelled or (
        _cancels(request.cluster, who.node_uid, request.key) in table.cancelled
    ):
        raise lease.Refused(lease.Kind.ENDED, "the key was detached before its Attach came; it can begin no more")
    if request.device not in withheld:
        raise lease.Refused(lease.Kind.UNKNOWN_DEVICE, f"this pool has no device {request.device}; list them again")
    if (holder := table.holder(request.device)) is not None:
        other = f"{holder.consumer}" if holder.cluster == request.cluster else "another cluster"
        text = f"{request.device} is held by {other}, lease {holder.id}, {holder.state.value}"
        raise lease.Refused(lease.Kind.HELD, text, holder)
    if withheld[request.device]:
        raise lease.Refused(lease.Kind.WITHHELD, f"{request.device}: {withheld[request.device]}")
    token = max(table.tokens.get(request.device, 0), table.incarnation * _TOKENS_A_START) + 1
    made = lease.Lease(
        id=lease.lease_id(request.cluster, request.key),
        key=request.key,
        device=request.device,
        token=token,
        state=lease.State.ATTACHING,
        cluster=request.cluster,
        consumer=who,
        protocol=request.protocol,
        epoch=request.epoch,
        ttl_ms=request.ttl_ms,
        within_ms=request.within_ms,
        created_ms=now,
        expires_ms=now + request.ttl_ms,
        attach_by_ms=now + request.within_ms,
        created_revision=table.revision + 1,
    )
    table = leases.put(replace(table, tokens={**table.tokens, request.device: token}), made)
    return table, table.leases[made.id]


def _check(request: Request) -> None:
    who = request.consumer
    missing = [
        name
        for name, text in (
            ("idempotency_key", request.key),
            ("device_id", request.device),
            ("consumer.claim_uid", who.claim_uid),
            ("consumer.node_uid", who.node_uid),
        )
        if not text
    ]
    if missing:
        raise lease.Refused(lease.Kind.INVALID, f"{', '.join(missing)} must be set")
    texts = (request.key, who.claim_uid, who.node_uid, who.node_name, who.namespace, who.claim_name, who.share_id)
    if any(len(text) > _MOST_TEXT for text in (*texts, *who.pods)):
        raise lease.Refused(lease.Kind.INVALID, f"a text is longer than {_MOST_TEXT} characters")


def _repeated(known: lease.Lease, request: Request) -> lease.Lease:
    if (known.device, known.consumer, known.protocol) != (request.device, request.consumer, request.protocol):
        text = f"the key came before with other parameters: {known.device} for {known.consumer}"
        raise lease.Refused(lease.Kind.REUSED, text)
    if known.state is lease.State.RELEASED:
        text = f"the key's lease {known.id} has ended ({known.reason or 'detached'}); it can begin no more"
        raise lease.Refused(lease.Kind.ENDED, text, known)
    return known


def admit(table: leases.Table, caller: lease.Caller, epoch: int) -> leases.Table:
    """Takes note of a controller's epoch, and refuses one that was deposed. A node has none."""
    if caller.is_node:
        return table
    newest = table.epochs.get(caller.cluster, 0)
    if epoch < 1:
        raise lease.Refused(lease.Kind.INVALID, "owner.controller_epoch must be the epoch of the controller's election")
    if epoch < newest:
        text = f"a controller with epoch {newest} has spoken; epoch {epoch} is over"
        raise lease.Refused(lease.Kind.DEPOSED, text)
    return table if epoch == newest else replace(table, epochs={**table.epochs, caller.cluster: epoch})


def find(table: leases.Table, caller: lease.Caller, ref: Ref) -> lease.Lease | None:
    """The lease, if there is one. Raises Refused where it is not the caller's, or has another token."""
    found = table.leases.get(ref.id or lease.lease_id(caller.cluster, ref.key))
    if found is None:
        return None
    if not owns(caller, found):
        raise lease.Refused(lease.Kind.FORBIDDEN, f"lease {found.id} is not of {caller}")
    if ref.id and ref.token != found.token:
        raise lease.Refused(lease.Kind.STALE, f"lease {found.id} has another token than {ref.token}", found)
    return found


def owns(caller: lease.Caller, found: lease.Lease) -> bool:
    return caller.cluster == found.cluster and caller.node_uid in {"", found.consumer.node_uid}


def renew(
    table: leases.Table, caller: lease.Caller, refs: tuple[Ref, ...], now: int
) -> tuple[leases.Table, tuple[Renewal, ...]]:
    """Prolongs those that work. What others see of a lease does not change, so its revision stays."""
    known = dict(table.leases)
    answers = []
    for ref in refs:
        try:
            found = find(table, caller, ref)
        except lease.Refused as refusal:
            answers.append(Renewal(id=ref.id, lease=None, renewed=False, reason=str(refusal)))
            continue
        if found is None:
            answers.append(Renewal(id=ref.id, lease=None, renewed=False, reason="no such lease"))
        elif found.state in {lease.State.ATTACHING, lease.State.ATTACHED} and now < found.expires_ms:
            known[found.id] = replace(found, expires_ms=now + found.ttl_ms)
            answers.append(Renewal(id=ref.id, lease=known[found.id], renewed=True))
        else:
            answers.append(Renewal(id=ref.id, lease=found, renewed=False, reason=found.reason or found.state.value))
    return replace(table, leases=known), tuple(answers)


def detach(
    table: leases.Table, caller: lease.Caller, ref: Ref, reason: str, now: int
) -> tuple[leases.Table, lease.Lease | None]:
    """Begins the end. None: there is no such lease, and by its key none can begin any more."""
    if not ref.id and not ref.key:
        raise lease.Refused(lease.Kind.INVALID, "lease_id with fencing_token, or idempotency_key, must be set")
    found = find(table, caller, ref)
    if found is None:
        if ref.id:
            return table, None
        word = _cancels(caller.cluster, caller.node_uid, ref.key)
        return replace(table, cancelled={**table.cancelled, word: now}), None
    table = leases.ending(table, found, reason or "detached")
    return table, table.leases[found.id]


def fence_device(
    table: leases.Table, caller: lease.Caller, device: str, up_to_token: int, reason: str
) -> tuple[leases.Table, tuple[str, ...]]:
    """Ends the device's lease if its token is one that the caller had seen, never a later one (rook#14832)."""
    _controllers_only(caller)
    if up_to_token < 1:
        raise lease.Refused(lease.Kind.INVALID, "device.up_to_token must be the token that is to end")
    holder = table.holder(device)
    if holder is None or holder.token > up_to_token:
        return table, ()
    if holder.cluster != caller.cluster:
        raise lease.Refused(lease.Kind.FORBIDDEN, f"{device} is held by another cluster")
    return leases.ending(table, holder, reason or "fenced"), (holder.id,)


def fence_node(
    table: leases.Table, caller: lease.Caller, node_uid: str, up_to_revision: int, reason: str
) -> tuple[leases.Table, tuple[str, ...]]:
    """Ends the node's leases that began by `up_to_revision`: the node may be back, with new ones."""
    _controllers_only(caller)
    if up_to_revision < 1 or not node_uid:
        raise lease.Refused(lease.Kind.INVALID, "node.node_uid and node.up_to_revision must be set")
    ended = []
    for found in table.leases.values():
        if (found.cluster, found.consumer.node_uid) != (caller.cluster, node_uid) or found.state.ended:
            continue
        if found.created_revision <= up_to_revision:
            table = leases.ending(table, found, reason or "its node was fenced")
            ended.append(found.id)
    return table, tuple(ended)


def _controllers_only(caller: lease.Caller) -> None:
    if caller.is_node:
        raise lease.Refused(lease.Kind.FORBIDDEN, f"{caller} cannot fence; its controller can")


def credential(table: leases.Table, caller: lease.Caller, ref: Ref) -> lease.Lease:
    """The lease that a certificate may be made for: attached, and of this very node."""
    found = find(table, caller, ref)
    if found is None:
        raise lease.Refused(lease.Kind.UNKNOWN_LEASE, f"this pool has no lease {ref.id}")
    if not caller.is_node:
        raise lease.Refused(lease.Kind.FORBIDDEN, f"{caller} cannot have it; only the lease's node can")
    if found.state is not lease.State.ATTACHED:
        kind = lease.Kind.WITHHELD if found.state is lease.State.ATTACHING else lease.Kind.ENDED
        raise lease.Refused(kind, f"lease {found.id} is {found.state.value} {found.reason}".strip(), found)
    return found


def _cancels(cluster: str, node_uid: str, key: str) -> str:
    """A node cancels for itself alone: it may know the keys of others."""
    return f"{cluster}/{node_uid}/{key}"
