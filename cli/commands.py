"""The subcommands: each asks for what it needs, and prints one picture of it.

    arguments --> queries --> gatherer --> view.join --> a sheet, or a document --> stdout
                                                    --> what could not be read  --> stderr

Exit codes: 0 answered; 1 what was asked for by name is not there; 2 it cannot be told.
"""

import dataclasses
import datetime
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import msgspec
from msgspec import structs

from api import errors
from cli import gatherer, kubectl, queries, settings, sheets, status, sums, tables, templates
from view import document, join, objects, picture, twice

FOUND, MISSING, UNTOLD = 0, 1, 2
_MANY = 1000
_EXPLAINED = 50
"""Pods whose waiting is looked into: each is a question to the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line, understood. `namespace` is empty where -n was not given."""

    command: str
    way: kubectl.Kubectl
    output: settings.Output
    now: datetime.datetime
    form: str = ""
    namespace: str = ""
    everywhere: bool = False
    labels: str = ""
    headers: bool = True
    quiet: bool = False
    name: str = ""
    nodes: Sequence[str] = ()
    evict: bool = False
    remote: bool = False
    size: templates.Size = field(default_factory=templates.Size)
    title: str = ""
    out: TextIO = sys.stdout
    warnings: TextIO = sys.stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """How a list is printed. `prefix`: what `-o name` puts before a name, as kubectl get takes it."""

    kind: str
    prefix: str
    rows: Callable[[join.View], Sequence[Any]]
    sheet: Callable[[Sequence[Any], sheets.Style], sheets.Sheet]


_LISTINGS: Mapping[str, _Listing] = {
    "cards": _Listing(kind="Card", prefix="card", rows=lambda view: view.cards, sheet=sheets.cards),
    "nodes": _Listing(kind="Node", prefix="node", rows=lambda view: view.nodes, sheet=lambda rows, _: sums.nodes(rows)),
    "pods": _Listing(kind="Pod", prefix="pod", rows=lambda view: view.pods, sheet=sheets.pods),
    "claims": _Listing(
        kind="Claim", prefix="resourceclaim.resource.k8s.io", rows=lambda view: view.claims, sheet=sheets.claims
    ),
    "pools": _Listing(
        kind="RemotePool", prefix="remotepool.elasticgpu.io", rows=lambda view: view.remote_pools, sheet=sums.pools
    ),
    "leases": _Listing(
        kind="Lease", prefix="remotelease.elasticgpu.io", rows=lambda view: view.leases, sheet=sheets.leases
    ),
    "classes": _Listing(
        kind="Class", prefix="elasticgpuclass.elasticgpu.io", rows=lambda view: view.classes, sheet=sums.classes
    ),
}


_BY_NODE: Mapping[str, Callable[[Any], str]] = {"cards": lambda row: row.node, "nodes": lambda row: row.name}
"""Where labels are those of nodes."""
_MAIN = {"nodes": "slices", "cards": "slices", "pools": "remote_pools"}
"""Without which list there is no answer, where it is not the one of the command's name."""
OF_LENDING = ("remote_pools", "leases")
"""What can be read or not without any card, holder or number being another."""


def run(asked: Asked) -> int:
    """Prints the answer and gives the exit code."""
    if asked.command == "status":
        return _status(asked)
    if asked.command == "card":
        return _card(asked)
    if asked.command == "claim":
        return _claim(asked)
    return _list(asked)


def version() -> str:
    """Of the installed plugin; empty for a run from the tree."""
    from importlib import metadata  # noqa: PLC0415  costs more than most answers

    try:
        return metadata.version("elastic-gpu")
    except metadata.PackageNotFoundError:
        return ""


def _list(asked: Asked) -> int:
    namespace = _namespace(asked) if asked.command in ("pods", "claims") else asked.namespace
    seen = gatherer.gather(asked.way, _wanted(asked, namespace), namespace)
    view = join.View(seen)
    listing = _LISTINGS[asked.command]
    rows = listing.rows(view)
    if asked.labels and asked.command in _BY_NODE:
        chosen = {node.name for node in seen.nodes.items}
        rows = [row for row in rows if _BY_NODE[asked.command](row) in chosen]
    if asked.remote:
        rows = [row for row in rows if row.remote]
    if asked.command == "leases" and asked.namespace:
        rows = [row for row in rows if row.namespace == asked.namespace]
    if asked.command == "pods":
        rows = _with_reasons(asked, rows)
    if asked.form in ("json", "yaml"):
        print_document(document.listing(listing.kind, rows, view), asked)
    elif asked.form == "name":
        asked.out.write("".join(f"{listing.prefix}/{row.name}\n" for row in rows))
    elif rows:
        style = style_of(asked, view, spaces=not namespace)
        print_sheet(listing.sheet(rows, style), asked)
    unknown = _MAIN.get(asked.command, asked.command) in view.unknown and not rows
    warn(asked, view)
    if not rows and not unknown:
        where = f" in {namespace} namespace" if namespace and asked.command in ("pods", "claims") else ""
        what = {"pools": "remote pools"}.get(asked.command, f"{'remote ' if asked.remote else ''}{asked.command}")
        asked.warnings.write(f"No {what} found{where}.\n")
    return UNTOLD if unknown else FOUND


