"""The picture as the web page asks for it: first sums and one short row a node or remote pool, then each, a card, a pod,
a search.

    View + Scope --> JSON, bounded: every list says how many it left out

Numbers of one answer come from one View. A cell of the heat map is one letter: `totals.cells`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from api import names
from view import document, join, objects, picture, scope, totals, twice

JSON = dict[str, Any]
_NODES = 6000
_ROWS = 200
_FIRST = 50
_FOUND = 50
_FLAGS = {True: "y", False: "n", None: "?"}


def overview(view: join.View, seen: scope.Scope) -> JSON:
    """The first screen: small for 5,000 nodes, and nobody's names in it but those that may be seen."""
    waiting = list(scope.pods(view.waiting, seen))
    return {
        "total": document.plain(view.total),
        "models": document.plain(view.models),
        "classes": document.plain(view.classes),
        "namespaces": document.plain(scope.booked(view.namespaces, seen)),
        "workloadTypes": document.plain(view.workload_types),
        "nodes": _capped(_node_rows(view), _NODES),
        "pools": _capped(_pool_rows(view), _ROWS),
        "problems": problems(view, seen),
        "waiting": _capped([document.plain(one) for one in _oldest(waiting)[:_FIRST]], _FIRST, of=len(waiting)),
        "unknown": dict(view.unknown),
        "unreadable": list(view.unreadable[:_FIRST]),
    }


def problems(view: join.View, seen: scope.Scope, most: int = _FIRST) -> JSON:
    found = scope.problems(view.problems, seen)
    return _capped([document.plain(one) for one in found[:most]], most, of=len(found)) | {
        "hidden": len(view.problems) - len(found)
    }


def node(view: join.View, seen: scope.Scope, name: str) -> JSON | None:
    """Also one without cards, where a remote card is used."""
    found = next((one for one in view.nodes if one.name == name), None)
    lent = [one for one in view.cards if one.remote and any(holder.node == name for holder in one.holders)]
    if found is None and lent:
        found = picture.Node(name=name, models=(), tally=picture.Tally())
    if found is None:
        return None
    cards = [one for one in view.cards if one.node == name]
    return {
        "node": document.plain(found),
        "cards": _capped([_card(one, seen) for one in cards[:_ROWS]], _ROWS, of=len(cards)),
        "remote": _capped([_card(one, seen) for one in lent[:_ROWS]], _ROWS, of=len(lent)),
        "problems": _about(view, seen, {f"node {name}", f"pool {names.POOL_PREFIX}{name}"}),
    }


def pool(view: join.View, seen: scope.Scope, name: str) -> JSON | None:
    found = next((one for one in view.remote_pools if one.name == name), None)
    if found is None:
        return None
    cards = [one for one in view.cards if one.remote and one.pool == name]
    leases = scope.leases([one for one in view.leases if one.pool == name], seen)
    return {
        "pool": document.plain(found),
        "cards": _capped([_card(one, seen) for one in cards[:_ROWS]], _ROWS, of=len(cards)),
        "leases": _capped([document.plain(one) for one in leases[:_ROWS]], _ROWS, of=len(leases)),
        "problems": _about(view, seen, {f"pool {name}", *(f"lease {one.name}" for one in leases)}),
    }


def card(view: join.View, seen: scope.Scope, name: str) -> JSON | None:
    """By its name or its UUID; of several listings the one that stands for it elsewhere, too."""
    wanted = name.lower()
    listed = (one for one in view.cards if one.name == wanted or (one.uuid or "").lower() == wanted)
    found = next(iter(twice.by_name(listed).values()), None)
    if found is None:
        return None
    leases = [*(one.attachment for one in found.holders if one.attachment), *found.ending]
    about = {f"card {found.name}", *(f"lease {one.lease}" for one in leases)}
    return {"card": _card(found, seen), "problems": _about(view, seen, about)}


def pods(view: join.View, seen: scope.Scope, words: str = "") -> JSON:
    """Those that wait come first, the longest waiting before the others."""

    def asked(one: picture.Pod | objects.Pod) -> bool:
        return seen.sees(one.namespace) and _matches(words, one.namespace, one.name, one.node)

    waiting = _oldest([one for one in view.waiting if asked(one)])
    others = [one for one in view.listed if one.settled and asked(one)]
    shown = [*waiting[:_ROWS], *view.rows(others[: max(0, _ROWS - len(waiting))])]
    return _capped([document.plain(one) for one in shown], _ROWS, of=len(waiting) + len(others))


