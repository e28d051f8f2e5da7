"""Pages made of several tables: the whole cluster, and one card."""

from collections.abc import Iterator

from api import names
from cli import settings, sheets, sums, tables
from view import join, picture

_PROBLEMS_SHOWN = 20


def page(view: join.View, style: sheets.Style, output: settings.Output, *, wide: bool = False) -> str:
    """Sums first, then who has what, then what is wrong."""
    parts = [_headline(view, style)]
    if view.cards:
        parts.append(_table(sums.models(view.models), output))
    if view.remote_pools:
        parts.append(_table(sums.pools(view.remote_pools, style), output, wide=wide))
    if view.classes:
        parts.append(_table(sums.classes(view.classes, style), output, wide=wide))
    if view.namespaces:
        parts.append(_table(sums.booked("NAMESPACE", view.namespaces), output))
    if any(one.name for one in view.workload_types):
        parts.append(_table(sums.booked("WORKLOAD", view.workload_types), output))
    parts.append("".join(_problems(view.problems, style, output, all_=wide)))
    return "\n".join(parts)


def card(found: picture.Card, view: join.View, style: sheets.Style, output: settings.Output) -> str:
    facts = [
        ("Card", found.name),
        ("UUID", found.uuid or tables.UNKNOWN),
        ("Model", found.model or tables.UNKNOWN),
        *(() if found.remote else (("Node", found.node),)),
        ("Pool", found.pool + (" (remote)" if found.remote else "")),
        ("PCI", found.bus_id or tables.UNKNOWN),
        ("Driver", found.driver_version or tables.UNKNOWN),
        ("State", found.state.value + (f": {found.reason}" if found.reason else "")),
        *((name.capitalize(), _left(found, name)) for name in sorted(found.capacity)),
    ]
    text = "".join(f"{f'{name}:':10} {tables.clean(value)}\n" for name, value in facts)
    holders = _table(sheets.holders(found, style), output) if found.holders or found.observers else "Nobody holds it.\n"
    if found.state is picture.State.UNKNOWN and not found.holders:
        holders = "Who holds it is not known.\n"
    lent = bool(found.ending) or any(holder.attachment for holder in found.holders)
    leases = [_table(sheets.attachments(found, style), output)] if lent else []
    if found.remote and found.holders and "leases" in view.unknown:
        leases = [f"Its lease is not known: {tables.clean(view.unknown['leases'])}\n"]
    about = tuple(one for one in view.problems if one.about == f"card {found.name}")
    problems = ["".join(_problems(about, style, output, all_=True))] if about else []
    return "\n".join([text, holders, *leases, *problems])


def _headline(view: join.View, style: sheets.Style) -> str:
    when = f"as of {style.now.astimezone():%H:%M:%S}"
    total = view.total
    if total is None:
        return f"Cards are not known: {tables.clean(view.unknown['slices'])} ({when})\n"
    if not view.cards:
        return f"No node publishes a card: is the node driver installed, and does it see the cards? ({when})\n"
    counts = ((total.free, "free"), (total.partly, "partly held"), (total.held, "held"), (total.blocked, "blocked"))
    told = [f"{count} {word}" for count, word in (*counts, (total.unknown, "unknown")) if count]
    taken = total.held + total.partly
    bar = f"  {tables.bar(taken, total.total)}" if style.brief else ""
    nodes = sum(1 for node in view.nodes if node.tally.total)
    pools = sum(1 for pool in view.remote_pools if pool.tally.total)
    where = [_plural(nodes, "node")] if nodes or not pools else []
    where += [_plural(pools, "remote pool")] if pools else []
    return f"{_plural(total.total, 'card')} on {' and '.join(where)}: {', '.join(told)}{bar} ({when})\n"


def _problems(
    found: tuple[picture.Problem, ...], style: sheets.Style, output: settings.Output, *, all_: bool
) -> Iterator[str]:
    if not found:
        yield tables.painted("No problem found.", "green", on=output.colour) + "\n"
        return
    yield tables.painted(f"{_plural(len(found), 'problem')}:", "red", on=output.colour) + "\n"
    for one in found if all_ else found[:_PROBLEMS_SHOWN]:
        since = f" ({tables.age(one.since, style.now)})" if one.since else ""
        yield f"  {tables.clean(one.about)}: {tables.clean(one.message)}{since}\n"
        yield tables.painted(f"    {tables.clean(one.command)}", "dim", on=output.colour) + "\n"
    if len(found) > _PROBLEMS_SHOWN and not all_:
        yield f"  and {len(found) - _PROBLEMS_SHOWN} more: kubectl egpu status -o wide\n"


def _left(card: picture.Card, name: str) -> str:
    def text(amount: int) -> str:
        return tables.size(amount) if name == names.MEMORY else f"{amount}{'%' if name == 'cores' else ''}"

    left = tables.UNKNOWN if card.free is None else text(card.free.get(name, 0))
    return f"{left} free of {text(card.capacity[name])}"


def _table(sheet: sheets.Sheet, output: settings.Output, *, wide: bool = False) -> str:
    return tables.table(sheet.columns, sheet.rows, wide=wide, colour=output.colour, width=output.width)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
