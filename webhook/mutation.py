"""A pod by old names -> the JSON patch that gives it claims.

    pod + setting --> translate.pods --> the parts that differ --> patch

The patch touches only what translation touches; the pod's annotation says in words what was read and what it got.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api import names
from translate import pods

JSON = Mapping[str, Any]
_MOST_WORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`patch` as RFC 6902 has it, empty where nothing is to be done."""

    patch: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


def change(pod: JSON, setting: pods.Setting) -> Change:
    """Raises Invalid where the pod asks for what has no equal."""
    done = pods.translated(pod, setting)
    if done.shapes:
        meta = done.pod["metadata"]
        meta["annotations"] = {
            **(meta.get("annotations") or {}),
            names.TRANSLATION_ANNOTATION: "; ".join(done.notes)[:_MOST_WORDS],
        }
    return Change(patch=tuple(_difference(pod, done.pod)), notes=done.notes)


def _difference(before: JSON, after: JSON) -> Iterator[dict[str, Any]]:
    for key in ("labels", "annotations"):
        yield from _part(before.get("metadata") or {}, after.get("metadata") or {}, key, "/metadata")
    for key in ("resourceClaims", "schedulerName"):
        yield from _part(before["spec"], after["spec"], key, "/spec")
    for key in ("initContainers", "containers"):
        old = before["spec"].get(key) or ()
        for index, container in enumerate(after["spec"].get(key) or ()):
            yield from _part(old[index], container, "resources", f"/spec/{key}/{index}")


def _part(before: JSON, after: JSON, key: str, where: str) -> Iterator[dict[str, Any]]:
    if before.get(key) == after.get(key):
        return
    if key in after:
        yield {"op": "add", "path": f"{where}/{key}", "value": after[key]}
    else:
        yield {"op": "remove", "path": f"{where}/{key}"}