def _with_reasons(asked: Asked, rows: Sequence[picture.Pod]) -> Sequence[picture.Pod]:
    """Pods that wait for a card say what rules which cards out, where that can be told. One whose remote card is being
    attached has it already.
    """
    pending = [pod for pod in rows if pod.waiting and not pod.node and not any(card.remote for card in pod.cards)]
    waiting = [(pod.namespace, pod.name) for pod in pending][:_EXPLAINED]
    if not waiting:
        return rows
    from cli import explaining  # noqa: PLC0415  for these alone

    told = explaining.pending(asked.way, asked.now, waiting)
    said = ((pod, told.get((pod.namespace, pod.name), (pod.waiting, pod.reason))) for pod in rows)
    return [structs.replace(pod, waiting=waiting, reason=reason) for pod, (waiting, reason) in said]


def _wanted(asked: Asked, namespace: str) -> tuple[queries.Query, ...]:
    claims = queries.claims()
    match asked.command:
        case "cards":
            chosen = (queries.nodes(asked.labels),) if asked.labels else ()
            leases = (queries.leases(),) if asked.remote or asked.form in ("wide", "json", "yaml") else ()
            return (*queries.slices(), claims, queries.rules(), *chosen, *leases)
        case "pools" | "leases":
            main = queries.leases if asked.command == "leases" else queries.remote_pools
            return (*queries.slices(), claims, queries.rules(), main(optional=False))
        case "nodes":
            return (*queries.slices(), claims, queries.nodes(asked.labels), queries.drivers(), queries.rules())
        case "pods":
            pods = queries.pods(namespace, asked.labels)
            return (*queries.slices(), claims, pods, queries.device_classes(), queries.drivers())
        case "claims":
            return (*queries.slices(), queries.claims(namespace, asked.labels), queries.device_classes())
        case _:
            return (*queries.slices(), claims, queries.classes(), queries.device_classes())


def _status(asked: Asked) -> int:
    lending = (queries.remote_pools(), queries.leases())
    lists = (queries.classes(), queries.device_classes(), queries.nodes(), queries.drivers(), *lending)
    wanted = (*queries.slices(), queries.claims(), queries.rules(), *lists, *queries.pods_for_status())
    view = view_of(asked, wanted, asked.namespace)
    if asked.form in ("json", "yaml"):
        parts = ("total", "models", "nodes", "classes", "namespaces", "workload_types", "problems")
        item = {name: document.plain(getattr(view, name)) for name in parts}
        item["remotePools"] = document.plain(view.remote_pools)
        print_document(document.single("Status", item, view), asked)
    else:
        asked.out.write(status.page(view, style_of(asked, view), asked.output, wide=asked.form == "wide"))
    warn(asked, view)
    return UNTOLD if "slices" in view.unknown else FOUND


def _card(asked: Asked) -> int:
    wanted = (*queries.slices(), queries.claims(), queries.rules(), queries.leases())
    view = view_of(asked, wanted, asked.namespace)
    found = list(twice.by_name(matching(view, asked.name)).values())
    if len(found) != 1:
        warn(asked, view)
        asked.warnings.write(not_one(found, asked.name))
        return UNTOLD if "slices" in view.unknown else MISSING
    spaces = sorted({holder.namespace for holder in (*found[0].holders, *found[0].observers)})
    if spaces:  # whose containers use it is told by the pods of these namespaces alone
        view = _with_pods(asked, wanted, spaces)
        again = twice.by_name(card for card in view.cards if card.name == found[0].name)
        found = list(again.values()) or found
    if asked.form in ("json", "yaml"):
        print_document(document.single("Card", found[0], view), asked)
    elif asked.form == "name":
        asked.out.write(f"{_LISTINGS['cards'].prefix}/{found[0].name}\n")
    else:
        asked.out.write(status.card(found[0], view, style_of(asked, view), asked.output))
    warn(asked, view)
    return FOUND


