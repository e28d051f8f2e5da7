"""What an API server holds: objects with versions, a history for watches, patches, selectors. No network here."""

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
LIST_KEYS = {  # lists that are maps to server-side apply
    "devices": ("driver", "pool", "device", "shareID"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
}

WITHOUT_SUBRESOURCE = {"apis/elasticgpu.io/v1alpha1/elasticgpus", "apis/elasticgpu.io/v1alpha1/remoteleases"}
"""Kinds whose status is written with the rest."""


class Refused(Exception):
    """An answer other than success."""

    def __init__(self, code: int, reason: str, message: str, retry_after: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object lives: `collection` is group/version/resource as in its path."""

    collection: str
    namespace: str
    name: str


@dataclass(slots=True)
class Store:
    """All objects and all that happened to them since the last compaction."""

    objects: dict[Place, JSON] = field(default_factory=dict)
    history: list[tuple[int, str, Place, JSON]] = field(default_factory=list)
    revision: int = 100
    oldest: int = 0
    applied: dict[tuple[Place, str, str], JSON] = field(default_factory=dict)
    drops: tuple[str, ...] = ()

    def write(self, place: Place, body: JSON, *, dry_run: bool = False) -> JSON:
        """Stores a whole object under the next version."""
        old, new = self.objects.get(place), copy.deepcopy(body)
        for given in self.drops:
            resource, _, path = given.rpartition(":")
            if place.collection.endswith(resource):
                whole = path if path.startswith("status.") else f"spec.{path}"
                drop(new, whole.split("."))
        meta = new.setdefault("metadata", {})
        devices = (new.get("spec") or {}).get("devices")  # a slice's are a list, a claim's an object
        for taint in (t for d in devices for t in d.get("taints") or ()) if isinstance(devices, list) else ():
            taint.setdefault("timeAdded", "2026-01-01T00:00:00Z")
        if old is None:
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            meta["generation"] = 1
        elif without_versions(old) == without_versions(new):
            return copy.deepcopy(old)  # a write that changes nothing makes no event
        else:
            changed = old.get("spec") != new.get("spec")
            meta["generation"] = old["metadata"].get("generation", 1) + (1 if changed else 0)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self.objects[place] = new
            return self.remove(place)
        if dry_run:
            return new
        self.revision += 1
        meta["resourceVersion"] = str(self.revision)
        self.objects[place] = new
        self.history.append((self.revision, "ADDED" if old is None else "MODIFIED", place, copy.deepcopy(new)))
        return copy.deepcopy(new)

    def remove(self, place: Place) -> JSON:
        gone = copy.deepcopy(self.objects[place])
        if gone["metadata"].get("finalizers"):
            gone["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            return self.write(place, gone)
        del self.objects[place]
        self.revision += 1
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self.history.append((self.revision, "DELETED", place, copy.deepcopy(gone)))
        return gone

    def replace(self, place: Place, body: JSON, subresource: str, *, dry_run: bool = False) -> JSON:
        """A client's PUT or patched object: checks versions, keeps status and the rest apart."""
        old, meta = self.objects[place], body.get("metadata") or {}
        for key in ("uid", "resourceVersion"):
            if meta.get(key, old["metadata"][key]) != old["metadata"][key]:
                raise Refused(409, "Conflict", f"{place.name}: {key} is {old['metadata'][key]}, not {meta[key]}")
        if subresource == "status":
            body = old | {"status": body.get("status") or {}}
        elif "status" in old and place.collection not in WITHOUT_SUBRESOURCE:
            body = body | {"status": old["status"]}
        for key in ("uid", "creationTimestamp", "deletionTimestamp"):
            if key in old["metadata"]:
                body.setdefault("metadata", {})[key] = old["metadata"][key]
        return self.write(place, body, dry_run=dry_run)

    def apply(self, place: Place, manager: str, body: JSON, subresource: str) -> JSON:
        """Server-side apply, good enough for us: lists of LIST_KEYS merge, what a manager leaves out goes."""
        key = (place, manager, subresource)
        live = copy.deepcopy(self.objects.get(place) or {k: v for k, v in body.items() if k != "status"})
        for check in ("uid", "resourceVersion"):
            wanted = body.get("metadata", {}).get(check)
            if not wanted or live["metadata"].get(check) == wanted:
                continue
            if check == "uid" and "resourceVersion" not in body["metadata"]:
                raise Refused(422, "Invalid", f'metadata.uid: Invalid value: "{wanted}": field is immutable')
            raise Refused(409, "Conflict", f"{place.name}: {check} {wanted} is not that of the live object")
        merged = _applied(live, body, self.applied.get(key, {}))
        merged["metadata"] = live["metadata"] | {k: v for k, v in merged["metadata"].items() if k != "resourceVersion"}
        self.applied[key] = copy.deepcopy(body)
        return self.replace(place, merged, subresource) if place in self.objects else self.write(place, merged)

    def select(self, collection: str, namespace: str, labels: str, fields: str) -> Iterator[tuple[Place, JSON]]:
        for place in sorted(self.objects, key=lambda p: (p.namespace, p.name)):
            found = self.objects[place]
            if (
                place.collection == collection
                and namespace in {"", place.namespace}
                and selected(found, labels, fields)
            ):
                yield place, found


def selected(item: JSON, labels: str, fields: str) -> bool:
    def value(path: str) -> str:
        here: Any = item
        for part in path.split("."):
            here = (here or {}).get(part)
        return "" if here is None else str(here)

    held = item["metadata"].get("labels") or {}
    for term in filter(None, fields.split(",")):
        path, unequal, wanted = _term(term)
        if (value(path) == wanted) is unequal:
            return False
    for term in filter(None, labels.split(",")):
        path, unequal, wanted = _term(term)
        if path.startswith("!"):
            if path[1:] in held:
                return False
        elif "=" not in term:
            if path not in held:
                return False
        elif (held.get(path) == wanted) is unequal:
            return False
    return True


def _term(term: str) -> tuple[str, bool, str]:
    path, _, wanted = term.partition("=")
    return path.removesuffix("!"), path.endswith("!") and bool(wanted), wanted.removeprefix("=")


def merge(live: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def drop(tree: Any, path: list[str]) -> None:
    """Removes a field from a slice's spec as a server without its gate does; names of attributes and capacities are skipped."""
    if isinstance(tree, list):
        for item in tree:
            drop(item, path)
    elif isinstance(tree, dict):
        if len(path) == 1:
            tree.pop(path[0], None)
        elif path[0] in tree:
            inner = tree[path[0]]
            drop(list(inner.values()) if path[0] in {"attributes", "capacity", "counters"} else inner, path[1:])


def without_versions(item: JSON) -> JSON:
    kept = {k: v for k, v in item["metadata"].items() if k not in {"resourceVersion", "generation"}}
    return item | {"metadata": kept}


def _applied(live: Any, new: Any, last: Any, name: str = "") -> Any:
    if isinstance(new, dict):
        out = dict(live) if isinstance(live, dict) else {}
        last = last if isinstance(last, dict) else {}
        for key in last.keys() - new.keys():
            out.pop(key, None)
        return out | {key: _applied(out.get(key), value, last.get(key), key) for key, value in new.items()}
    if isinstance(new, list) and name in LIST_KEYS:
        held, wanted, before = (_keyed(items, name) for items in (live or [], new, last or []))
        kept = {k: v for k, v in held.items() if k not in before or k in wanted}
        return list((kept | {k: _applied(kept.get(k), v, before.get(k)) for k, v in wanted.items()}).values())
    return new


def _keyed(items: list[JSON], name: str) -> dict[tuple[Any, ...], JSON]:
    return {tuple(item.get(key) for key in LIST_KEYS[name]): item for item in items}
