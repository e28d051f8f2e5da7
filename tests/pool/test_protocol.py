"""Every order of events in a small world, through the lease table itself: two controllers of which one is deposed, a
node, a pool with one card, two claims that want it one after the other.

Every call that somebody may ever have made arrives at any time, in any order, again, or never. The pool may crash
between any two steps, its servers may die, a claim may be torn away while its pod runs, time may jump over the ttl.
After each event: one live lease a card, one server a card and that of the live lease, tokens that only grow, nothing
ended that lives again. From every state: once the claims are gone the card comes free (with the new controller, and by
the ttl alone without any), and a claim that has the card gets it attached.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from api import lease
from pool import calls, leases

CARD = "gpu-a"
CLAIMS = ("A", "B")
TTL = 2
MOST_TIME = 3
MOST_CRASHES = 1
OLD, NEW = 1, 2
CONTROLLER = lease.Caller(cluster="c")
NODE = lease.Caller(cluster="c", node_uid="n", node_name="n")


@dataclass(frozen=True)
class Call:
    """`epoch` 0: the node's."""

    what: str
    claim: str
    epoch: int
    token: int = 0


@dataclass(frozen=True)
class World:
    table: leases.Table
    server: str = ""
    """The lease whose server runs on the card."""
    claims: tuple[str, ...] = ()
    """Those that were allocated the card so far, in order: the last one has it, unless it is gone."""
    gone: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()
    """Claims that the node has a record of."""
    now: int = 0
    crashes: int = 0

    def name(self) -> tuple[Any, ...]:
        """What tells two worlds apart."""
        table = self.table
        held = tuple(
            sorted(
                (i, f.state.value, f.token, f.failing, f.expires_ms, f.attach_by_ms) for i, f in table.leases.items()
            )
        )
        marks = (tuple(sorted(table.tokens.items())), tuple(sorted(table.epochs.items())), frozenset(table.cancelled))
        return held, marks, self.server, self.claims, self.gone, self.prepared, self.now, self.crashes


def id_of(claim: str) -> str:
    return lease.lease_id("c", claim)


def deliver(world: World, call: Call) -> World:
    """What the pool does about a call. A refusal changes nothing."""
    table, caller = world.table, CONTROLLER if call.epoch else NODE
    try:
        if call.what == "attach":
            request = calls.Request(
                key=call.claim,
                device=CARD,
                cluster="c",
                epoch=call.epoch,
                consumer=lease.Consumer(claim_uid=call.claim, node_uid="n", node_name="n"),
                protocol="fake",
                ttl_ms=TTL,
                within_ms=TTL,
            )
            table, _ = calls.attach(table, caller, request, {CARD: ""}, world.now)
        elif call.what == "detach":
            table = calls.admit(table, caller, call.epoch)
            ref = calls.Ref(id=id_of(call.claim), token=call.token) if call.token else calls.Ref(key=call.claim)
            table, _ = calls.detach(table, caller, ref, "", world.now)
        elif call.what == "fence":
            table = calls.admit(table, caller, call.epoch)
            table, _ = calls.fence_device(table, caller, CARD, call.token, "")
        else:
            table, _ = calls.renew(table, caller, (calls.Ref(id=id_of(call.claim), token=call.token),), world.now)
    except lease.Refused:
        return world
    return replace(world, table=table)


def tick(world: World) -> World:
    return replace(world, now=world.now + 1, table=leases.expire(world.table, world.now + 1))


def work(world: World) -> Iterator[World]:
    """What the pool does by itself, a step at a time."""
    holder = world.table.holder(CARD)
    if holder is None:
        return
    if holder.state is lease.State.ATTACHING:
        if not world.server:
            yield replace(world, server=holder.id)
        elif world.server == holder.id:
            yield replace(world, table=leases.attached(world.table, holder.id))
    if holder.state is lease.State.RELEASING:
        if world.server:
            yield replace(world, server="")
        else:
            yield replace(world, table=leases.released(world.table, holder.id, world.now))


def crash(world: World) -> World:
    """The host's servers end with the agent; the table comes back from its disk."""
    table = leases.restart(leases.rebuilt(replace(world.table, holders={})), world.now, 0)
    return replace(world, server="", table=table, crashes=world.crashes + 1)


