"""Cards of classes that say `reclaimPolicy: Retain`: one DeviceTaintRule a card keeps it back once it is released.

    cards with holders + rules as they are + classes that keep --> turn --> rules made or changed; deleted by admins alone

The rule is made while the card is held and names the claims, so that it outlives a restart between release and the next
look. A whole card's is in force at once, since nobody else can have that card anyhow: no claim comes between release
and taint. A shared card's has effect None until one of its claims has gone. Who deletes the rule frees the card; while
a claim of such a class holds it, the rule comes back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api import names, v1alpha1
from controller import snapshot
from view import objects, picture, twice

RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
_STOPS, _TELLS = "NoSchedule", "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """A rule for the card `of`."""

    of: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The rule of the card `of` brought to what is wanted: a merge patch with its version."""

    of: str
    rule: str
    body: dict[str, Any]


Write = Make | Change


def keeping(now: snapshot.Snapshot) -> dict[str, bool]:
    """DeviceClass -> whether its cards are given whole, of the classes that keep cards back."""
    return {
        item.name: item.spec.backend is v1alpha1.Backend.WHOLE
        for item in now.classes
        if item.spec is not None
        and item.spec.reclaim_policy is v1alpha1.ReclaimPolicy.RETAIN
        and (made := now.device_classes.get(item.name)) is not None
        and made.owner_uid == item.uid
    }


def turn(
    found: Iterable[picture.Card], rules: Iterable[objects.TaintRule], keeping: Mapping[str, bool]
) -> Iterator[Write]:
    """What to write; nothing where nothing changed."""
    by_name = {rule.name: rule for rule in rules}
    for card in twice.by_name(card for card in found if not card.remote).values():
        rule = by_name.get(f"{names.RETAINED_RULE}{card.name}")
        mine = [holder for holder in card.holders if holder.class_name in keeping]
        if rule is None:
            if mine:
                alone = any(keeping[holder.class_name] for holder in mine)
                yield Make(of=card.name, body=_body(card, _STOPS if alone else _TELLS, {one.uid for one in mine}))
            continue
        held = {holder.uid for holder in card.holders}
        released = not held.issuperset(rule.retained_for)
        stops = released or rule.taint.effect == _STOPS or any(keeping[holder.class_name] for holder in mine)
        claims = {*rule.retained_for} | (set() if released else {holder.uid for holder in mine})
        effect = _STOPS if stops else _TELLS
        if (effect, claims, card.pool) != (rule.taint.effect, {*rule.retained_for}, rule.pool):
            body = _body(card, effect, claims)
            body["metadata"]["resourceVersion"] = rule.version
            yield Change(of=card.name, rule=rule.name, body=body)


def _body(card: picture.Card, effect: str, claims: set[str]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": f"{names.RETAINED_RULE}{card.name}",
            "labels": {"app.kubernetes.io/managed-by": names.FIELD_MANAGER},
            "annotations": {names.RETAINED_FOR: ",".join(sorted(claims))},
        },
        "spec": {
            "deviceSelector": {"driver": names.LOCAL_DRIVER, "pool": card.pool, "device": card.name},
            "taint": {"key": names.RETAINED_TAINT, "effect": effect},
        },
    }
