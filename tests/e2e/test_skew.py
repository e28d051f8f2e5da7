"""What an older Kubernetes cannot do is told and done without: no claim gets more or less than it asked for, and no word.

Each test is about something that the server lacks and runs where it does: `make test-skew`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from api import names
from hack import release
from hack.kubectl import KubectlError
from tests.e2e.manifests import a_claim, a_pod, a_template
from tests.e2e.stage import Object, Stage, until
from tests.e2e.test_faults import CardsFile, devices
from tests.e2e.test_shares import EXAMPLE, SHARE, a_share
from tests.e2e.test_view import Egpu, card_of

pytestmark = [pytest.mark.e2e, pytest.mark.skew]
OTHER = "skew.example.com"


@pytest.fixture
def classes(stage: Stage) -> Iterator[Stage]:
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    stage.kubectl("delete", "elasticgpuclass", OTHER, SHARE, "--ignore-not-found")


def a_class(**spec: Any) -> Object:
    return {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": OTHER}, "spec": spec,
    }  # fmt: skip


def condition(stage: Stage, name: str, type_: str) -> tuple[str, str, str]:
    """Status, reason and message; empty while it is not there."""
    found = stage.get("elasticgpuclass", name).get("status", {}).get("conditions", [])
    return next(((one["status"], one["reason"], one["message"]) for one in found if one["type"] == type_), ("", "", ""))


def features(egpu: Egpu) -> dict[str, str]:
    """What doctor says of this Kubernetes: text -> verdict."""
    return {one["text"]: one["verdict"] for one in egpu("doctor")["items"] if one["check"] in ("features", "fields")}


@pytest.mark.lacks("DRAConsumableCapacity")
def test_a_claim_of_a_share_is_refused_in_words_and_gives_its_card_back(classes: Stage) -> None:
    classes("apply", "-f", str(EXAMPLE / "class.yaml"))
    until(
        "the class says so",
        lambda: condition(classes, SHARE, "Matching")[:2] == ("False", "NoShares"),
    )
    assert "the API server does not store that cards can be shared" in condition(classes, SHARE, "Matching")[2]
    classes.create(a_template(requests=[a_share(cores="10", memory="1Gi")]), a_pod(template="template"))
    classes.event("is of a class of shares, but was allocated a whole card .*the API server keeps no amounts")
    assert classes.get("pod", "pod")["status"]["phase"] == "Pending"
    uid = classes.claim_of("pod")["metadata"]["uid"]
    assert not any(uid in name for name in classes.cdi_files())
    classes.delete("pod", "pod")
    classes.start(a_template("whole"), *(a_pod(f"whole-{number}", template="whole") for number in range(4)))


@pytest.mark.lacks("DRAConsumableCapacity")
def test_a_class_may_give_whole_cards_where_no_share_is_stored(classes: Stage) -> None:
    share = {"memory": "BestEffort", "cores": "BestEffort", "fallback": "WholeCard"}
    classes.create(a_class(backend="Share", share=share))
    until("the class says so", lambda: "each claim gets a whole card" in condition(classes, OTHER, "Matching")[2])
    request = a_share("card", OTHER, cores="10", memory="1Gi")
    classes.create(a_template(requests=[request]))
    classes.start(a_pod("one", template="template"), a_pod("two", template="template"))
    assert classes.cards("one").keys().isdisjoint(classes.cards("two"))


@pytest.mark.lacks("DRAConsumableCapacity")
def test_doctor_and_the_drivers_series_say_that_no_share_is_stored(stage: Stage, egpu: Egpu) -> None:
    said = features(egpu)
    assert said["the API server drops fields that shares need: cards are offered as wholes only"] == "Wrong"
    assert said["this Kubernetes has no shares of cards: cards are given out as wholes only"] == "Absent"
    pod = stage.driver_pods()[0]["metadata"]["name"]
    series = stage.kubectl("get", "--raw", f"/api/v1/namespaces/{release.NAMESPACE}/pods/{pod}:8080/proxy/metrics")
    assert "elasticgpu_shares_stored 0.0" in series.splitlines()


@pytest.mark.lacks("DRADeviceTaints")
def test_a_card_that_is_not_well_is_not_offered_and_the_others_are(stage: Stage) -> None:
    """A slice without the taint would offer it as a good one."""
    stage.start(a_template(), a_pod("holder", template="template"))
    (uuid,) = stage.cards("holder").values()
    cards_file = CardsFile(stage)
    try:
        cards_file.change(uuid, "lost=true")
        until("the card is not offered", lambda: offered(stage) == 3)
        assert all(device["attributes"]["uuid"]["string"] != uuid for device in devices(stage))
        stage.start(*(a_pod(f"other-{number}", template="template") for number in range(3)))
        stage.create(a_pod("late", template="template"))
        stage.pending_because("late", "cannot allocate all claims")
    finally:
        cards_file.restore()
        until("all cards are offered", lambda: offered(stage) == 4)
    stage.delete("pod", "holder")
    stage.ready("late")
    assert list(stage.cards("late").values()) == [uuid]


@pytest.mark.lacks("DRADeviceTaints")
def test_cards_that_are_given_to_the_controller_are_offered_to_nobody(classes: Stage) -> None:
    """kube-scheduler would hand them out as well."""
    classes.create(a_class(backend="Whole", allocation={"by": "Controller"}))
    try:
        classes.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}=controller")
        until("no card is offered", lambda: offered(classes) == 0)
        classes.create(a_claim(), a_pod(claim="claim"))
        classes.pending_because("pod", "cannot allocate all claims")
        until("the class says so", lambda: "keeps no taints" in condition(classes, OTHER, "Matching")[2])
    finally:
        classes.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}-")
        until("all cards are offered", lambda: offered(classes) == 4)
    classes.ready("pod")


@pytest.mark.lacks("DRAExtendedResource")
def test_a_class_with_a_resource_name_says_that_the_server_did_not_store_it(classes: Stage) -> None:
    classes.create(a_class(backend="Whole", extendedResourceName="example.com/gpu"))
    until("the class says so", lambda: condition(classes, OTHER, "Ready")[0] == "False")
    assert "did not store spec.extendedResourceName" in condition(classes, OTHER, "Ready")[2]


@pytest.mark.lacks("DRADeviceTaintRules")
def test_what_needs_a_rule_for_one_card_says_which_kubernetes_has_them(classes: Stage, egpu: Egpu) -> None:
    classes.create(a_class(backend="Whole", reclaimPolicy="Retain"))
    until("the class says so", lambda: condition(classes, OTHER, "Ready")[:2] == ("False", "NotImplemented"))
    assert "DeviceTaintRules, which this API server does not have" in condition(classes, OTHER, "Ready")[2]
    classes.start(a_template(), a_pod(template="template"))
    with pytest.raises(KubectlError, match="no DeviceTaintRules"):
        classes.kubectl("egpu", "cordon", card_of(classes, "pod"))
    assert (
        features(egpu)["this Kubernetes has no DeviceTaintRules: no cordon, and no reclaimPolicy: Retain"] == "Absent"
    )


def test_what_doctor_finds_out_is_what_the_server_says_of_itself(
    gates: frozenset[str], egpu: Egpu, stage: Stage
) -> None:
    absent = {
        one["remedy"].rpartition("feature gate ")[2].split()[0]
        for one in egpu("doctor")["items"]
        if one["verdict"] == "Absent"
    }
    looked_at = {
        "DRAConsumableCapacity", "DRADeviceTaints", "DRADeviceBindingConditions", "DRAExtendedResource", "DRADeviceTaintRules",
    }  # fmt: skip
    assert absent == looked_at - gates


def offered(stage: Stage) -> int:
    return len(devices(stage))
