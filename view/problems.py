"""What is wrong, each with its age and the command that clears it or shows more.

Every finding comes from the objects themselves and goes when they no longer bear it out. Nothing is taken for gone
because it could not be read.
"""

import enum
from collections.abc import Iterator

from api import names
from view import cards, objects, picture, users

_DRIVER_LABELS = ",".join(f"{key}={value}" for key, value in names.DRIVER_PODS.items())
_DRIVER_PODS = f"kubectl get pods -A -l {_DRIVER_LABELS} -o wide"


class Kind(enum.StrEnum):
    UNUSED = "ClaimUnused"
    CARD_GONE = "CardGone"
    USER_GONE = "UserGone"
    OVERBOOKED = "Overbooked"
    TAINTED = "CardTainted"
    INCOMPLETE = "PoolIncomplete"
    SILENT = "DriverSilent"
    NODE_GONE = "NodeGone"
    CLASS_NOT_READY = "ClassNotReady"
    CLASS_EMPTY = "ClassMatchesNothing"
    PENDING = "PodPending"


def find(
    pools: tuple[cards.Pool, ...], known: users.Known, pods: tuple[picture.Pod, ...]
) -> tuple[picture.Problem, ...]:
    found = (
        *_of_claims(known),
        *_of_cards(known),
        *_of_pools(pools),
        *_of_nodes(pools, known.seen),
        *_of_classes(known.seen.classes),
        *_of_pods(pods),
    )
    order = list(Kind)
    return tuple(sorted(found, key=lambda one: (order.index(Kind(one.kind)), one.since, one.about)))


def _of_claims(known: users.Known) -> Iterator[picture.Problem]:
    alive = {pod.uid for pod in known.seen.pods.items}
    for claim in known.seen.claims.items:
        about, since = f"claim {claim}", claim.since or claim.created
        delete = f"kubectl delete resourceclaim {claim.name} -n {claim.namespace}"
        ours = ", ".join(result.device for result in claim.results)
        if claim.results and not claim.reserved_for and not claim.other_users:
            yield _problem(Kind.UNUSED, about, f"has {ours}, and nobody uses it", since, delete, claim.namespace)
        if known.seen.slices.whole:
            for result in claim.results:
                if (result.pool, result.device) not in known.cards:
                    yield _card_gone(claim, result, known, delete)
        if known.seen.pods.whole:
            for name, uid in claim.reserved_for:
                if uid not in alive:
                    message = f"is kept for pod {name}, which is gone"
                    yield _problem(Kind.USER_GONE, about, message, since, delete, claim.namespace)


def _card_gone(claim: objects.Claim, result: objects.Result, known: users.Known, delete: str) -> picture.Problem:
    """A card that is gone takes its pods with it; one whose driver is away for a while does not."""
    message = f"has card {result.device} of pool {result.pool}, which is no longer published"
    node = result.pool.removeprefix(names.POOL_PREFIX)
    drivers = known.seen.drivers
    if drivers.whole and not any(pod.ready for pod in drivers.items if pod.node == node):
        message, command = f"{message}: no driver answers on node {node}", _driver_pods(node)
    elif claim.reserved_for:
        command = f"kubectl delete pod {claim.reserved_for[0][0]} -n {claim.namespace}"
    else:
        command = delete
    since = claim.since or claim.created
    return _problem(Kind.CARD_GONE, f"claim {claim}", message, since, command, claim.namespace)


def _of_cards(known: users.Known) -> Iterator[picture.Problem]:
    for card in known.cards.values():
        look = f"kubectl egpu card {card.name}"
        for taint in card.taints:
            said = f"{taint.key}={taint.value}" if taint.value else taint.key
            if taint.key == names.UNBOOKED_TAINT:
                said = f"{said} ({taint.value} or more of its memory is used and not booked by any claim)"
            message = f"on node {card.node} is tainted {said}:{taint.effect}" + (
                f" while {len(card.holders)} claims hold it" if card.holders else ""
            )
            yield _problem(Kind.TAINTED, f"card {card.name}", message, taint.since, look)
        for name, total in card.capacity.items():
            taken = sum(holder.amounts.get(name, 0) for holder in card.holders)
            if taken > total:
                since = max(holder.since for holder in card.holders)
                message = f"on node {card.node} has {total} {name}, and its holders have {taken}"
                yield _problem(Kind.OVERBOOKED, f"card {card.name}", message, since, look)


def _of_pools(pools: tuple[cards.Pool, ...]) -> Iterator[picture.Problem]:
    for pool in pools:
        if words := pool.incomplete:
            since = max(item.created for item in pool.slices)
            message = f"{words}: the scheduler passes it over until it is whole"
            yield _problem(Kind.INCOMPLETE, f"pool {pool.name}", message, since, _driver_pods(pool.node))


def _of_nodes(pools: tuple[cards.Pool, ...], seen: objects.Objects) -> Iterator[picture.Problem]:
    """Cards that nobody answers for: pods go on being bound to them, and cannot start (KK#141912)."""
    ready = {node.name: node for node in seen.nodes.items}
    for pool in pools:
        if not pool.node or not any(item.devices for item in pool.slices):
            continue
        node = ready.get(pool.node)
        if node is None and seen.nodes.whole:
            created = max(item.created for item in pool.slices)
            command = f"kubectl delete resourceslices --field-selector spec.nodeName={pool.node}"
            yield _problem(
                Kind.NODE_GONE, f"node {pool.node}", "is gone, its cards are still published", created, command
            )
        drivers = [pod for pod in seen.drivers.items if pod.node == pool.node]
        if node and node.ready and seen.drivers.whole and not any(pod.ready for pod in drivers):
            said = "its pod is not ready" if drivers else "it has no pod there"
            since = max((pod.since for pod in drivers), default="")
            message = f"the driver does not answer ({said}), its cards are still published"
            yield _problem(Kind.SILENT, f"node {pool.node}", message, since, _driver_pods(pool.node))


def _of_classes(classes: objects.Part[objects.GPUClass]) -> Iterator[picture.Problem]:
    for item in classes.items:
        about, look = f"class {item.name}", f"kubectl describe elasticgpuclass {item.name}"
        for condition in item.conditions:
            if condition.status != "False":
                continue
            if condition.type == names.READY:
                message = f"is not ready: {condition.reason}: {condition.message}"
                yield _problem(Kind.CLASS_NOT_READY, about, message, condition.since, look)
            elif condition.type == names.MATCHING:
                yield _problem(Kind.CLASS_EMPTY, about, condition.message, condition.since, look)


def _of_pods(pods: tuple[picture.Pod, ...]) -> Iterator[picture.Problem]:
    for pod in pods:
        if pod.waiting:
            about, look = f"pod {pod.namespace}/{pod.name}", f"kubectl describe pod {pod.name} -n {pod.namespace}"
            yield _problem(Kind.PENDING, about, pod.waiting, pod.waits_since, look, pod.namespace)


def _driver_pods(node: str) -> str:
    return f"{_DRIVER_PODS} --field-selector spec.nodeName={node}"


def _problem(kind: Kind, about: str, message: str, since: str, command: str, namespace: str = "") -> picture.Problem:
    return picture.Problem(
        kind=kind.value, about=about, message=message, since=since, command=command, namespace=namespace
    )
