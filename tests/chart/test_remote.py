"""Remote cards in the chart: off unless asked for; then a second driver, least rights, a class."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import helm_python
import kubernetes_validate
import pytest

import controller.settings
import driver.remote.settings
from api import names, v1alpha1
from tests.chart.conftest import Object

ON: dict[str, Any] = {
    "remote": {
        "enabled": True,
        "credentialsSecret": "pool",
        "relay": True,
        "nodeSelector": {"gpu": "none", "zone": "a"},
    }
}
Objects = dict[tuple[str, str], Object]
REMOTE = "elastic-gpu-remote"
CONTROLLER = "elastic-gpu-controller"


@pytest.fixture(scope="module")
def enabled(render: Callable[..., list[Object]]) -> Objects:
    return {(found["kind"], found["metadata"]["name"]): found for found in render(ON)}


def test_nothing_of_it_is_there_unless_it_is_asked_for(objects: Objects) -> None:
    assert not [name for _, name in objects if name.endswith("-remote") or name.startswith("simulation")]


def test_every_object_fits_the_schema_of_its_kind(enabled: Objects) -> None:
    for found in enabled.values():
        if found["apiVersion"] != names.API_VERSION:
            kubernetes_validate.validate(found, "1.37", strict=True)


def test_the_certificate_has_to_be_named_and_the_text_says_which(render: Callable[..., list[Object]]) -> None:
    with pytest.raises(
        helm_python.HelmError, match=r"remote\.credentialsSecret is not set: name a Secret in this namespace"
    ):
        render({"remote": {"enabled": True}})


def test_slices_and_driver_reach_the_same_nodes(enabled: Objects) -> None:
    pod = enabled["DaemonSet", REMOTE]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"gpu": "none", "zone": "a"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    [container] = enabled["Deployment", CONTROLLER]["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["EGPU_REMOTE_NODES"] == "gpu=none,zone=a"
    assert env["EGPU_REMOTE"] == "true"


def test_the_controller_knows_the_drivers_pods_by_their_labels_and_takes_no_others_for_them(enabled: Objects) -> None:
    [container] = enabled["Deployment", CONTROLLER]["spec"]["template"]["spec"]["containers"]
    text = next(one["value"] for one in container["env"] if one["name"] == "EGPU_REMOTE_DRIVERS")
    wanted = dict(term.split("=") for term in text.split(","))
    labels = {
        name: found["spec"]["template"]["metadata"]["labels"]
        for (kind, name), found in enabled.items()
        if kind in {"DaemonSet", "Deployment"}
    }
    assert [name for name, own in labels.items() if wanted.items() <= own.items()] == [REMOTE]
    assert (
        enabled["DaemonSet", REMOTE]["metadata"]["namespace"]
        == enabled["Deployment", CONTROLLER]["metadata"]["namespace"]
    )


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        ("DaemonSet", REMOTE, driver.remote.settings.Settings),
        ("DaemonSet", f"{REMOTE}-relay", driver.remote.settings.RelaySettings),
        ("Deployment", CONTROLLER, controller.settings.Settings),
    ],
)
def test_every_variable_is_one_that_the_program_reads(enabled: Objects, kind: str, name: str, settings: Any) -> None:
    [container] = enabled[kind, name]["spec"]["template"]["spec"]["containers"]
    known = {f"EGPU_{field.name.upper()}" for field in fields(settings)}
    assert {one["name"] for one in container["env"]} - {"NVIDIA_VISIBLE_DEVICES"} <= known


def test_the_driver_of_remote_cards_is_not_privileged(enabled: Objects) -> None:
    [container] = enabled["DaemonSet", REMOTE]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in container["securityContext"]


def test_nobody_may_read_secrets_and_each_role_has_exactly_these_rights(enabled: Objects) -> None:
    node = _rights(enabled["ClusterRole", REMOTE]) | _rights(enabled["Role", REMOTE])
    assert node == {
        "resourceclaims": {"get"},
        "resourceclaims/status": {"patch"},
        "resourceclaims/driver": {"associated-node:patch"},
        "resourceslices": {"list", "watch"},
        "remotepools": {"get"},
        "remoteleases": {"create", "patch"},
        "nodes": {"get"},
        "pods": {"get"},
        "namespaces": {"get"},
        "serviceaccounts/token": {"create"},
    }
    assert _rights(enabled["ClusterRole", f"{CONTROLLER}-remote"]) == {
        "remotepools": {"list", "watch"},
        "remotepools/status": {"patch"},
        "remoteleases": {"list", "watch", "create", "patch", "delete"},
        "resourceslices": {"create", "update", "delete"},
        "resourceclaims": {"get"},
        "resourceclaims/driver": {"arbitrary-node:patch"},
        "namespaces": {"get"},
    }
    for role in (enabled["ClusterRole", REMOTE], enabled["ClusterRole", f"{CONTROLLER}-remote"]):
        for rule in role["rules"]:
            if rule["resources"] == ["resourceclaims/driver"]:
                assert rule["resourceNames"] == [names.REMOTE_DRIVER]


def test_a_nodes_driver_writes_its_own_leases_and_gets_its_own_pods_tokens_only(enabled: Objects) -> None:
    extra = 'request.userInfo.?extra[?"authentication.kubernetes.io/{}"][?0].orValue("")'
    leases = enabled["ValidatingAdmissionPolicy", f"{REMOTE}-leases"]["spec"]
    texts = [one["expression"] for one in leases["validations"]]
    assert f'request.operation == "UPDATE" || object.spec.node.uid == {extra.format("node-uid")}' in texts
    assert 'object.?status.?phase.orValue("") in ["Attaching", "Attached", "Releasing"]' in texts
    tokens = enabled["ValidatingAdmissionPolicy", f"{REMOTE}-tokens"]["spec"]
    [rule] = tokens["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["serviceaccounts/token"], ["CREATE"])
    assert tokens["variables"] == [{"name": "pod", "expression": extra.format("pod-name")}]
    [check] = tokens["validations"]
    assert 'object.spec.?boundObjectRef.?name.orValue("") == variables.pod' in check["expression"]
    for policy in (leases, tokens):
        [condition] = policy["matchConditions"]
        assert condition["expression"].endswith(f':{REMOTE}"')
        assert policy["failurePolicy"] == "Fail"
    for name in ("leases", "tokens"):
        binding = enabled["ValidatingAdmissionPolicyBinding", f"{REMOTE}-{name}"]["spec"]
        assert binding == {"policyName": f"{REMOTE}-{name}", "validationActions": ["Deny"]}


def test_the_class_is_there_and_can_be_read(enabled: Objects) -> None:
    spec = v1alpha1.decode_class(enabled["ElasticGPUClass", "simulation.elasticgpu.io"], "simulation")
    assert (spec.backend, spec.workload_types) == (v1alpha1.Backend.REMOTE, ("simulation",))


def _rights(role: Object) -> dict[str, set[str]]:
    rights: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            rights.setdefault(resource, set()).update(rule["verbs"])
    assert not any("*" in word for rule in role["rules"] for words in rule.values() for word in words)
    return rights


def test_a_relay_is_there_only_if_asked_for_and_outlives_updates(
    enabled: Objects, render: Callable[..., list[Object]]
) -> None:
    relay = enabled["DaemonSet", f"{REMOTE}-relay"]["spec"]
    assert relay["updateStrategy"] == {"type": "OnDelete"}
    [container] = relay["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN", "SYS_PTRACE"]}
    without = render({"remote": {"enabled": True, "credentialsSecret": "pool"}})
    assert not [found for found in without if found["metadata"]["name"].endswith("-relay")]
