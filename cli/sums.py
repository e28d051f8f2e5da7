"""Rows that count cards, as tables: by node, model, remote pool, class, namespace."""

from collections.abc import Iterable

from cli import tables
from cli.sheets import Sheet, Style, yes_no
from cli.tables import Cell, Column, Row
from view import picture

_TALLY = [Column(title=title, right=True) for title in ("CARDS", "FREE", "PARTLY", "HELD", "BLOCKED", "UNKNOWN")] + [
    Column(title="MEMORY", right=True, optional=True),
    Column(title="MEMORY FREE", right=True, optional=True),
]


def nodes(found: Iterable[picture.Node]) -> Sheet:
    columns = [Column(title="NODE"), Column(title="READY"), Column(title="DRIVER"), *_TALLY, Column(title="MODELS")]
    rows = [
        (
            node.name,
            yes_no(node.ready),
            yes_no(node.driver, yes="ok", no="silent"),
            *_tally(node.tally),
            tables.listed(model or tables.UNKNOWN for model in node.models),
        )
        for node in found
    ]
    return Sheet(columns=columns, rows=rows)


def models(found: Iterable[picture.Model]) -> Sheet:
    columns = [Column(title="MODEL"), *_TALLY]
    rows = [
        ((model.name or tables.UNKNOWN) + (" (remote)" if model.remote else ""), *_tally(model.tally))
        for model in found
    ]
    return Sheet(columns=columns, rows=rows)


def pools(found: Iterable[picture.RemotePool], style: Style) -> Sheet:
    columns = [Column(title="POOL"), Column(title="REACHABLE"), *_TALLY, Column(title="LEASES", right=True)]
    columns += [Column(title="MODELS", optional=True), Column(title="AGE", right=True)]
    columns += [Column(title=title, wide=True) for title in ("ENDPOINT", "AGENT", "TAINTS", "REASON")]
    rows = [
        (
            pool.name,
            yes_no(pool.reachable),
            *_tally(pool.tally),
            tables.UNKNOWN if pool.leases is None else str(pool.leases),
            tables.listed(model or tables.UNKNOWN for model in pool.models),
            tables.age(pool.created, style.now),
            pool.endpoint or tables.UNKNOWN,
            pool.version or tables.UNKNOWN,
            tables.listed(f"{one.taint} on {one.cards}" for one in pool.troubles),
            pool.reason or tables.NONE,
        )
        for pool in found
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


def _tally(tally: picture.Tally) -> Row:
    counts = (tally.total, tally.free, tally.partly, tally.held, tally.blocked, tally.unknown)
    return (*map(str, counts), tables.size(tally.memory), tables.size(tally.memory_free))
