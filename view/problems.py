"""What is wrong, each with its age and the command that clears it or shows more.

Every finding comes from the objects themselves and goes when they no longer bear it out. Nothing is taken for gone
because it could not be read.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from api import names, reasons
from view import cards, lent, objects, picture, users

_DRIVER_LABELS = ",".join(f"{key}={value}" for key, value in names.DRIVER_PODS.items())
_DRIVER_PODS = f"kubectl get pods -A -l {_DRIVER_LABELS} -o wide"


_ORDER = {kind.value: place for place, kind in enumerate(reasons.Problem)}


_TOLD_BY_POOL = {
    names.UNREACHABLE_TAINT, names.DRAINING_TAINT, names.REMOTE_LOST_TAINT, names.RELEASING_TAINT, names.BACK_OFF_TAINT
}  # fmt: skip
"""Taints of remote cards that are one problem of their pool, or of a lease, and not one of each card."""


def find(
    pools: Iterable[cards.Pool],
    known: users.Known,
    pods: Iterable[picture.Pod],
    lenders: Iterable[picture.RemotePool],
    leases: Iterable[picture.Lease],
    twice: Mapping[tuple[str, str], int],
) -> tuple[picture.Problem, ...]:
    nodes = {node.name: node for node in known.seen.nodes.items}
    return ordered(
        itertools.chain(
            *(of_claim(claim, known) for claim in known.seen.claims.items),
            *map(of_card, known.cards.values()),
            *(of_pool(pool, nodes.get(pool.node), known) for pool in pools),
            of_classes(known.seen.classes),
            *map(of_pod, pods),
            *map(of_lender, lenders),
            *map(of_lease, leases),
            itertools.starmap(of_twice, twice.items()),
        )
    )


def ordered(found: Iterable[picture.Problem]) -> tuple[picture.Problem, ...]:
    return tuple(sorted(found, key=lambda one: (_ORDER[one.kind], one.since, one.about, one.message)))


def of_claim(claim: objects.Claim, known: users.Known) -> Iterator[picture.Problem]:
    about, since = f"claim {claim}", claim.since or claim.created
    delete = f"kubectl delete resourceclaim {claim.name} -n {claim.namespace}"
    if claim.results and not claim.reserved_for and not claim.other_users:
        message = f"has {', '.join(result.device for result in claim.results)}, and nobody uses it"
        yield _problem(reasons.Problem.UNUSED, about, message, since, delete, claim.namespace)
    if known.seen.slices.whole:
        for result in claim.results:
            if (result.pool, result.device) not in known.cards:
                yield _card_gone(claim, result, known, delete)
    if known.seen.pods.whole:
        for name, uid in claim.reserved_for:
            if uid not in known.alive:
                message = f"is kept for pod {name}, which is gone"
                yield _problem(reasons.Problem.USER_GONE, about, message, since, delete, claim.namespace)


def _card_gone(claim: objects.Claim, result: objects.Result, known: users.Known, delete: str) -> picture.Problem:
    """A card that is gone takes its pods with it; one whose driver is away for a while does not."""
    message = f"has card {result.device} of pool {result.pool}, which is no longer published"
    node = result.pool.removeprefix(names.POOL_PREFIX)
    if not result.remote and known.seen.drivers.whole and not known.answers(node):
        message, command = f"{message}: no driver answers on node {node}", _driver_pods(node)
    elif claim.reserved_for:
        command = f"kubectl delete pod {claim.reserved_for[0][0]} -n {claim.namespace}"
    else:
        command = delete
    since = claim.since or claim.created
    return _problem(reasons.Problem.CARD_GONE, f"claim {claim}", message, since, command, claim.namespace)


def of_card(card: picture.Card) -> Iterator[picture.Problem]:
    look = f"kubectl egpu card {card.name}"
    for taint in card.taints:
        if taint.key == names.RETAINED_TAINT:
            message = f"{card.where} was released, and is kept back until somebody frees it"
            command = f"kubectl egpu release {card.name}"
            yield _problem(reasons.Problem.RETAINED, f"card {card.name}", message, taint.since, command)
            continue
        if card.remote and taint.key in _TOLD_BY_POOL:
            continue
        said = f"{taint.key}={taint.value}" if taint.value else taint.key
        if taint.key == names.UNBOOKED_TAINT:
            said = f"{said} ({taint.value} or more of its memory is used and not booked by any claim)"
        message = f"{card.where} is tainted {said}:{taint.effect}" + (
            f" while {len(card.holders)} claims hold it" if card.holders else ""
        )
        yield _problem(reasons.Problem.TAINTED, f"card {card.name}", message, taint.since, look)
    for name, total in card.capacity.items() if card.holders else ():
        taken = sum(holder.amounts.get(name, 0) for holder in card.holders)
        if taken > total:
            since = max(holder.since for holder in card.holders)
            message = f"{card.where} has {total} {name}, and its holders have {taken}"
            yield _problem(reasons.Problem.OVERBOOKED, f"card {card.name}", message, since, look)


def of_pool(pool: cards.Pool, node: objects.Node | None, known: users.Known) -> Iterator[picture.Problem]:
    """Also of its node: cards that nobody answers for; pods go on being bound to them, and cannot start (KK#141912)."""
    created = max(item.created for item in pool.slices)
    if words := pool.incomplete:
        message = f"{words}: the scheduler passes it over until it is whole"
        command = f"kubectl describe remotepool {pool.name}" if pool.remote else _driver_pods(pool.node)
        yield _problem(reasons.Problem.INCOMPLETE, f"pool {pool.name}", message, created, command)
    if not pool.node or not any(item.devices for item in pool.slices):
        return
    if node is None and known.seen.nodes.whole:
        command = f"kubectl delete resourceslices --field-selector spec.nodeName={pool.node}"
        yield _problem(
            reasons.Problem.NODE_GONE, f"node {pool.node}", "is gone, its cards are still published", created, command
        )
    if node and node.ready and known.seen.drivers.whole and not known.answers(pool.node):
        drivers = known.drivers.get(pool.node, ())
        said = "its pod is not ready" if drivers else "it has no pod there"
        since = max((pod.since for pod in drivers), default="")
        message = f"the driver does not answer ({said}), its cards are still published"
        yield _problem(reasons.Problem.SILENT, f"node {pool.node}", message, since, _driver_pods(pool.node))


def of_classes(classes: objects.Part[objects.GPUClass]) -> Iterator[picture.Problem]:
    for item in classes.items:
        about, look = f"class {item.name}", f"kubectl describe elasticgpuclass {item.name}"
        for condition in item.conditions:
            if condition.status != "False":
                continue
            if condition.type == names.READY:
                message = f"is not ready: {condition.reason}: {condition.message}"
                yield _problem(reasons.Problem.CLASS_NOT_READY, about, message, condition.since, look)
            elif condition.type == names.MATCHING:
                message = f"{condition.reason}: {condition.message}"
                yield _problem(reasons.Problem.CLASS_EMPTY, about, message, condition.since, look)


def of_pod(pod: picture.Pod) -> Iterator[picture.Problem]:
    if pod.waiting:
        about, look = f"pod {pod.namespace}/{pod.name}", f"kubectl egpu explain pod/{pod.name} -n {pod.namespace}"
        yield _problem(reasons.Problem.PENDING, about, pod.waiting, pod.waits_since, look, pod.namespace)


def of_lender(pool: picture.RemotePool) -> Iterator[picture.Problem]:
    """What is wrong with all cards of a pool is one problem."""
    about, look = f"pool {pool.name}", f"kubectl describe remotepool {pool.name}"
    tainted = {trouble.taint: trouble for trouble in pool.troubles}
    if pool.reachable is False:
        cards_ = f"; nobody new gets its {pool.tally.total} cards" if pool.tally.total else ""
        message = f"does not answer{cards_}: {pool.reason}"
        yield _problem(reasons.Problem.UNREACHABLE, about, message, pool.since, look)
    elif pool.reachable is None and (found := tainted.get(names.UNREACHABLE_TAINT)):
        message = f"does not answer; nobody new gets {found.cards} of its {pool.tally.total} cards"
        yield _problem(reasons.Problem.UNREACHABLE, about, message, found.since, look)
    if pool.known is False:
        command = f"kubectl get resourceslices --field-selector spec.driver={names.REMOTE_DRIVER}"
        yield _problem(
            reasons.Problem.POOL_GONE, about, "has no RemotePool any more, its cards are still published", "", command
        )
    if found := tainted.get(names.DRAINING_TAINT):
        message = f"takes {found.cards} of its {pool.tally.total} cards out of use: nobody new gets them"
        yield _problem(reasons.Problem.DRAINING, about, message, found.since, "kubectl egpu cards --remote -o wide")
    if found := tainted.get(names.REMOTE_LOST_TAINT):
        message = f"has lost {found.cards} of its {pool.tally.total} cards: they are gone, unwell, or their server died"
        yield _problem(reasons.Problem.CARDS_LOST, about, message, found.since, "kubectl egpu cards --remote -o wide")


def of_twice(pools: tuple[str, str], count: int) -> picture.Problem:
    """Who gets such a card waits while it is lent by way of the other pool."""
    name, other = pools
    message = (
        f"lists {count} cards that pool {other} lists too: each counts once in all sums, and serves one claim at a time"
    )
    return _problem(reasons.Problem.TWICE, f"pool {name}", message, "", f"kubectl describe remotepool {name} {other}")


def of_lease(lease: picture.Lease) -> Iterator[picture.Problem]:
    about, claim = f"lease {lease.name}", f"claim {lease.namespace}/{lease.claim}"
    card, why = f"card {lease.device} of pool {lease.pool}", f": {lease.reason}" if lease.reason else ""
    delete = f"kubectl delete remotelease {lease.name}"
    if lease.phase == "Releasing":
        message = f"{card} is being given back by {claim}, and its pool has not confirmed it{why}"
        look = f"kubectl describe remotelease {lease.name}"
        yield _problem(reasons.Problem.RELEASING, about, message, lease.since, look, lease.namespace)
    elif lease.held is False and lease.phase not in lent.ENDING:
        message = f"{card} is kept for {claim}, which does not hold it"
        yield _problem(reasons.Problem.UNCLAIMED, about, message, lease.since, delete, lease.namespace)
    elif lease.phase == "Lost":
        message = f"{claim} has lost {card}, and what ran there{why}"
        command = f"kubectl delete pod {lease.pods[0]} -n {lease.namespace}" if lease.pods else delete
        yield _problem(reasons.Problem.LEASE_LOST, about, message, lease.since, command, lease.namespace)


def _driver_pods(node: str) -> str:
    return f"{_DRIVER_PODS} --field-selector spec.nodeName={node}"


def _problem(
    kind: reasons.Problem, about: str, message: str, since: str, command: str, namespace: str = ""
) -> picture.Problem:
    return picture.Problem(
        kind=kind.value, about=about, message=message, since=since, command=command, namespace=namespace
    )
