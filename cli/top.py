"""`kubectl egpu top`: what is used of each card, and by each claim, beside what is booked.

    slices, claims, driver pods --> the series of those pods, by the API server's proxy --> two tables

Booked is from the API, used from the node drivers. Where a driver cannot be asked, used is unknown with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api import names
from cli import commands, gatherer, queries, sheets, tables, usage
from cli.tables import Cell, Column
from view import document, join, objects, picture

_AT_ONCE = 32
_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`used` and `cores_used` are None where `unknown` says why. `node`: or `pool/` and a remote pool."""

    node: str
    card: str
    model: str | None
    namespace: str
    claim: str
    pods: tuple[str, ...]
    size: int | None
    booked: int | None
    used: int | None
    cores_booked: int | None
    cores_used: float | None
    unknown: str = ""


def run(asked: commands.Asked) -> int:
    wanted = (*queries.slices(), queries.claims(), queries.drivers())
    seen = gatherer.gather(asked.way, wanted, asked.namespace)
    view = join.View(seen)
    cards = [card for card in view.cards if not asked.nodes or card.node in asked.nodes]
    nodes = {card.node for card in cards if not card.remote}
    pods = [pod for pod in seen.drivers.items if pod.node in nodes]
    if len(pods) > _MOST:
        asked.warnings.write(
            f"Error: {len(pods)} node drivers would have to be asked; name some by --node, up to {_MOST} at once, "
            "or ask your Prometheus for elasticgpu_card_memory_used_bytes\n"
        )
        return commands.UNTOLD
    used, silent = _asked(asked, pods)
    silent |= {node: _no_driver(seen.drivers) for node in nodes - {pod.node for pod in pods}}
    rows = list(_by_claim(cards, used, silent) if asked.name == "claims" else _by_card(cards, used, silent))
    if asked.form in ("json", "yaml"):
        commands.print_document(document.listing("Usage", rows, view), asked)
    elif asked.form == "name":
        asked.out.write("".join(f"card/{card.name}\n" for card in cards))
    elif rows:
        style = commands.style_of(asked, view)
        commands.print_sheet(_claims(rows, style) if asked.name == "claims" else _cards(rows, style), asked)
    commands.warn(asked, view)
    for text in [] if asked.quiet else _reasons(rows):
        asked.warnings.write(f"Warning: {tables.clean(text)}\n")
    unknown = "slices" in view.unknown
    if not rows and not unknown:
        asked.warnings.write(f"No {'claim holds a card' if asked.name == 'claims' else 'cards found'}.\n")
    return commands.UNTOLD if unknown else commands.FOUND


def _asked(asked: commands.Asked, pods: Sequence[objects.DriverPod]) -> tuple[usage.Used, dict[str, str]]:
    """What the drivers say, and node -> why one says nothing."""
    texts: list[str] = []
    silent: dict[str, str] = {}
    for start in range(0, len(pods), _AT_ONCE):
        batch = pods[start : start + _AT_ONCE]
        told = [pod for pod in batch if pod.ready and pod.port]
        silent |= {pod.node: "its driver is not ready" for pod in batch if pod not in told}
        for pod, answer in zip(told, asked.way.texts(queries.series(pod) for pod in told), strict=True):
            if answer.reason:
                silent[pod.node] = _refused(pod, answer.reason, answer.words)
            else:
                texts.append(answer.data)
    return usage.read(texts), silent


def _refused(pod: objects.DriverPod, reason: str, words: str) -> str:
    if reason == "Forbidden":
        return f"you may not get pods/proxy in namespace {pod.namespace}"
    return f"its driver could not be asked: {words}"


def _no_driver(drivers: objects.Part[objects.DriverPod]) -> str:
    return drivers.unknown or "no driver runs there"


def _by_card(cards: Iterable[picture.Card], used: usage.Used, silent: Mapping[str, str]) -> Iterator[Row]:
    for card in cards:
        found = used.cards.get(card.uuid or "")
        size, free = card.capacity.get(names.MEMORY), (card.free or {}).get(names.MEMORY)
        busy = [used.cores[share] for share in _shares(card) if share in used.cores]
        cores, left = card.capacity.get(names.CORES), (card.free or {}).get(names.CORES)
        yield Row(
            node=card.place,
            card=card.name,
            model=card.model,
            namespace="",
            claim="",
            pods=tuple(f"{holder.namespace}/{pod.name}" for holder in card.holders for pod in holder.pods),
            size=size,
            booked=None if size is None or free is None else size - free,
            used=found,
            cores_booked=None if cores is None or left is None else cores - left,
            cores_used=sum(busy) if busy else None,
            unknown="" if found is not None else _why(card, silent),
        )


