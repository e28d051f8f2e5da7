"""A pool in the same cluster: off unless asked for, set by what the agent reads, and with hardly any rights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

import pool.settings
from tests.chart.conftest import NAMESPACE, Object

POOL = "elastic-gpu-pool"
CARDS = [{"uuid": "GPU-cpu-0", "productName": "CPU", "memory": 1073741824}]
WHOLE: dict[str, Any] = {
    "pool": {
        "enabled": True,
        "nodeSelector": {"pool": "yes"},
        "profiles": ["ggml-rpc", "mine"],
        "profilesFile": "profiles: []",
        "image": "registry.example/servers:1",
        "cards": CARDS,
        "authoritySecret": "authority",
        "runtimeClassName": "nvidia",
        "tolerations": [{"operator": "Exists"}],
    },
    "openshift": {"enabled": True},
}


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def test_no_pool_unless_asked_for(objects: dict[tuple[str, str], Object]) -> None:
    assert not [name for _, name in objects if name == POOL]


def test_the_agent_is_set_by_what_it_reads(render: Callable[..., list[Object]]) -> None:
    found = by_name(render(WHOLE))
    for one in found.values():
        if one["metadata"]["name"] == POOL:
            kubernetes_validate.validate(one, "1.37", strict=True)
    pod = found["DaemonSet", POOL]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    known = {f"EGPU_{field.name.upper()}" for field in dataclasses.fields(pool.settings.Settings)}
    assert {name for name in env if name.startswith("EGPU_")} <= known
    given = pool.settings.read({name: value for name, value in env.items() if value}, "host")
    assert (given.profiles, given.door, given.metrics_port) == (("ggml-rpc", "mine"), ("", 7480), 7481)
    assert given.node_account == f"{NAMESPACE}:elastic-gpu-remote"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert yaml.safe_load(found["ConfigMap", POOL]["data"]["cards.yaml"]) == {"cards": CARDS}
    assert (container["image"], container["command"]) == ("registry.example/servers:1", ["egpu-pool"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert (mounts["state"], mounts["authority"]) == (given.state_dir, given.authority_dir)


def test_a_pool_may_ask_who_calls_and_nothing_else(render: Callable[..., list[Object]]) -> None:
    rules = by_name(render(WHOLE))["ClusterRole", POOL]["rules"]
    assert [(rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in rules] == [
        (["tokenreviews"], ["create"], None),
        (["namespaces"], ["get"], ["kube-system"]),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodeSelector": {}}, r"pool\.nodeSelector is not set"),
        ({"profiles": []}, r"pool\.profiles is empty"),
        ({"cards": []}, "both would hand out the same cards"),
        ({"cards": [{"uuid": "x"}]}, "/pool/cards/0/uuid"),
    ],
)
def test_a_pool_that_cannot_work_is_refused(
    render: Callable[..., list[Object]], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(helm_python.HelmError, match=said):
        render({"pool": WHOLE["pool"] | change})
