"""What Prepare shall do for a claim: the record to reach, or the reason why not.

    claim + World (cards, troubles, host edits, backend) + records -> Plan | Invalid, Conflict, NotReady

A decision, made of nothing but its arguments: it may be asked any number of times. Its caller keeps the record of the
plan before anything else can run, so that two claims cannot win one card. A claim that is prepared answers from its
record, whatever has happened to the card since: the kubelet asks again for pods that run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from api import errors, resource, v1alpha1
from driver import backend, cdi, inventory, records

_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the node knows at one moment. `troubles`: by device, why a card must not be given to a new claim."""

    driver: str
    pool: str
    boot_id: str
    cards: Mapping[str, inventory.Card]
    troubles: Mapping[str, str]
    host: cdi.HostEdits
    backend: backend.Backend
    unread: str = ""
    """Why the cards are not known at all; empty when they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`record` as it shall be kept before the first step. `stale`: what has to be undone before, if anything."""

    record: records.Record
    stale: records.Record | None = None


Records = Mapping[resource.ClaimUID, records.Record]


def plan(claim: resource.Claim, world: World, known: Records) -> Plan:
    """The way from what is recorded of this claim to a prepared one."""
    for config in claim.configs:
        if config.driver == world.driver:
            v1alpha1.decode_config(config.parameters, _where(claim, config))
    results = claim.of_driver(world.driver)
    record = known.get(claim.uid)
    same = record is not None and _answers(record, results)
    if record is not None and (not same or record.phase in {records.Phase.UNDOING, records.Phase.STUCK}):
        return Plan(record=_fresh(claim, results, world, known), stale=record)
    if record is not None and record.phase is records.Phase.PREPARED:
        return Plan(record=renewed(record, world))
    fresh = _fresh(claim, results, world, known)
    if record is None or record.boot_id != world.boot_id:
        return Plan(record=fresh)
    if record.steps != fresh.steps:  # what was made for the old ones would never be undone
        return Plan(record=fresh, stale=record)
    return Plan(record=replace(fresh, done=record.done))


def renewed(record: records.Record, world: World) -> records.Record:
    """A prepared claim's record with what a container needs today: other minors, driver files, or boot.

    The record stays as it is where the card or its files cannot be seen now. After a boot it does not: what it says is of
    a machine that is gone. Raises NotReady there.
    """
    try:
        holdings = tuple(_seen_again(holding, world) for holding in record.holdings)
        text = _spec(record.uid, holdings, world)
    except errors.NotReady:
        if record.boot_id != world.boot_id:
            raise
        return record
    if record.boot_id == world.boot_id:
        return replace(record, holdings=holdings, cdi=text)
    phase = records.Phase.PREPARING if record.steps else records.Phase.PREPARED
    return replace(record, holdings=holdings, cdi=text, phase=phase, boot_id=world.boot_id, done=0)


def _fresh(claim: resource.Claim, results: tuple[resource.Result, ...], world: World, known: Records) -> records.Record:
    holdings = []
    for result in results:
        card = _card(result, world)
        if not result.admin_access:
            _refuse_held(claim, result, known)
            if trouble := world.troubles.get(result.device):
                raise errors.NotReady(
                    f"device {result.device} of claim {claim} cannot be used now: {trouble}. It is tried again; "
                    "to get another card, delete the pod, so that its claim is allocated anew"
                )
        holdings.append(world.backend.holding(result, card))
    return records.Record(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        phase=records.Phase.PREPARING,
        boot_id=world.boot_id,
        holdings=tuple(holdings),
        steps=world.backend.steps(tuple(holdings)),
        cdi=_spec(claim.uid, holdings, world),
    )


def _card(result: resource.Result, world: World) -> inventory.Card:
    if result.pool != world.pool:
        raise errors.Invalid(
            f"device {result.device} is of pool {result.pool}; this node's pool is {world.pool}. "
            "Delete the pod, so that its claim is allocated anew"
        )
    if world.unread:
        raise errors.NotReady(f"device {result.device}: the cards of this node are not known yet: {world.unread}")
    card = world.cards.get(result.device)
    if card is None:
        raise errors.Invalid(
            f"device {result.device} is gone from this node; the cards here are {_listed(world.cards)}. "
            "Delete the pod, so that its claim is allocated anew, or bring the card back"
        )
    return card


def _refuse_held(claim: resource.Claim, result: resource.Result, known: Records) -> None:
    """The last line of defence, e.g. after a force delete, while the old containers still stop (k8s#141471)."""
    for other in known.values():
        if other.uid == claim.uid:
            continue
        for holding in other.holdings:
            if holding.device == result.device and not holding.admin_access:
                raise errors.Conflict(
                    f"device {result.device} is still held by claim {other} (uid {other.uid}, {other.phase.value}); "
                    "it is free when that claim's pods have stopped on this node, and this is tried again"
                )


def _seen_again(holding: records.Holding, world: World) -> records.Holding:
    card = world.cards.get(holding.device)
    if world.unread or card is None:
        raise errors.NotReady(f"device {holding.device} cannot be seen now: {world.unread or 'it is not listed'}")
    return replace(holding, minor=card.minor)


def _spec(uid: resource.ClaimUID, holdings: Iterable[records.Holding], world: World) -> str:
    edits = [(holding, world.backend.edits(holding, world.host)) for holding in holdings]
    return cdi.of_claim(uid, world.host.common, edits) if edits else ""


def _answers(record: records.Record, results: tuple[resource.Result, ...]) -> bool:
    return len(record.holdings) == len(results) and all(
        holding.answers(result) for holding, result in zip(record.holdings, results, strict=True)
    )


def _where(claim: resource.Claim, config: resource.Config) -> str:
    owner = f"the device class, in claim {claim}" if config.from_class else f"claim {claim}"
    requests = f", for request {', '.join(config.requests)}" if config.requests else ""
    return f"config of {owner}{requests}"


def _listed(cards: Mapping[str, inventory.Card]) -> str:
    names = sorted(cards)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more
