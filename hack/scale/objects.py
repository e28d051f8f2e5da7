"""A large cluster as the API's JSON: nodes of eight cards as our driver publishes them, and the claims and pods on them.

All is a function of a number, so that processes can make parts of it side by side. A node has six claims, which hold
90 % of all cards: every fifth node is full, the others have the room of one card left, as one card or as two halves.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from api import names
from driver import inventory, offer
from driver.backends import share, whole
from kube import slices

CARDS = 8
CLAIMS_A_NODE = 6
NAMESPACE = "scale"
MEMORY_GIB = 80
BY_SCHEDULER, BY_CONTROLLER = "by-scheduler.example.com", "by-controller.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"
ZONE = "topology.kubernetes.io/zone"
THEN = "2026-01-01T00:00:00Z"
_WORKERS = (whole.Whole(), share.Share((), 16))
_MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
_ROUTES = (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"))
JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A claim that is held: its cards, by their place in the node, and how many quarters of each."""

    node: int
    place: int
    cards: tuple[int, ...]
    quarters: int

    @property
    def name(self) -> str:
        return f"job-{self.node:05}-{self.place}"


def holdings(node: int) -> Iterator[Holding]:
    """Two claims of two cards, two of one, and two of what is left."""
    if node % 5 == 0:
        last = (((6,), 4), ((7,), 4))
    elif node % 2:
        last = (((6,), 2), ((7,), 2))
    else:
        last = (((6,), 2), ((6,), 2))
    layout = (((0, 1), 4), ((2, 3), 4), ((4,), 4), ((5,), 4), *last)
    for place, (cards, quarters) in enumerate(layout):
        yield Holding(node=node, place=place, cards=cards, quarters=quarters)


def free_card(nodes: int) -> tuple[int, int]:
    """The last node with a card that nobody holds, and the card."""
    return next(node for node in reversed(range(nodes)) if node % 5 and node % 2 == 0), 7


def uid(kind: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}"))


def node_name(number: int) -> str:
    return f"node-{number:05}"


def card(node: int, place: int) -> inventory.Card:
    return inventory.Card(
        uuid=inventory.CardUUID(f"GPU-{node:08x}-0d4e-4f7b-9c31-{place:012x}"),
        minor=place,
        pci_bus_id=f"0000:{place * 16 + 10:02x}:00.0",
        product_name=_MODELS[node % 10 == 9],
        brand="Nvidia",
        architecture="Hopper",
        compute_capability="9.0",
        memory_bytes=MEMORY_GIB * 2**30,
        numa_node=place // 4,
        pcie_root=f"pci0000:{place // 4:02x}",
    )


def slices_of(number: int, node_uid: str, *, given: bool, present: tuple[slices.SeenSlice, ...] = ()) -> list[JSON]:
    """What the driver of that node would write; `given`: to the controller."""
    seen = inventory.Inventory(
        driver_version="580.95.05",
        cuda_driver_version="13.0",
        cards=tuple(card(number, place) for place in range(CARDS)),
    )
    by = offer.Given(by=names.BY_CONTROLLER, fenced=True) if given else offer.Given()
    pool = offer.pool(f"{names.POOL_PREFIX}{node_name(number)}", seen, (), {}, _WORKERS, given=by)
    scope = slices.Scope(driver=names.LOCAL_DRIVER, node_name=node_name(number), node_uid=node_uid)
    return [write.body for write in slices.plan((pool,), present, scope) if not isinstance(write, slices.Delete)]


