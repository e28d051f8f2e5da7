"""The release on a real cluster: tested, upgraded under a stream of pods, refused where it cannot work."""

import json

import helm_python
import pytest

from hack import release
from hack.cluster import Cluster, cards, cgroups
from hack.kubectl import Kubectl
from tests.e2e.manifests import STAY, a_container, a_pod, a_template
from tests.e2e.stage import Stage, until
from tests.e2e.test_slices import at_rest, identities

pytestmark = pytest.mark.e2e
CRD = "elasticgpuclasses.elasticgpu.io"


def upgrade(admin: Kubectl, **more: object) -> None:
    """By Helm alone: the release's own hooks have to do the rest."""
    wanted = release.values(release.image()[0], cards.DRIVER_ROOT, str(cgroups.unified()))
    with helm_python.Config(kubeconfig_path=admin.kubeconfig, namespace=release.NAMESPACE) as helm:
        helm.upgrade(release.CHART, release.NAME, {**wanted, **more})
    release.wait(admin)


def test_an_upgrade_brings_the_crds_up_to_date(stage: Stage) -> None:  # gpu-operator#139, NV PR#1068
    stage.kubectl(
        "patch",
        "crd",
        CRD,
        "--type=json",
        "-p",
        json.dumps([{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]),
    )
    upgrade(stage.kubectl)
    found = stage.kubectl.objects("crd", CRD)[0]["spec"]["versions"][0]
    assert [column["name"] for column in found["additionalPrinterColumns"]][:3] == ["Backend", "Workloads", "Cards"]
    until("its job is over", lambda: not stage.kubectl.objects("jobs", "-n", release.NAMESPACE))


def test_helm_test_passes(stage: Stage) -> None:
    with helm_python.Config(kubeconfig_path=stage.kubectl.kubeconfig, namespace=release.NAMESPACE) as helm:
        helm.test(release.NAME)


def test_a_namespace_that_admits_no_privileged_pods_is_told_before_anything_is_made(
    admin: Kubectl, cluster: Cluster
) -> None:
    admin("create", "namespace", "strict")
    admin("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=baseline")
    try:
        with (
            helm_python.Config(kubeconfig_path=admin.kubeconfig, namespace="strict") as helm,
            pytest.raises(helm_python.HelmError, match="the node driver's are privileged; first: kubectl label"),
        ):
            helm.install(release.CHART, "second", release.values("registry.local/x:1", cards.DRIVER_ROOT))
    finally:
        admin("delete", "namespace", "strict")


def test_a_device_plugin_for_the_same_cards_is_seen(stage: Stage) -> None:  # NV#738
    container = {**a_container("plugin", STAY, ()), "image": "registry.example/nvidia/k8s-device-plugin:v0.17"}
    spec = {"containers": [container], "nodeSelector": {"nowhere": "at-all"}}
    template = {"metadata": {"labels": {"app": "plugin"}}, "spec": spec}
    stage.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "plugin"},
            "spec": {"selector": {"matchLabels": {"app": "plugin"}}, "template": template},
        }
    )
    with pytest.raises(helm_python.HelmError, match=rf"DaemonSet {stage.namespace}/plugin runs a device plugin"):
        upgrade(stage.kubectl)
    upgrade(stage.kubectl, besideDevicePlugin=True)
    stage("delete", "daemonset", "plugin")


def test_a_rolling_update_under_a_stream_of_pods_fails_no_start_and_rewrites_no_slice(
    stage: Stage,
) -> None:  # k8s#128964
    """NV PR#1358: two instances on a node, claims prepared all the time."""
    stage.start(a_template(), a_pod("long", template="template"))
    long = stage.get("pod", "long")["status"]["containerStatuses"][0]
    before = at_rest(stage)
    controllers = ("-n", release.NAMESPACE, "rollout", "restart", f"deployment/{release.NAME}-controller")
    stage.kubectl(*controllers)
    stage.patch_driver({"metadata": {"annotations": {"elasticgpu.io/test": stage.namespace}}})
    for number in range(10):
        stage.start(a_pod(f"pod-{number}", template="template"))
        stage.delete("pod", f"pod-{number}")
    stage.rollout()
    assert not stage.failed_starts()
    assert identities(stage) == before
    now = stage.get("pod", "long")["status"]["containerStatuses"][0]
    assert (now["containerID"], now["restartCount"]) == (long["containerID"], 0)
    release.wait(stage.kubectl)
