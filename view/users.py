"""Pods and claims as the picture shows them, and why a pod does not run yet.

The reason follows the chain: template, claim, class, cards, node. The first missing link is the reason; what the
scheduler or the kubelet says is kept beside it as evidence, and never taken apart.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from api.reasons import Wait
from view import cards, objects, picture

Key = cards.Key
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What pods and claims are explained by.

    supply: cards of nodes and of remote pools, None where they could not be read. alive: uids of pods. drivers: by node. class_names: of the device classes; foreign: those that give no card of ours.
    """

    seen: objects.Objects
    claims: Mapping[objects.Reference, objects.Claim]
    cards: Mapping[Key, picture.Card]
    supply: tuple[picture.Tally, picture.Tally] | None
    alive: Collection[str]
    drivers: Mapping[str, Collection[objects.DriverPod]]
    class_names: frozenset[str]
    foreign: frozenset[str]

    @classmethod
    def of(
        cls,
        seen: objects.Objects,
        found: Mapping[Key, picture.Card],
        supply: tuple[picture.Tally, picture.Tally] | None,
    ) -> "Known":
        drivers: defaultdict[str, list[objects.DriverPod]] = defaultdict(list)
        for pod in seen.drivers.items:
            drivers[pod.node].append(pod)
        classes = seen.device_classes.items
        return cls(
            seen=seen,
            claims={(claim.namespace, claim.name): claim for claim in seen.claims.items},
            cards=found,
            supply=supply,
            alive={pod.uid for pod in seen.pods.items},
            drivers=drivers,
            class_names=frozenset(item.name for item in classes),
            foreign=frozenset(item.name for item in classes if not item.ours),
        )

    def concerns(self, claim: objects.Claim) -> bool:
        """It holds a card of ours, or waits for a class that gives cards of ours, or for one that does not exist."""
        if claim.allocated:
            return bool(claim.results)
        if self.seen.device_classes.unknown:
            return True
        return not claim.classes or any(name not in self.foreign for _, name in claim.classes)

    def answers(self, node: str) -> bool:
        """Whether a driver answers for the node's cards."""
        return any(pod.ready for pod in self.drivers.get(node, ()))


def listed(known: Known) -> tuple[objects.Pod, ...]:
    """The pods that `pods` has rows of, in its order; it looks at claims and classes alone."""
    found = (one for one in known.seen.pods.items if one.phase not in _OVER and _of(one, known) is not None)
    return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name)))


def pods(known: Known) -> tuple[picture.Pod, ...]:
    """Pods that have cards or wait for some, by namespace and name."""
    ordered = sorted(known.seen.pods.items, key=lambda pod: (pod.namespace, pod.name))
    return tuple(found for one in ordered if (found := pod(one, known)) is not None)


def pod(one: objects.Pod, known: Known) -> picture.Pod | None:
    """None for a pod that is over, and holds nothing any more, and for one that has other drivers' claims alone."""
    claims_ = None if one.phase in _OVER else _of(one, known)
    return None if claims_ is None else _pod(one, claims_, known)


def claims(known: Known) -> tuple[picture.Claim, ...]:
    found = sorted(known.seen.claims.items, key=lambda claim: (claim.namespace, claim.name))
    return tuple(_claim(claim, known) for claim in found if known.concerns(claim))


def _of(pod: objects.Pod, known: Known) -> tuple[objects.Claim, ...] | None:
    """The pod's claims that concern us; None where all of them are other drivers'."""
    found = [known.claims.get((pod.namespace, name)) for name in pod.claims if name]
    ours = tuple(claim for claim in found if claim is not None and known.concerns(claim))
    missing = len(found) < len(pod.claims) or None in found
    return ours if ours or missing else None


def _pod(pod: objects.Pod, claims_: tuple[objects.Claim, ...], known: Known) -> picture.Pod:
    reason, waiting = ("", "") if pod.settled else _waiting(pod, known)
    return picture.Pod(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        phase=pod.phase,
        workload_type=pod.workload_type,
        created=pod.created,
        claims=tuple(filter(None, pod.claims)),
        cards=tuple(_pod_cards(pod, claims_, known)),
        waiting=waiting,
        reason=reason,
        evidence=(pod.container_says if pod.node else pod.scheduler_says) if waiting else "",
        waits_since=pod.waits_since if waiting else "",
    )


def _pod_cards(pod: objects.Pod, claims_: Iterable[objects.Claim], known: Known) -> Iterator[picture.PodCard]:
    for claim in claims_:
        for result in claim.results:
            card = known.cards.get((result.pool, result.device))
            yield picture.PodCard(
                card=result.device,
                node="" if result.remote else card.node if card else result.pool,
                model=card.model if card else None,
                pool=result.pool,
                remote=result.remote,
                claim=claim.name,
                request=result.request,
                containers=cards.containers(pod, claim.name, result.request),
                amounts={} if result.admin else cards.amounts(result, card.capacity if card else {}),
                observes=result.admin,
            )


