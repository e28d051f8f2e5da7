"""Cards that are given to the controller: kube-scheduler stays away, the controller chooses, the pods run."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api import names
from hack import release
from tests.e2e.manifests import a_claim, a_pod, a_template
from tests.e2e.stage import Object, Stage, until

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRAConsumableCapacity", "DRADeviceTaints")]
EXAMPLE = release.ROOT / "examples/controller-allocated"
CLASS = "packed-share.example.com"
Egpu = Callable[..., Any]


@pytest.fixture
def given(stage: Stage) -> Iterator[Stage]:
    """node1's cards are the controller's, and the class of the example is ready."""
    stage.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}=controller")
    until("the cards bear the taint", lambda: fenced(stage))
    stage("apply", "-f", str(EXAMPLE / "class.yaml"))
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{CLASS}", "--timeout=30s")
    yield stage
    stage("delete", "deployments,pods", "--all", "--grace-period=1", "--timeout=60s")
    stage.kubectl("delete", "-f", str(EXAMPLE / "class.yaml"))
    stage.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}-")
    until("the cards are kube-scheduler's again", lambda: not fenced(stage))


def fenced(stage: Stage) -> bool:
    devices = (stage.slice_of("node1") or {})["spec"]["devices"]
    return all(any(taint["key"] == names.ALLOCATED_BY_TAINT for taint in one.get("taints", ())) for one in devices)


def _share(name: str = "card", cores: str = "50", memory: str = "8Gi") -> Object:
    amounts = {"cores": cores, "memory": memory}
    return {"name": name, "exactly": {"deviceClassName": CLASS, "capacity": {"requests": amounts}}}


def test_three_pods_with_half_a_card_each_land_on_two_cards(given: Stage) -> None:
    given("apply", "-f", str(EXAMPLE / "three-pods.yaml"))
    given("rollout", "status", "deployment/packed", "--timeout=90s")
    pods = [pod["metadata"]["name"] for pod in given.kubectl.objects("pods", "-n", given.namespace)]
    cards = [uuid for pod in pods for uuid in given.cards(pod).values()]
    assert sorted(cards.count(card) for card in set(cards)) == [1, 2]
    claims = given.kubectl.objects("resourceclaims", "-n", given.namespace)
    assert all("resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"] for claim in claims)
    assert all(claim["status"]["allocation"]["allocationTimestamp"] for claim in claims)


def test_kube_scheduler_does_not_touch_a_card_that_is_given_to_the_controller(given: Stage) -> None:
    given.create(a_template("whole"), a_pod("whole", template="whole"))
    given.pending_because("whole", "cannot allocate all claims")


def test_a_claim_that_tolerates_every_taint_gets_no_card_that_is_given_to_the_controller(given: Stage) -> None:
    request = {"deviceClassName": "training.elasticgpu.io", "tolerations": [{"operator": "Exists"}]}
    given.create(a_template("bold", [{"name": "card", "exactly": request}]), a_pod("bold", template="bold"))
    given.pending_because("bold", "cannot allocate all claims")


def test_a_claim_that_can_never_fit_says_so_in_an_event(given: Stage) -> None:
    given.create(a_claim("huge", [_share(memory="900Gi")]), a_pod("huge", claim="huge"))
    given.event("it would not fit either")


def test_fit_and_explain_know_the_cards_that_are_given_to_the_controller(given: Stage, egpu: Egpu) -> None:
    room = egpu("fit", "--class", CLASS, "--cores", "50", "--memory", "8Gi")["fits"]
    assert room > 0
    given.start(a_claim("half", [_share()]), a_pod("half", claim="half"))
    assert egpu("fit", "--class", CLASS, "--cores", "50", "--memory", "8Gi")["fits"] == room - 1
    given.create(a_claim("huge", [_share(memory="900Gi")]), a_pod("huge", claim="huge"))
    told = egpu("explain", "pod/huge", "-n", given.namespace)
    assert (told["verdict"], told["reason"]) == ("DoesNotFit", "TooSmall")
    given.event(re.escape(told["funnels"][0]["groups"][0]["text"]))


def test_a_claim_is_freed_with_its_pod_and_its_card_is_given_again(given: Stage) -> None:
    claim = _share(cores="100", memory="79Gi")
    for round_ in ("first", "second"):
        names_ = [f"{round_}-{number}" for number in range(4)]
        given.start(*(a_claim(name, [claim]) for name in names_), *(a_pod(name, claim=name) for name in names_))
        given.ready(*names_)
        assert len({uuid for name in names_ for uuid in given.cards(name).values()}) == 4
        for name in names_:
            given.delete("pod", name)
