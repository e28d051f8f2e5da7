"""Sums over cards and claims: by model, node, namespace, workload type and class.

Cards are counted, never consumers: a card that five claims share is one card in every number, and so is a remote card that
two pools list (`twice`).
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from api import names
from view import objects, picture

_TENTHS = "abcdefghijk"
_COUNTED = (names.MEMORY, names.CORES)
_FIELDS = {state: state.value.lower() for state in picture.State}


def tally(cards: Iterable[picture.Card]) -> picture.Tally:
    counts = dict.fromkeys(_FIELDS.values(), 0)
    total = memory = free = 0
    known = True
    for card in cards:
        total += 1
        counts[_FIELDS[card.state]] += 1
        memory += card.capacity.get(names.MEMORY, 0)
        if card.free is None:
            known = False
        elif card.state in (picture.State.FREE, picture.State.PARTLY):
            free += card.free.get(names.MEMORY, 0)
    return picture.Tally(total=total, memory=memory, memory_free=free if known else None, **counts)


def together(one: picture.Tally, other: picture.Tally) -> picture.Tally:
    free = None if None in (one.memory_free, other.memory_free) else (one.memory_free or 0) + (other.memory_free or 0)
    counts = {name: getattr(one, name) + getattr(other, name) for name in ("total", "memory", *_FIELDS.values())}
    return picture.Tally(memory_free=free, **counts)


def supply(found: Iterable[picture.Model]) -> tuple[picture.Tally, picture.Tally]:
    """Cards of nodes, and of remote pools."""
    each = tuple(found)
    near, far = (
        functools.reduce(together, (one.tally for one in each if one.remote is remote), picture.Tally())
        for remote in (False, True)
    )
    return near, far


def models(cards: Iterable[picture.Card]) -> tuple[picture.Model, ...]:
    found: defaultdict[tuple[str, bool], list[picture.Card]] = defaultdict(list)
    for card in cards:
        found[card.model or "", card.remote].append(card)
    return tuple(
        picture.Model(name=name, tally=tally(members), remote=remote)
        for (name, remote), members in sorted(found.items(), key=lambda item: item[0])
    )


def nodes(
    cards: Iterable[picture.Card], known: objects.Part[objects.Node], drivers: objects.Part[objects.DriverPod]
) -> tuple[picture.Node, ...]:
    """The nodes that have cards, or a driver."""
    ready = {node.name: node.ready for node in known.items}
    answering: dict[str, bool] = {}
    for pod in drivers.items:
        answering[pod.node] = pod.ready or answering.get(pod.node, False)
    members: defaultdict[str, list[picture.Card]] = defaultdict(list)
    for card in cards:
        if not card.remote:
            members[card.node].append(card)
    return tuple(
        picture.Node(
            name=name,
            models=tuple(sorted({card.model or "" for card in members.get(name, ())})),
            tally=tally(members.get(name, ())),
            ready=None if known.unknown else ready.get(name, False),
            driver=None if drivers.unknown else answering.get(name, False),
        )
        for name in sorted(members.keys() | answering.keys())
    )


def namespaces(cards: Iterable[picture.Card]) -> tuple[picture.Booked, ...]:
    return _booked(cards, lambda holder: (holder.namespace,))


def workload_types(
    cards: Iterable[picture.Card], pods: objects.Part[objects.Pod], classes: objects.Part[objects.GPUClass]
) -> tuple[picture.Booked, ...]:
    """By the label of the pods; where they have none, by the class, if it is for one type alone. "" is for no type."""
    label, for_one = {pod.uid: pod.workload_type for pod in pods.items}, made_for(classes.items)
    return _booked(cards, lambda holder: types(holder, lambda uid: label.get(uid, ""), for_one))


def made_for(classes: Iterable[objects.GPUClass]) -> Mapping[str, str]:
    """Class -> the one workload type that it is for."""
    return {item.name: item.workload_types[0] for item in classes if len(item.workload_types) == 1}


def types(holder: picture.Holder, label: Callable[[str], str], for_one: Mapping[str, str]) -> tuple[str, ...]:
    told = {found for pod in holder.pods if (found := label(pod.uid))}
    return tuple(sorted(told)) or (for_one.get(holder.class_name, ""),)


def cells(cards: Iterable[picture.Card]) -> Mapping[str, str]:
    """Place -> a letter a card: how much of it is booked in tenths (a none, b to j some, k all), `T` held and tainted, `B`
    blocked, `U` unknown.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for card in cards:
        found[card.place].append(level(card))
    return {place: "".join(letters) for place, letters in found.items()}


def level(card: picture.Card) -> str:
    """The letter of a card."""
    match card.state:
        case picture.State.FREE:
            return _TENTHS[0]
        case picture.State.BLOCKED:
            return "B"
        case picture.State.UNKNOWN:
            return "U"
        case picture.State.HELD:
            return "T" if card.taints else _TENTHS[-1]
    return _TENTHS[min(9, max(1, int(booked(card) * 10)))]


def booked(card: picture.Card) -> float:
    """The share of the card that claims have: of its memory or its cores, whichever is more."""
    free = card.free or {}
    shares = [1 - free.get(name, 0) / card.capacity[name] for name in _COUNTED if card.capacity.get(name)]
    return max(shares, default=0.0)


def classes(
    cards: Iterable[picture.Card], claims: Iterable[objects.Claim], known: Iterable[objects.GPUClass]
) -> tuple[picture.Class, ...]:
    return classes_of(_booked(cards, lambda holder: (holder.class_name,)), claims, known)


def classes_of(
    found: Iterable[picture.Booked], claims: Iterable[objects.Claim], known: Iterable[objects.GPUClass]
) -> tuple[picture.Class, ...]:
    booked = {one.name: one for one in found}
    waiting: defaultdict[str, int] = defaultdict(int)
    for claim in [claim for claim in claims if not claim.allocated]:
        for name in {name for _, name in claim.classes}:
            waiting[name] += 1
    return tuple(
        _class(item, booked.get(item.name, picture.Booked(name=item.name)), waiting[item.name])
        for item in sorted(known, key=lambda item: item.name)
    )


def _class(item: objects.GPUClass, booked: picture.Booked, waiting: int) -> picture.Class:
    ready = next((found for found in item.conditions if found.type == names.READY), None)
    return picture.Class(
        name=item.name,
        backend=item.backend,
        workload_types=item.workload_types,
        ready=ready.status if ready else "",
        reason=ready.reason if ready else "the controller has not looked at it yet",
        matching=item.matching,
        created=item.created,
        booked=booked,
        waiting=waiting,
    )


def _booked(
    cards: Iterable[picture.Card], keys: Callable[[picture.Holder], Iterable[str]]
) -> tuple[picture.Booked, ...]:
    at: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    claims: defaultdict[str, set[str]] = defaultdict(set)
    pods: defaultdict[str, set[str]] = defaultdict(set)
    memory: defaultdict[str, int] = defaultdict(int)
    for card in cards:
        for holder in card.holders:
            for key in keys(holder):
                at[key].add(("" if card.remote else card.pool, card.name))
                claims[key].add(holder.uid)
                pods[key].update(pod.uid for pod in holder.pods)
                memory[key] += holder.amounts.get(names.MEMORY, 0)
    return tuple(
        picture.Booked(name=key, cards=len(at[key]), claims=len(claims[key]), pods=len(pods[key]), memory=memory[key])
        for key in sorted(at)
    )
