"""Who holds which card, what is left and what is wrong: by kubectl egpu and by ElasticGPU objects, on the real cluster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.kubectl import Kubectl, KubectlError
from tests.e2e.manifests import a_claim, a_pod, a_request, a_template
from tests.e2e.stage import Stage, becomes, until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
Egpu = Callable[..., Any]


def card_of(stage: Stage, pod: str) -> str:
    (uuid,) = stage.cards(pod).values()
    return "gpu-" + uuid.lower().removeprefix("gpu-")


def test_the_pod_that_holds_a_card_is_found_from_the_card_and_back(stage: Stage, egpu: Egpu) -> None:
    stage.start(a_template(), a_pod(template="template"))
    name = card_of(stage, "pod")
    card = egpu("card", name)
    (holder,) = card["holders"]
    assert (card["state"], card["node"], card["free"]["memory"]) == ("Held", "node1", 0)
    assert (holder["namespace"], holder["pods"][0]["name"], holder["pods"][0]["containers"]) == (
        stage.namespace, "pod", ["main"],
    )  # fmt: skip
    (pod,) = egpu("pods", "-n", stage.namespace)["items"]
    assert [card["card"] for card in pod["cards"]] == [name]
    assert (pod["phase"], pod["waiting"]) == ("Running", "")


def test_what_is_free_adds_up_before_during_and_after(stage: Stage, egpu: Egpu) -> None:
    before = egpu("status")["total"]
    assert (before["total"], before["unknown"]) == (4, 0)
    stage.start(a_template(), a_pod(template="template"))
    during = egpu("status")
    assert during["total"]["free"] == before["free"] - 1
    assert [one["cards"] for one in during["namespaces"] if one["name"] == stage.namespace] == [1]
    stage.delete("pod", "pod")
    until("the card is free again", lambda: egpu("status")["total"] == before)


def test_a_pending_pod_is_told_why(stage: Stage, egpu: Egpu) -> None:
    stage.create(a_template(requests=[a_request(count=5)]), a_pod(template="template"))
    stage.pending_because("pod", ".")
    (pod,) = egpu("pods", "-n", stage.namespace)["items"]
    assert (
        pod["waiting"] == "does not fit: request card wants 5 cards on one node; node1 has most, with 4 that would do"
    )
    assert "nodes are available" in pod["evidence"]
    assert f"pod {stage.namespace}/pod" in [one["about"] for one in egpu("status")["problems"]]


def test_the_template_that_claim_writes_gives_a_card(stage: Stage, egpu: Egpu) -> None:
    written = stage.kubectl("egpu", "claim", "training", "--title", "written", "-n", stage.namespace)
    stage.kubectl("apply", "-f", "-", text=written)
    stage.start(a_pod(template="written"))
    assert egpu("card", card_of(stage, "pod"))["holders"][0]["className"] == "training.elasticgpu.io"


def test_a_missing_template_and_a_missing_class_are_told(stage: Stage, egpu: Egpu) -> None:  # k8s#129362
    odd = {"name": "card", "exactly": {"deviceClassName": "gone.example.com"}}
    stage.create(a_pod("first", template="gone"), a_claim("odd", requests=[odd]), a_pod("second", claim="odd"))

    def waiting() -> dict[str, str]:
        return {pod["name"]: pod["waiting"] for pod in egpu("pods", "-n", stage.namespace)["items"]}

    wanted = {
        "first": f"cannot get its cards: ResourceClaimTemplate {stage.namespace}/gone: it does not exist; the pod starts "
        "when somebody makes it",
        "second": "cannot get its cards: DeviceClass gone.example.com: it does not exist; kubectl egpu classes lists "
        "those that do",
    }
    becomes(wanted, waiting)


def test_a_claim_that_nobody_uses_any_more_is_no_card_that_is_lost(stage: Stage, egpu: Egpu) -> None:  # k8s#118613
    stage.start(a_claim("named"), a_pod(claim="named"))
    stage.delete("pod", "pod")
    until("the claim is given back", lambda: egpu("claims", "-n", stage.namespace)["items"][0]["state"] == "Waiting")


def test_each_card_has_an_object_that_kubectl_prints_well(stage: Stage) -> None:
    def row(name: str) -> list[str]:
        return stage.kubectl("get", "elasticgpus", name, "--no-headers").split()

    stage.start(a_template(), a_pod(template="template"))
    name = card_of(stage, "pod")
    holder = f"{stage.namespace}/pod"
    until("the object names the pod", lambda: holder in row(name))
    assert row(name)[:2] == [name, "node1"]
    assert len(stage.kubectl.objects("elasticgpus")) == 4
    found = stage.kubectl.objects("elasticgpu", name)[0]["status"]
    assert (found["state"], found["free"]["cores"], found["free"]["memory"], found["holders"][0]["className"]) == (
        "Held", 0, "0", "training.elasticgpu.io",
    )  # fmt: skip
    stage.delete("pod", "pod")
    until("the object is free again", lambda: "Free" in row(name))


def test_objects_are_written_on_change_alone(stage: Stage) -> None:
    def versions() -> list[str]:
        return [found["metadata"]["resourceVersion"] for found in stage.kubectl.objects("elasticgpus")]

    def free() -> list[str] | None:
        """What a test before this one held is told to be free behind it."""
        found = stage.kubectl.objects("elasticgpus")
        states = [one.get("status", {}).get("state") for one in found]
        return [one["metadata"]["resourceVersion"] for one in found] if states == ["Free"] * 4 else None

    before = until("an object a card, all free", free)
    assert before
    stage.start(a_pod("other", claims=[{"name": "card", "resourceClaimTemplateName": "template"}]), a_template())
    name = card_of(stage, "other")
    until("the one object changed", lambda: len(set(versions()) - set(before)) == 1)
    assert stage.kubectl.objects("elasticgpu", name)[0]["metadata"]["resourceVersion"] not in before


def test_a_user_of_one_namespace_sees_own_claims_and_nobody_elses(stage: Stage, egpu: Egpu, tmp_path: Path) -> None:
    """enh#5677: rights on the inventory and on one namespace; other tenants' names stay theirs."""
    stage.start(a_template(), a_pod(template="template"))
    user = a_viewer(stage, tmp_path)
    with pytest.raises(KubectlError, match="you may not list resourceslices"):
        user("egpu", "cards")
    with pytest.raises(KubectlError, match="Forbidden"):
        user("get", "elasticgpus")
    binding = ("--clusterrole=elastic-gpu-inventory", f"--serviceaccount={stage.namespace}:viewer")
    stage.kubectl("create", "clusterrolebinding", stage.namespace, *binding)
    try:

        def looked() -> Any:  # it may, once the API server knows of both bindings
            found = json.loads(user("egpu", "cards", "-n", stage.namespace, "-o", "json"))
            return found if any(card["state"] == "Held" for card in found["items"]) else None

        mine = until("the rights are there", looked)
        states = sorted(card["state"] for card in mine["items"])
        assert states == ["Held", "Unknown", "Unknown", "Unknown"]
        assert mine["unknown"]["claims"] == f"only those of namespace {stage.namespace} could be read"
    finally:
        stage.kubectl("delete", "clusterrolebinding", stage.namespace)


def test_who_views_the_whole_cluster_views_its_cards(stage: Stage, egpu: Egpu, tmp_path: Path) -> None:
    user = a_viewer(stage, tmp_path)
    binding = ("--clusterrole=view", f"--serviceaccount={stage.namespace}:viewer")
    stage.kubectl("create", "clusterrolebinding", stage.namespace, *binding)
    try:
        until("the role is aggregated", lambda: len(user.objects("elasticgpus")) == 4)
        status = json.loads(user("egpu", "status", "-o", "json"))
        assert (status["total"]["unknown"], list(status["unknown"])) == (0, ["nodes"])
    finally:
        stage.kubectl("delete", "clusterrolebinding", stage.namespace)


def a_viewer(stage: Stage, folder: Path) -> Kubectl:
    """kubectl as an account that may view this namespace and nothing else."""
    stage("create", "serviceaccount", "viewer")
    stage("create", "rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={stage.namespace}:viewer")
    token = stage("create", "token", "viewer")
    config = yaml.safe_load(stage.kubectl.kubeconfig.read_text())
    for one in config["users"]:
        one["user"] = {"token": token}
    path = folder / "viewer.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return Kubectl(program=stage.kubectl.program, kubeconfig=path)
