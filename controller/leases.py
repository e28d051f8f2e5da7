"""Claim x RemoteLease x the pool's lease x time -> what to do next. The failure matrix as one function.

    a device of a claim with binding conditions    Intend -> Attach -> Move(Attached), Tell
                     past its deadline, or refused  Move(Failed), Tell, Detach
    an intent whose claim is gone or goes elsewhere Move(Releasing) -> Detach -> Forget
    attached, and the pool has told of no such lease Ask -> nothing, or Move(Lost)
    a lease that nobody meant                       Detach, after a grace by the pool's clock

Level-based: each turn decides from what is there, so a crash between any two actions is only a repeat, and two
controllers that decide the same do the same (keys, preconditions). What must stay true: nothing is attached without an
intent, nor for a node whose driver is known not to be ready; nothing is lost before the pool has said so; of what a node
has written nothing counts before a pod on it was seen to have the claim; no intent is forgotten before the pool has said
that its key is over; nothing needs the node or the claim to be there to be given back.
"""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api import errors, lease, names, resource
from api import remote as kinds
from controller import remote, telling
from kube import status

MARGIN_S = 60
"""So long before kube-scheduler's own deadline we give up: after it, it would take the same card again."""
BACK_OFF_S = 60
"""So long a card that could not be attached is left alone."""
UNSERVED_S = 30
"""So long a node's driver may be late: it may be about to start. Then the pod had better go elsewhere."""
GRACE_S = 30.0
"""So old a lease without an intent must be: the one who attached it may not have been seen yet."""
_ANSWERED = {names.ATTACHED, names.ATTACH_FAILED}
_HOLDING = (kinds.Phase.ATTACHING, kinds.Phase.ATTACHED, kinds.Phase.LOST)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Find out whether a pod on its node has the claim of an intent that a node has written."""

    intent: remote.Intent
    claim: resource.Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the pool for this lease: what it and the API server tell comes in any order."""

    intent: remote.Intent


Action = Intend | Attach | Move | Tell | Detach | Forget | Verify | Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """A device of a claim that is ours to attach."""

    claim: remote.Claim
    result: resource.Result
    node: remote.Node
    key: str


