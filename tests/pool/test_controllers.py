"""Every order of events in a small world, through the controller's own decisions and the pool's own table.

A controller leads and may be deposed at any moment; from then on it goes by what it saw last, while its successor goes by
what is there. A call that was made may arrive again at any time. Claims are allocated one after the other and torn away,
the pool's steps and time go on between any two. After each event: one live lease a card. From every state: once the claims
are gone, the successor leaves neither lease nor RemoteLease; and a claim that keeps its card gets it attached.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from api import lease, names, resource
from api import remote as kinds
from controller import leases as decisions
from controller import remote
from pool import calls, leases

CARD, TTL = "gpu-a", 2
OLD, NEW = 1, 2
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TICK_S = 300
NODE = remote.Node(name="n", uid="n-uid", ready=True, gone=False)
CALLER = lease.Caller(cluster="c")


@dataclass(frozen=True)
class Seen:
    """What a controller decides by."""

    claims: frozenset[str]
    intents: tuple[remote.Intent, ...]
    leases: tuple[lease.Lease, ...]
    now: int


@dataclass(frozen=True)
class World:
    table: leases.Table
    intents: tuple[remote.Intent, ...] = ()
    claims: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    frozen: Seen | None = None
    """What the deposed controller saw last; None while it leads."""
    calls: frozenset[tuple[str, str, int]] = frozenset()
    over: frozenset[tuple[int, str]] = frozenset()
    refused: frozenset[tuple[int, str]] = frozenset()
    now: int = 0

    def name(self) -> tuple[Any, ...]:
        held = tuple(sorted((i, f.state, f.token, f.failing, f.expires_ms) for i, f in self.table.leases.items()))
        meant = tuple(sorted((i.spec.key, i.status.phase.value, i.status.since) for i in self.intents))
        old = None
        if self.frozen is not None:
            states = tuple((found.key, found.state) for found in self.frozen.leases)
            old = (self.frozen.claims, tuple((i.spec.key, i.status.phase) for i in self.frozen.intents), states)
        marks = (tuple(self.table.epochs.items()), frozenset(self.table.cancelled), self.calls, self.over, self.refused)
        return held, meant, old, marks, self.claims, self.gone, self.now


def seen(world: World) -> Seen:
    held = tuple(found for found in world.table.leases.values() if not found.state.ended)
    return Seen(frozenset(world.claims) - world.gone, world.intents, held, world.now)


def a_claim(uid: str) -> remote.Claim:
    result = resource.Result(
        request="card", driver=names.REMOTE_DRIVER, pool="lab", device=CARD, conditions=(names.ATTACHED,)
    )
    claim = resource.Claim(
        uid=resource.ClaimUID(uid),
        namespace="ns",
        name=uid,
        results=(result,),
        reserved_for=(("pod", "p"),),
        allocated_at=resource.timestamp(NOW),
        node="n",
    )
    return remote.Claim(claim=claim, told={})


def scene(world: World, view: Seen, who: int) -> remote.Scene:
    listed = {
        found.key: remote.Lease(
            id=found.id,
            key=found.key,
            device=found.device,
            token=found.token,
            state=found.state,
            age_s=float((view.now - found.created_ms) * TICK_S),
            revision=found.revision,
        )
        for found in view.leases
    }
    return remote.Scene(
        pool="lab",
        cluster_uid="c",
        claims=tuple(a_claim(uid) for uid in sorted(view.claims)),
        intents=view.intents,
        meant=frozenset(intent.spec.key for intent in view.intents),
        leases=listed,
        nodes={"n": NODE},
        refused={key: "refused" for whose, key in world.refused if whose == who},
        over=frozenset(key for whose, key in world.over if whose == who),
        binding_s=1_000_000.0,
        now=NOW + datetime.timedelta(seconds=view.now * TICK_S),
    )


def attach(world: World, key: str, who: int) -> World:
    request = calls.Request(
        key=key,
        device=CARD,
        cluster="c",
        epoch=who,
        consumer=lease.Consumer(claim_uid=key, node_uid="n-uid", node_name="n"),
        protocol="fake",
        ttl_ms=TTL,
        within_ms=TTL,
    )
    try:
        table, _ = calls.attach(world.table, CALLER, request, {CARD: ""}, world.now)
    except lease.Refused as refusal:
        if lease.meaning(lease.STATUS[refusal.kind], refusal.kind) in {lease.Meaning.ENDED, lease.Meaning.FINAL}:
            return replace(world, refused=world.refused | {(who, key)})
        return world
    return replace(world, table=table)


def detach(world: World, key: str, who: int) -> World:
    try:
        table = calls.admit(world.table, CALLER, who)
        table, held = calls.detach(table, CALLER, calls.Ref(key=key), "", world.now)
    except lease.Refused:
        return world
    over = world.over | {(who, key)} if held is None or held.state.ended else world.over
    return replace(world, table=table, over=over)


def called(world: World, verb: str, key: str, who: int) -> World:
    """What the first controller said may come again; its successor's calls are repeated by itself."""
    return world if who == NEW else replace(world, calls=world.calls | {(verb, key, who)})


