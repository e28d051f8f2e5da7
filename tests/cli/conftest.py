"""A small cluster behind a fake API server, and a user who looks at it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.terminal import User, kubectl
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import (
    JSON,
    a_card,
    a_claim,
    a_class,
    a_device_class,
    a_driver,
    a_node,
    a_pod,
    a_result,
    a_slice,
)

RESOURCES = "/apis/resource.k8s.io/v1"
PLACES = {
    "ResourceSlice": f"{RESOURCES}/resourceslices",
    "ResourceClaim": RESOURCES + "/namespaces/{}/resourceclaims",
    "DeviceClass": f"{RESOURCES}/deviceclasses",
    "ElasticGPUClass": "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "RemotePool": "/apis/elasticgpu.io/v1alpha1/remotepools",
    "RemoteLease": "/apis/elasticgpu.io/v1alpha1/remoteleases",
}
SHARE = {"shareID": "x", "consumedCapacity": {"memory": "10Gi", "cores": "25", "shares": "1"}}
XID = {"key": "gpu.elasticgpu.io/xid", "value": "79", "effect": "NoSchedule", "timeAdded": "2026-01-02T00:00:00Z"}
REFUSED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 cannot allocate all claims.",
    "lastTransitionTime": "2026-01-02T00:00:00Z",
}
CLUSTER = (
    a_node("node1"),
    a_node("node2"),
    a_driver("node1"),
    a_driver("node2"),
    a_class(),
    a_device_class(),
    a_slice(a_card(1), a_card(2), a_card(3, taints=[XID])),
    a_slice(a_card(4, shared=True, model="NVIDIA L40S", memory="48Gi"), node="node2"),
    a_claim("train", a_result(1), pods=("trainer",)),
    a_pod("trainer", claim="train"),
    a_claim("half", a_result(4, node="node2", **SHARE), namespace="web", pods=("one", "two")),
    a_pod("one", claim="half", namespace="web", workload_type="inference", node="node2"),
    a_pod("two", claim="half", namespace="web", workload_type="inference", node="node2"),
    a_claim("left", a_result(2), namespace="old"),
    a_claim("wanted"),
    a_pod("late", claim="wanted", phase="Pending", status={"conditions": [REFUSED]}),
)


def put(server: FakeAPIServer, *objects: JSON) -> None:
    for item in objects:
        meta = item["metadata"]
        server.put(f"{PLACES[item['kind']].format(meta.get('namespace'))}/{meta['name']}", item)


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        put(server, *CLUSTER)
        yield server


@pytest.fixture
def user(server: FakeAPIServer, tmp_path: Path) -> User:
    return User(tmp_path, server.kubeconfig(tmp_path), kubectl())
