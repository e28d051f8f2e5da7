"""Manifests as what they would ask for: the first pod, workload, claim or template among them, beside what is there already.

documents --> first --> what asks, and the World with the documents' claims and templates in it
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from api import errors
from explain import fitting, world

JSON = Mapping[str, Any]
_CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")


def first(documents: Iterable[Any], namespace: str, now: world.World) -> tuple[JSON, world.World]:
    """Raises Invalid where nothing in them asks for a card."""
    items = [_placed(item, namespace) for item in _objects(documents)]
    made = {kind: {_key(item): item for item in items if item.get("kind") == kind} for kind in _CLAIMS}
    now = dataclasses.replace(
        now,
        claims={**made["ResourceClaim"], **now.claims},
        templates={**now.templates, **made["ResourceClaimTemplate"]},
    )
    for item in items:
        if (pod := _pod(item)) is not None:
            return pod, now
    for item in items:
        if item.get("kind") in _CLAIMS:
            return item, now
    raise errors.Invalid("there is no pod, workload, claim or template of one in it")


def fit(documents: Iterable[Any], namespace: str, now: world.World, wanted: int = 0) -> fitting.Fit:
    """How many copies of what asks fit. Raises Invalid for what no API server would store, too."""
    try:
        item, now = first(documents, namespace, now)
        return fitting.fit(item, now, wanted)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.Invalid(f"it is not as the API has it: {type(error).__name__}: {error}"[:300]) from error


def namespaces(documents: Iterable[Any]) -> set[str]:
    """Those that the documents name."""
    metas = (item.get("metadata") for item in _objects(documents))
    return {str(meta["namespace"]) for meta in metas if isinstance(meta, dict) and meta.get("namespace")}


def _objects(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in documents:
        if isinstance(item, dict) and item.get("kind") == "List":
            yield from _objects(item["items"] if isinstance(item.get("items"), list) else ())
        elif isinstance(item, dict):
            yield item


def _placed(item: dict[str, Any], namespace: str) -> dict[str, Any]:
    meta = item.get("metadata") or {}
    return {
        **item,
        "metadata": {**meta, "namespace": meta.get("namespace") or namespace, "name": meta.get("name", "pod")},
    }


def _key(item: JSON) -> world.Reference:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _pod(item: JSON) -> JSON | None:
    spec = item.get("spec") or {}
    if item.get("kind") == "Pod":
        return item
    inner = ((spec.get("jobTemplate") or {}).get("spec") or spec).get("template") or {}
    if "containers" in (inner.get("spec") or {}):
        return {"kind": "Pod", "metadata": item["metadata"], "spec": inner["spec"]}
    return None
