"""Which nodes a pod may be on, as far as its claims and its node selector say, and where all that it asks is to be had."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocation import nodes, requests, search
from api import errors
from explain import chain, funnel, world

JSON = Mapping[str, Any]
_TRIED = 100
"""Nodes on which a selector fails that are looked into: kube-scheduler looks at so many at least."""
NOT_LOOKED_AT = "CPU, memory, affinity, taints of nodes, volumes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`node` is empty where there is none. `stopped`: why the scheduler tries no other node; `unsure`: what was too hard."""

    node: str = ""
    picks: tuple[tuple[search.Pick, ...], ...] = ()
    stopped: str = ""
    unsure: str = ""


def excluded(pod: JSON | None, of: chain.Chain, now: world.World) -> Callable[[nodes.Node], str]:
    wanted = ((pod or {"spec": {}})["spec"].get("nodeSelector") or {}).items() if "nodes" not in now.unknown else ()

    def why(node: nodes.Node) -> str:
        if node.name in now.closed:
            return "the node takes no pods (cordoned)"
        for key, value in wanted:
            if node.labels.get(key) != value:
                return f"the pod's node selector wants {key}={value}"
        if of.places and not all(any(term.matches(node) for term in terms) for terms in of.places):
            return "another claim of the pod is bound to other nodes"
        return ""

    return why


def first(
    wishes: Sequence[requests.Wish],
    among: Sequence[str],
    now: world.World,
    excluded_: Callable[[nodes.Node], str],
) -> Found:
    """The first of these nodes that has devices for all wishes together."""
    unsure = ""
    for name in among:
        node = now.cluster.nodes[name]
        if excluded_(node):
            continue
        try:
            picks = now.cluster.search(node, wishes)
        except search.TooHard as error:
            unsure = str(error)
        except (errors.Invalid, errors.NotReady) as error:
            return Found(stopped=str(error))
        else:
            if picks is not None:
                return Found(node=name, picks=picks)
    return Found(unsure=unsure)


def stopped(
    wishes: Sequence[requests.Wish],
    failing: Iterable[str],
    now: world.World,
    excluded_: Callable[[nodes.Node], str],
) -> str:
    """Why the scheduler gives up on one of these nodes, and with it on all; empty where it does not come so far."""
    for name in itertools.islice(failing, _TRIED):
        if excluded_(now.cluster.nodes[name]):
            continue
        try:
            now.cluster.search(now.cluster.nodes[name], wishes)
        except search.TooHard:
            continue
        except (errors.Invalid, errors.NotReady) as error:
            return str(error)
    return ""


def promising(funnels: Sequence[Sequence[Sequence[funnel.Funnel]]], now: world.World) -> list[str]:
    """Nodes, by name, that have enough cards for each request, one by one; the others need no search."""
    names: set[str] | None = None
    for request in (request for claim in funnels for request in claim):
        if any(option.every for option in request):
            continue
        enough = {name for option in request for name, cards in option.candidates.items() if cards >= option.count}
        names = enough if names is None else names & enough
    return sorted(now.cluster.nodes if names is None else names)
