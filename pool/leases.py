"""The lease table: who holds which card, and what time and the pool's own steps make of it; `calls` has what callers do.

    (none) --Attach--> ATTACHING --server is up--> ATTACHED --server or card died--> LOST
                           |                          |                               |
                           +--------------------------+----- Detach, Fence, ttl ------+
                                                      v
                                                  RELEASING --server dead, card clean--> RELEASED, or FAILED

What must stay true: a device has one lease that is not ended; its tokens only grow; a lease that nobody renews ends. `now`
is in ms of a clock of the pool that no one sets; a greater revision goes with every change that others may see.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api import lease

TOMBSTONE_MS = 24 * 3600 * 1000
"""How long an ended or cancelled key is remembered: longer than any call can be under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    leases: Mapping[str, lease.Lease] = field(default_factory=dict)
    """By id, ended ones too while their keys are remembered."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """Device -> the lease that has it: follows from `leases`."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Device -> the highest token given so far."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Cluster -> the newest controller that has spoken."""
    cancelled: Mapping[str, int] = field(default_factory=dict)
    """Keys that were detached before they began, with the time."""
    incarnation: int = 0
    revision: int = 0

    def holder(self, device: str) -> lease.Lease | None:
        found = self.holders.get(device)
        return None if found is None else self.leases[found]


def attached(table: Table, id_: str) -> Table:
    """Its server is up. No change if its end has begun meanwhile."""
    found = table.leases[id_]
    if found.state is not lease.State.ATTACHING:
        return table
    return put(table, replace(found, state=lease.State.ATTACHED, server_incarnation=table.incarnation))


def failed(table: Table, id_: str, reason: str) -> Table:
    """Its server cannot come up."""
    found = table.leases[id_]
    return ending(table, found, reason) if found.state is lease.State.ATTACHING else table


def lost(table: Table, id_: str, reason: str) -> Table:
    """Its server or its card died."""
    found = table.leases[id_]
    if found.state is not lease.State.ATTACHED:
        return table
    return put(table, replace(found, state=lease.State.LOST, reason=reason))


def stuck(table: Table, id_: str, reason: str) -> Table:
    """Its end takes longer, and why."""
    found = table.leases[id_]
    if found.state is not lease.State.RELEASING or found.reason == reason:
        return table
    return put(table, replace(found, reason=reason))


def released(table: Table, id_: str, now: int) -> Table:
    """Its server is dead with all its children, and the card is clean."""
    found = table.leases[id_]
    if found.state is not lease.State.RELEASING:
        return table
    state = lease.State.FAILED if found.failing else lease.State.RELEASED
    return put(table, replace(found, state=state, ended_ms=now))


def expire(table: Table, now: int) -> Table:
    """What time does: leases that nobody renews end, attaches that take too long fail, old keys are forgotten."""
    for found in table.leases.values():
        if found.state.ended or found.state is lease.State.RELEASING:
            continue
        if now >= found.expires_ms:
            table = ending(table, found, f"nobody renewed it for {found.ttl_ms // 1000} s")
        elif found.state is lease.State.ATTACHING and now >= found.attach_by_ms:
            table = ending(table, found, f"it was not attached within {found.within_ms} ms")
    old = now - TOMBSTONE_MS
    gone = {id_ for id_, found in table.leases.items() if found.state.ended and found.ended_ms <= old}
    if gone:
        table = replace(table, leases={id_: found for id_, found in table.leases.items() if id_ not in gone})
    if any(at <= old for at in table.cancelled.values()):
        table = replace(table, cancelled={word: at for word, at in table.cancelled.items() if at > old})
    return table


def due_ms(table: Table) -> int | None:
    """When `expire` has to look again, for leases; forgetting has no hurry."""
    times = [
        min(found.expires_ms, found.attach_by_ms) if found.state is lease.State.ATTACHING else found.expires_ms
        for found in map(table.leases.__getitem__, table.holders.values())
        if found.state is not lease.State.RELEASING
    ]
    return min(times, default=None)


def restart(table: Table, now: int, started_s: int) -> Table:
    """The pool starts anew: all servers are dead. What was attached is lost; what was to be attached starts again.

    Their time begins anew too: nobody could renew while the pool was away. `started_s` is any number that grows from
    start to start, such as the time: where the state was lost, tokens and incarnations grow by it.
    """
    table = replace(table, incarnation=max(table.incarnation + 1, started_s))
    for id_ in table.holders.values():
        found = table.leases[id_]
        fresh = replace(found, expires_ms=now + found.ttl_ms, attach_by_ms=now + found.within_ms)
        if found.state is lease.State.ATTACHED:
            fresh = replace(fresh, state=lease.State.LOST, reason="the pool was restarted and its server with it")
        table = put(table, fresh)
    return table


def rebuilt(table: Table) -> Table:
    """With what follows from the leases, after they were read from the disk."""
    holders = {found.device: found.id for found in table.leases.values() if not found.state.ended}
    return replace(table, holders=holders)


def ending(table: Table, found: lease.Lease, reason: str) -> Table:
    if found.state.ended or found.state is lease.State.RELEASING:
        return table
    failing = found.state is lease.State.ATTACHING
    return put(table, replace(found, state=lease.State.RELEASING, reason=reason, failing=failing))


def put(table: Table, changed: lease.Lease) -> Table:
    revision = table.revision + 1
    changed = replace(changed, revision=revision)
    holders = dict(table.holders)
    if changed.state.ended:
        holders.pop(changed.device, None)
    else:
        holders[changed.device] = changed.id
    return replace(table, leases={**table.leases, changed.id: changed}, holders=holders, revision=revision)