def _by_claim(cards: Iterable[picture.Card], used: usage.Used, silent: Mapping[str, str]) -> Iterator[Row]:
    for card in cards:
        for holder in card.holders:
            share = (holder.uid, card.name, holder.request)
            yield Row(
                node=card.place,
                card=card.name,
                model=card.model,
                namespace=holder.namespace,
                claim=holder.claim,
                pods=tuple(pod.name for pod in holder.pods),
                size=card.capacity.get(names.MEMORY),
                booked=holder.amounts.get(names.MEMORY),
                used=used.memory.get(share),
                cores_booked=holder.amounts.get(names.CORES),
                cores_used=used.cores.get(share),
                unknown="" if share in used.memory else _why(card, silent),
            )


def _shares(card: picture.Card) -> Iterator[usage.Share]:
    return ((holder.uid, card.name, holder.request) for holder in card.holders)


def _why(card: picture.Card, silent: Mapping[str, str]) -> str:
    if card.remote:
        return "remote cards are not measured: their pool knows who has them, and not what of them is used"
    return silent.get(card.node) or "its driver does not tell of use there"


def _reasons(rows: Iterable[Row]) -> Iterator[str]:
    """Each reason once, with one node for which it holds."""
    nodes: dict[str, list[str]] = {}
    for row in rows:
        if row.unknown and row.node not in nodes.setdefault(row.unknown, []):
            nodes[row.unknown].append(row.node)
    for why, where in nodes.items():
        yield f"used is unknown on {tables.listed(where, 3)}: {why}"


def _cards(rows: Iterable[Row], style: sheets.Style) -> sheets.Sheet:
    columns = (
        *(Column(title=title) for title in ("NODE", "CARD")),
        Column(title="MODEL", optional=True),
        *(Column(title=title, right=True) for title in ("MEMORY", "BOOKED", "USED", "USED OF BOOKED")),
        *(Column(title=title, right=True, optional=True) for title in ("CORES BOOKED", "CORES USED")),
        Column(title="PODS", optional=True),
    )
    found = [
        (
            row.node,
            style.card(row.card),
            row.model or tables.UNKNOWN,
            *_amounts(row),
            *_cores(row),
            tables.listed(row.pods, 3 if style.brief else None),
        )
        for row in rows
    ]
    return sheets.Sheet(columns=columns, rows=found)


def _claims(rows: Iterable[Row], style: sheets.Style) -> sheets.Sheet:
    columns = (
        *(Column(title=title) for title in ("NAMESPACE", "CLAIM", "PODS")),
        *(Column(title=title, optional=True) for title in ("NODE", "CARD")),
        *(
            Column(title=title, right=True)
            for title in ("BOOKED", "USED", "USED OF BOOKED", "CORES BOOKED", "CORES USED")
        ),
    )
    found = [
        (
            row.namespace,
            row.claim,
            tables.listed(row.pods, 3 if style.brief else None),
            row.node,
            style.card(row.card),
            *_amounts(row)[1:],
            *_cores(row),
        )
        for row in rows
    ]
    return sheets.Sheet(columns=columns, rows=found)


def _amounts(row: Row) -> tuple[str | Cell, ...]:
    over = row.used is not None and row.booked is not None and row.used > row.booked
    part = (
        tables.UNKNOWN if row.used is None or row.booked is None else "over" if over else _percent(row.used, row.booked)
    )
    return (
        tables.size(row.size),
        tables.size(row.booked),
        Cell(text=tables.size(row.used), colour="red" if over else ""),
        Cell(text=part, colour="red" if over else ""),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole}%" if whole else tables.NONE


def _cores(row: Row) -> tuple[str, str]:
    booked = tables.UNKNOWN if row.cores_booked is None else f"{row.cores_booked}%"
    return booked, tables.UNKNOWN if row.cores_used is None else f"{row.cores_used:.0f}%"