def node(number: int) -> JSON:
    name = node_name(number)
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "gpu-8",
        ZONE: "zone-1",
    }
    has = {"cpu": "128", "memory": "1056669456Ki", "pods": "250", "ephemeral-storage": "1800Gi"}
    conditions = [
        {
            "type": type_,
            "status": status,
            "reason": "Kubelet",
            "message": "as the kubelet has it",
            "lastTransitionTime": THEN,
        }
        for type_, status in _ROUTES
    ]
    images = [{"names": [f"registry.example.com/team/image-{n}:1"], "sizeBytes": 10**9} for n in range(20)]
    address = f"10.{100 + number // 65536}.{number // 256 % 256}.{number % 256}"
    status = {
        "capacity": has,
        "allocatable": has,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "images": images,
    }
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def claim(
    name: str, class_: str, *, count: int = 1, quarters: int = 1, labels: Mapping[str, str] | None = None
) -> JSON:
    """`quarters` of `count` cards."""
    amounts = {"cores": str(25 * quarters), "memory": f"{MEMORY_GIB // 4 * quarters}Gi"}
    exactly = {
        "deviceClassName": class_,
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": amounts},
    }
    meta = {"name": name, "namespace": NAMESPACE, "labels": dict(labels or {})}
    return {"metadata": meta, "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}}


def status(of: Holding, pod_uid: str) -> JSON:
    """As kube-scheduler allocates and the node driver tells."""
    pool = f"{names.POOL_PREFIX}{node_name(of.node)}"
    consumed = {"cores": str(25 * of.quarters), "memory": f"{MEMORY_GIB // 4 * of.quarters}Gi", "shares": "1"}
    results, told = [], []
    for place in of.cards:
        found = card(of.node, place)
        share_id = f"{of.node:08x}-0000-4000-8000-{of.place:04x}{place:08x}"
        key = {"driver": names.LOCAL_DRIVER, "pool": pool, "device": found.name, "shareID": share_id}
        results.append({"request": "card", **key, "consumedCapacity": consumed})
        data = {"uuid": found.uuid, "productName": found.product_name, "enforcement": "none"}
        told.append({**key, "data": data})
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name(of.node)]}]}]
    return {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": terms},
            "allocationTimestamp": THEN,
        },
        "reservedFor": [{"resource": "pods", "name": of.name, "uid": pod_uid}],
        "devices": told,
    }


def pod(name: str, *, claim_name: str, node_: str = "", labels: Mapping[str, str] | None = None) -> JSON:
    limits = {"cpu": "1", "memory": "1Gi"}
    main = {
        "name": "main",
        "image": "registry.example.com/team/image:1",
        "resources": {"claims": [{"name": "card"}], "requests": limits, "limits": limits},
        "env": [{"name": "MODE", "value": "train"}],
    }
    spec: JSON = {"containers": [main], "resourceClaims": [{"name": "card", "resourceClaimName": claim_name}]}
    found = {"app": "job", **(labels or {}), **({ZONE: "zone-1"} if node_ else {})}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": found}, "spec": spec | _placed(node_)}


def driver_pod(number: int) -> JSON:
    labels = {**names.DRIVER_PODS, "app.kubernetes.io/version": "0.1.0", ZONE: "zone-1"}
    main = {
        "name": "driver",
        "image": "registry.example.com/elastic-gpu:0.1.0",
        "ports": [{"name": "metrics", "containerPort": 8080}],
    }
    meta = {"name": f"driver-{number:05}", "namespace": NAMESPACE, "labels": labels}
    return {"metadata": meta, "spec": {"containers": [main]} | _placed(node_name(number))}


def _placed(node_: str) -> JSON:
    return {"automountServiceAccountToken": False} | ({"nodeName": node_} if node_ else {})


@cache
def running() -> JSON:
    """The status of a pod that runs."""
    conditions = [{"type": type_, "status": "True", "lastTransitionTime": THEN} for type_ in ("PodScheduled", "Ready")]
    return {"status": {"phase": "Running", "conditions": conditions, "startTime": THEN}}


def gpu_class(name: str, by: str, mode: str = "WaitForFirstConsumer") -> JSON:
    spec = {
        "backend": "Share",
        "share": {"memory": "BestEffort", "cores": "BestEffort"},
        "allocation": {"by": by} | ({"mode": mode, "policy": "BinPack"} if by == "Controller" else {}),
    }
    kind = {"apiVersion": names.API_VERSION, "kind": "ElasticGPUClass"}
    return kind | {"metadata": {"name": name}, "spec": spec}
