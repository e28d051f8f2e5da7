"""The cluster that questions are answered by: what allocation knows of it, and the objects that a pod's chain is made of.

    lists of the API's JSON --> build --> World

What could not be read is `unknown`, with the reason; an object that makes no sense costs itself and is noted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from allocation import bookings, cluster, devices, nodes, requests
from api import errors

JSON = Mapping[str, Any]
Reference = tuple[str, str]
"""namespace, name"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`unknown`: kind -> why it could not be read, whole or in part. `closed`: nodes that take no pods.

    `holders`: device -> the claims that hold it.
    """

    cluster: cluster.Cluster
    claims: Mapping[Reference, JSON] = field(default_factory=dict)
    templates: Mapping[Reference, JSON] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    holders: Mapping[devices.Key, Sequence[Reference]] = field(default_factory=dict)
    far: bool = False
    """Some cards can be reached from several nodes."""
    notes: tuple[str, ...] = ()


def build(
    *,
    slices: Iterable[JSON],
    classes: Iterable[JSON],
    claims: Iterable[JSON],
    nodes_: Iterable[JSON] | None = None,
    templates: Iterable[JSON] = (),
    rules: Iterable[JSON] = (),
    unknown: Mapping[str, str] | None = None,
) -> World:
    """`nodes_` None: they could not be read; those that slices name are taken, without labels. `rules`: DeviceTaintRules."""
    known, notes = cluster.Cluster(), []
    slices, rules = tuple(slices), tuple(rules)

    def each(items: Iterable[JSON], take: Callable[[JSON], object]) -> None:
        for item in items:
            try:
                take(item)
            except (errors.ElasticGPUError, KeyError, TypeError, ValueError, AttributeError) as error:
                meta = item.get("metadata") or {}
                notes.append(f"{item.get('kind') or 'an object'} {meta.get('name', '')} was left out: {error}"[:300])

    each(slices, lambda item: known.put_slice(devices.slice_(_tainted(item, rules) if rules else item)))
    each(classes, lambda item: _put_class(known, requests.class_(item)))
    if nodes_ is None:
        nodes_ = [{"metadata": {"name": name}} for name in sorted({_node_of(item) for item in slices} - {""})]
    nodes_ = tuple(nodes_)
    each(nodes_, lambda item: known.put_node(_node(item)))
    claims = tuple(claims)
    holders: dict[devices.Key, list[Reference]] = defaultdict(list)
    each(claims, lambda item: _book(known, item, holders))
    return World(
        cluster=known,
        claims={_named(item): item for item in claims},
        templates={_named(item): item for item in templates},
        unknown=unknown or {},
        closed=frozenset(item["metadata"]["name"] for item in nodes_ if (item.get("spec") or {}).get("unschedulable")),
        holders=holders,
        far=any(not _node_of(item) for item in slices),
        notes=tuple(notes),
    )


def _put_class(known: cluster.Cluster, class_: requests.Class) -> None:
    known.classes[class_.name] = class_


def _node(item: JSON) -> nodes.Node:
    meta = item["metadata"]
    return nodes.Node(name=meta["name"], labels=meta.get("labels") or {})


def _node_of(item: JSON) -> str:
    return str((item.get("spec") or {}).get("nodeName") or "")


def _book(known: cluster.Cluster, item: JSON, holders: dict[devices.Key, list[Reference]]) -> None:
    allocation = (item.get("status") or {}).get("allocation")
    if allocation is None:
        return
    pieces = bookings.pieces((allocation.get("devices") or {}).get("results") or ())
    known.booked.put(item["metadata"]["uid"], pieces)
    for piece in pieces:
        holders[piece.key].append(_named(item))


def _named(item: JSON) -> Reference:
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _tainted(item: JSON, rules: Sequence[JSON]) -> JSON:
    """The slice with the taints that DeviceTaintRules add to its devices, as kube-scheduler sees it."""
    spec = item["spec"]
    where = (spec["driver"], spec["pool"]["name"])
    found = [rule["spec"] for rule in rules if _concerns(rule["spec"].get("deviceSelector"), where)]
    if not found:
        return item
    changed = [
        device
        | {
            "taints": [
                *(device.get("taints") or ()),
                *(
                    rule["taint"]
                    for rule in found
                    if (rule["deviceSelector"].get("device") or device["name"]) == device["name"]
                ),
            ]
        }
        for device in spec.get("devices") or ()
    ]
    return {**item, "spec": {**spec, "devices": changed}}


def _concerns(selector: JSON | None, where: tuple[str, str]) -> bool:
    """One that is not there selects nothing; one that is empty selects all."""
    if selector is None:
        return False
    return all(
        not selector.get(key) or selector[key] == value for key, value in zip(("driver", "pool"), where, strict=True)
    )
