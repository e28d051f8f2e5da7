"""A pool inside the cluster, by the chart: node1 lends its processor as a card, pods on node2 compute on it with ggml.

The image of the agent and of the pods is the driver's with ggml beside it. The client is hack/ggml/multiply.py.
"""

import base64
import datetime
import functools
import json
from collections.abc import Iterator

import pytest

from hack import ggml, release
from hack.cluster import Cluster, cards, cgroups
from hack.kubectl import Kubectl
from pool import credentials
from tests.e2e import manifests
from tests.e2e.manifests import a_container, a_pod, a_request, a_template
from tests.e2e.stage import Object, Stage, until

pytestmark = pytest.mark.e2e
CLASS = "simulation.elasticgpu.io"
MULTIPLY = ("--", "/usr/bin/python3", f"{ggml.PLACE}/multiply.py", ggml.PLACE, "remote")
COMMAND = ["python3", f"{ggml.PLACE}/server.py", ggml.PLACE, "{port}"]
PROFILES = {
    "profiles": [
        {"protocol": "ggml-rpc", "command": COMMAND, "port": 50052},
        # the client shows its certificate itself, by files and variables as those of the profile fake
        {"protocol": "ggml-mtls", "command": COMMAND, "port": 50052, "clientProfile": "fake"},
    ]
}


@pytest.fixture(scope="module")
def lending(
    cluster: Cluster, admin: Kubectl, installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The chart with a pool on node1 and remote cards for all; off again at the end."""
    folder = tmp_path_factory.mktemp("pool")
    reference, archive = release.image()
    cluster.load_image(ggml.image(archive))
    authority = credentials.Authority.load(folder, functools.partial(datetime.datetime.now, datetime.UTC))
    uid = json.loads(admin("get", "namespace", "kube-system", "-o", "json"))["metadata"]["uid"]
    certificate, key = authority.for_controller(uid)
    admin("apply", "-f", "-", text=json.dumps(_secret("pool", certificate, key)))
    admin("apply", "-f", "-", text=json.dumps(_secret("authority", authority.pem, (folder / "ca.key").read_bytes())))
    wanted = release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified()))
    pool = {
        "enabled": True,
        "nodeSelector": {"kubernetes.io/hostname": "node1"},
        "profiles": ["ggml-rpc", "ggml-mtls"],
        "profilesFile": json.dumps(PROFILES),
        "image": ggml.IMAGE,
        "cards": [{"uuid": "GPU-cpu-1", "productName": "CPU", "memory": 1 << 30}],
        "authoritySecret": "authority",
    }
    release.install(
        admin, wanted | {"pool": pool, "remote": {"enabled": True, "credentialsSecret": "pool", "relay": True}}
    )
    release.wait(admin)
    admin("-n", release.NAMESPACE, "rollout", "status", f"daemonset/{release.NAME}-remote", "--timeout=180s")
    until("the agent is ready", lambda: _agents(admin), 120)
    endpoint = f"{cluster.instance.addresses.node(1)}:7480"
    spec = {"endpoint": endpoint, "caBundle": authority.pem.decode(), "poolId": "node1"}
    object_ = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "RemotePool", "metadata": {"name": "cpus"}, "spec": spec}
    admin("apply", "-f", "-", text=json.dumps(object_))
    try:
        until("the pool's card in a slice", lambda: _devices(admin))
        yield
    finally:
        admin("delete", "remotepools", "--all")
        until("no slice of the pool", lambda: not _devices(admin))
        release.install(admin, wanted)
        release.wait(admin)


@pytest.fixture
def far(lending: None, stage: Stage) -> Iterator[Stage]:
    """Whatever a test did, at its end nobody holds a card."""
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    until("no lease is left", lambda: not stage.kubectl.objects("remoteleases"), 120)


def a_far_pod(name: str) -> Object:
    container = a_container(command=manifests.STAY) | {"image": ggml.IMAGE}
    return a_pod(name, template="far", containers=[container], nodeSelector={"kubernetes.io/hostname": "node2"})


def a_far_template(protocol: str) -> Object:
    config = manifests.opaque(driver="remote.gpu.elasticgpu.io", kind="RemoteConfig", protocol=protocol)
    return a_template("far", [a_request("card", deviceClassName=CLASS)], config=[config])


@pytest.mark.parametrize("protocol", ["ggml-mtls", "ggml-rpc"])
def test_a_pod_on_a_node_without_cards_multiplies_on_another_nodes_and_gets_the_numbers_of_home(
    far: Stage, protocol: str
) -> None:
    """ggml-rpc: the client is as it comes, and a relay of the node carries it to the door."""
    far.create(a_far_template(protocol), a_far_pod("pod"))
    far.ready("pod")
    assert far("exec", "pod", *MULTIPLY, "3") == ggml.at_home(3)
    far.delete("pod", "pod")
    until("the card is given back", lambda: not far.kubectl.objects("remoteleases"))


def test_the_agent_is_replaced_and_the_pod_that_lost_its_card_ends(far: Stage) -> None:
    """Rows 12 and 13 inside the cluster: nothing is attached again in silence, and the next pod computes."""
    far.create(a_far_template("ggml-mtls"), a_far_pod("pod"))
    far.ready("pod")
    before = _agents(far.kubectl)
    far.kubectl("-n", release.NAMESPACE, "delete", "pod", "--grace-period=1", "-l", "app.kubernetes.io/component=pool")
    until("another agent is ready", lambda: _agents(far.kubectl) - before, 120)
    until("the pod is gone", lambda: not far.kubectl.objects("pods", "-n", far.namespace), 120)
    far.create(a_far_pod("next"))
    far.ready("next")
    assert far("exec", "next", *MULTIPLY)


def _agents(kubectl: Kubectl) -> set[str]:
    """Those that are ready; the set waits for no update by itself, so `rollout status` does not know it."""
    pods = kubectl.objects("pods", "-n", release.NAMESPACE, "-l", "app.kubernetes.io/component=pool")
    return {
        pod["metadata"]["uid"]
        for pod in pods
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    }


def _devices(kubectl: Kubectl) -> list[Object]:
    slices = kubectl.objects("resourceslices", "--field-selector=spec.driver=remote.gpu.elasticgpu.io")
    return [device for one in slices for device in one["spec"].get("devices", [])]


def _secret(name: str, certificate: bytes, key: bytes) -> Object:
    data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
    head = {"name": name, "namespace": release.NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": head, "type": "kubernetes.io/tls", "data": data}
