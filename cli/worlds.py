"""What `fit` and `explain` are computed from, asked for with the user's own rights.

    paths, all at once --> answers as they come --> explain.world.World
                           claims refused for the cluster --> those of one namespace

Everything is read that the scheduler decides by: slices of all drivers, since a text that fails on any of them counts.
"""

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api import errors
from cli import kubectl
from explain import world

JSON = Mapping[str, Any]
_RESOURCES = "/apis/resource.k8s.io/v1"
_LISTS = {
    "slices": f"{_RESOURCES}/resourceslices",
    "device_classes": f"{_RESOURCES}/deviceclasses",
    "claims": f"{_RESOURCES}/resourceclaims",
    "nodes": "/api/v1/nodes",
    "rules": f"{_RESOURCES}/devicetaintrules",
}
_OPTIONAL = ("rules",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`more`: the answers to what else was asked for, in that order. `warnings`: what could not be read."""

    now: world.World
    more: tuple[kubectl.Answer, ...]
    warnings: tuple[str, ...]


def gather(way: kubectl.Kubectl, namespace: str, more: Sequence[str] = ()) -> Seen:
    """`namespace`: whose templates are read, and whose claims where those of all may not be; empty for all.

    Raises Unavailable with kubectl's words where no server answers.
    """
    paths = {**_LISTS, "templates": f"{_RESOURCES}{_within(namespace)}/resourceclaimtemplates"}
    answers = way.ask([*paths.values(), *more])
    found, unknown = {}, {}
    for (kind, path), answer in zip(paths.items(), answers, strict=False):
        if answer.reason in ("Unreachable", "Unauthorized"):
            raise errors.Unavailable(answer.words)
        if answer.reason and kind not in _OPTIONAL:
            unknown[kind] = _why(answer, path)
        found[kind] = () if answer.reason else answer.data.get("items") or ()
    if "claims" in unknown and namespace:
        (own,) = way.ask([f"{_RESOURCES}{_within(namespace)}/resourceclaims"])
        found["claims"] = () if own.reason else own.data.get("items") or ()
    now = world.build(
        slices=found["slices"],
        classes=found["device_classes"],
        claims=found["claims"],
        nodes_=None if "nodes" in unknown else found["nodes"],
        templates=found["templates"],
        rules=found["rules"],
        unknown=unknown,
    )
    warnings = tuple(f"{kind.replace('_', ' ')}: {why}" for kind, why in unknown.items())
    return Seen(now=now, more=tuple(answers[len(paths) :]), warnings=warnings)


def one(namespace: str, kind: str, name: str) -> str:
    """The path of an object."""
    group = "/api/v1" if kind == "pods" else _RESOURCES
    return f"{group}{_within(namespace)}/{kind}/{_quoted(name)}"


def attempts(namespace: str, pod: str) -> str:
    """The path of the scheduler's refusals of a pod."""
    fields = f"involvedObject.kind=Pod,involvedObject.name={pod},reason=FailedScheduling"
    return f"/api/v1{_within(namespace)}/events?{urllib.parse.urlencode({'fieldSelector': fields})}"


def _why(answer: kubectl.Answer, path: str) -> str:
    resource = path.rpartition("/")[2]
    if answer.reason == "Forbidden":
        scope = " in all namespaces" if resource == "resourceclaims" else ""
        return f"you may not list {resource}{scope}"
    if answer.reason == "NotFound":
        return f"this API server does not serve {resource} of resource.k8s.io/v1; it needs Kubernetes 1.34"
    return answer.words


def _within(namespace: str) -> str:
    return f"/namespaces/{_quoted(namespace)}" if namespace else ""


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
