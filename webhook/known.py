"""What admission knows of the cluster: the classes, and the namespaces that have old requests translated.

The functions at the top turn one object's JSON into a value and are what the watches keep. Nothing is refused here: a
class that cannot be read is known by name alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api import errors, names, v1alpha1
from translate import pods

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUClass:
    """An ElasticGPUClass; `spec` is None where it cannot be read."""

    name: str
    created: str
    spec: v1alpha1.ClassSpec | None

    @property
    def shares(self) -> bool:
        return self.spec is not None and self.spec.backend is v1alpha1.Backend.SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    name: str
    workload_type: str


def gpu_class(data: JSON) -> GPUClass:
    meta = data["metadata"]
    try:
        spec = v1alpha1.decode_class(data, "")
    except errors.Invalid:
        spec = None
    return GPUClass(name=meta["name"], created=meta.get("creationTimestamp", ""), spec=spec)


def namespace(data: JSON) -> Namespace:
    meta = data["metadata"]
    return Namespace(name=meta["name"], workload_type=(meta.get("labels") or {}).get(names.WORKLOAD_LABEL, ""))


def holders(classes: Iterable[GPUClass]) -> dict[str, GPUClass]:
    """Workload type -> the class that has it: the oldest, as the controller judges."""
    found: dict[str, GPUClass] = {}
    for item in sorted(classes, key=lambda item: (item.created, item.name)):
        for kind in item.spec.workload_types if item.spec else ():
            found.setdefault(kind, item)
    return found


def offered(classes: Iterable[GPUClass]) -> tuple[pods.Class, ...]:
    """The classes as translation knows them: each with the workload types that are its own."""
    kinds: dict[GPUClass, list[str]] = {}
    for kind, item in holders(classes).items():
        kinds.setdefault(item, []).append(kind)
    return tuple(
        pods.Class(name=item.name, whole=not item.shares, workload_types=tuple(own)) for item, own in kinds.items()
    )
