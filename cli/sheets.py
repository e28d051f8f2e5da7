"""The picture's rows as tables: which columns, in which order, in which colour.

A value that is not known is `<unknown>`, and never 0; an empty one is `<none>`.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api import names
from cli import tables
from cli.tables import Cell, Column, Row
from view import picture

_HOLDERS_SHOWN = 3
_COLOURS = {
    picture.State.FREE: "green",
    picture.State.PARTLY: "yellow",
    picture.State.HELD: "blue",
    picture.State.BLOCKED: "red",
    picture.State.UNKNOWN: "magenta",
}
_PREFIX, _DIGITS, _TAIL = "gpu-", 8, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    columns: Sequence[Column]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """`brief`: for eyes on a terminal; else nothing is shortened. `spaces`: rows of more than one namespace."""

    now: datetime.datetime
    brief: bool = False
    spaces: bool = False
    names: Mapping[str, str]
    """Card -> how it is written."""

    def card(self, name: str) -> str:
        return self.names.get(name, name)


def short_names(cards: Iterable[picture.Card]) -> dict[str, str]:
    """gpu-8a1f6c52 where that tells it from all others, else gpu-8a1f6c52..d101, else in full. `card` takes each."""
    found = [card.name for card in cards]
    shown: dict[str, str] = {}
    for form in (_head, _head_and_tail):
        counts: dict[str, int] = {}
        for name in found:
            counts[form(name)] = counts.get(form(name), 0) + 1
        shown = {name: form(name) for name in found if counts[form(name)] == 1} | shown
    return shown


def cards(found: Iterable[picture.Card], style: Style) -> Sheet:
    columns = (
        Column(title="NODE"),
        Column(title="CARD"),
        Column(title="MODEL", optional=True),
        Column(title="STATE"),
        Column(title="MEMORY", right=True, optional=True),
        Column(title="FREE", right=True),
        Column(title="CORES FREE", right=True, wide=True),
        Column(title="PODS"),
        Column(title="PCI", wide=True),
        Column(title="DRIVER", wide=True),
        Column(title="REASON", wide=True),
    )
    return Sheet(columns=columns, rows=[_card(card, style) for card in found])


def holders(card: picture.Card, style: Style) -> Sheet:
    columns = [Column(title=title) for title in ("NAMESPACE", "POD", "CONTAINERS", "CLAIM", "REQUEST", "CLASS")]
    columns += [Column(title="CORES", right=True), Column(title="MEMORY", right=True)]
    columns += [Column(title="HELD BY"), Column(title="SINCE", right=True)]
    rows: list[Row] = []
    for holder in (*card.holders, *card.observers):
        for pod in holder.pods or (None,):
            inside = (
                tables.UNKNOWN
                if pod and pod.containers is None
                else tables.listed((pod.containers or ()) if pod else ())
            )
            observes = holder in card.observers
            amounts = ("observes", "") if observes else _amounts(holder.amounts)
            what = (holder.namespace, pod.name if pod else tables.NONE, inside, holder.claim, holder.request)
            since = tables.age(holder.since, style.now)
            rows.append((*what, holder.class_name or tables.NONE, *amounts, holder.enforcement or tables.NONE, since))
    return Sheet(columns=columns, rows=rows)


def nodes(found: Iterable[picture.Node]) -> Sheet:
    columns = [Column(title="NODE"), Column(title="READY"), Column(title="DRIVER"), *_TALLY, Column(title="MODELS")]
    rows = [
        (
            node.name,
            _yes_no(node.ready),
            _yes_no(node.driver, yes="ok", no="silent"),
            *_tally(node.tally),
            tables.listed(model or tables.UNKNOWN for model in node.models),
        )
        for node in found
    ]
    return Sheet(columns=columns, rows=rows)


def models(found: Iterable[picture.Model]) -> Sheet:
    columns = [Column(title="MODEL"), *_TALLY]
    return Sheet(columns=columns, rows=[(model.name or tables.UNKNOWN, *_tally(model.tally)) for model in found])


def pods(found: Iterable[picture.Pod], style: Style) -> Sheet:
    columns = [
        *([Column(title="NAMESPACE")] if style.spaces else ()),
        *(Column(title=title) for title in ("POD", "PHASE", "NODE", "CARDS")),
        Column(title="MEMORY", right=True),
        Column(title="WORKLOAD", optional=True),
        Column(title="CLAIMS", wide=True),
        Column(title="WAITS FOR", optional=True),
        Column(title="AGE", right=True),
        Column(title="SCHEDULER OR KUBELET", wide=True),
    ]
    return Sheet(columns=columns, rows=[_pod(pod, style) for pod in found])


def claims(found: Iterable[picture.Claim], style: Style) -> Sheet:
    columns = [
        *([Column(title="NAMESPACE")] if style.spaces else ()),
        *(Column(title=title) for title in ("CLAIM", "STATE", "CLASS", "CARDS")),
        Column(title="MEMORY", right=True),
        Column(title="NODE"),
        Column(title="PODS"),
        Column(title="AGE", right=True),
    ]
    rows = [
        (
            *((claim.namespace,) if style.spaces else ()),
            claim.name,
            Cell(text=claim.state, colour={"Waiting": "yellow", "Allocated": "red"}.get(claim.state, "")),
            tables.listed(claim.classes),
            tables.listed(map(style.card, claim.cards)),
            _memory(claim.amounts),
            tables.listed(claim.nodes),
            tables.listed(claim.pods, _HOLDERS_SHOWN if style.brief else None),
            tables.age(claim.created, style.now),
        )
        for claim in found
    ]
    return Sheet(columns=columns, rows=rows)


def classes(found: Iterable[picture.Class], style: Style) -> Sheet:
    columns = [Column(title="CLASS"), Column(title="BACKEND"), Column(title="WORKLOADS"), Column(title="READY")]
    columns += [Column(title=title, right=True) for title in ("MATCHING", "HELD", "CLAIMS", "WAITING")]
    columns += [Column(title="AGE", right=True), Column(title="REASON", wide=True)]
    rows = [
        (
            one.name,
            one.backend or tables.UNKNOWN,
            tables.listed(one.workload_types),
            Cell(text=one.ready or tables.UNKNOWN, colour="" if one.ready == "True" else "red"),
            tables.UNKNOWN if one.matching is None else str(one.matching),
            str(one.booked.cards),
            str(one.booked.claims),
            str(one.waiting),
            tables.age(one.created, style.now),
            one.reason,
        )
        for one in found
    ]
    return Sheet(columns=columns, rows=rows)


def booked(title: str, found: Iterable[picture.Booked]) -> Sheet:
    columns = [Column(title=title), *(Column(title=name, right=True) for name in ("CARDS", "CLAIMS", "PODS", "MEMORY"))]
    rows = [
        (one.name or tables.NONE, str(one.cards), str(one.claims), str(one.pods), tables.size(one.memory))
        for one in found
    ]
    return Sheet(columns=columns, rows=rows)


_TALLY = [Column(title=title, right=True) for title in ("CARDS", "FREE", "PARTLY", "HELD", "BLOCKED", "UNKNOWN")] + [
    Column(title="MEMORY", right=True, optional=True),
    Column(title="MEMORY FREE", right=True, optional=True),
]


def _tally(tally: picture.Tally) -> Row:
    counts = (tally.total, tally.free, tally.partly, tally.held, tally.blocked, tally.unknown)
    return (*map(str, counts), tables.size(tally.memory), tables.size(tally.memory_free))


def _card(card: picture.Card, style: Style) -> Row:
    using = [f"{holder.namespace}/{pod.name}" for holder in card.holders for pod in holder.pods] + [
        f"{holder.namespace}/{holder.claim} (claim, unused)" for holder in card.holders if not holder.pods
    ]
    cores = card.free.get("cores") if card.free is not None else None
    return (
        card.node,
        style.card(card.name),
        card.model or tables.UNKNOWN,
        Cell(text=card.state.value, colour=_COLOURS[card.state]),
        tables.size(card.capacity.get(names.MEMORY)),
        tables.UNKNOWN if card.free is None else tables.size(card.free.get(names.MEMORY)),
        tables.UNKNOWN if card.free is None else tables.NONE if cores is None else f"{cores}%",
        tables.listed(using, _HOLDERS_SHOWN if style.brief else None),
        card.bus_id or tables.UNKNOWN,
        card.driver_version or tables.UNKNOWN,
        card.reason or tables.NONE,
    )


def _pod(pod: picture.Pod, style: Style) -> Row:
    held = [card for card in pod.cards if not card.observes]
    return (
        *((pod.namespace,) if style.spaces else ()),
        pod.name,
        Cell(text=pod.phase, colour="yellow" if pod.waiting else ""),
        pod.node or tables.NONE,
        tables.listed(style.card(card.card) + (" (observes)" if card.observes else "") for card in pod.cards),
        tables.size(sum(card.amounts.get(names.MEMORY, 0) for card in held)) if held else tables.NONE,
        pod.workload_type or tables.NONE,
        tables.listed(pod.claims),
        pod.waiting or tables.NONE,
        tables.age(pod.created, style.now),
        pod.evidence or tables.NONE,
    )


def _amounts(amounts: Mapping[str, int]) -> tuple[str, str]:
    cores = amounts.get("cores")
    return (tables.NONE if cores is None else f"{cores}%", _memory(amounts))


def _memory(amounts: Mapping[str, int]) -> str:
    return tables.size(amounts[names.MEMORY]) if names.MEMORY in amounts else tables.NONE


def _yes_no(value: bool | None, yes: str = "yes", no: str = "no") -> Cell:  # noqa: FBT001  a value, not a switch
    if value is None:
        return Cell(text=tables.UNKNOWN, colour="magenta")
    return Cell(text=yes) if value else Cell(text=no, colour="red")


def _head(name: str) -> str:
    return name[: len(_PREFIX) + _DIGITS]


def _head_and_tail(name: str) -> str:
    return f"{_head(name)}..{name[-_TAIL:]}"
