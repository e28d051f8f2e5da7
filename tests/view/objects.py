"""A cluster as its API server tells it: sane defaults, one difference a test."""

from typing import Any

from view import join, objects, reader

JSON = dict[str, Any]
DRIVER = "gpu.elasticgpu.io"
CLASS = "training.elasticgpu.io"
FAR = f"remote.{DRIVER}"
ATTACHED, FAILED = f"{FAR}/attached", f"{FAR}/attach-failed"
GI = 1024**3
THEN = "2026-01-01T00:00:00Z"


def a_card(number: int = 1, *, memory: str = "80Gi", shared: bool = False, **more: Any) -> JSON:
    uuid = f"GPU-{number:08x}-0d4e-4f7b-9c31-5e2b7a90d101"
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": uuid},
        "productName": {"string": more.pop("model", "NVIDIA H100 80GB HBM3")},
        "driverVersion": {"version": "580.95.5"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
    }
    capacity = {"memory": {"value": memory}}
    if shared:
        capacity |= {"cores": {"value": "100"}, "shares": {"value": "16"}}
        more["allowMultipleAllocations"] = True
    return {"name": uuid.lower(), "attributes": attributes, "capacity": capacity, **more}


def name_of(number: int) -> str:
    name: str = a_card(number)["name"]
    return name


def a_slice(*devices: JSON, node: str = "node1", generation: int = 1, of: int = 1, index: int = 0) -> JSON:
    pool = {"name": f"egpu/{node}", "generation": generation, "resourceSliceCount": of}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{generation}-{index}", "uid": f"s-{node}-{index}", "creationTimestamp": THEN},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)},
    }


def a_result(number: int = 1, *, node: str = "node1", request: str = "card", **more: Any) -> JSON:
    return {"request": request, "driver": DRIVER, "pool": f"egpu/{node}", "device": name_of(number), **more}


def a_claim(
    name: str = "claim", *results: JSON, namespace: str = "ml", pods: tuple[str, ...] = (), **more: Any
) -> JSON:
    """Allocated where it has results. `pods`: their names; the uid of pod x is uid-x."""
    requests = [{"name": "card", "exactly": {"deviceClassName": more.pop("of_class", CLASS)}}]
    status: JSON = {}
    if results:
        status["allocation"] = {"devices": {"results": list(results)}, "allocationTimestamp": "2026-01-01T00:05:00Z"}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}", "creationTimestamp": THEN},
        "spec": {"devices": {"requests": requests}},
        "status": status | more,
    }


def a_pod(
    name: str = "pod", *, claim: str = "claim", namespace: str = "ml", phase: str = "Running", **more: Any
) -> JSON:
    labels = {"elasticgpu.io/workload-type": more.pop("workload_type")} if "workload_type" in more else {}
    status = {"phase": phase} | more.pop("status", {})
    node = more.pop("node", "node1" if phase == "Running" else "")
    container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        "nodeName": node,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "creationTimestamp": THEN,
        },
        "spec": spec | more,
        "status": status,
    }


def a_class(name: str = CLASS, *, ready: str = "True", matching: int = 1, **spec: Any) -> JSON:
    message = {"reason": "DeviceClassInPlace" if ready == "True" else "NameTaken", "message": "m"}
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": THEN} | message]
    return {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClass",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": THEN},
        "spec": {"backend": "Whole", "workloadTypes": ["training"]} | spec,
        "status": {"matchingCards": matching, "conditions": conditions},
    }


def a_device_class(name: str = CLASS, *, driver: str = DRIVER) -> JSON:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "uid": f"uid-dc-{name}", "creationTimestamp": THEN},
        "spec": {"selectors": selectors},
    }


def a_node(name: str = "node1", *, ready: str = "True") -> JSON:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": THEN}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": THEN},
        "status": {"conditions": [condition]},
    }


