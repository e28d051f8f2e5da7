"""What Prepare shall do for a claim: the record to reach, or the reason why not.

    claim + World (cards, troubles, host edits, backends) + records -> Plan | Invalid, Conflict, NotReady

A decision, made of nothing but its arguments: it may be asked any number of times. Its caller keeps the record of the
plan before anything else can run, so that two claims cannot win one card. A claim that is prepared answers from its
record, whatever has happened to the card since: the kubelet asks again for pods that run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from api import errors, resource, v1alpha1
from driver import backend, booking, cdi, configs, containers, inventory, records, resize, rung

_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the node knows at one moment. `troubles`: by device, why a card must not be given to a new claim.

    `backends` by the word that records use: `whole`, `share`.
    """

    driver: str
    pool: str
    boot_id: str
    cards: Mapping[str, inventory.Card]
    troubles: Mapping[str, str]
    host: cdi.HostEdits
    backends: Mapping[str, backend.Backend]
    shares_per_card: int = 16
    elastic: frozenset[str] = frozenset()
    """The ways of holding shares that take another memory limit while programs run."""
    unread: str = ""
    """Why the cards are not known at all; empty when they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`record` as it shall be kept before the first step. `stale`: what has to be undone before, if anything."""

    record: records.Record
    stale: records.Record | None = None


Records = Mapping[resource.ClaimUID, records.Record]
Users = tuple[containers.User, ...]
"""The containers that use the claim, where somebody asked."""


def plan(claim: resource.Claim, world: World, known: Records, users: Users = ()) -> Plan:
    """The way from what is recorded of this claim to a prepared one."""
    shares = configs.chosen(claim, world.driver)
    results = claim.of_driver(world.driver)
    record = known.get(claim.uid)
    same = record is not None and _answers(record, results)
    if record is not None and (not same or record.phase in {records.Phase.UNDOING, records.Phase.STUCK}):
        return Plan(record=_fresh(claim, shares, world, known, users), stale=record)
    if record is not None and record.phase is records.Phase.PREPARED:
        return Plan(record=renewed(replace(record, pods=_pods(claim)), world))
    fresh = _fresh(claim, shares, world, known, users)
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


def _fresh(
    claim: resource.Claim, shares: tuple[v1alpha1.Share | None, ...], world: World, known: Records, users: Users
) -> records.Record:
    holdings: list[records.Holding] = []
    for result, share in zip(claim.of_driver(world.driver), shares, strict=True):
        theirs = tuple(user for user in users if user.uses(result.base_request))
        ask = backend.Ask(result=result, card=_card(result, world), share=share, users=theirs)
        holdings.append(_holding(claim, ask, world, known, holdings))
    holdings = _resized(claim, holdings, world)
    steps = [
        step
        for name, worker in world.backends.items()
        for step in worker.steps(tuple(holding for holding in holdings if holding.backend == name))
    ]
    return records.Record(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        phase=records.Phase.PREPARING,
        boot_id=world.boot_id,
        holdings=tuple(holdings),
        steps=tuple(steps),
        cdi=_spec(claim.uid, holdings, world),
        pods=_pods(claim),
    )


def _resized(claim: resource.Claim, holdings: list[records.Holding], world: World) -> list[records.Holding]:
    """With the limits that the claim's annotation asks for, if they can be; a wrong one is told later and starts no pod less."""
    try:
        return list(resize.asked(claim, tuple(holdings), world.elastic))
    except errors.Invalid:
        return holdings


def resized(record: records.Record, claim: resource.Claim, world: World) -> records.Record:
    """A prepared record with the limits that its claim asks for now. Raises Invalid, NotReady."""
    holdings = resize.asked(claim, record.holdings, world.elastic)
    if holdings == record.holdings:
        return record
    return replace(record, holdings=holdings, cdi=_spec(record.uid, holdings, world))


def _pods(claim: resource.Claim) -> tuple[str, ...]:
    return tuple(sorted(uid for _, uid in claim.reserved_for))


