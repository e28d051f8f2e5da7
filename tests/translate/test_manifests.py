"""Manifests of every kind that makes pods."""

from typing import Any

import pytest

from api import errors
from tests.translate.test_pods import a_pod, container
from translate import manifests, pods

SETTING = pods.Setting()


def a_workload(kind: str, **meta: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": a_pod(container(gpu=1))["spec"]}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w", **meta}, "spec": spec}


KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "Rollout")


@pytest.mark.parametrize("kind", KINDS)
def test_the_pod_template_of_each_kind_is_found(kind: str) -> None:
    done = manifests.translated([a_workload(kind, namespace="ml")], SETTING)
    (template,) = done.templates
    assert template["metadata"]["namespace"] == "ml"
    assert "nvidia.com/gpu" not in str(done.documents)
    assert template["metadata"]["name"] in str(done.documents)
    assert done.notes == (
        f"{kind} w, container main: nvidia.com/gpu: 1 -> 1 whole card of class training.elasticgpu.io",
    )


def test_lists_are_gone_into_and_a_shape_has_one_template_a_namespace() -> None:
    pair = {"apiVersion": "v1", "kind": "List", "items": [a_pod(container(gpu=1)), a_workload("Job")]}
    done = manifests.translated([pair, a_workload("Job", namespace="other")], SETTING)
    assert [found["metadata"].get("namespace") for found in done.templates] == [None, "other"]


def test_what_has_no_pods_comes_back_as_it_was() -> None:
    others = [
        {"kind": "ConfigMap", "data": {"nvidia.com/gpu": "1"}},
        {"kind": "Pod"},
        {"spec": {"template": "text"}},
        {},
    ]
    done = manifests.translated(others, SETTING)
    assert (list(done.documents), done.templates, done.notes) == (others, (), ())


def test_a_refusal_names_the_object() -> None:
    bad = a_workload("Job")
    bad["spec"]["template"]["spec"]["nodeName"] = "n1"
    with pytest.raises(errors.Invalid, match=r"^Job w: the pod names node n1"):
        manifests.translated([bad], SETTING)
