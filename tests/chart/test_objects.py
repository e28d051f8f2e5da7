"""What the chart puts into a cluster."""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest

import controller.settings
import driver.settings
import webhook.settings
from api import crds as definitions
from api import names, v1alpha1
from tests.chart.conftest import NAMESPACE, Object
from translate import asks

NODE = "elastic-gpu-node"
CONTROLLER = "elastic-gpu-controller"
WEBHOOK = "elastic-gpu-webhook"
Objects = dict[tuple[str, str], Object]

ALL_SET = {
    "image": {
        "repository": "registry.example:5000/team/elastic-gpu",
        "tag": "1.2.3",
        "pullPolicy": "Always",
        "pullSecrets": ["one", "two"],
    },
    "kubeletRoot": "/data/kubelet",
    "cdiDir": "/run/cdi",
    "driverRoot": "/run/nvidia/driver",
    "logLevel": "debug",
    "apiServer": {"host": "api.example.com", "port": 6443},
    "probes": {"startupSeconds": 5},
    "networkPolicy": {"enabled": True, "apiServerPorts": [6443]},
    "openshift": {"enabled": True},
    "hooks": {"crds": True, "leave": True},
    "node": {
        "mps": True,
        "hamiLibrary": "/opt/vgpu/libvgpu.so",
        "hamiSHA256": "ab" * 32,
        "hamiRegion": "1.2",
        "sharesPerCard": 4,
        "maxSurge": 2,
        "priorityClassName": "",
        "runtimeClassName": "runc",
        "fill": "Spread",
        "nodeSelector": {"gpu": "yes"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [],
        "resources": {},
    },
    "page": {"listen": "tls", "tlsSecret": "page-tls"},
    "monitoring": {"rules": True, "dashboard": True, "labels": {"release": "prometheus"}},
    "controller": {
        "replicas": 2,
        "patienceSeconds": 1_000_000,
        "priorityClassName": "high",
        "nodeSelector": {"infra": "yes"},
        "affinity": {"podAntiAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "resources": {"limits": {"memory": "1Gi"}},
    },
    "webhook": {
        "enabled": True,
        "replicas": 3,
        "cardMemory": "80Gi",
        "gpushareUnit": "MiB",
        "nodeSelector": {"infra": "yes"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "resources": {},
    },
}


@pytest.mark.parametrize("values", [{}, ALL_SET], ids=["defaults", "everything set"])
def test_every_object_fits_the_schema_of_its_kind(render: Callable[..., list[Object]], values: dict[str, Any]) -> None:
    foreign = (names.API_VERSION, "monitoring.coreos.com/v1")
    known = [found for found in render(values) if found["apiVersion"] not in foreign]
    assert len(known) >= 10
    for found in known:
        kubernetes_validate.validate(found, "1.37", strict=True)


def test_settings_arrive_where_they_belong(render: Callable[..., list[Object]]) -> None:
    by_name = {(found["kind"], found["metadata"]["name"]): found for found in render(ALL_SET)}
    pod = _pod(by_name, "DaemonSet", NODE)
    env = {one["name"]: one.get("value") for one in _container(pod)["env"]}
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    assert _container(pod)["image"] == "registry.example:5000/team/elastic-gpu:1.2.3"
    assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert paths["plugins"] == env["EGPU_PLUGIN_DIR"] == "/data/kubelet/plugins"
    assert paths["registry"] == env["EGPU_REGISTRY_DIR"] == "/data/kubelet/plugins_registry"
    assert paths["cdi"] == env["EGPU_CDI_DIR"] == "/run/cdi"
    assert paths["driver-root"] == env["EGPU_HOST_DRIVER_ROOT"] == "/run/nvidia/driver"
    assert (env["EGPU_HAMI_LIBRARY"], env["EGPU_HAMI_SHA256"]) == ("/opt/vgpu/libvgpu.so", "ab" * 32)
    assert (paths["hami"], env["EGPU_HAMI_REGION"]) == ("/opt/vgpu", "1.2")
    assert (env["EGPU_SHARES_PER_CARD"], env["EGPU_FILL"]) == ("4", "Spread")
    assert pod["nodeSelector"] == {"gpu": "yes"}
    assert by_name["Deployment", CONTROLLER]["spec"]["replicas"] == 2
    front = _pod(by_name, "Deployment", CONTROLLER)
    assert front["tolerations"] == [{"operator": "Exists"}]
    assert front["volumes"][0]["secret"]["secretName"] == "page-tls"
    told = {one["name"]: one.get("value") for one in _container(front)["env"]}
    assert told["EGPU_PATIENCE_S"] == "1000000"
    assert (told["EGPU_PAGE"], told["EGPU_PAGE_TLS"]) == ("tls", _container(front)["volumeMounts"][0]["mountPath"])
    (port,) = by_name["Service", "elastic-gpu-page"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "page")


def test_the_page_is_open_to_no_network_unless_asked_for(objects: Objects) -> None:
    pod = _pod(objects, "Deployment", CONTROLLER)
    assert {"name": "EGPU_PAGE", "value": "local"} in _container(pod)["env"]
    assert [port["name"] for port in _container(pod)["ports"]] == ["metrics"]
    assert ("Service", "elastic-gpu-page") not in objects


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [("DaemonSet", NODE, driver.settings.Settings), ("Deployment", CONTROLLER, controller.settings.Settings)],
)
def test_every_variable_is_one_that_the_program_reads(objects: Objects, kind: str, name: str, settings: type) -> None:
    known = {f"EGPU_{field.name.upper()}" for field in dataclasses.fields(settings)}
    given = {one["name"] for one in _container(_pod(objects, kind, name))["env"]} - {"NVIDIA_VISIBLE_DEVICES"}
    assert given <= known


def test_the_webhook_is_set_by_what_it_reads(render: Callable[..., list[Object]]) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in render(ALL_SET)}
    env = {one["name"]: one.get("value") for one in _container(_pod(found, "Deployment", WEBHOOK))["env"]}
    assert {name for name in env if name.startswith("EGPU_")} <= {
        f"EGPU_{field.name.upper()}" for field in dataclasses.fields(webhook.settings.Settings)
    }
    assert (env["EGPU_CARD_MEMORY"], env["EGPU_GPUSHARE_UNIT"]) == ("80Gi", "MiB")
    assert (env["EGPU_SECRET"], env["EGPU_CONFIGURATION"]) == (f"{WEBHOOK}-tls", WEBHOOK)
    given = {one["name"]: one.get("value") for one in _container(_pod(found, "Deployment", CONTROLLER))["env"]}
    assert given["EGPU_TRANSLATE"] == "true"


def test_only_old_requests_in_namespaces_that_ask_are_translated(
    render: Callable[..., list[Object]],
) -> None:  # HAMi#83, gatekeeper#1353
    found = {(one["kind"], one["metadata"]["name"]): one for one in render({"webhook": {"enabled": True}})}
    (hook,) = found["MutatingWebhookConfiguration", WEBHOOK]["webhooks"]
    (condition,) = hook["matchConditions"]
    named = re.search(r"name in (\[[^\]]*\])", condition["expression"])
    assert named
    assert tuple(json.loads(named[1].replace("'", '"'))) == asks.NAMES
    assert hook["namespaceSelector"]["matchLabels"] == {names.TRANSLATE_LABEL: "true"}
    (exempt,) = hook["namespaceSelector"]["matchExpressions"]
    assert exempt["values"] == ["kube-system", NAMESPACE]
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Fail", "None")
    for other in found["ValidatingWebhookConfiguration", WEBHOOK]["webhooks"]:
        assert (other["failurePolicy"], other["sideEffects"]) == ("Ignore", "None")


def test_sockets_lie_at_the_same_path_inside_and_outside(objects: Objects) -> None:
    """The kubelet opens the path that the driver names."""
    pod = _pod(objects, "DaemonSet", NODE)
    inside = {mount["name"]: mount["mountPath"] for mount in _container(pod)["volumeMounts"]}
    outside = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert {name: inside[name] for name in ("registry", "plugins", "cdi")} == {
        name: outside[name] for name in ("registry", "plugins", "cdi")
    }


def test_the_node_driver_is_replaced_without_a_gap(objects: Objects) -> None:
    daemonset = objects["DaemonSet", NODE]
    env = {one["name"]: one for one in _container(_pod(objects, "DaemonSet", NODE))["env"]}
    assert daemonset["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": "10%", "maxUnavailable": 0}
    assert env["EGPU_POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_no_update_ends_a_driver_that_clients_of_mps_need(render: Callable[..., list[Object]]) -> None:
    """The daemon is its child, and the clients end with the daemon."""
    by_name = {(found["kind"], found["metadata"]["name"]): found for found in render({"node": {"mps": True}})}
    assert by_name["DaemonSet", NODE]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    pod = _pod(by_name, "DaemonSet", NODE)
    env = {one["name"]: one.get("value") for one in _container(pod)["env"]}
    inside = {mount["name"]: mount["mountPath"] for mount in _container(pod)["volumeMounts"]}
    outside = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    assert pod["hostPID"] is True
    assert inside["mps"] == outside["mps"] == env["EGPU_MPS_DIR"]
    assert (inside["mps-memory"], outside["mps-memory"]) == ("/dev/shm", f"{env['EGPU_MPS_DIR']}/shm")


def test_only_the_node_driver_is_privileged(objects: Objects) -> None:
    assert _container(_pod(objects, "DaemonSet", NODE))["securityContext"]["privileged"] is True
    pod = _pod(objects, "Deployment", CONTROLLER)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert _container(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_node_driver_gets_no_card_from_the_default_runtime(objects: Objects) -> None:  # NV#426
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in _container(_pod(objects, "DaemonSet", NODE))["env"]


def test_images_are_pinned_to_the_version_of_the_chart(objects: Objects) -> None:
    images = {
        _container(_pod(objects, kind, name))["image"]
        for kind, name in (("DaemonSet", NODE), ("Deployment", CONTROLLER))
    }
    assert images == {"registry.example/elastic-gpu:0.1.0"}


def test_what_has_no_namespace_carries_the_name_of_the_release(
    render: Callable[..., list[Object]],
) -> None:  # intel/helm-charts PR#62
    found = [one for one in render(name="second") if one["apiVersion"] != names.API_VERSION]
    assert found
    assert all(one["metadata"]["name"].startswith("second-elastic-gpu") for one in found)
    assert all(one["metadata"].get("namespace", NAMESPACE) == NAMESPACE for one in found)


def test_the_ready_made_classes_are_there_and_can_be_read(objects: Objects) -> None:
    assert objects["ElasticGPUClass", "training.elasticgpu.io"]["spec"] == {
        "backend": "Whole",
        "workloadTypes": ["training"],
    }
    shares = v1alpha1.decode_class(objects["ElasticGPUClass", "inference.elasticgpu.io"], "inference")
    assert (shares.backend, shares.workload_types) == (v1alpha1.Backend.SHARE, ("inference",))
    assert shares.share == v1alpha1.Share()


def _pod(objects: Objects, kind: str, name: str) -> Object:
    spec: Object = objects[kind, name]["spec"]["template"]["spec"]
    return spec


def _container(pod: Object) -> Object:
    (container,) = pod["containers"]
    found: Object = container
    return found


def test_every_pod_is_told_where_the_api_server_is(render: Callable[..., list[Object]]) -> None:
    pods = [
        one["spec"]["template"]["spec"] for one in render(ALL_SET) if one["kind"] in ("DaemonSet", "Deployment", "Job")
    ]
    assert len(pods) == 5
    for pod in pods:
        env = {one["name"]: one.get("value") for one in _container(pod)["env"]}
        assert (env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]) == ("api.example.com", "6443")


def test_replicas_that_there_are_several_of_are_not_drained_at_once(render: Callable[..., list[Object]]) -> None:
    found = {one["metadata"]["name"] for one in render(ALL_SET) if one["kind"] == "PodDisruptionBudget"}
    assert found == {CONTROLLER, WEBHOOK}
    assert not [one for one in render() if one["kind"] == "PodDisruptionBudget"]


def test_a_digest_pins_the_image_everywhere(render: Callable[..., list[Object]]) -> None:
    digest = f"sha256:{'a' * 64}"
    objects = render({"image": {"repository": "r.example/e", "digest": digest}, "webhook": {"enabled": True}})
    pods = [
        one["spec"].get("template", one)["spec"]
        for one in objects
        if one["kind"] in ("DaemonSet", "Deployment", "Job", "Pod")
    ]
    assert {_container(pod)["image"] for pod in pods} == {f"r.example/e@{digest}"}
    assert len(pods) == 5


def test_on_openshift_only_the_node_driver_is_let_be_privileged(render: Callable[..., list[Object]]) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in render(ALL_SET)}
    binding = found["RoleBinding", f"{NODE}-scc"]
    assert [subject["name"] for subject in binding["subjects"]] == [NODE]
    for name in (CONTROLLER, WEBHOOK):
        assert "runAsUser" not in _pod(found, "Deployment", name)["securityContext"]


def test_each_pod_is_asked_and_asks_only_what_it_has_to(render: Callable[..., list[Object]]) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in render(ALL_SET) if one["kind"] == "NetworkPolicy"}
    asked = {
        name: {port["port"] for rule in spec["ingress"] for port in rule["ports"]} for name, spec in policies.items()
    }
    assert asked == {NODE: {"metrics"}, CONTROLLER: {"metrics", "page"}, WEBHOOK: {"metrics", "webhook"}}
    assert {port["port"] for spec in policies.values() for rule in spec["egress"] for port in rule["ports"]} == {
        6443,
        53,
    }


def test_the_jobs_around_a_release_have_rights_for_that_alone(render: Callable[..., list[Object]]) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in render(ALL_SET)}
    crds, leave = found["ClusterRole", "elastic-gpu-crds"], found["ClusterRole", "elastic-gpu-leave"]
    named = {crd["metadata"]["name"] for crd in definitions.crds()}
    assert set(next(rule for rule in crds["rules"] if rule["verbs"] == ["patch"])["resourceNames"]) == named
    assert leave["rules"] == [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["list"]}]
    for one in found.values():
        hook = one["metadata"].get("annotations", {}).get("helm.sh/hook")
        assert (hook is not None) == (one["metadata"]["name"].removeprefix("elastic-gpu-") in ("crds", "leave", "test"))
