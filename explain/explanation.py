"""Why a pod or a claim has no cards yet: verdict, chain, funnel, nearest misses, what would change it.

    pod or claim + World + moment --> explain --> Explanation

Computed from objects alone; what the scheduler says is evidence, and never taken apart.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocation import nodes, requests
from api.reasons import Missing, Reason, Verdict
from explain import chain, funnel, places, reasons, world
from explain.reasons import Group

JSON = Mapping[str, Any]
RETRY_S = 360
"""kube-scheduler tries a pod again after five minutes at the latest, and backs off ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`verdict` in one sentence: `sentence`. `reason`: the first missing link, or what came closest to doing."""

    subject: str
    verdict: Verdict
    sentence: str
    reason: str = ""
    links: tuple[chain.Link, ...] = ()
    funnels: tuple[funnel.Funnel, ...] = ()
    changes: tuple[str, ...] = ()
    node: str = ""
    cards: tuple[str, ...] = ()
    evidence: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What the pod's own status says. `tried_s`: seconds since the scheduler's last attempt, None where nobody knows."""

    evidence: str = ""
    tried_s: float | None = None
    since: str = ""


def explain(item: JSON, now: world.World, waiting: Waiting | None = None) -> Explanation:
    """`item`: a Pod, a ResourceClaim or a ResourceClaimTemplate as the API has it."""
    waiting = waiting or Waiting()
    pod = item if item.get("kind", "Pod") == "Pod" and "containers" in item.get("spec", {}) else None
    of = chain.of_pod(pod, now) if pod is not None else chain.of_claim(item, now)
    if pod is not None and pod["spec"].get("nodeName"):
        where = pod["spec"]["nodeName"]
        return _told(of, Verdict.SETTLED, f"{_upper(of.subject)} is on node {where}.", now, waiting, node=where)
    if of.broken is not None:
        return _told(of, Verdict.NO, _broken(of, of.broken), now, waiting, reason=str(of.broken.missing))
    if hidden := _hidden(of, now):
        return _told(of, Verdict.UNKNOWN, f"Whether {of.subject} fits cannot be told: {hidden}.", now, waiting)
    if not of.wishes:
        text = f"All claims of {of.subject} have their cards; it waits for something else."
        return _told(of, Verdict.SETTLED, text, now, waiting)
    return _searched(pod, of, now, waiting)


def funnels_of(
    wishes: Sequence[requests.Wish], pod: JSON | None, of: chain.Chain, now: world.World
) -> tuple[tuple[tuple[funnel.Funnel, ...], ...], ...]:
    """By claim, request and option."""
    why = places.excluded(pod, of, now)
    return tuple(
        tuple(
            tuple(
                funnel.examine(option, now, why)
                for option in request.options
                if option.class_name in now.cluster.classes
            )
            for request in wish.requests
        )
        for wish in wishes
    )


def nearest(wishes: Sequence[requests.Wish], now: world.World, why: Callable[[nodes.Node], str]) -> tuple[Group, ...]:
    """Of claims that have no node: what came closest to doing, first, and what else rules cards out, by the same request.

    `why`: what keeps them off a node; empty where nothing does.
    """
    options = (option for wish in wishes for request in wish.requests for option in request.options)
    flat = [funnel.examine(option, now, why) for option in options if option.class_name in now.cluster.classes]
    first = _closest(flat, now)
    others = next((one.groups for one in flat if not one.candidates), flat[0].groups if flat else ())
    return (first, *(group for group in others if group is not first))


def _searched(pod: JSON | None, of: chain.Chain, now: world.World, waiting: Waiting) -> Explanation:
    funnels = funnels_of(of.wishes, pod, of, now)
    flat = tuple(option for claim in funnels for request in claim for option in request)
    why = places.excluded(pod, of, now)
    found = places.first(of.wishes, places.promising(funnels, now), now, why)
    every = any(one.every for one in flat)
    failing = sorted(now.cluster.nodes) if every else dict.fromkeys(name for one in flat for name in one.failing)
    stopped = found.stopped or places.stopped(of.wishes, failing, now, why)
    if found.node and not stopped:
        cards = tuple(pick.device.key[2] for picks in found.picks for pick in picks)
        verdict, sentence = _fits(of, found.node, now, waiting)
        return _told(of, verdict, sentence, now, waiting, node=found.node, cards=cards)
    fatal = stopped or next((option.fatal for option in flat if option.fatal), "")
    if fatal:
        text = f"{_upper(of.subject)} does not fit: {fatal}."
        return _told(of, Verdict.NO, text, now, waiting, funnels=flat, reason=Reason.UNJUDGED.value)
    if found.unsure:
        return _told(of, Verdict.UNKNOWN, f"Whether {of.subject} fits cannot be told: {found.unsure}.", now, waiting)
    closest = _closest(flat, now)
    text = f"{_upper(of.subject)} does not fit: {closest.text}."
    changes = tuple(dict.fromkeys(_changes(flat, closest, now)))
    return _told(of, Verdict.NO, text, now, waiting, funnels=flat, reason=closest.reason.value, changes=changes)


