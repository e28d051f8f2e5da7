"""Objects and questions for the webhook's tests."""

import base64
import json
from typing import Any

JSON = dict[str, Any]


def a_class(name: str, backend: str = "Share", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> JSON:
    return {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClass",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"backend": backend, **spec},
    }


def a_claim(*requests: JSON, kind: str = "ResourceClaim", **devices: Any) -> JSON:
    spec: JSON = {"devices": {"requests": list(requests), **devices}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }


def a_request(device_class: str, **more: Any) -> JSON:
    return {"name": "card", "exactly": {"deviceClassName": device_class, **more}}


def a_config(driver: str = "gpu.elasticgpu.io", **parameters: Any) -> JSON:
    given = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ShareConfig", **parameters}
    return {"opaque": {"driver": driver, "parameters": given}}


def a_pod(**limits: Any) -> JSON:
    resources = {"limits": {f"nvidia.com/{name}": str(amount) for name, amount in limits.items()}}
    containers = [{"name": "main", "image": "i", "resources": resources}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}


def a_review(item: JSON, operation: str = "CREATE", namespace: str = "ns", **more: Any) -> bytes:
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": item["kind"]},
        "operation": operation,
        "namespace": namespace,
        "object": item,
        "dryRun": False,
        **more,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def patched(item: JSON, patch: list[JSON] | tuple[JSON, ...]) -> JSON:
    """The object with a JSON patch of additions and removals applied, as an API server does it."""
    done: JSON = json.loads(json.dumps(item))
    for step in patch:
        *way, last = step["path"].strip("/").split("/")
        place: Any = done
        for word in way:
            place = place[int(word)] if isinstance(place, list) else place[word]
        if step["op"] == "remove":
            del place[last]
        else:
            place[last] = step["value"]
    return done


def patch_of(response: JSON) -> list[JSON]:
    found: list[JSON] = json.loads(base64.b64decode(response.get("patch", "") or "W10="))
    return found
