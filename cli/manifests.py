"""Manifests from files, as what they would ask for: the first pod, workload, claim or template."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api import errors
from cli import yamlfiles
from explain import world

JSON = Mapping[str, Any]
_CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")


def first(files: Sequence[str], namespace: str, now: world.World) -> tuple[JSON, world.World]:
    """What asks, and the world with the files' claims and templates in it.

    Raises Invalid where nothing in them asks for a card.
    """
    items = [_placed(item, namespace) for name in files for item in _objects(name)]
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
    raise errors.Invalid(f"{', '.join(files)}: there is no pod, workload, claim or template of one in it")


def _objects(name: str) -> Iterator[dict[str, Any]]:
    for item in yamlfiles.documents(name):
        if isinstance(item, dict):
            yield from item.get("items") or () if item.get("kind") == "List" else (item,)


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
