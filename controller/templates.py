"""The templates that translated pods name: which are to be made, and which nobody needs any more.

    pods with the label, templates, namespaces, classes --> turn --> writes

A template's name says all there is to it (`translate.shape`), so the pod is not believed in anything else. Nothing is
made where no old requests are translated, nor for what is no class of ours: else a pod's label would be a way to claims
that its author may not make. What must stay true: a template that somebody else made is never touched.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api import names
from translate import shape

JSON = Mapping[str, Any]
PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
_MANAGED = "app.kubernetes.io/managed-by"
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A translated pod that has not ended. `templates` by name."""

    namespace: str
    templates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """`ours`: the controller made it."""

    namespace: str
    name: str
    uid: str
    created: str
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    namespace: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    namespace: str
    name: str
    uid: str


Write = Create | Delete


def pod(data: JSON) -> Pod | None:
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    if "deletionTimestamp" in meta or status.get("phase") in _ENDED:
        return None
    named = (item.get("resourceClaimTemplateName") or "" for item in spec.get("resourceClaims") or ())
    return Pod(namespace=meta["namespace"], templates=tuple(name for name in named if shape.read(name)))


def template(data: JSON) -> Template:
    meta = data["metadata"]
    return Template(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        created=meta.get("creationTimestamp", ""),
        ours=(meta.get("labels") or {}).get(_MANAGED) == names.FIELD_MANAGER and shape.read(meta["name"]) is not None,
    )


def turn(
    pods: Iterable[Pod],
    templates: Iterable[Template],
    namespaces: Collection[str],
    classes: Collection[str],
    old_before: str,
) -> Iterator[Write]:
    """What to write now. Those that no pod names go when they were made before `old_before`, a time as the API writes it."""
    wanted = {(item.namespace, name): None for item in pods for name in item.templates}
    there = {(item.namespace, item.name): item for item in templates}
    for namespace, name in wanted:
        of = shape.read(name)
        if (namespace, name) not in there and of and namespace in namespaces and of.device_class in classes:
            yield Create(namespace=namespace, body=_labelled(shape.template(of, namespace)))
    for key, item in there.items():
        if item.ours and key not in wanted and item.created < old_before:
            yield Delete(namespace=item.namespace, name=item.name, uid=item.uid)


def path(namespace: str, name: str = "") -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates" + (f"/{name}" if name else "")


def _labelled(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "labels": {_MANAGED: names.FIELD_MANAGER}}}
