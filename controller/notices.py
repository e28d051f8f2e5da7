"""What is said to users where they look: on their pods and claims, as events.

    View + objects + what the allocator refuses + leases of remote cards + what was said before --> due --> Notices

What must stay true: an event says something new, or is an hour old; numbers that change in its text do not count as
new. Nothing is said of what passes by itself within seconds, and of what was there long before anybody watched only
what is wrong. Of a namespace's pods that wait, those that wait longest are told, so many and no more.
"""

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api import names, reasons, resource
from api import remote as kinds
from controller import remote
from view import join, objects, picture

_AGAIN_S = 3600.0
_PAUSE_S = 60.0
"""Between two events of one kind about one object."""
_NEWS_S = 300.0
"""A card that was got longer ago is no news."""
_SHOWN = 4
_WAITING = 64
"""Pods of a namespace that are told why they wait."""
_NO_NEWS = (names.RETAINED_TAINT, names.RELEASING_TAINT, names.BACK_OFF_TAINT, names.REMOTE_LOST_TAINT)
"""Taints that say nothing about a pod's own card, as it was released or is given back, or less than its lease does."""


_GRACES_S = {
    reasons.Event.WAITS: 10.0,
    reasons.Event.TAINTED: 10.0,
    reasons.Event.UNUSED: 300.0,
    reasons.Event.USER_GONE: 300.0,
    reasons.Event.CARD_GONE: 300.0,
}
"""So long a thing may pass by itself; what is not here is said at once."""
_WHY_NOT = frozenset({reasons.Event.REFUSED, reasons.Event.NEVER, reasons.Event.NOT_ATTACHED})
"""What answers why a pod has no card."""
_ENDED = frozenset({kinds.Phase.FAILED, kinds.Phase.RELEASING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """`stem`: the part of the text that makes it another one when it changes."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: reasons.Event
    message: str
    stem: str
    since: str
    normal: bool = False

    @property
    def key(self) -> tuple[str, reasons.Event]:
        return (self.uid, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said last of that kind about that object. `first`: when it was said first."""

    stem: str
    first: datetime.datetime
    at: datetime.datetime
    count: int = 1


Known = Mapping[tuple[str, reasons.Event], Said]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What others than the picture say: the allocator's refusals, leases of remote cards. `uids`: of all whom it concerns,
    of whom the first few are told.
    """

    notices: Sequence[Notice] = ()
    uids: frozenset[str] = frozenset()


_NONE = Answers()


def due(held: Iterable[Notice], seen: objects.Objects, said: Known, now: datetime.datetime) -> Iterator[Notice]:
    """What to say now of that which holds. Lazy."""
    if seen.slices.unknown or seen.claims.unknown or seen.pods.unknown:
        return
    for notice in held:
        age_s = _age_s(notice.since, now)
        if notice.normal and age_s > _NEWS_S:
            continue
        if age_s < _GRACES_S.get(notice.reason, 0.0):
            continue
        last = said.get(notice.key)
        quiet_s = _AGAIN_S if last and last.stem == notice.stem else _PAUSE_S
        if last and (notice.normal or (now - last.at).total_seconds() < quiet_s):
            continue
        yield notice


def wanted(
    view: join.View, seen: objects.Objects, now: datetime.datetime, answers: Answers = _NONE
) -> Iterator[Notice]:
    """All that holds now, whether it was said or not, but of what pods got only the news: the rest are as many as the
    cluster has pods. Why a pod has no card is said once, by who decides.
    """
    after = resource.timestamp(now - datetime.timedelta(seconds=_NEWS_S + 1))  # a second, for times without fractions
    answered = {notice.uid for notice in answers.notices if notice.reason in _WHY_NOT} | answers.uids
    yield from _of_got(view, seen, after)
    yield from _of_waiting(view.waiting, seen.pods.items, answered)
    yield from _of_tainted(view.cards)
    yield from _of_leaks(view.problems, seen.claims.items)
    yield from answers.notices


def of_leases(intents: Iterable[remote.Intent], seen: objects.Objects) -> Iterator[Notice]:
    """What claims with remote cards and their pods are told: that all are attached, which one is not and why, which is lost."""
    of_claim: dict[str, list[remote.Intent]] = {}
    for intent in intents:
        of_claim.setdefault(intent.spec.claim.uid, []).append(intent)
    if not of_claim:
        return
    users: dict[objects.Reference, list[objects.Pod]] = {}
    for pod in seen.pods.items:
        for claim_name in pod.claims:
            users.setdefault((pod.namespace, claim_name), []).append(pod)
    for claim in seen.claims.items:
        for reason, text, since in _told_of(of_claim.get(claim.uid, ())):
            about = [("ResourceClaim", claim.name, claim.uid)]
            about += [("Pod", pod.name, pod.uid) for pod in users.get((claim.namespace, claim.name), ())]
            for kind, name, uid in about:
                yield Notice(
                    kind=kind, namespace=claim.namespace, name=name, uid=uid, reason=reason, message=text, stem=text,
                    since=since, normal=reason is reasons.Event.ATTACHED,
                )  # fmt: skip


def _told_of(intents: Sequence[remote.Intent]) -> Iterator[tuple[reasons.Event, str, str]]:
    """(reason, text, since) of one claim's leases. A card that was not attached is not one of those that it has."""
    has = [intent for intent in intents if intent.status.phase not in _ENDED]
    if has and all(intent.status.phase is kinds.Phase.ATTACHED for intent in has):
        cards = ", ".join(f"{intent.spec.device} of pool {intent.spec.pool}" for intent in has)
        text = f"card {cards} is attached for node {has[0].spec.node.name}"
        yield reasons.Event.ATTACHED, text, max(intent.status.since for intent in has)
    for intent in intents:
        card, why = f"card {intent.spec.device} of pool {intent.spec.pool}", intent.status.reason
        if intent.status.phase is kinds.Phase.FAILED:
            yield reasons.Event.NOT_ATTACHED, f"{card} was not attached: {why}", intent.status.since
        elif intent.status.phase is kinds.Phase.LOST:
            text = f"{card} is lost: {why}; what computed on it has to start anew, no other card is put in its place"
            yield reasons.Event.LOST, text, intent.status.since


def _of_got(view: join.View, seen: objects.Objects, after: str) -> Iterator[Notice]:
    """Pods that have cards, the last of them since then."""
    since = {(claim.namespace, claim.name): claim.since for claim in seen.claims.items if claim.since >= after}
    if not since:
        return
    having = [pod for pod in seen.pods.items if any((pod.namespace, name) in since for name in pod.claims)]
    uids = {(pod.namespace, pod.name): pod.uid for pod in having}
    for pod in view.rows(having):
        if not pod.waiting and pod.cards and pod.node:
            text = f"has {_listed(pod.cards)}"
            got = max(since.get((pod.namespace, name), "") for name in pod.claims)
            yield _of_pod(pod, uids, reasons.Event.GOT, text, text, got, normal=True)


def _of_waiting(
    waiting: Sequence[picture.Pod], pods: Iterable[objects.Pod], answered: Collection[str]
) -> Iterator[Notice]:
    asked = {(pod.namespace, pod.name) for pod in waiting}
    uids = {ref: pod.uid for pod in pods if (ref := (pod.namespace, pod.name)) in asked} if asked else {}
    told: Counter[str] = Counter()
    for pod in sorted(waiting, key=lambda one: one.waits_since):
        if uids[pod.namespace, pod.name] in answered:
            continue
        told[pod.namespace] += 1
        if told[pod.namespace] <= _WAITING:
            yield _of_pod(pod, uids, reasons.Event.WAITS, pod.waiting, pod.waiting.partition(";")[0], pod.waits_since)


def _of_pod(
    pod: picture.Pod, uids: Mapping[objects.Reference, str], reason: reasons.Event, message: str, stem: str, since: str,
    *, normal: bool = False,
) -> Notice:  # fmt: skip
    return Notice(
        kind="Pod", namespace=pod.namespace, name=pod.name, uid=uids[pod.namespace, pod.name], reason=reason,
        message=message, stem=stem, since=since, normal=normal,
    )  # fmt: skip


def _of_tainted(cards: Iterable[picture.Card]) -> Iterator[Notice]:
    for card in cards:
        told = [one for one in card.taints if one.key not in _NO_NEWS]
        for taint in told[:1] if card.holders else ():
            text = f"its card {card.name} {card.where} is tainted {taint.key}{'=' if taint.value else ''}{taint.value}"
            for holder in card.holders:
                for pod in holder.pods:
                    yield Notice(
                        kind="Pod", namespace=holder.namespace, name=pod.name, uid=pod.uid, reason=reasons.Event.TAINTED,
                        message=text, stem=text, since=taint.since,
                    )  # fmt: skip


def _of_leaks(found: Iterable[picture.Problem], claims: Iterable[objects.Claim]) -> Iterator[Notice]:
    known = {reason.value: reason for reason in reasons.Event}
    told = [problem for problem in found if problem.kind in known and problem.about.startswith("claim ")]
    asked = {problem.about for problem in told}
    leaking = {about: claim for claim in claims if (about := f"claim {claim}") in asked} if asked else {}
    for problem in told:
        claim = leaking[problem.about]
        yield Notice(
            kind="ResourceClaim", namespace=claim.namespace, name=claim.name, uid=claim.uid,
            reason=known[problem.kind], message=f"{problem.message}: {problem.command}", stem=problem.message,
            since=problem.since,
        )  # fmt: skip


def _listed(cards: Iterable[picture.PodCard]) -> str:
    told = [_told(card) for card in cards if not card.observes]
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(told[:_SHOWN]) + more or "no card of its own: it observes"


def _told(card: picture.PodCard) -> str:
    part = [f"{card.amounts['cores']}% of its cores"] if "cores" in card.amounts else []
    if names.MEMORY in card.amounts:
        part.append(f"{card.amounts[names.MEMORY] // 2**20} MiB")
    return f"card {card.card} ({card.model or 'model unknown'}{': ' if part else ''}{', '.join(part)})"


def _age_s(since: str, now: datetime.datetime) -> float:
    """What has no time is old."""
    try:
        return (now - datetime.datetime.fromisoformat(since)).total_seconds()
    except ValueError:
        return _AGAIN_S
