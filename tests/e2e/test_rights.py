"""What the node driver's account may do, asked with the very token that a driver pod holds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack import release
from hack.kubectl import Kubectl, KubectlError
from tests.e2e.manifests import a_claim, a_pod
from tests.e2e.stage import Object, Stage, until
from tests.e2e.test_slices import published

pytestmark = pytest.mark.e2e


@pytest.fixture
def driver(stage: Stage, tmp_path: Path) -> Kubectl:
    """kubectl as the driver on node1."""
    return stage.acting(f"{release.NAME}-node", stage.driver_pods("node1")[0], tmp_path)


@pytest.fixture
def slices(stage: Stage) -> Iterator[None]:
    yield
    stage.kubectl("delete", "resourceslices", "-l", "made-by=test-rights")


def a_slice(
    version: str = "v1", pool: str = "egpu/node1", driver: str = "gpu.elasticgpu.io", **where: object
) -> Object:
    spec = {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, "devices": []}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "test-rights", "labels": {"made-by": "test-rights"}},
        "spec": {**spec, **(where or {"nodeName": "node1"})},
    }


def create(kubectl: Kubectl, found: Object) -> str:
    return kubectl("create", "-f", "-", "--dry-run=server", text=json.dumps(found))


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])  # NV PR#475
@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"nodeName": "node2"}, "may write slices of that node only, not of node2"),
        ({"allNodes": True}, "may write slices of that node only, not of several nodes"),
        ({"nodeName": "node1", "pool": "egpu/node2"}, "may write the pool egpu/node1 only, not egpu/node2"),
        ({"nodeName": "node1", "driver": "gpu.example.com"}, "may write slices of gpu.elasticgpu.io only"),
    ],
    ids=["another node", "all nodes", "another node's pool", "another driver"],
)
def test_slices_of_others_are_refused(
    stage: Stage, driver: Kubectl, version: str, found: Object, words: str
) -> None:  # NV#1317
    with pytest.raises(KubectlError, match=words):
        create(driver, a_slice(version, **found))


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_slices_of_its_own_node_are_allowed(driver: Kubectl, version: str) -> None:
    create(driver, a_slice(version))


def test_a_slice_of_another_node_cannot_be_deleted(stage: Stage, driver: Kubectl) -> None:
    foreign = published(stage, "node2")
    with pytest.raises(KubectlError, match="of that node only, not of node2"):
        driver("delete", "resourceslice", foreign["metadata"]["name"])


def test_a_slice_of_another_node_cannot_be_changed(stage: Stage, driver: Kubectl) -> None:
    def tried() -> str:
        """How it is refused, unless node2's own driver was faster: that is told before anything else."""
        foreign = published(stage, "node2")
        foreign["spec"]["pool"]["generation"] += 1
        with pytest.raises(KubectlError) as no:
            driver("replace", "-f", "-", text=json.dumps(foreign))
        return "" if "the object has been modified" in str(no.value) else str(no.value)

    assert "of that node only, not of node2" in until("an answer", tried)


def test_a_token_that_no_pod_holds_writes_no_slice(stage: Stage) -> None:
    account = f"--as=system:serviceaccount:{release.NAMESPACE}:{release.NAME}-node"
    with pytest.raises(KubectlError, match="the node driver's token names no node"):
        stage.kubectl(account, "create", "-f", "-", "--dry-run=server", text=json.dumps(a_slice()))


def test_others_write_slices_as_before(stage: Stage, slices: None) -> None:
    stage.kubectl("create", "-f", "-", text=json.dumps(a_slice(driver="gpu.example.com", pool="other", allNodes=True)))


def test_the_status_of_another_drivers_device_is_refused(stage: Stage, driver: Kubectl) -> None:
    stage.start(a_claim(), a_pod(claim="claim"))
    own = stage.status_of_devices("claim")[0]
    _write_status(stage, driver, {**own, "data": {"uuid": own["data"]["uuid"]}})
    with pytest.raises(KubectlError, match=r"associated-node:patch|Invalid value"):
        _write_status(stage, driver, {**own, "driver": "gpu.example.com"})


@pytest.mark.needs("DRAResourceClaimGranularStatusAuthorization")
def test_the_status_of_a_claim_on_another_node_is_refused(stage: Stage, driver: Kubectl) -> None:
    """Allocated by hand to node2, as another allocator would."""
    stage.create(a_claim())
    result = {"request": "card", "driver": "gpu.elasticgpu.io", "pool": "egpu/node2", "device": "gpu-of-node2"}
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node2"]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [node]}}
    patch = json.dumps({"status": {"allocation": allocation}})
    stage("patch", "resourceclaim", "claim", "--subresource=status", "--type=merge", "-p", patch)
    with pytest.raises(KubectlError, match="arbitrary-node:patch"):
        _write_status(stage, driver, {key: result[key] for key in ("driver", "pool", "device")})


def a_taint_rule(key: str = "example.com/broken", effect: str = "NoExecute", **selector: str) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "test-rights"},
        "spec": {"deviceSelector": selector, "taint": {"key": key, "effect": effect}},
    }


@pytest.mark.needs("DRADeviceTaintRules")
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (a_taint_rule(), "this rule would end every pod that has a card"),
        (a_taint_rule(driver="gpu.elasticgpu.io"), "name spec.deviceSelector.pool"),
        (a_taint_rule("gpu.elasticgpu.io/xid", device="gpu-x"), "for what the driver itself finds out"),
        (
            a_taint_rule("gpu.elasticgpu.io/retained", "NoSchedule", device="gpu-x"),
            "for what the driver itself finds out",
        ),
    ],
    ids=["all devices", "all our cards", "a word of the driver's", "a word of the controller's"],
)
def test_a_taint_rule_for_every_card_or_in_the_drivers_name_is_refused(stage: Stage, rule: Object, words: str) -> None:
    with pytest.raises(KubectlError, match=words):
        create(stage.kubectl, rule)


@pytest.mark.needs("DRADeviceTaintRules")
@pytest.mark.parametrize(
    "rule",
    [
        a_taint_rule(driver="gpu.elasticgpu.io", pool="egpu/node1"),
        a_taint_rule("gpu.elasticgpu.io/cordoned", device="gpu-x"),
        a_taint_rule(effect="NoSchedule", driver="gpu.elasticgpu.io"),
        a_taint_rule(driver="gpu.example.com"),
    ],
    ids=["a node's cards", "a cordon", "no new pods", "another driver"],
)
def test_other_taint_rules_are_taken(stage: Stage, rule: Object) -> None:
    create(stage.kubectl, rule)


@pytest.mark.needs("DRADeviceTaintRules")
def test_the_driver_writes_no_taint_rule(driver: Kubectl) -> None:
    with pytest.raises(KubectlError, match='cannot create resource "devicetaintrules"'):
        create(driver, a_taint_rule(device="gpu-x"))


@pytest.mark.parametrize("what", ["secrets", "pods", "configmaps", "resourceclaims"])
def test_nothing_else_can_be_listed(driver: Kubectl, what: str) -> None:
    with pytest.raises(KubectlError, match=f'cannot list resource "{what}"'):
        driver("get", what, "-A")


def _write_status(stage: Stage, kubectl: Kubectl, device: Object) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": stage.namespace},
    }
    applied = json.dumps({**claim, "status": {"devices": [device]}})
    kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=test",
        "--subresource=status",
        "-f",
        "-",
        text=applied,
    )