def _claim(asked: Asked) -> int:
    view = view_of(asked, (queries.classes(),), asked.namespace)
    if why := view.unknown.get("classes"):
        asked.warnings.write(f"Error: classes: {tables.clean(why)}\n")
        return UNTOLD
    try:
        of = templates.chosen(view.classes, asked.name)
    except errors.Invalid as error:
        asked.warnings.write(f"Error: {tables.clean(str(error))}\n")
        return MISSING
    title = asked.title or f"{of.name.partition('.')[0]}-card"
    made = templates.template(title, asked.namespace, of, asked.size)
    if of.ready != "True" and not asked.quiet:
        asked.warnings.write(f"Warning: class {of.name} is not ready: {tables.clean(of.reason)}\n")
    print_document(made, dataclasses.replace(asked, form="json" if asked.form == "json" else "yaml"))
    if asked.form != "json":
        asked.out.write(templates.usage(title))
    return FOUND


def _with_pods(asked: Asked, wanted: Sequence[queries.Query], spaces: Sequence[str]) -> join.View:
    pods = queries.pods(spaces[0]) if len(spaces) == 1 else queries.pods()
    return view_of(asked, (*wanted, pods), asked.namespace)


def matching(view: join.View, name: str) -> list[picture.Card]:
    return [card for card in view.cards if _named(card, name)]


def _named(card: picture.Card, name: str) -> bool:
    """By its name, its UUID, or what tables on a terminal show of it."""
    wanted = name.lower().removeprefix("gpu-")
    head, dots, tail = wanted.partition("..")
    own = card.name.removeprefix("gpu-")
    return own.startswith(head) and (not dots or own.endswith(tail))


def not_one(found: Iterable[picture.Card], name: str) -> str:
    names = [card.name for card in found]
    if not names:
        return f'Error: card "{tables.clean(name)}" not found; kubectl egpu cards lists them all\n'
    return f'Error: "{tables.clean(name)}" is the beginning of {len(names)} cards: {tables.listed(names, 5)}\n'


def _namespace(asked: Asked) -> str:
    """Empty for all of them."""
    return "" if asked.everywhere else asked.namespace or asked.way.namespace()


def view_of(asked: Asked, wanted: Sequence[queries.Query], namespace: str) -> join.View:
    return join.View(gatherer.gather(asked.way, wanted, namespace))


def style_of(asked: Asked, view: join.View, *, spaces: bool = True) -> sheets.Style:
    brief = asked.output.terminal and asked.form != "wide"
    names = sheets.short_names(view.cards) if brief else {}
    return sheets.Style(now=asked.now, brief=brief, spaces=spaces, names=names)


def print_sheet(sheet: sheets.Sheet, asked: Asked) -> None:
    asked.out.write(
        tables.table(
            sheet.columns,
            sheet.rows,
            wide=asked.form == "wide",
            headers=asked.headers,
            colour=asked.output.colour,
            width=asked.output.width,
        )
    )


def print_document(content: dict[str, Any], asked: Asked) -> None:
    if asked.form == "json":
        asked.out.write(_json(content) + "\n")
        return
    import yaml  # noqa: PLC0415  for this form alone

    asked.out.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _json(content: dict[str, Any]) -> str:
    if len(content.get("items", ())) < _MANY:
        return json.dumps(content, indent=4)
    return msgspec.json.format(msgspec.json.encode(content), indent=4).decode()


def _lends(asked: Asked, view: join.View) -> bool:
    """Whom a cluster without remote cards shows none, need not hear that leases are not theirs to see."""
    return asked.command in ("pools", "leases") or any(card.remote for card in view.cards)


def warn(asked: Asked, view: join.View) -> None:
    """What was asked for and could not be read; on stderr, so that scripts keep their data."""
    if asked.quiet:
        return
    for kind, why in view.unknown.items():
        if why != objects.NOT_ASKED and (kind not in OF_LENDING or _lends(asked, view)):
            asked.warnings.write(f"Warning: {kind.replace('_', ' ')}: {tables.clean(why)}\n")
    for text in view.unreadable[:3]:
        asked.warnings.write(f"Warning: could not be read: {tables.clean(text)}\n")
    if len(view.unreadable) > 3:  # noqa: PLR2004  a few as examples
        asked.warnings.write(f"Warning: {len(view.unreadable)} objects could not be read\n")