def do(world: World, action: decisions.Action, who: int) -> World:
    """One action, with the preconditions that the real writes have."""
    by_key = {intent.spec.key: intent for intent in world.intents}
    match action:
        case decisions.Intend(lease=meant) if meant.spec.key not in by_key:
            world = replace(world, intents=(*world.intents, an_intent(meant)))
        case decisions.Attach(intent=intent):
            world = called(attach(world, intent.spec.key, who), "attach", intent.spec.key, who)
        case decisions.Detach(key=key):
            world = called(detach(world, key, who), "detach", key, who)
        case decisions.Move(intent=intent) | decisions.Forget(intent=intent):
            there = by_key.get(intent.spec.key)
            if there is not None and there.resource_version == intent.resource_version:
                world = replace(world, intents=written(world.intents, there, action))
    return world


def an_intent(meant: kinds.RemoteLease) -> remote.Intent:
    return remote.Intent(
        name=kinds.lease_name(meant.spec.key),
        uid=meant.spec.key,
        resource_version="1",
        deleting=False,
        spec=meant.spec,
        status=meant.status,
    )


def written(
    all_: tuple[remote.Intent, ...], there: remote.Intent, action: decisions.Move | decisions.Forget
) -> tuple[remote.Intent, ...]:
    rest = tuple(one for one in all_ if one is not there)
    if isinstance(action, decisions.Forget):
        return rest
    return (*rest, replace(there, status=action.status, resource_version=f"{int(there.resource_version) + 1}"))


def acts(world: World, view: Seen, who: int) -> Iterator[World]:
    for action in decisions.turn(scene(world, view, who)):
        if (after := do(world, action, who)) is not world:
            yield after


def work(world: World) -> World:
    """The pool's own next step."""
    holder = world.table.holder(CARD)
    if holder is None:
        return world
    table = leases.released(leases.attached(world.table, holder.id), holder.id, world.now)
    return world if table is world.table else replace(world, table=table)


def tick(world: World) -> World:
    return replace(world, now=world.now + 1, table=leases.expire(world.table, world.now + 1))


def events(world: World, claims: str, most_time: int) -> Iterator[World]:
    yield from acts(world, seen(world) if world.frozen is None else world.frozen, OLD)
    if world.frozen is None:
        yield replace(world, frozen=seen(world))
    else:
        yield from acts(world, seen(world), NEW)
    for verb, key, who in world.calls:
        yield (attach if verb == "attach" else detach)(world, key, who)
    yield work(world)
    if len(world.claims) < len(claims) and set(world.claims) == world.gone:
        yield replace(world, claims=(*world.claims, claims[len(world.claims)]))
    for claim in frozenset(world.claims) - world.gone:
        yield replace(world, gone=world.gone | {claim})
    if world.now < most_time:
        yield tick(world)


def settled(world: World, rounds: int) -> World:
    """The successor works undisturbed, and keeps alive what it would keep alive."""
    world = replace(world, frozen=world.frozen or seen(world))
    for _ in range(rounds):
        for _ in range(8):
            for action in decisions.turn(scene(world, seen(world), NEW)):
                world = do(world, action, NEW)
            world = work(world)
        kept = tuple(
            calls.Ref(id=held.id, token=held.token) for held in decisions.renewable(scene(world, seen(world), NEW))
        )
        world = replace(world, table=calls.renew(world.table, CALLER, kept, world.now)[0])
        world = tick(world)
    return world


def used_up(world: World, key: str) -> bool:
    """The claim's key can begin no more: it was ended, failed or lost, and the claim needs another allocation."""
    held = world.table.leases.get(lease.lease_id("c", key))
    cancelled = any(word.endswith(f"/{key}") for word in world.table.cancelled)
    return cancelled or (held is not None and held.state not in {lease.State.ATTACHING, lease.State.ATTACHED})


def key_of(world: World) -> str:
    claim = a_claim(world.claims[-1])
    return lease.key(
        cluster_uid="c",
        claim_uid=claim.claim.uid,
        driver=names.REMOTE_DRIVER,
        pool="lab",
        device=CARD,
        share_id="",
        node_uid="n-uid",
        epoch=claim.claim.allocated_at,
    )


def ends_well(world: World) -> None:
    end = settled(replace(world, gone=frozenset(world.claims)), 3)
    assert not end.table.holders, "a lease outlives its claim"
    assert not end.intents, "a RemoteLease outlives its claim"
    if world.claims and world.claims[-1] not in world.gone:
        end = settled(world, 2)
        holder = end.table.holder(CARD)
        attached = holder is not None and holder.key == key_of(world) and holder.state is lease.State.ATTACHED
        assert attached or used_up(end, key_of(world)), "a claim that has the card does not get it"


@pytest.mark.parametrize(
    ("claims", "most_time", "every"), [("A", 1, 1), ("AB", 0, 40)], ids=["one claim and time", "two claims"]
)
def test_no_order_of_events_makes_two_leases_or_leaves_one_behind(claims: str, most_time: int, every: int) -> None:
    """`every`: from how many states the way to the end is gone; that no two leases live is seen in all."""
    first = World(table=leases.Table())
    known, edge, number = {first.name()}, [first], 0
    while edge:
        world, number = edge.pop(), number + 1
        if number % every == 0:
            ends_well(world)
        for after in events(world, claims, most_time):
            assert sum(not found.state.ended for found in after.table.leases.values()) <= 1
            if (name := after.name()) not in known:
                known.add(name)
                edge.append(after)
    assert len(known) > 500
