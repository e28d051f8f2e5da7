"""Cards that are given to the controller: kube-scheduler stays away, the controller chooses, the pods run."""

import datetime
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api import names
from hack import release
from tests.e2e.manifests import a_claim, a_pod, a_template
from tests.e2e.stage import Object, Stage, until
from tests.e2e.test_faults import devices

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
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{CLASS}", "--timeout=120s")
    yield stage
    stage("delete", "deployments,pods", "--all", "--grace-period=1", "--timeout=120s")
    stage.kubectl("delete", "-f", str(EXAMPLE / "class.yaml"))
    stage.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}-")
    until("the cards are kube-scheduler's again", lambda: fenced(stage, fully=False))


def fenced(stage: Stage, *, fully: bool = True) -> bool:
    """Whether the node's cards are there and all, or none of them, bear the taint."""
    found = [[taint["key"] for taint in one.get("taints", ())] for one in devices(stage)]
    return bool(found) and all((names.ALLOCATED_BY_TAINT in keys) is fully for keys in found)


def _share(name: str = "card", cores: str = "50", memory: str = "8Gi") -> Object:
    amounts = {"cores": cores, "memory": memory}
    return {"name": name, "exactly": {"deviceClassName": CLASS, "capacity": {"requests": amounts}}}


def test_three_pods_with_half_a_card_each_land_on_two_cards(given: Stage) -> None:
    given("apply", "-f", str(EXAMPLE / "three-pods.yaml"))
    given("rollout", "status", "deployment/packed", "--timeout=240s")
    assert not given.failed_starts()
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


def _whole(*names_: str, count: int = 1, **spec: Any) -> list[Object]:
    """Pods with so many cards each, of the four that there are."""
    request = _share(cores="100", memory="79Gi")
    request["exactly"]["count"] = count
    claims = [a_claim(name, [request]) for name in names_]
    return [*claims, *(a_pod(name, claim=name, **spec) for name in names_)]


def _allocated(given: Stage) -> set[str]:
    """The claims that hold cards."""
    found = given.kubectl.objects("resourceclaims", "-n", given.namespace)
    return {one["metadata"]["name"] for one in found if "allocation" in one.get("status", {})}


def _said(given: Stage, pod: str) -> list[str]:
    found = given.kubectl.objects("events", "-n", given.namespace)
    return [one["message"] for one in found if one["involvedObject"]["name"] == pod and one["reason"] == "NotAllocated"]


def _age_s(given: Stage, pod: str) -> float:
    created = datetime.datetime.fromisoformat(given.get("pod", pod)["metadata"]["creationTimestamp"])
    return (datetime.datetime.now(datetime.UTC) - created).total_seconds()


def _on_four_cards(given: Stage, *pods: str) -> bool:
    return len({uuid for pod in pods for uuid in given.cards(pod).values()}) == 4


def test_a_gang_takes_nothing_before_all_of_it_fits_and_then_starts_whole(given: Stage) -> None:
    gang = [f"gang-{number}" for number in range(4)]
    members = _whole(*gang)
    for one in members:
        if one["kind"] == "Pod":
            one["metadata"]["annotations"] = {names.GANG_ANNOTATION: "four", names.GANG_SIZE_ANNOTATION: "4"}
    given.start(*_whole("single"))
    given.create(*members[:-1])
    given.event("3 of 4 pods of gang four are there; none is allocated before all are", 150)
    assert _allocated(given) == {"single"}
    given.create(members[-1])
    given.event("gang four: 3 of 4 pods fit, and no more", 150)
    assert _allocated(given) == {"single"}
    given.delete("pod", "single")
    given.ready(*gang)
    assert _on_four_cards(given, *gang)


@pytest.mark.needs("GenericWorkload")
def test_a_pod_group_has_as_many_cards_at_once_as_it_needs_and_the_others_come_as_they_fit(given: Stage) -> None:
    group = [f"group-{number}" for number in range(3)]
    more: Object = {"schedulingGroup": {"podGroupName": "three"}}
    given.start(*_whole("one", "two"))
    policy = {"gang": {"minCount": 3}}
    head = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "three"}}
    given.create(head | {"spec": {"schedulingPolicy": policy}}, *_whole(*group, **more))
    given.event("PodGroup three: 2 of 3 pods fit, and no more", 150)
    assert _allocated(given) == {"one", "two"}
    given.delete("pod", "one")
    given.ready(*group)
    given.create(*_whole("group-3", **more))
    until("it is said why the fourth waits", lambda: _said(given, "group-3"), 150)
    assert _allocated(given) == {"two", *group}
    given.delete("pod", "two")
    given.ready("group-3")
    assert _on_four_cards(given, *group, "group-3")


@pytest.fixture
def patience(given: Stage) -> Iterator[Callable[[int], None]]:
    def of(seconds: int) -> None:
        given.kubectl("-n", release.NAMESPACE, "set", "env", CONTROLLER, f"EGPU_PATIENCE_S={seconds}")
        given.kubectl("-n", release.NAMESPACE, "rollout", "status", CONTROLLER, "--timeout=240s")

    yield of
    of(300)


CONTROLLER = f"deployment/{release.NAME}-controller"


def test_a_large_claim_is_passed_by_small_ones_for_as_long_as_is_set_and_no_longer(
    given: Stage, patience: Callable[[int], None]
) -> None:
    first, later = [f"first-{number}" for number in range(4)], [f"later-{number}" for number in range(4)]
    given.start(*_whole(*first))
    given.create(*_whole("large", count=4))
    until("whoever comes now comes later", lambda: _age_s(given, "large") >= 1)
    given.create(*_whole(*later))
    given.delete("pod", first[0])
    until("a small one passes it", lambda: len(_allocated(given) & set(later)) == 1, 150)
    patience(1)
    given.event("keeping the node for pod .*/large", 150)
    (passed,) = _allocated(given) & set(later)
    for name in (*first[1:], passed):
        given.delete("pod", name)
    given.ready("large")
    assert len(given.cards("large")) == 4
    given.delete("pod", "large")
    given.ready(*(set(later) - {passed}))