def _waiting(pod: objects.Pod, known: Known) -> tuple[str, str]:
    """The word and the sentence."""
    for word, name in zip(pod.words, pod.claims, strict=True):
        if missing := _missing(pod, word, name, known):
            return missing
    if pod.node:
        silent = _silent(pod.node, known)
        return (Wait.SILENT if silent else Wait.PREPARING), f"node {pod.node} is preparing it{silent}"
    found = [claim for name in pod.claims if (claim := known.claims.get((pod.namespace, name)))]
    unallocated = [claim for claim in found if not claim.allocated]
    if not unallocated:
        if awaited := _attaching(found):
            return Wait.ATTACHING, awaited
        return Wait.SETTLED, "its claims have their cards; it waits for something else"
    claim = unallocated[0]
    wanted = ", ".join(dict.fromkeys(name for _, name in claim.classes)) or "no class"
    return Wait.CARD, f"claim {claim.name} waits for a card of class {wanted}; {_supply(known.supply)}"


def _attaching(found: Iterable[objects.Claim]) -> str:
    """Before its remote cards are attached a pod is not bound."""
    told = (
        f"card {result.device} of pool {result.pool} {result.awaited}"
        for claim in found
        for result in claim.results
        if result.awaited
    )
    return next(told, "")


def _missing(pod: objects.Pod, word: str, name: str, known: Known) -> tuple[str, str] | None:
    """The first link that is not there."""
    if not name:
        template = dict(pod.templates).get(word, "")
        if template:
            return Wait.TEMPLATE, f"no claim was made from template {template} yet; does it exist?"
        return Wait.CLAIM, f"claim {word} is missing"
    claim = known.claims.get((pod.namespace, name))
    if claim is None:
        return (Wait.CLAIM, f"claim {name} does not exist") if known.seen.claims.whole else None
    if known.seen.device_classes.whole and not claim.allocated:
        gone = [class_ for _, class_ in claim.classes if class_ not in known.class_names]
        if gone and len(gone) == len(claim.classes):
            return Wait.CLASS, f"claim {name} asks for class {gone[0]}, which does not exist"
    return None


def _silent(node: str, known: Known) -> str:
    if known.seen.drivers.unknown or known.answers(node):
        return ""
    return ", and its driver does not answer"


def _supply(supply: tuple[picture.Tally, picture.Tally] | None) -> str:
    """Of nodes and of remote pools apart: not every class takes both."""
    if supply is None:
        return "which cards there are could not be read"
    near, far = supply
    told = f"of {near.total} cards {_states(near)}" if near.total else "no node publishes a card"
    return f"{told}; of {far.total} remote cards {_states(far)}" if far.total else told


def _states(total: picture.Tally) -> str:
    parts = [
        f"{count} {word}"
        for count, word in (
            (total.free, "free"),
            (total.partly, "partly held"),
            (total.held, "held"),
            (total.blocked, "blocked"),
            (total.unknown, "unknown"),
        )
        if count
    ]
    return ", ".join(parts)


def _claim(claim: objects.Claim, known: Known) -> picture.Claim:
    at = [known.cards.get((result.pool, result.device)) for result in claim.results]
    summed: defaultdict[str, int] = defaultdict(int)
    for result, card in zip(claim.results, at, strict=True):
        for name, amount in ({} if result.admin else cards.amounts(result, card.capacity if card else {})).items():
            summed[name] += amount
    used = bool(claim.reserved_for or claim.other_users)
    state = "InUse" if used else "Allocated" if claim.allocated else "Waiting"
    return picture.Claim(
        namespace=claim.namespace,
        name=claim.name,
        state="Deleting" if claim.deleting else state,
        classes=tuple(dict.fromkeys(name for _, name in claim.classes)),
        cards=tuple(result.device for result in claim.results),
        nodes=tuple(dict.fromkeys(_used_on(claim, at))),
        pools=tuple(dict.fromkeys(result.pool for result in claim.results if result.remote)),
        amounts=summed,
        pods=tuple(name for name, _ in claim.reserved_for),
        created=claim.created,
        since=claim.since,
    )


def _used_on(claim: objects.Claim, at: Iterable[picture.Card | None]) -> Iterator[str]:
    """Cards of nodes are used there; a remote one where the allocation says."""
    for card in at:
        if node := (claim.node if card.remote else card.node) if card else "":
            yield node
