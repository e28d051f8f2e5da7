"""How many cards there are for a class, or in words why there are none.

ClassSpec + Snapshot -> verdict -> the condition Matching, and the count in the class's status
"""

from api import names, v1alpha1
from controller import selection, snapshot

Verdict = tuple[str, str, str]
_NAMES_SHOWN = 5


def verdict(spec: v1alpha1.ClassSpec, now: snapshot.Snapshot) -> tuple[int, Verdict]:
    """How many cards the class matches, and the condition's status, reason and message."""
    share, driver = selection.share(spec), selection.driver(spec)
    there = {card: number for card, number in now.cards.items() if card.driver == driver}
    if lacking := _no_share(spec, share, now):
        return 0, ("False", *lacking)
    if count := sum(selection.matching(spec.cards, there, share, driver=driver).values()):
        limit = "; at most, since the expression is judged by kube-scheduler alone"
        return count, ("True", "CardsFound", f"{count} matching" + (limit if spec.cards.expression else ""))
    if not there:
        who = "no node publishes a card" if driver == names.LOCAL_DRIVER else "no RemotePool has a card"
        return 0, ("False", "NoMatchingCard", f"{who} of driver {driver}")
    known = sorted({card.product_name for card in there if card.product_name})
    shown = ", ".join(known[:_NAMES_SHOWN]) + (" and others" if len(known) > _NAMES_SHOWN else "")
    return 0, (
        "False",
        "NoMatchingCard",
        f"none of {sum(there.values())} cards matches; there are {shown or 'unnamed ones'}",
    )


def _no_share(spec: v1alpha1.ClassSpec, share: v1alpha1.Share | None, now: snapshot.Snapshot) -> tuple[str, str] | None:
    """Why the cards that are there give no shares of the class: reason and message."""
    cards = selection.matching(spec.cards, now.cards)
    if share is None or not cards:
        return None
    count = f"{sum(cards.values())} cards match"
    if not any(card.shareable for card in cards):
        return "NoShares", (
            f"{count}, and none can be shared: their node drivers offer whole cards only, or the API server does not "
            "store that cards can be shared (Kubernetes 1.36, or the feature gate DRAConsumableCapacity before that)"
        )
    if not selection.matching(spec.cards, now.cards, share):
        limits = [name for name in ("memory", "cores") if getattr(share, name) is v1alpha1.Enforcement.REQUIRED]
        ways = ", ".join(rung.value for rung in share.accept)
        return "NoEnforcement", (
            f"{count}, and none can hold a share to its {' and '.join(limits)} by {ways}, which the class requires; "
            "their attributes memoryEnforcement and coresEnforcement tell what they can"
        )
    return None
