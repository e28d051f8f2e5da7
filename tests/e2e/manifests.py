"""Objects for the end-to-end tests: sane defaults, one difference a test."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]
IMAGE = "registry.local/busybox:1"
CLASS = "training.elasticgpu.io"
STAY = "trap 'exit 0' TERM; sleep infinity & wait"


def a_request(name: str = "card", **more: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": CLASS, **more}}


def a_claim(name: str = "claim", requests: Sequence[Object] = (), version: str = "v1", **devices: Any) -> Object:
    spec = {"devices": {"requests": list(requests) or [a_request()], **devices}}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_template(name: str = "template", requests: Sequence[Object] = (), **devices: Any) -> Object:
    claim = a_claim(name, requests, **devices)
    return {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


def a_container(name: str = "main", command: str = STAY, claims: Sequence[Object] = ({"name": "card"},)) -> Object:
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "resources": {"claims": list(claims)},
    }


def a_pod(
    name: str = "pod",
    template: str = "",
    claim: str = "",
    claims: Sequence[Object] = (),
    containers: Sequence[Object] = (),
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """One claim, called `card`, from a template or by name; or `claims` as they are."""
    one = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "resourceClaims": list(claims) or [{"name": "card", **one}],
            "containers": list(containers) or [a_container()],
            **spec,
        },
    }


def a_class(name: str, expression: str, **config: Any) -> Object:
    """A DeviceClass made by hand; `config` is the kind and the fields of an opaque config of ours."""
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    if config:
        spec["config"] = [opaque(**config)]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def opaque(driver: str = "gpu.elasticgpu.io", **fields: Any) -> Object:
    parameters = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "CardConfig", **fields}
    return {"opaque": {"driver": driver, "parameters": parameters}}