def _holding(
    claim: resource.Claim, ask: backend.Ask, world: World, known: Records, own: Iterable[records.Holding]
) -> records.Holding:
    """Who only watches needs no room, gets no limit, and sees a card in trouble too."""
    if ask.result.admin_access:
        return world.backends["whole"].holding(ask)
    holding = world.backends["whole" if _whole(ask) else "share"].holding(ask)
    beside = _neighbours(claim, holding.device, known, own)
    booking.refuse_overbooked(holding, ask.card, beside, world.shares_per_card)
    _refuse_second_account(claim, holding, known, own)
    booking.refuse_mixed(holding, beside)
    if trouble := world.troubles.get(holding.device):
        raise errors.NotReady(
            f"device {holding.device} of claim {claim} cannot be used now: {trouble}. It is tried again; "
            "to get another card, delete the pod, so that its claim is allocated anew"
        )
    return holding


def _whole(ask: backend.Ask) -> bool:
    """Also a claim of shares, where the API server keeps no amounts and its class lets it have the card that it was given."""
    if ask.share is None:
        return True
    return ask.share.fallback is v1alpha1.Fallback.WHOLE_CARD and not ask.result.consumed_capacity


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


def _neighbours(
    claim: resource.Claim, device: str, known: Records, own: Iterable[records.Holding]
) -> tuple[booking.Neighbour, ...]:
    """Those of other claims in every phase, e.g. after a force delete, while the old containers stop (k8s#141471)."""
    on_card = [(holding, None) for holding in own if holding.device == device] + [
        (holding, other)
        for other in known.values()
        for holding in other.holdings
        if holding.device == device and other.uid != claim.uid  # asked of all that is held here: the rarer thing first
    ]
    return tuple(
        booking.Neighbour(holder=_holder(other), holding=holding)
        for holding, other in on_card
        if not holding.admin_access
    )


def _refuse_second_account(
    claim: resource.Claim, holding: records.Holding, known: Records, own: Iterable[records.Holding]
) -> None:
    """Where the driver holds a pod as a whole, it has one limit a card: a second share would be held by the first one's."""
    word = rung.word(v1alpha1.Rung.DRIVER)
    if holding.enforcement != word:
        return
    pods = frozenset(_pods(claim))
    of_pod = [*own]
    for record in known.values():
        if record.uid != claim.uid and pods & frozenset(record.pods):
            of_pod += record.holdings
    for other in of_pod:
        same = other.device == holding.device and other.enforcement == word
        if same and (other.group or holding.group):
            raise errors.Invalid(
                f"request {holding.request} of claim {claim}: its pod has two shares of card {holding.card}, and one of them "
                "is used by several containers, or beside another claim. The card's driver holds these containers together, "
                "to one limit a card: give each container one share of its own, or all of them the same one"
            )


def _holder(record: records.Record | None) -> str:
    if record is None:
        return "another request of this claim"
    return f"claim {record} (uid {record.uid}, {record.phase.value})"


def _seen_again(holding: records.Holding, world: World) -> records.Holding:
    card = world.cards.get(holding.device)
    if world.unread or card is None:
        raise errors.NotReady(f"device {holding.device} cannot be seen now: {world.unread or 'it is not listed'}")
    return replace(holding, minor=card.minor)


def _spec(uid: resource.ClaimUID, holdings: Iterable[records.Holding], world: World) -> str:
    edits = [(holding, _worker(holding, world).edits(holding, world.host)) for holding in holdings]
    return cdi.of_claim(uid, world.host.common, edits) if edits else ""


def _worker(holding: records.Holding, world: World) -> backend.Backend:
    worker = world.backends.get(holding.backend)
    if worker is None:
        raise errors.NotReady(f"this version of the driver knows no {holding.backend}; run the one that began it")
    return worker


def _answers(record: records.Record, results: tuple[resource.Result, ...]) -> bool:
    return len(record.holdings) == len(results) and all(
        holding.answers(result) for holding, result in zip(record.holdings, results, strict=True)
    )


def _listed(cards: Mapping[str, inventory.Card]) -> str:
    names = sorted(cards)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more
