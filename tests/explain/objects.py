"""A cluster of the API's objects: two nodes with two cards each, a class of ours, one difference a test."""

from collections.abc import Mapping
from typing import Any

from explain import world

JSON = dict[str, Any]
DRIVER = "gpu.elasticgpu.io"
CLASS = "inference.elasticgpu.io"
GIB = 2**30
_POLICIES: JSON = {
    "cores": {"default": "100", "validRange": {"min": "0", "step": "1"}},
    "memory": {"default": "24Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
}


def a_device(name: str, *, memory: str = "24Gi", **more: Any) -> JSON:
    capacity = {"cores": "100", "memory": memory}
    policies = _POLICIES | {"memory": _POLICIES["memory"] | {"default": memory}}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA L4"},
            "uuid": {"string": f"GPU-{name}"},
        },
        "capacity": {key: {"value": value, "requestPolicy": policies[key]} for key, value in capacity.items()},
    } | more


def a_slice(node: str, *devices: JSON, generation: int = 1, of: int = 1) -> JSON:
    pool = {"name": f"egpu/{node}", "generation": generation, "resourceSliceCount": of}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)},
    }


def a_class(name: str = CLASS, text: str = f'device.driver == "{DRIVER}"') -> JSON:
    return {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}}


def a_spec(*, cores: str = "25", memory: str = "20Gi", count: int = 1, **more: Any) -> JSON:
    exactly = {"deviceClassName": CLASS, "count": count, "capacity": {"requests": {"cores": cores, "memory": memory}}}
    return {"devices": {"requests": [{"name": "card", "exactly": exactly | more}]}}


def a_claim(name: str, spec: JSON | None = None, *, on: str = "", takes: Mapping[str, str] | None = None) -> JSON:
    """`on`: `node/device` that it holds; `takes`: how much of it."""
    claim: JSON = {
        "kind": "ResourceClaim",
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"},
        "spec": spec or a_spec(),
    }
    if on:
        node, device = on.split("/")
        result: JSON = {"request": "card", "driver": DRIVER, "pool": f"egpu/{node}", "device": device}
        result |= {"shareID": f"share-{name}", "consumedCapacity": dict(takes or {"cores": "25", "memory": "20Gi"})}
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
    return claim


def a_template(name: str = "template", spec: JSON | None = None) -> JSON:
    meta = {"namespace": "team", "name": name}
    return {"kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": spec or a_spec()}}


def a_pod(*, claim: str = "", template: str = "", made: str = "", node: str = "", **spec: Any) -> JSON:
    entry: JSON = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    claims = [{"name": "gpu", **entry}] if claim or template else []
    return {
        "kind": "Pod",
        "metadata": {"namespace": "team", "name": "pod"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": claims}
        | ({"nodeName": node} if node else {})
        | spec,
        "status": {"phase": "Pending"}
        | ({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": made}]} if made else {}),
    }


def a_node(name: str, **labels: str) -> JSON:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}}


SLICES = (
    a_slice("node-1", a_device("gpu-1"), a_device("gpu-2")),
    a_slice("node-2", a_device("gpu-3"), a_device("gpu-4")),
)


def a_world(*claims: JSON, **more: Any) -> world.World:
    given = {"slices": SLICES, "classes": (a_class(),), "nodes_": (a_node("node-1"), a_node("node-2"))}
    return world.build(claims=claims, **(given | more))
