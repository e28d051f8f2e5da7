"""Our CRDs on a real API server: structural, defaults filled, unknown fields pruned, every rule fires with its words."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack import release
from hack.kubectl import Kubectl, KubectlError
from tests.e2e.stage import becomes, until

pytestmark = pytest.mark.e2e
JSON = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl(admin: Kubectl) -> Iterator[Kubectl]:
    release.apply_crds(admin, "--force-conflicts")
    yield admin
    admin("delete", "elasticgpuclasses", "-l", "made-by=test-crds")


def a_class(name: str = "crd-test.example.com", **spec: Any) -> JSON:
    meta = {"name": name, "labels": {"made-by": "test-crds"}}
    head = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": meta}
    return head | {"spec": {"backend": "Whole"} | spec}


def test_the_schema_is_structural_and_the_names_are_ours(kubectl: Kubectl) -> None:
    def conditions() -> dict[str, str]:
        crd = json.loads(kubectl("get", "crd", "elasticgpuclasses.elasticgpu.io", "-o", "json"))
        return {found["type"]: found["status"] for found in crd["status"]["conditions"]}

    becomes({"NamesAccepted": "True", "Established": "True"}, conditions)  # no NonStructuralSchema


def test_the_defaults_are_filled(kubectl: Kubectl) -> None:
    stored = json.loads(kubectl("create", "-f", "-", "--dry-run=server", "-o", "json", text=json.dumps(a_class())))
    assert stored["spec"] == {
        "backend": "Whole",
        "cards": {},
        "allocation": {"by": "Scheduler", "mode": "WaitForFirstConsumer", "policy": "BinPack"},
        "reclaimPolicy": "Delete",
    }


def test_the_defaults_of_a_share_are_filled(kubectl: Kubectl) -> None:
    given = a_class(backend="Share", share={"cores": "Required"})
    stored = json.loads(kubectl("create", "-f", "-", "--dry-run=server", "-o", "json", text=json.dumps(given)))
    filled = {"memory": "Required", "accept": ["Driver", "MPS", "HAMi"], "fallback": "None"}
    assert stored["spec"]["share"] == filled | {"cores": "Required"}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"share": {}}, "share goes with backend Share alone"),
        (
            {"allocation": {"mode": "Immediate"}},
            "mode Immediate needs by: Controller, since kube-scheduler allocates only for a pod",
        ),
        (
            {"allocation": {"policy": "LeastFragmentation"}},
            "policies other than BinPack need by: Controller, since kube-scheduler takes the first card that fits",
        ),
        ({"allocation": {"policy": "Spread"}}, "policies other than BinPack need by: Controller"),
        ({"backend": "Half"}, 'spec.backend: Unsupported value: "Half"'),
        ({"backend": None}, "spec.backend: Required value"),
        ({"workloadTypes": ["a", "a"]}, "spec.workloadTypes[1]: Duplicate value"),
        ({"workloadTypes": ["a b"]}, "spec.workloadTypes[0]"),
        ({"cards": {"productNames": [""]}}, "spec.cards.productNames[0]"),
        ({"cards": {"minMemory": "24GB"}}, "spec.cards.minMemory"),
        ({"cards": {"minMemory": True}}, "spec.cards.minMemory"),
        ({"cards": {"expression": "x" * 8193}}, "spec.cards.expression: Too long"),
        ({"backend": "Share", "share": {"accept": []}}, "spec.share.accept"),
        ({"reclaimPolicy": "Keep"}, 'spec.reclaimPolicy: Unsupported value: "Keep"'),
        ({"cards": {"colour": "red"}}, 'unknown field "spec.cards.colour"'),
    ],
)
def test_a_bad_class_is_refused_with_words_that_help(kubectl: Kubectl, spec: JSON, text: str) -> None:
    with pytest.raises(KubectlError) as caught:
        kubectl("create", "-f", "-", "--dry-run=server", text=json.dumps(a_class(**spec)))
    assert text in str(caught.value)


def test_a_name_that_makes_no_label_is_refused(kubectl: Kubectl) -> None:
    with pytest.raises(KubectlError, match="the name may have 63 characters, since it becomes a label's value"):
        kubectl("create", "-f", "-", "--dry-run=server", text=json.dumps(a_class("a" * 64)))


@pytest.mark.parametrize(
    "spec",
    [
        {"cards": {"productNames": ["*L40S*", "A?"], "minMemory": "24Gi", "expression": "true"}},
        {"cards": {"minMemory": 25769803776}},
        {"backend": "Share", "share": {"accept": ["MPS"]}, "workloadTypes": ["inference"]},
        {"allocation": {"by": "Controller", "mode": "Immediate", "policy": "LeastFragmentation"}},
    ],
)
def test_a_good_class_is_taken(kubectl: Kubectl, spec: JSON) -> None:
    kubectl("create", "-f", "-", "--dry-run=server", text=json.dumps(a_class(**spec)))


def test_the_table_shows_what_an_admin_looks_for(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=json.dumps(a_class(workloadTypes=["crd-test"])))
    head, row = kubectl("get", "egc", "crd-test.example.com").splitlines()
    assert head.split() == ["NAME", "BACKEND", "WORKLOADS", "CARDS", "READY", "AGE"]
    assert row.split()[:3] == ["crd-test.example.com", "Whole", '["crd-test"]']


def test_every_field_is_explained(kubectl: Kubectl) -> None:
    words = "Whole gives whole cards, Share shares of cards, Remote cards of other machines."
    explained = lambda: words in " ".join(kubectl("explain", "elasticgpuclass.spec", "--recursive=false").split())  # noqa: E731
    until("the API server has published the schema", explained)