def pod(view: join.View, seen: scope.Scope, namespace: str, name: str) -> JSON | None:
    if not seen.sees(namespace):
        return None
    found = view.pod(namespace, name)
    if found is None:
        return None
    claims = [one for one in view.claims if one.namespace == namespace and one.name in found.claims]
    about = {f"pod {namespace}/{name}", *(f"claim {namespace}/{one.name}" for one in claims)}
    return {
        "pod": document.plain(found),
        "claims": [document.plain(one) for one in claims],
        "problems": _about(view, seen, about),
    }


def search(view: join.View, seen: scope.Scope, words: str) -> JSON:
    """Nodes, then remote pools, cards, pods and claims that have the words in a name."""
    found: list[JSON] = []
    kinds: Sequence[tuple[str, Iterable[Any], Callable[[Any], tuple[str, ...]]]] = (
        ("node", view.nodes, lambda one: (one.name,)),
        ("pool", view.remote_pools, lambda one: (one.name, one.endpoint)),
        ("card", view.cards, lambda one: (one.name, one.model or "", one.bus_id or "")),
        ("pod", (one for one in view.listed if seen.sees(one.namespace)), lambda one: (one.namespace, one.name)),
        ("claim", (one for one in view.claims if seen.sees(one.namespace)), lambda one: (one.namespace, one.name)),
    )
    total = 0
    for kind, items, texts in kinds:
        for one in items:
            if _matches(words, *texts(one)):
                total += 1
                if len(found) < _FOUND:
                    found.append(_hit(kind, one))
    return _capped(found, _FOUND, of=total)


def _card(found: picture.Card, seen: scope.Scope) -> JSON:
    shown = None if found.free is None else round(totals.booked(found), 4)
    plain: JSON = document.plain(scope.card(found, seen))
    return plain | {"booked": shown, "level": totals.level(found)}


def _node_rows(view: join.View) -> list[list[Any]]:
    """Name, a letter a card, `y`, `n` or `?` for the node being ready and its driver answering, its models by number."""
    number = {one.name: index for index, one in enumerate(view.models) if not one.remote}
    return [
        [
            one.name,
            view.cells.get(one.name, ""),
            _FLAGS[one.ready] + _FLAGS[one.driver],
            [number[name] for name in one.models],
        ]
        for one in view.nodes
    ]


def _pool_rows(view: join.View) -> list[list[Any]]:
    """Name, a letter a card, `y`, `n` or `?` for the pool being reachable, its models by number."""
    number = {one.name: index for index, one in enumerate(view.models) if one.remote}
    return [
        [
            one.name,
            view.cells.get(picture.POOL + one.name, ""),
            _FLAGS[one.reachable],
            [number[name] for name in one.models if name in number],
        ]
        for one in view.remote_pools
    ]


def _about(view: join.View, seen: scope.Scope, whom: set[str]) -> list[JSON]:
    return [document.plain(one) for one in scope.problems(view.problems, seen) if one.about in whom]


def _hit(kind: str, one: Any) -> JSON:
    namespace = getattr(one, "namespace", "")
    says = one.state if kind in ("card", "claim") else one.phase if kind == "pod" else ""
    at = (one.place if kind == "card" else getattr(one, "node", "")) or ", ".join(
        getattr(one, "cards", ()) if kind == "claim" else ()
    )
    pods_ = list(one.pods[:1]) if kind == "claim" else []
    return {"kind": kind, "namespace": namespace, "name": one.name, "state": str(says), "at": at, "pods": pods_}


def _oldest(found: list[picture.Pod]) -> list[picture.Pod]:
    return sorted(found, key=lambda one: (one.waits_since, one.namespace, one.name))


def _matches(words: str, *texts: str) -> bool:
    """Every word is somewhere in the texts."""
    text = " ".join(texts).lower()
    return all(word in text for word in words.lower().split())


def _capped(items: Sequence[Any], most: int, of: int | None = None) -> JSON:
    total = len(items) if of is None else of
    return {"items": list(items[:most]), "more": max(0, total - most)}
