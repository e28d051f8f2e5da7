"""How many cards there are for a class, or in words why there are none.

ClassSpec + Snapshot -> verdict -> the condition Matching, and the count in the class's status
"""

from collections.abc import Sequence

from api import names, v1alpha1
from api.reasons import Class
from controller import selection, snapshot

Verdict = tuple[str, str, str]
_NAMES_SHOWN = 5
_NO_TAINTS = (
    "; where the API server keeps no taints of cards (before Kubernetes 1.36), a node that is given to the controller "
    "publishes none"
)
_WHOLE = "; none of them can be shared, so each claim gets a whole card, as share.fallback says"


def verdict(spec: v1alpha1.ClassSpec, now: snapshot.Snapshot) -> tuple[int, Verdict]:
    """How many cards the class matches, and the condition's status, reason and message."""
    share, driver, given = selection.share(spec), selection.driver(spec), selection.given(spec)
    there = {card: number for card, number in now.cards.items() if card.driver == driver}
    if lacking := _no_share(spec, share, now):
        return 0, ("False", *lacking)
    found = selection.judged(spec.cards, there, share, driver=driver, given=given)
    if count := sum(found.matching.values()):
        limit = f"; at most, since the expression was not judged: {found.unsure}" if found.unsure else ""
        whole = "" if share is None or any(card.shareable for card in there) else _WHOLE
        return count, ("True", Class.FOUND.value, f"{count} matching{limit}{whole}")
    if not there:
        who = "no node publishes a card" if driver == names.LOCAL_DRIVER else "no RemotePool has a card"
        return 0, ("False", Class.NO_CARD.value, f"{who} of driver {driver}{_NO_TAINTS if given else ''}")
    others = selection.judged(spec.cards, there, share, driver=driver, given=not given).matching
    if driver == names.LOCAL_DRIVER and others:
        label = f"{names.ALLOCATED_BY_LABEL}={names.BY_CONTROLLER}"
        where = (
            f"and none is on a node that is given to the controller; label one {label}{_NO_TAINTS}"
            if given
            else f"and all are on nodes that are given to the controller by the label {label}; "
            "write allocation: {by: Controller} into the class, or take the label from a node"
        )
        return 0, ("False", Class.NO_CARD.value, f"{sum(others.values())} cards match, {where}")
    known = sorted({card.product_name for card in there if card.product_name})
    return 0, (
        "False",
        Class.NO_CARD.value,
        f"none of {sum(there.values())} cards matches; there are {_shown(known) or 'unnamed ones'}",
    )


def failing(spec: v1alpha1.ClassSpec, now: snapshot.Snapshot) -> str:
    """Why kube-scheduler would give up every pod of the class as soon as it looks at some card; empty where it would not."""
    found = selection.judged(
        spec.cards, now.cards, selection.share(spec), driver=selection.driver(spec), given=selection.given(spec)
    )
    if not found.failing:
        return ""
    models = sorted({card.product_name or "unnamed" for card in found.failing})
    return (
        f"cards.expression cannot be judged on {sum(found.failing.values())} cards ({_shown(models)}): {found.why}; "
        "kube-scheduler gives up a pod on all nodes when it meets such a card, so the text has to ask first whether an "
        'attribute is there: "x" in device.attributes["domain"] && ...'
    )


def _shown(models: Sequence[str]) -> str:
    return ", ".join(models[:_NAMES_SHOWN]) + (" and others" if len(models) > _NAMES_SHOWN else "")


def _no_share(spec: v1alpha1.ClassSpec, share: v1alpha1.Share | None, now: snapshot.Snapshot) -> tuple[str, str] | None:
    """Why the cards that are there give no shares of the class: reason and message."""
    cards = selection.judged(spec.cards, now.cards).matching
    if share is None or not cards:
        return None
    count = f"{sum(cards.values())} cards match"
    if share.fallback is v1alpha1.Fallback.NOTHING and not any(card.shareable for card in cards):
        return Class.NO_SHARES.value, (
            f"{count}, and none can be shared: their node drivers offer whole cards only, or the API server does not "
            "store that cards can be shared (Kubernetes 1.36, or the feature gate DRAConsumableCapacity before that)"
        )
    if not selection.judged(spec.cards, now.cards, share).matching:
        limits = [name for name in ("memory", "cores") if getattr(share, name) is v1alpha1.Enforcement.REQUIRED]
        ways = ", ".join(rung.value for rung in share.accept)
        return Class.NO_ENFORCEMENT.value, (
            f"{count}, and none can hold a share to its {' and '.join(limits)} by {ways}, which the class requires; "
            "their attributes memoryEnforcement and coresEnforcement tell what they can"
        )
    return None
