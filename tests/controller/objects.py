"""Objects as an API server holds them: sane defaults, one difference a test."""

from typing import Any

JSON = dict[str, Any]
NAME = "training.elasticgpu.io"
DOMAIN = "gpu.elasticgpu.io"


def a_class(
    name: str = NAME, *, created: str = "2026-01-01T00:00:00Z", status: JSON | None = None, **spec: Any
) -> JSON:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "generation": 2, "creationTimestamp": created}
    data = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": meta}
    return data | {"spec": {"backend": "Whole"} | spec} | ({"status": status} if status else {})


def a_device_class(name: str = NAME, **spec: Any) -> JSON:
    """One made by hand."""
    meta = {"name": name, "uid": f"uid-device-class-{name}", "resourceVersion": "8"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": meta, "spec": spec}


_TOLD = ("memoryEnforcement", "coresEnforcement", "allocatedBy")


def a_device(name: str, **what: Any) -> JSON:
    product, memory = what.get("product", "NVIDIA L40S"), what.get("memory", "48Gi")
    attributes = {"type": {"string": what.get("type", "gpu")}} | (
        {"productName": {"string": product}} if product else {}
    )
    attributes |= {key: {"string": what[key]} for key in _TOLD if key in what}
    shared = {"allowMultipleAllocations": True} if what.get("shareable") else {}
    return (
        {"name": name, "attributes": attributes}
        | shared
        | ({"capacity": {"memory": {"value": memory}}} if memory else {})
    )


def a_slice(*devices: JSON, pool: str = "egpu/node-1", generation: int = 1, name: str = "s1") -> JSON:
    spec = {"driver": DOMAIN, "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "9"},
        "spec": spec | {"devices": list(devices)},
    }
