"""RemoteLease x the pool's lease -> what the claim's status says of its cards.

What must stay true: an old failure never stands beside a success, for kube-scheduler looks at failures first; what is told
already is not told again; nothing secret is in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from api import lease, names, resource
from api import remote as kinds
from api.reasons import Remote
from controller import remote
from kube import status

_ATTACHED = (names.ATTACHED, True, Remote.ATTACHED.value, "")


def entries(
    claim: remote.Claim, intents: Mapping[str, remote.Intent], scene: remote.Scene
) -> tuple[status.DeviceStatus, ...]:
    """Those of the claim in this pool, if one of them says something new."""
    found, news = [], False
    node = scene.nodes.get(claim.claim.node)
    for result in claim.results(scene.pool):
        if names.ATTACHED not in result.conditions:
            continue
        told = claim.told.get(result.place)
        attached = told is not None and told.conditions.get(names.ATTACHED, False)
        if node is None or node.gone:
            gone = (names.ATTACH_FAILED, True, Remote.NODE_GONE.value, f"node {claim.claim.node} is gone")
            words = _Words() if attached else _Words(conditions=(gone,))
        else:
            key = scene.key(claim.claim, result, node)
            words = _words(intents.get(key), key, scene, attached=attached)
        if not words.conditions:
            continue
        found.append(_entry(result, words, told, scene))
        news = news or told is None or _differs(told, words)
    return tuple(found) if news else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Conditions as (type, status, reason, message), and the data of one device."""

    conditions: tuple[tuple[str, bool, str, str], ...] = ()
    data: remote.JSON | None = None
    lease_id: str = ""


def _words(intent: remote.Intent | None, key: str, scene: remote.Scene, *, attached: bool) -> _Words:
    held = (scene.leases or {}).get(key)
    if intent is None:
        if not attached or scene.leases is None or held is not None:
            return _Words()
        return _Words(conditions=(_ATTACHED, (names.HEALTHY, False, Remote.LOST.value, "its lease was given back")))
    match intent.status.phase:
        case kinds.Phase.FAILED:
            return _Words(conditions=((names.ATTACH_FAILED, True, Remote.NOT_ATTACHED.value, intent.status.reason),))
        case kinds.Phase.LOST:
            return _Words(conditions=(_ATTACHED, (names.HEALTHY, False, Remote.LOST.value, intent.status.reason)))
        case kinds.Phase.ATTACHING | kinds.Phase.ATTACHED if held and held.state is lease.State.ATTACHED:
            conditions = (_ATTACHED, (names.HEALTHY, True, Remote.ATTACHED.value, ""))
            return _Words(conditions=conditions, data=held.data, lease_id=held.id)
        case _:
            return _Words()


def _differs(told: remote.Told, words: _Words) -> bool:
    said = {type_: truth for type_, truth, _, _ in words.conditions}
    return said != told.conditions or (words.data is not None and words.lease_id != told.lease_id)


def _entry(
    result: resource.Result, words: _Words, told: remote.Told | None, scene: remote.Scene
) -> status.DeviceStatus:
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