def a_driver(node: str = "node1", *, ready: str = "True") -> JSON:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:10:00Z"}
    labels = {"app.kubernetes.io/name": "elastic-gpu", "app.kubernetes.io/component": "node"}
    meta = {"namespace": "elastic-gpu", "name": f"driver-{node}", "uid": f"uid-driver-{node}", "labels": labels}
    spec = {"nodeName": node, "containers": [{"name": "driver", "image": "i"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"creationTimestamp": THEN},
        "spec": spec,
        "status": {"phase": "Running", "conditions": [condition]},
    }


def a_far_slice(*devices: JSON, pool: str = "lab", generation: int = 1, of: int = 1, index: int = 0) -> JSON:
    """Cards as a remote pool has them: attributes under the local driver's domain, given whole, attached before binding."""
    there = [
        {
            "name": one["name"],
            "attributes": {
                name if "/" in name else f"{DRIVER}/{name}": value for name, value in one["attributes"].items()
            },
            "capacity": {f"{DRIVER}/memory": one["capacity"]["memory"]},
            "bindsToNode": True,
            "bindingConditions": [ATTACHED],
            "bindingFailureConditions": [FAILED],
        }
        | ({"taints": one["taints"]} if "taints" in one else {})
        for one in devices
    ]
    meta = {"name": f"{pool}-{generation}-{index}", "uid": f"s-{pool}-{index}", "creationTimestamp": THEN}
    spec = {"driver": FAR, "pool": {"name": pool, "generation": generation, "resourceSliceCount": of}, "devices": there}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}


def a_far_claim(
    name: str = "claim", number: int = 1, *, pool: str = "lab", node: str = "node2", attached: str = "True", **more: Any
) -> JSON:
    """It has a card of a pool. `attached`: the condition, None where nothing was told yet."""
    result = {
        "request": "card",
        "driver": FAR,
        "pool": pool,
        "device": name_of(number),
        "bindingConditions": [ATTACHED],
    }
    found = a_claim(name, result, **more)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    found["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    if attached:
        condition = {"type": ATTACHED, "status": attached, "reason": "Attached", "lastTransitionTime": THEN}
        told = {"driver": FAR, "pool": pool, "device": name_of(number), "data": {"leaseID": "L"}}
        found["status"]["devices"] = [told | {"conditions": [condition]}]
    return found


def a_pool(name: str = "lab", *, reachable: str = "True", why: str = "") -> JSON:
    """`reachable` empty: nobody has looked yet."""
    condition = {"type": "Reachable", "status": reachable, "reason": "Answers", "message": why}
    return {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "RemotePool",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": THEN},
        "spec": {"endpoint": f"{name}.example:7480", "caBundle": "-----BEGIN CERTIFICATE-----"},
        "status": {"conditions": [condition | {"lastTransitionTime": THEN}], "version": "1.0"} if reachable else {},
    }


def a_lease(
    number: int = 1, *, claim: str = "claim", namespace: str = "ml", pool: str = "lab", name: str = "", **status: str
) -> JSON:
    of = {"namespace": namespace, "name": claim, "uid": status.pop("uid", f"uid-{namespace}-{claim}")}
    spec = {"pool": pool, "device": name_of(number), "key": "k", "epoch": "e", "claim": of, "attachedBy": "Controller"}
    return {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "RemoteLease",
        "metadata": {"name": name or f"lease-{claim}-{number}", "uid": "u", "creationTimestamp": THEN},
        "spec": spec | {"node": {"name": status.pop("node", "node2"), "uid": "n"}},
        "status": {"phase": "Attached", "since": THEN, "leaseId": "L"} | status,
    }


def a_rule(name: str = "rule", *, effect: str = "NoSchedule", **selector: str) -> JSON:
    taint = {"key": "gpu.elasticgpu.io/cordoned", "effect": effect, "timeAdded": THEN}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"deviceSelector": selector, "taint": taint},
    }


def seen(*given: JSON) -> objects.Objects:
    """All of a cluster, with nothing hidden."""

    def of(kind: str) -> list[JSON]:
        return [item for item in given if item["kind"] == kind]

    return objects.Objects(
        slices=reader.part(of("ResourceSlice"), reader.slice_),
        claims=reader.part(of("ResourceClaim"), reader.claim),
        pods=reader.part(of("Pod"), reader.pod),
        classes=reader.part(of("ElasticGPUClass"), reader.gpu_class),
        device_classes=reader.part(of("DeviceClass"), reader.device_class),
        nodes=reader.part(of("Node"), reader.node),
        drivers=reader.part(of("Pod"), reader.driver_pod),
        rules=reader.part(of("DeviceTaintRule"), reader.taint_rule),
        remote_pools=reader.part(of("RemotePool"), reader.remote_pool),
        leases=reader.part(of("RemoteLease"), reader.lease),
    )


def view(*given: JSON) -> join.View:
    return join.View(seen(*given))
