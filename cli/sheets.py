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
_STATES = {state: Cell(text=state.value, colour=colour) for state, colour in _COLOURS.items()}
_PHASES = {"Attached": "green", "Attaching": "yellow", "Releasing": "yellow", "Lost": "red", "Failed": "red"}
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


def cards(found: Sequence[picture.Card], style: Style) -> Sheet:
    """Remote cards have a pool where others have a node; who uses them and by which lease are columns of theirs."""
    lent = any(card.remote for card in found)
    columns = (
        Column(title="PLACE" if lent else "NODE"),
        Column(title="CARD"),
        Column(title="MODEL", optional=True),
        Column(title="STATE"),
        Column(title="MEMORY", right=True, optional=True),
        Column(title="FREE", right=True),
        Column(title="CORES FREE", right=True, wide=True),
        Column(title="PODS"),
        *([Column(title="USED ON", wide=True), Column(title="LEASE", wide=True)] if lent else ()),
        Column(title="PCI", wide=True),
        Column(title="DRIVER", wide=True),
        Column(title="REASON", wide=True),
    )
    return Sheet(columns=columns, rows=[_card(card, style, lent=lent) for card in found])


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


def attachments(card: picture.Card, style: Style) -> Sheet:
    """By which leases a remote card is had."""
    columns = [Column(title=title) for title in ("LEASE", "PHASE", "CLAIM", "USED ON")]
    columns += [Column(title="SINCE", right=True), Column(title="RUNS OUT"), Column(title="REASON")]
    of = [(one.attachment, f"{one.namespace}/{one.claim}", one.node) for one in card.holders if one.attachment]
    rows = [
        (
            *(one.lease, one.phase, claim, node or tables.NONE, tables.age(one.since, style.now)),
            one.runs_out or tables.NONE,
            one.reason or tables.NONE,
        )
        for one, claim, node in (*of, *((one, tables.NONE, "") for one in card.ending))
    ]
    return Sheet(columns=columns, rows=rows)


def leases(found: Iterable[picture.Lease], style: Style) -> Sheet:
    """A lease whose claim holds the card no more is the one to look at."""
    columns = [Column(title=title) for title in ("POOL", "CARD", "NAMESPACE", "CLAIM", "PODS", "NODE", "PHASE", "HELD")]
    columns += [Column(title="SINCE", right=True), Column(title="AGE", right=True)]
    columns += [Column(title=title, wide=True) for title in ("LEASE", "ATTACHED BY", "RUNS OUT", "REASON")]
    rows = [
        (
            one.pool,
            style.card(one.device),
            one.namespace or tables.UNKNOWN,
            one.claim or tables.UNKNOWN,
            tables.listed(one.pods, _HOLDERS_SHOWN if style.brief else None),
            one.node,
            Cell(text=one.phase, colour=_PHASES.get(one.phase, "")),
            yes_no(one.held),
            tables.age(one.since, style.now),
            tables.age(one.created, style.now),
            one.name,
            one.attached_by or tables.UNKNOWN,
            one.runs_out or tables.NONE,
            one.reason or tables.NONE,
        )
        for one in found
    ]
    return Sheet(columns=columns, rows=rows)


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
        Column(title="REASON", wide=True),
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
        Column(title="POOL", wide=True),
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
            tables.listed(claim.pools),
        )
        for claim in found
    ]
    return Sheet(columns=columns, rows=rows)


def _card(card: picture.Card, style: Style, *, lent: bool) -> Row:
    using = [f"{holder.namespace}/{pod.name}" for holder in card.holders for pod in holder.pods] + [
        f"{holder.namespace}/{holder.claim} (claim, unused)" for holder in card.holders if not holder.pods
    ]
    cores = card.free.get("cores") if card.free is not None else None
    return (
        card.place,
        style.card(card.name),
        card.model or tables.UNKNOWN,
        _STATES[card.state],
        tables.size(card.capacity.get(names.MEMORY)),
        tables.UNKNOWN if card.free is None else tables.size(card.free.get(names.MEMORY)),
        tables.UNKNOWN if card.free is None else tables.NONE if cores is None else f"{cores}%",
        tables.listed(using, _HOLDERS_SHOWN if style.brief else None),
        *(_lent(card) if lent else ()),
        card.bus_id or tables.UNKNOWN,
        card.driver_version or tables.UNKNOWN,
        card.reason or tables.NONE,
    )


def _lent(card: picture.Card) -> tuple[str, str]:
    """The node that uses a remote card, and the phases of its leases."""
    if not card.remote:
        return "", ""
    phases = [
        *(one.attachment.phase if one.attachment else tables.UNKNOWN for one in card.holders),
        *(one.phase for one in card.ending),
    ]
    return tables.listed(holder.node or tables.UNKNOWN for holder in card.holders), tables.listed(phases)


def _pod(pod: picture.Pod, style: Style) -> Row:
    held = [card for card in pod.cards if not card.observes]
    return (
        *((pod.namespace,) if style.spaces else ()),
        pod.name,
        Cell(text=pod.phase, colour="yellow" if pod.waiting else ""),
        pod.node or tables.NONE,
        tables.listed(_pods_card(card, style) for card in pod.cards),
        tables.size(sum(card.amounts.get(names.MEMORY, 0) for card in held)) if held else tables.NONE,
        pod.workload_type or tables.NONE,
        tables.listed(pod.claims),
        pod.waiting or tables.NONE,
        tables.age(pod.created, style.now),
        pod.evidence or tables.NONE,
        pod.reason or tables.NONE,
    )


def _pods_card(card: picture.PodCard, style: Style) -> str:
    of = f" of {picture.POOL}{card.pool}" if card.remote else ""
    return style.card(card.card) + of + (" (observes)" if card.observes else "")


def _amounts(amounts: Mapping[str, int]) -> tuple[str, str]:
    cores = amounts.get("cores")
    return (tables.NONE if cores is None else f"{cores}%", _memory(amounts))


def _memory(amounts: Mapping[str, int]) -> str:
    return tables.size(amounts[names.MEMORY]) if names.MEMORY in amounts else tables.NONE


def yes_no(value: bool | None, yes: str = "yes", no: str = "no") -> Cell:  # noqa: FBT001  a value, not a switch
    if value is None:
        return Cell(text=tables.UNKNOWN, colour="magenta")
    return Cell(text=yes) if value else Cell(text=no, colour="red")


def _head(name: str) -> str:
    return name[: len(_PREFIX) + _DIGITS]


def _head_and_tail(name: str) -> str:
    return f"{_head(name)}..{name[-_TAIL:]}"