def possible(world: World) -> Iterator[Call]:
    """What may arrive now. The deposed controller goes by old news: it says anything about any claim."""
    for claim in world.claims:
        yield from (Call("attach", claim, OLD), Call("detach", claim, OLD), Call("attach", claim, NEW))
        held = world.table.leases.get(id_of(claim))
        if claim in world.gone:
            yield Call("detach", claim, NEW)
        if held is not None and claim in world.gone:
            yield Call("fence", claim, NEW, held.token)
        if held is not None and claim in world.prepared:
            yield from (Call("renew", claim, 0, held.token), Call("detach", claim, 0, held.token))


def events(world: World) -> Iterator[World]:
    yield from work(world)
    yield from (deliver(world, call) for call in possible(world))
    if len(world.claims) < len(CLAIMS) and set(world.claims) == world.gone:
        yield replace(world, claims=(*world.claims, CLAIMS[len(world.claims)]))
    for claim in world.claims:
        if claim not in world.gone:
            yield replace(world, gone=world.gone | {claim})
        held = world.table.leases.get(id_of(claim))
        if claim not in world.prepared | world.gone and held is not None and held.state is lease.State.ATTACHED:
            yield replace(world, prepared=world.prepared | {claim})
    holder = world.table.holder(CARD)
    if holder is not None and world.server == holder.id and holder.state is lease.State.ATTACHED:
        yield replace(world, server="", table=leases.lost(world.table, holder.id, "died"))
    if world.now < MOST_TIME:
        yield tick(world)
    if world.crashes < MOST_CRASHES:
        yield crash(world)


def check(before: World, after: World) -> None:
    live = [found for found in after.table.leases.values() if not found.state.ended]
    assert len(live) <= 1, "two live leases on a card"
    assert not after.server or [found.id for found in live] == [after.server], "a server without its lease"
    assert before.table.tokens.get(CARD, 0) <= after.table.tokens.get(CARD, 0), "a token fell"
    assert before.table.epochs.get("c", 0) <= after.table.epochs.get("c", 0), "an epoch fell"
    for id_, found in before.table.leases.items():
        if found.state.ended:
            assert after.table.leases[id_].state is found.state, "what had ended lives again"
    for found in live:
        assert found.state is not lease.State.ATTACHED or after.server == found.id, "attached without a server"
        old = before.table.leases.get(found.id)
        assert old is not None or found.token > before.table.tokens.get(CARD, 0), "a token was used again"


def rest(world: World) -> World:
    """The pool works until it has nothing to do."""
    while (then := next(work(world), None)) is not None:
        world = then
    return world


def freed(world: World, *, controller: bool) -> World:
    """All claims are gone, and nobody acts but the new controller, if any, a node that still renews, and time."""
    for _ in range(2 * TTL + 1):
        if controller:
            for found in tuple(world.table.leases.values()):
                world = deliver(world, Call("detach", found.key, NEW, found.token))
            for claim in world.prepared:
                held = world.table.leases.get(id_of(claim))
                world = world if held is None else deliver(world, Call("renew", claim, 0, held.token))
        world = rest(tick(world))
    return world


def served(world: World) -> World:
    """The last claim keeps the card; the new controller and the pool do their work."""
    wanted = world.claims[-1]
    for _ in range(2):
        for found in tuple(world.table.leases.values()):
            if found.key != wanted:
                world = deliver(world, Call("detach", found.key, NEW, found.token))
        world = rest(world)
        world = rest(deliver(world, Call("attach", wanted, NEW)))
    return world


def dead(world: World, claim: str) -> bool:
    """Its key is used up: somebody ended or lost what it stood for, and its claim needs another allocation."""
    held = world.table.leases.get(id_of(claim))
    if held is not None:
        return held.state not in {lease.State.ATTACHING, lease.State.ATTACHED}
    return any(word.endswith(f"/{claim}") for word in world.table.cancelled)


def test_no_order_of_events_makes_two_holders_or_one_for_ever() -> None:
    first = World(table=leases.Table())
    seen = {first.name()}
    edge = [first]
    while edge:
        world = edge.pop()
        assert not freed(world, controller=True).table.holders, "a lease outlives its claim, with a controller"
        assert not freed(world, controller=False).table.holders, "a lease outlives its claim, with nobody there"
        if world.claims and world.claims[-1] not in world.gone:
            end = served(world)
            holder = end.table.holder(CARD)
            attached = holder is not None and holder.key == world.claims[-1] and holder.state is lease.State.ATTACHED
            assert attached or dead(end, world.claims[-1]), "a claim that has the card does not get it"
        for after in events(world):
            check(world, after)
            if (name := after.name()) not in seen:
                seen.add(name)
                edge.append(after)
    assert len(seen) > 10_000
