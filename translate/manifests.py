"""Manifests of any kind with pods in them -> the same ones with claims, and the templates that they need.

    documents --> every pod template in them --> pods.translated --> templates, then the documents

What is not a kind with pods, and pods that ask for nothing by old names, come back as they were.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api import errors
from translate import pods, shape

JSON = Mapping[str, Any]
_PATHS = (("spec", "jobTemplate", "spec", "template"), ("spec", "template"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """`templates` before the `documents` that name them, one a namespace and shape. `notes` for people."""

    templates: tuple[dict[str, Any], ...]
    documents: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    shapes: dict[tuple[str, shape.Shape], None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def translated(documents: Iterable[JSON], setting: pods.Setting) -> Translated:
    """Raises Invalid with the object's kind and name where one of them cannot be translated."""
    found = _Found()
    changed = tuple(_document(document, setting, found) for document in documents)
    return Translated(
        templates=tuple(shape.template(of, namespace) for namespace, of in found.shapes),
        documents=changed,
        notes=tuple(found.notes),
    )


def _document(document: JSON, setting: pods.Setting, found: _Found) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    if isinstance(changed.get("items"), list):
        changed["items"] = [_document(item, setting, found) for item in changed["items"]]
        return changed
    holder = _holder(changed)
    if holder is None:
        return changed
    place, key = holder
    meta = changed.get("metadata") or {}
    title = f"{changed.get('kind', 'object')} {meta.get('name') or meta.get('generateName', '')}"
    try:
        done = pods.translated(place[key], setting)
    except errors.Invalid as error:
        raise errors.Invalid(f"{title}: {error}") from error
    place[key] = done.pod
    found.shapes |= {(meta.get("namespace", ""), of): None for of in done.shapes}
    found.notes += [f"{title}, {note}" for note in done.notes]
    return {**changed, **done.pod} if changed.get("kind") == "Pod" else changed


def _holder(document: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Where the pod of a document is: what holds it, and under which key."""
    if document.get("kind") == "Pod":
        return ({"pod": document}, "pod") if _is_pod(document) else None
    for *way, last in _PATHS:
        place: Any = document
        for step in way:
            place = place.get(step) if isinstance(place, dict) else None
        if isinstance(place, dict) and _is_pod(place.get(last)):
            return place, last
    return None


def _is_pod(data: Any) -> bool:
    spec = data.get("spec") if isinstance(data, dict) else None
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)
