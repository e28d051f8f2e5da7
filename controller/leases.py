"""Claim x RemoteLease x the pool's lease x time -> what to do next. The failure matrix as one function.

    a device of a claim with binding conditions    Intend -> Attach -> Move(Attached), Tell
                     past its deadline, or refused  Move(Failed), Tell, Detach
    an intent whose claim is gone or goes elsewhere Move(Releasing) -> Detach -> Forget
    a lease that nobody meant                       Detach, after a grace by the pool's clock

Level-based: each turn decides from what is there, so a crash between any two actions is only a repeat, and two
controllers that decide the same do the same (keys, preconditions). What must stay true: nothing is attached without an
intent; no intent is forgotten before the pool has said that its key is over; nothing needs the node or the claim to be
there to be given back.
"""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api import errors, lease, names, resource
from api import remote as kinds
from controller import remote
from kube import status

MARGIN_S = 60
"""So long before kube-scheduler's own deadline we give up: after it, it would take the same card again."""
BACK_OFF_S = 60
"""So long a card that could not be attached is left alone."""
GRACE_S = 30.0
"""So old a lease without an intent must be: the one who attached it may not have been seen yet."""
_ATTACHED = (names.ATTACHED, True, "Attached", "")
_ANSWERED = {names.ATTACHED, names.ATTACH_FAILED}
_HOLDING = (kinds.Phase.ATTACHING, kinds.Phase.ATTACHED, kinds.Phase.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known of one pool. `leases` by key, None until it was listed; `over`: keys that it has ended at our word;
    `refused`: what it will never attach, with its words; `meant`: keys of all pools' intents, as two may be one pool.
    """

    pool: str
    cluster_uid: str
    claims: tuple[remote.Claim, ...]
    intents: tuple[remote.Intent, ...]
    meant: frozenset[str]
    leases: Mapping[str, remote.Lease] | None
    nodes: Mapping[str, remote.Node]
    refused: Mapping[str, str]
    over: frozenset[str]
    binding_s: float
    now: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Intend:
    """Write a RemoteLease: from now on a card may be attached."""

    lease: kinds.RemoteLease


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    intent: remote.Intent
    within_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Write another phase, if the object is still as it was seen."""

    intent: remote.Intent
    status: kinds.LeaseStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Write the claim's status: all our entries of this pool."""

    claim: remote.Claim
    entries: tuple[status.DeviceStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """By id and token where they are known, else by key: then the key cannot begin any more either."""

    key: str
    lease_id: str = ""
    token: int = 0
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The pool has confirmed the end: the object may go."""

    intent: remote.Intent


Action = Intend | Attach | Move | Tell | Detach | Forget


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """A device of a claim that is ours to attach."""

    claim: remote.Claim
    result: resource.Result
    node: remote.Node
    key: str


def turn(scene: Scene) -> tuple[Action, ...]:
    """What to do now; all of it may be done side by side."""
    holds = {hold.key: hold for claim in scene.claims for hold in _holds(claim, scene)}
    by_node = {
        (claim.claim.uid, remote.place(result))
        for claim in scene.claims
        for result in claim.results(scene.pool)
        if not result.conditions
    }
    intents = {intent.spec.key: intent for intent in scene.intents}
    actions: list[Action] = []
    for key, hold in holds.items():
        actions += _forward(hold, intents.get(key), scene)
    for intent in scene.intents:
        if why := _stale(intent, holds, by_node, scene):
            actions += _backward(intent, why, scene)
        elif intent.status.phase is kinds.Phase.ATTACHED and intent.spec.key not in holds:  # the node's own
            actions += _watched(intent, scene)
    actions += _strays(holds, scene)
    actions += (tell for claim in scene.claims if (tell := _told(claim, intents, scene)) is not None)
    return tuple(actions)


def renewable(scene: Scene) -> tuple[remote.Lease, ...]:
    """The leases that the controller keeps alive: their node is well, whatever its driver does at the moment."""
    leases = scene.leases or {}
    return tuple(
        leases[intent.spec.key]
        for intent in scene.intents
        if intent.status.phase in (kinds.Phase.ATTACHING, kinds.Phase.ATTACHED)
        and intent.spec.key in leases
        and (node := scene.nodes.get(intent.spec.node.name)) is not None
        and node.ready
        and node.uid == intent.spec.node.uid
    )


def _holds(claim: remote.Claim, scene: Scene) -> Iterator[_Hold]:
    """Only what was allocated with conditions, and for a node that is there; the rest is the node driver's."""
    node = scene.nodes.get(claim.claim.node)
    if node is None or node.gone:
        return
    for result in claim.results(scene.pool):
        if names.ATTACHED in result.conditions:
            yield _Hold(claim=claim, result=result, node=node, key=_key(claim.claim, result, node, scene))


def _key(claim: resource.Claim, result: resource.Result, node: remote.Node, scene: Scene) -> str:
    return lease.key(
        cluster_uid=scene.cluster_uid,
        claim_uid=claim.uid,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        node_uid=node.uid,
        epoch=claim.allocated_at,
    )


def _forward(hold: _Hold, intent: remote.Intent | None, scene: Scene) -> Iterator[Action]:
    told = hold.claim.told.get(remote.place(hold.result))
    if intent is None:
        waits = hold.claim.claim.reserved_for and not (told and told.conditions.keys() & _ANSWERED)
        if waits or _live(hold.key, scene):  # one that lives without an intent is adopted
            yield Intend(lease=_intended(hold, scene))
    elif intent.deleting:
        return
    elif intent.status.phase is kinds.Phase.ATTACHING:
        yield from _attaching(hold, intent, (scene.leases or {}).get(hold.key), scene)
    elif intent.status.phase is kinds.Phase.ATTACHED:
        yield from _watched(intent, scene)
    elif intent.status.phase is kinds.Phase.FAILED:
        yield from _detached(intent, scene)


def _live(key: str, scene: Scene) -> bool:
    held = (scene.leases or {}).get(key)
    return held is not None and held.state in (lease.State.ATTACHING, lease.State.ATTACHED)


def _watched(intent: remote.Intent, scene: Scene) -> Iterator[Action]:
    """A session cannot be made again: what is lost stays lost, and the pod is told."""
    held = (scene.leases or {}).get(intent.spec.key)
    if scene.leases is not None and (held is None or held.state is not lease.State.ATTACHED):
        why = held.reason if held is not None and held.reason else "the pool has ended the lease"
        yield _move(intent, kinds.Phase.LOST, why, scene)


def _attaching(hold: _Hold, intent: remote.Intent, held: remote.Lease | None, scene: Scene) -> Iterator[Action]:
    left_s = _left_s(intent, hold.claim.claim, scene)
    if held is not None and held.state is lease.State.ATTACHED:
        yield _move(intent, kinds.Phase.ATTACHED, "", scene, held)
    elif held is not None and held.state is not lease.State.ATTACHING:
        yield _move(intent, kinds.Phase.FAILED, held.reason or f"the pool says {held.state.value}", scene, held)
    elif hold.key in scene.refused:
        yield _move(intent, kinds.Phase.FAILED, scene.refused[hold.key], scene)
    elif left_s <= 0:
        why = "the pool has not attached it in the time that kube-scheduler gives"
        yield _move(intent, kinds.Phase.FAILED, why, scene)
    elif held is None and scene.leases is not None:
        yield Attach(intent=intent, within_s=left_s)


def _left_s(intent: remote.Intent, claim: resource.Claim, scene: Scene) -> float:
    """Until we give up. Only differences of one clock count, for ours may be an hour off: from the allocation to the
    intent by those of the cluster, from then on by our own.
    """
    waited_s = _age_s(intent, scene)
    if claim.allocated_at and intent.created:
        before = datetime.datetime.fromisoformat(intent.created) - datetime.datetime.fromisoformat(claim.allocated_at)
        waited_s += max(before.total_seconds(), 0.0)
    return max(scene.binding_s - MARGIN_S, scene.binding_s / 2) - waited_s


def _stale(
    intent: remote.Intent,
    holds: Mapping[str, _Hold],
    by_node: set[tuple[resource.ClaimUID, remote.Place]],
    scene: Scene,
) -> str:
    """Why nobody needs it any more; empty where somebody does."""
    node = scene.nodes.get(intent.spec.node.name)
    if intent.deleting:
        return "its RemoteLease was deleted"
    if intent.status.phase is kinds.Phase.RELEASING:
        return intent.status.reason or "the node gave it back"
    if node is None or node.uid != intent.spec.node.uid:
        return f"node {intent.spec.node.name} is gone"
    if node.gone:
        return f"node {intent.spec.node.name} is out of service"
    if intent.spec.attached_by is kinds.AttachedBy.NODE:
        place = resource.ClaimUID(intent.spec.claim.uid), intent.place
        return "" if place in by_node else "its claim holds the card no more"
    return "" if intent.spec.key in holds else "its claim is gone, or was allocated anew"


def _backward(intent: remote.Intent, why: str, scene: Scene) -> Iterator[Action]:
    if intent.status.phase in _HOLDING:
        yield _move(intent, kinds.Phase.RELEASING, why, scene)
        return
    yield from _detached(intent, scene)
    rested = intent.status.phase is kinds.Phase.RELEASING or _age_s(intent, scene) >= BACK_OFF_S
    if _over(intent.spec.key, scene) and (rested or intent.deleting):
        yield Forget(intent=intent)


def _detached(intent: remote.Intent, scene: Scene) -> Iterator[Action]:
    """Asked even where no lease is listed: an Attach that is still under way must not begin any more."""
    key = intent.spec.key
    if scene.leases is None or _over(key, scene):
        return
    held = scene.leases.get(key)
    if held is None:
        yield Detach(key=key, reason=intent.status.reason)
    elif held.state is not lease.State.RELEASING:
        yield Detach(key=key, lease_id=held.id, token=held.token, reason=intent.status.reason)


def _over(key: str, scene: Scene) -> bool:
    held = (scene.leases or {}).get(key)
    return key in scene.over or (held is not None and held.state.ended)


def _strays(holds: Mapping[str, _Hold], scene: Scene) -> Iterator[Action]:
    """Leases that nobody means. One that is in a claim's way goes at once."""
    wanted = {hold.result.device for hold in holds.values()}
    for key, held in (scene.leases or {}).items():
        if key in scene.meant or key in holds or held.state.ended or held.state is lease.State.RELEASING:
            continue
        if held.age_s >= GRACE_S or (held.device in wanted and not held.by_node):
            yield Detach(key=key, lease_id=held.id, token=held.token, reason="no claim of this cluster holds it")


def _told(claim: remote.Claim, intents: Mapping[str, remote.Intent], scene: Scene) -> Tell | None:
    """The entries of the claim in this pool, if one of them says something new."""
    entries, news = [], False
    node = scene.nodes.get(claim.claim.node)
    for result in claim.results(scene.pool):
        if names.ATTACHED not in result.conditions:
            continue
        told = claim.told.get(remote.place(result))
        attached = told is not None and told.conditions.get(names.ATTACHED, False)
        if node is None or node.gone:
            gone = (names.ATTACH_FAILED, True, "NodeGone", f"node {claim.claim.node} is gone")
            words = _Words() if attached else _Words(conditions=(gone,))
        else:
            key = _key(claim.claim, result, node, scene)
            words = _words(intents.get(key), key, scene, attached=attached)
        if not words.conditions:
            continue
        entries.append(_entry(result, words, told, scene))
        news = news or told is None or _differs(told, words)
    return Tell(claim=claim, entries=tuple(entries)) if news else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Conditions as (type, status, reason, message), and the data of one device."""

    conditions: tuple[tuple[str, bool, str, str], ...] = ()
    data: remote.JSON | None = None
    lease_id: str = ""


def _words(intent: remote.Intent | None, key: str, scene: Scene, *, attached: bool) -> _Words:
    """An old failure never stands beside a success: kube-scheduler looks at failures first."""
    held = (scene.leases or {}).get(key)
    if intent is None:
        if not attached or scene.leases is None or held is not None:
            return _Words()
        return _Words(conditions=(_ATTACHED, (names.HEALTHY, False, "Lost", "its lease was given back")))
    match intent.status.phase:
        case kinds.Phase.FAILED:
            return _Words(conditions=((names.ATTACH_FAILED, True, "NotAttached", intent.status.reason),))
        case kinds.Phase.LOST:
            return _Words(conditions=(_ATTACHED, (names.HEALTHY, False, "Lost", intent.status.reason)))
        case kinds.Phase.ATTACHING | kinds.Phase.ATTACHED if held and held.state is lease.State.ATTACHED:
            conditions = (_ATTACHED, (names.HEALTHY, True, "Attached", ""))
            return _Words(conditions=conditions, data=held.data, lease_id=held.id)
        case _:
            return _Words()


def _differs(told: remote.Told, words: _Words) -> bool:
    said = {type_: truth for type_, truth, _, _ in words.conditions}
    return said != told.conditions or (words.data is not None and words.lease_id != told.lease_id)


def _entry(result: resource.Result, words: _Words, told: remote.Told | None, scene: Scene) -> status.DeviceStatus:
    now = resource.timestamp(scene.now)

    def since(type_: str, *, truth: bool) -> str:
        kept = told is not None and told.conditions.get(type_) is truth
        return (told.since.get(type_) if told is not None and kept else "") or now

    return status.DeviceStatus(
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        data=words.data,
        conditions=tuple(
            status.Condition(
                type=type_, status=truth, reason=reason, message=message[:1024], since=since(type_, truth=truth)
            )
            for type_, truth, reason, message in words.conditions
        ),
    )


def _intended(hold: _Hold, scene: Scene) -> kinds.RemoteLease:
    claim, result = hold.claim.claim, hold.result
    return kinds.RemoteLease(
        spec=kinds.LeaseSpec(
            pool=result.pool,
            device=result.device,
            key=hold.key,
            epoch=claim.allocated_at,
            share_id=result.share_id,
            protocol=_protocol(claim),
            claim=kinds.LeaseClaim(namespace=claim.namespace, name=claim.name, uid=claim.uid),
            node=kinds.LeaseNode(name=hold.node.name, uid=hold.node.uid),
            attached_by=kinds.AttachedBy.CONTROLLER,
        ),
        status=kinds.LeaseStatus(phase=kinds.Phase.ATTACHING, since=resource.timestamp(scene.now)),
    )


def _protocol(claim: resource.Claim) -> str:
    """A config that cannot be read is refused on the node, where its author sees why."""
    try:
        return kinds.protocol(claim)
    except errors.Invalid:
        return ""


def _move(intent: remote.Intent, phase: kinds.Phase, why: str, scene: Scene, held: remote.Lease | None = None) -> Move:
    now = kinds.LeaseStatus(
        phase=phase,
        since=resource.timestamp(scene.now),
        reason=why[:1024],
        lease_id=held.id if held else intent.status.lease_id,
        fencing_token=held.token if held else intent.status.fencing_token,
    )
    return Move(intent=intent, status=now)


def _age_s(intent: remote.Intent, scene: Scene) -> float:
    return (scene.now - datetime.datetime.fromisoformat(intent.status.since)).total_seconds()
