"""`kubectl egpu cordon`, `uncordon` and `release`: a card that no new claim may get, by a DeviceTaintRule of its own.

    card's name --> the one card of that name --> a rule for its pool and device, made or deleted
                                              --> the rule by which the controller keeps back a released card, deleted

The rule is Kubernetes' own, so kube-scheduler heeds it and whoever lists rules sees it. What holds the card stays,
unless --evict: then its pods are deleted by Kubernetes.
"""

from typing import Any

from api import names
from cli import commands, queries, tables
from view import picture

_NAME = "cordon-"
TAINT = f"{names.LOCAL_DRIVER}/cordoned"
_NOT_SERVED = (
    "Error: this API server has no DeviceTaintRules (they come with Kubernetes 1.37), so a single card cannot be "
    "cordoned; kubectl cordon keeps new pods off the whole node\n"
)


def run(asked: commands.Asked) -> int:
    view = commands.view_of(asked, (*queries.slices(), queries.claims(), queries.rules()), asked.namespace)
    found = commands.matching(view, asked.name)
    if len(found) != 1:
        commands.warn(asked, view)
        asked.warnings.write(commands.not_one(found, asked.name))
        return commands.UNTOLD if "slices" in view.unknown else commands.MISSING
    card = found[0]
    match asked.command:
        case "uncordon":
            return _undo(asked, card, _NAME, "is not cordoned", "uncordoned")
        case "release":
            return _release(asked, card)
    return _cordon(asked, card)


def rule(card: picture.Card, *, evict: bool) -> dict[str, Any]:
    driver = names.REMOTE_DRIVER if card.remote else names.LOCAL_DRIVER
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": _NAME + card.name, "labels": {"app.kubernetes.io/managed-by": "kubectl-egpu"}},
        "spec": {
            "deviceSelector": {"driver": driver, "pool": card.pool, "device": card.name},
            "taint": {"key": TAINT, "effect": "NoExecute" if evict else "NoSchedule"},
        },
    }


def _cordon(asked: commands.Asked, card: picture.Card) -> int:
    (answer,) = asked.way.create((queries.rules().path, rule(card, evict=asked.evict)))
    if answer.reason == "AlreadyExists":
        asked.out.write(f"card/{card.name} already cordoned\n")
        return commands.FOUND
    if answer.reason:
        asked.warnings.write(_NOT_SERVED if answer.reason == "NotFound" else f"{tables.clean(answer.words)}\n")
        return commands.UNTOLD
    asked.out.write(f"card/{card.name} cordoned\n")
    if card.holders and not asked.evict and not asked.quiet:
        asked.warnings.write(f"{len(card.holders)} claims keep it; --evict ends their pods\n")
    return commands.FOUND


def _release(asked: commands.Asked, card: picture.Card) -> int:
    """A rule whose claims all hold the card keeps nothing back yet, and would come back."""
    if card.holders and not any(taint.key == names.RETAINED_TAINT for taint in card.taints):
        asked.out.write(f"card/{card.name} was not released by its claims yet\n")
        return commands.FOUND
    return _undo(asked, card, names.RETAINED_RULE, "is not kept back", "free again")


def _undo(asked: commands.Asked, card: picture.Card, prefix: str, is_not: str, done: str) -> int:
    answer = asked.way.delete(f"{queries.rules().path}/{prefix}{card.name}")
    if answer.reason and answer.reason != "NotFound":
        asked.warnings.write(f"{tables.clean(answer.words)}\n")
        return commands.UNTOLD
    asked.out.write(f"card/{card.name} {is_not if answer.reason else done}\n")
    return commands.FOUND