def turn(scene: remote.Scene) -> tuple[Action, ...]:
    """What to do now; all of it may be done side by side."""
    holds = {hold.key: hold for claim in scene.claims for hold in _holds(claim, scene)}
    by_node = {
        (claim.claim.uid, result.place): claim.claim
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
        elif _by_node(intent) and intent.spec.key not in scene.borne:  # until then it says nothing
            place = resource.ClaimUID(intent.spec.claim.uid), intent.place
            actions.append(Verify(intent=intent, claim=by_node[place]))
        elif intent.status.phase is kinds.Phase.ATTACHED and intent.spec.key not in holds:  # the node's own
            actions += _watched(intent, scene)
    actions += _strays(holds, scene)
    for claim in scene.claims:
        if entries := telling.entries(claim, intents, scene):
            actions.append(Tell(claim=claim, entries=entries))
    return tuple(actions)


def renewable(scene: remote.Scene) -> tuple[remote.Lease, ...]:
    """The leases that the controller keeps alive: their node is well, whatever its driver does at the moment."""
    leases = scene.leases or {}
    return tuple(
        leases[intent.spec.key]
        for intent in scene.intents
        if intent.status.phase in (kinds.Phase.ATTACHING, kinds.Phase.ATTACHED)
        and intent.spec.key in leases
        and not (_by_node(intent) and scene.borne.get(intent.spec.key, "unknown"))
        and (node := scene.nodes.get(intent.spec.node.name)) is not None
        and node.ready
        and node.uid == intent.spec.node.uid
    )


def tainting(scene: remote.Scene) -> tuple[remote.Intent, ...]:
    """The intents by which cards are tainted. Of what a node has written only what it may say of the card: that it gives
    back what the pool lends it, and whatever else once it is believed. The card may be free, or somebody else's. One that
    failed for want of a driver says nothing of the card: else a pod that waits there takes one after the other from all.
    """
    return tuple(
        intent
        for intent in scene.intents
        if (_says_so(intent, scene) if _by_node(intent) else not _wants_driver(intent) or _live(intent.spec.key, scene))
    )


def _wants_driver(intent: remote.Intent) -> bool:
    return intent.status.phase is kinds.Phase.FAILED and intent.status.reason == _unserved(intent.spec.node.name)


def _says_so(intent: remote.Intent, scene: remote.Scene) -> bool:
    if intent.status.phase is not kinds.Phase.RELEASING:
        return scene.borne.get(intent.spec.key) == ""
    held = (scene.leases or {}).get(intent.spec.key)
    return scene.leases is None or (held is not None and held.device == intent.spec.device)


def _by_node(intent: remote.Intent) -> bool:
    return intent.spec.attached_by is kinds.AttachedBy.NODE


def _holds(claim: remote.Claim, scene: remote.Scene) -> Iterator[_Hold]:
    """Only what was allocated with conditions, and for a node that is there; the rest is the node driver's."""
    node = scene.nodes.get(claim.claim.node)
    if node is None or node.gone:
        return
    for result in claim.results(scene.pool):
        if names.ATTACHED in result.conditions:
            yield _Hold(claim=claim, result=result, node=node, key=scene.key(claim.claim, result, node))


def _forward(hold: _Hold, intent: remote.Intent | None, scene: remote.Scene) -> Iterator[Action]:
    told = hold.claim.told.get(hold.result.place)
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


def _live(key: str, scene: remote.Scene) -> bool:
    held = (scene.leases or {}).get(key)
    return held is not None and held.state in (lease.State.ATTACHING, lease.State.ATTACHED)


def _watched(intent: remote.Intent, scene: remote.Scene) -> Iterator[Action]:
    """A session cannot be made again: what is lost stays lost, and the pod is told. So the pool is asked where it may not
    have told yet: a node that attaches has its answer before us.
    """
    held = (scene.leases or {}).get(intent.spec.key)
    if scene.leases is None or (held is not None and held.state is lease.State.ATTACHED):
        return
    if (held is None or held.state is lease.State.ATTACHING) and intent.spec.key not in scene.asked:
        yield Ask(intent=intent)
    else:
        why = held.reason if held is not None and held.reason else "the pool has ended the lease"
        yield _move(intent, kinds.Phase.LOST, why, scene)


def _attaching(hold: _Hold, intent: remote.Intent, held: remote.Lease | None, scene: remote.Scene) -> Iterator[Action]:
    waited_s = _waited_s(intent, hold.claim.claim, scene)
    left_s = max(scene.binding_s - MARGIN_S, scene.binding_s / 2) - waited_s
    unserved = scene.unserved.get(hold.node.name)
    late = unserved is not None and min(waited_s, (scene.now - unserved).total_seconds()) >= UNSERVED_S
    if held is not None and held.state is lease.State.ATTACHED:
        yield _move(intent, kinds.Phase.ATTACHED, "", scene, held)
    elif held is not None and held.state is not lease.State.ATTACHING:
        yield _move(intent, kinds.Phase.FAILED, held.reason or f"the pool says {held.state.value}", scene, held)
    elif hold.key in scene.refused:
        yield _move(intent, kinds.Phase.FAILED, scene.refused[hold.key], scene)
    elif held is None and unserved and scene.leases is not None and (late or left_s <= 0):
        yield _move(intent, kinds.Phase.FAILED, _unserved(hold.node.name), scene)
    elif left_s <= 0:
        why = "the pool has not attached it in the time that kube-scheduler gives"
        yield _move(intent, kinds.Phase.FAILED, why, scene)
    elif held is None and not unserved and scene.leases is not None:
        yield Attach(intent=intent, within_s=left_s)


def _unserved(node: str) -> str:
    look = f"kubectl get pods -A -l app.kubernetes.io/component=remote --field-selector spec.nodeName={node}"
    return f"the driver of remote cards is not ready on node {node}; look why: {look}"


def _waited_s(intent: remote.Intent, claim: resource.Claim, scene: remote.Scene) -> float:
    """Since the allocation. Only differences of one clock count, for ours may be an hour off: from the allocation to the
    intent by those of the cluster, from then on by our own.
    """
    waited_s = _age_s(intent, scene)
    if claim.allocated_at and intent.created:
        before = datetime.datetime.fromisoformat(intent.created) - datetime.datetime.fromisoformat(claim.allocated_at)
        waited_s += max(before.total_seconds(), 0.0)
    return waited_s


def _stale(
    intent: remote.Intent,
    holds: Mapping[str, _Hold],
    by_node: Mapping[tuple[resource.ClaimUID, remote.Place], resource.Claim],
    scene: remote.Scene,
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
    if _by_node(intent):
        place = resource.ClaimUID(intent.spec.claim.uid), intent.place
        return scene.borne.get(intent.spec.key, "") if place in by_node else "its claim holds the card no more"
    return "" if intent.spec.key in holds else "its claim is gone, or was allocated anew"


def _backward(intent: remote.Intent, why: str, scene: remote.Scene) -> Iterator[Action]:
    if intent.status.phase in _HOLDING:
        yield _move(intent, kinds.Phase.RELEASING, why, scene)
        return
    yield from _detached(intent, scene)
    rested = intent.status.phase is kinds.Phase.RELEASING or _age_s(intent, scene) >= BACK_OFF_S
    if _over(intent.spec.key, scene) and (rested or intent.deleting):
        yield Forget(intent=intent)


def _detached(intent: remote.Intent, scene: remote.Scene) -> Iterator[Action]:
    """Asked even where no lease is listed: an Attach that is still under way must not begin any more."""
    key = intent.spec.key
    if scene.leases is None or _over(key, scene):
        return
    held = scene.leases.get(key)
    if held is None:
        yield Detach(key=key, reason=intent.status.reason)
    elif held.state is not lease.State.RELEASING:
        yield Detach(key=key, lease_id=held.id, token=held.token, reason=intent.status.reason)


def _over(key: str, scene: remote.Scene) -> bool:
    held = (scene.leases or {}).get(key)
    return key in scene.over or (held is not None and held.state.ended)


def _strays(holds: Mapping[str, _Hold], scene: remote.Scene) -> Iterator[Action]:
    """Leases that nobody means. One that is in a claim's way goes at once."""
    wanted = {hold.result.device for hold in holds.values()}
    for key, held in (scene.leases or {}).items():
        if key in scene.meant or key in holds or held.state.ended or held.state is lease.State.RELEASING:
            continue
        if held.age_s >= GRACE_S or (held.device in wanted and not held.by_node):
            yield Detach(key=key, lease_id=held.id, token=held.token, reason="no claim of this cluster holds it")


def _intended(hold: _Hold, scene: remote.Scene) -> kinds.RemoteLease:
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


def _move(
    intent: remote.Intent, phase: kinds.Phase, why: str, scene: remote.Scene, held: remote.Lease | None = None
) -> Move:
    now = kinds.LeaseStatus(
        phase=phase,
        since=resource.timestamp(scene.now),
        reason=why[:1024],
        lease_id=held.id if held else intent.status.lease_id,
        fencing_token=held.token if held else intent.status.fencing_token,
    )
    return Move(intent=intent, status=now)


def _age_s(intent: remote.Intent, scene: remote.Scene) -> float:
    return (scene.now - datetime.datetime.fromisoformat(intent.status.since)).total_seconds()
