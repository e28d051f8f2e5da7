"""Question -> the paths to ask, and the words for a path that is not answered.

Every command asks for few and large answers: each costs a kubectl process of its own, they run side by side.
"""

import dataclasses
import enum
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api import names
from view import objects, reader

_RESOURCES = "/apis/resource.k8s.io/v1"
_DRIVER_LABELS = ",".join(f"{key}={value}" for key, value in names.DRIVER_PODS.items())
_DRIVERS = (names.LOCAL_DRIVER, names.REMOTE_DRIVER)
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


class Kind(enum.StrEnum):
    """The parts of the picture, by their names there."""

    SLICES = "slices"
    CLAIMS = "claims"
    PODS = "pods"
    CLASSES = "classes"
    DEVICE_CLASSES = "device_classes"
    NODES = "nodes"
    DRIVERS = "drivers"
    RULES = "rules"
    REMOTE_POOLS = "remote_pools"
    LEASES = "leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One list to ask for. `partial`: it leaves some out on purpose. `instead`: in place of all, which may not be read."""

    kind: Kind
    path: str
    read: Callable[[Any], Any]
    namespace: str = ""
    partial: bool = False
    instead: bool = False
    optional: bool = False
    """A server that does not know the kind has none of it."""

    @property
    def resource(self) -> str:
        return self.path.partition("?")[0].rpartition("/")[2]

    def why_not(self, reason: str, words: str) -> str:
        """What is said of a list that was refused, by kubectl's reason and words."""
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        scope = f" in {where}" if self.kind in (Kind.CLAIMS, Kind.PODS, Kind.DRIVERS) else ""
        if reason == "Forbidden":
            return f"you may not list {self.resource}{scope}"
        if reason == "NotFound" and self.kind in (Kind.CLASSES, Kind.REMOTE_POOLS, Kind.LEASES):
            return "the kinds of elasticgpu.io are not installed in this cluster"
        if reason == "NotFound":
            return f"this API server does not serve {self.resource} of resource.k8s.io/v1; it needs Kubernetes 1.34"
        return words


def slices() -> tuple[Query, Query]:
    """Those of nodes and those of remote pools; a list takes one driver, and others' slices may be many."""
    near, far = (_path(f"{_RESOURCES}/resourceslices", fieldSelector=f"spec.driver={driver}") for driver in _DRIVERS)
    return (
        Query(kind=Kind.SLICES, path=near, read=reader.slice_),
        Query(kind=Kind.SLICES, path=far, read=reader.slice_),
    )


def remote_pools(*, optional: bool = True) -> Query:
    path = f"/apis/{names.API_VERSION}/remotepools"
    return Query(kind=Kind.REMOTE_POOLS, path=path, read=reader.remote_pool, optional=optional)


def leases(*, optional: bool = True) -> Query:
    path = f"/apis/{names.API_VERSION}/remoteleases"
    return Query(kind=Kind.LEASES, path=path, read=reader.lease, optional=optional)


def claims(namespace: str = "", labels: str = "") -> Query:
    path = _path(f"{_RESOURCES}{_within(namespace)}/resourceclaims", labelSelector=labels)
    return Query(kind=Kind.CLAIMS, path=path, read=reader.claim, namespace=namespace, partial=bool(labels or namespace))


def claims_instead(namespace: str) -> Query:
    """Those of one namespace, where those of all may not be read."""
    return dataclasses.replace(claims(namespace), partial=False, instead=True)


def pods(namespace: str = "", labels: str = "") -> Query:
    """Those that are not over."""
    path = _path(f"/api/v1{_within(namespace)}/pods", fieldSelector=_LIVE, labelSelector=labels)
    return Query(kind=Kind.PODS, path=path, read=reader.pod, namespace=namespace, partial=bool(labels or namespace))


def pods_for_status() -> tuple[Query, Query]:
    """Those that wait, and those that say what they are for: in a large cluster few of all."""
    pending = _path("/api/v1/pods", fieldSelector="status.phase=Pending")
    labelled = _path("/api/v1/pods", fieldSelector="status.phase=Running", labelSelector=names.WORKLOAD_LABEL)
    both = (Query(kind=Kind.PODS, path=path, read=reader.pod, partial=True) for path in (pending, labelled))
    return next(both), next(both)


def classes() -> Query:
    return Query(kind=Kind.CLASSES, path=f"/apis/{names.API_VERSION}/elasticgpuclasses", read=reader.gpu_class)


def device_classes() -> Query:
    return Query(kind=Kind.DEVICE_CLASSES, path=f"{_RESOURCES}/deviceclasses", read=reader.device_class)


def nodes(labels: str = "") -> Query:
    path = _path("/api/v1/nodes", labelSelector=labels)
    return Query(kind=Kind.NODES, path=path, read=reader.node, partial=bool(labels))


def rules() -> Query:
    """Taints put on cards beside the driver, since Kubernetes 1.37."""
    return Query(kind=Kind.RULES, path=f"{_RESOURCES}/devicetaintrules", read=reader.taint_rule, optional=True)


def drivers() -> Query:
    return Query(kind=Kind.DRIVERS, path=_path("/api/v1/pods", labelSelector=_DRIVER_LABELS), read=reader.driver_pod)


def series(pod: objects.DriverPod) -> str:
    """The path of what a node driver tells Prometheus, by way of the API server."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}:{pod.port}/proxy/metrics"


def _within(namespace: str) -> str:
    return f"/namespaces/{urllib.parse.quote(namespace, safe='')}" if namespace else ""


def _path(path: str, **query: str) -> str:
    given = {key: value for key, value in query.items() if value}
    return f"{path}?{urllib.parse.urlencode(given)}" if given else path