def _fits(of: chain.Chain, node: str, now: world.World, waiting: Waiting) -> tuple[Verdict, str]:
    if now.unknown.get("claims"):
        text = f"Whether {of.subject} fits cannot be told: node {node} looks free, and {now.unknown['claims']}."
        return Verdict.UNKNOWN, text
    options = (option for wish in of.wishes for request in wish.requests for option in request.options)
    who = "the controller" if any(chain.controlled(option, now) for option in options) else "the scheduler"
    if waiting.tried_s is not None and waiting.tried_s > RETRY_S:
        since = f" since {waiting.since}" if waiting.since else ""
        return Verdict.DISAGREES, f"{_upper(of.subject)} should fit, on node {node}; {who} disagrees{since}."
    return Verdict.NOW, f"{_upper(of.subject)} fits now, on node {node}; it waits for {who}'s next attempt."


def _closest(flat: Sequence[funnel.Funnel], now: world.World) -> Group:
    """What stands between the request that is worst off and its cards."""
    for option in flat:
        if not option.candidates:
            if not option.seen:
                text = "no card is published" if not now.unknown.get("slices") else now.unknown["slices"]
                return next(iter(option.groups), Group(reason=Reason.POOL, cards=0, text=text))
            return option.groups[0]
    worst = max(flat, key=lambda option: option.count - max(option.candidates.values()))
    node, most = max(worst.candidates.items(), key=lambda item: item[1])
    if most < worst.count:
        text = (
            f"request {worst.request} wants {worst.count} cards on one node; {node} has most, with {most} that would do"
        )
    else:
        text = "each request could be met, and no node can meet all of them together and their constraints"
    return Group(reason=Reason.TOGETHER, cards=sum(worst.candidates.values()), text=text)


def _changes(flat: Sequence[funnel.Funnel], closest: Group, now: world.World) -> list[str]:
    found = []
    for option in flat:
        for group in option.groups[:2] if not option.candidates else ():
            for example in group.examples[:1]:
                found += _change(group, example, now)
    if closest.reason is Reason.TOGETHER:
        found.append("ask for fewer cards at once, or free more of one node")
    return found


def _change(group: Group, example: reasons.Example, now: world.World) -> list[str]:
    match group.reason:
        case Reason.CAPACITY | Reason.HELD:
            key = next((key for key in now.holders if key[1:] == (example.pool, example.card)), None)
            held = [f"{namespace}/{name}" for namespace, name in now.holders.get(key, ())] if key else []
            ends = f"{example.where} is free when claim {' and '.join(held[:3])} ends" if held else ""
            return [ends] if ends else []
        case Reason.TAINT:
            return [f"{example.where} is tainted ({example.detail}); kubectl egpu card {example.card} says why"]
        case Reason.SIZE:
            return ["ask for less, or add larger cards"]
        case Reason.CLASS:
            return ["no card of the class is left to look at: kubectl egpu classes says which cards it takes"]
        case Reason.NODE:
            return [f"{example.where} would do, but {example.detail}"]
        case _:
            return []


def _broken(of: chain.Chain, link: chain.Link) -> str:
    match link.missing:
        case Missing.NO_CLAIM | Missing.UNTRANSLATED:
            return f"{_upper(of.subject)} gets no card: {link.note}."
        case _:
            return f"{_upper(of.subject)} cannot get its cards: {link.kind} {link.name}: {link.note}."


def _hidden(of: chain.Chain, now: world.World) -> str:
    """What has to be known for any answer, and is not."""
    for kind in ("slices", "device_classes"):
        if why := now.unknown.get(kind):
            return why
    if not of.wishes:
        return next((link.note for link in of.links if link.note and link.note == now.unknown.get("claims")), "")
    return ""


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _told(
    of: chain.Chain,
    verdict: Verdict,
    sentence: str,
    now: world.World,
    waiting: Waiting,
    *,
    reason: str = "",
    funnels: tuple[funnel.Funnel, ...] = (),
    changes: tuple[str, ...] = (),
    node: str = "",
    cards: tuple[str, ...] = (),
) -> Explanation:
    return Explanation(
        subject=of.subject,
        verdict=verdict,
        sentence=sentence,
        reason=reason,
        links=of.links,
        funnels=funnels,
        changes=changes,
        node=node,
        cards=cards,
        evidence=waiting.evidence,
        notes=(f"not looked at: {places.NOT_LOOKED_AT}", *now.notes),
    )
