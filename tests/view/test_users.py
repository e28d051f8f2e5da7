"""Pod -> cards, why a pod does not run, claims and the sums by namespace, workload type and class."""

from api.reasons import Wait
from tests.view.objects import (
    CLASS,
    GI,
    JSON,
    a_card,
    a_claim,
    a_class,
    a_device_class,
    a_driver,
    a_pod,
    a_result,
    a_slice,
    name_of,
    view,
)

REFUSED = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available",
            "lastTransitionTime": "2026-01-01T01:00:00Z",
        }
    ]
}


def reason(*given: JSON) -> str:
    (pod,) = [pod for pod in view(*given).pods if pod.phase == "Pending"]
    return pod.waiting


def waiting(**more: object) -> JSON:
    return a_pod("p", phase="Pending", **{"status": REFUSED, **more})


def test_a_pod_shows_its_cards_with_the_containers_that_use_them() -> None:  # nvdp#254
    found = view(a_slice(a_card(1), a_card(2)), a_claim("claim", a_result(1), a_result(2)), a_pod())
    (pod,) = found.pods
    assert [(card.card, card.node, card.containers) for card in pod.cards] == [
        (name_of(1), "node1", ("main",)), (name_of(2), "node1", ("main",)),
    ]  # fmt: skip
    assert pod.waiting == ""


def test_a_pod_with_an_extended_resource_is_joined_through_its_status() -> None:  # k8s PR#134523
    mapping = [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}]
    extended = {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": mapping}}
    pod = a_pod(status=extended)
    del pod["spec"]["resourceClaims"]
    pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    claim = a_claim("made", a_result(request="container-0-request-0"), pods=("pod",))
    found = view(a_slice(a_card()), claim, pod)
    assert found.pods[0].cards[0].containers == ("main",)
    assert found.cards[0].holders[0].pods[0].containers == ("main",)


def test_pods_of_other_drivers_claims_are_not_shown() -> None:
    other = a_claim("other", {"request": "nic", "driver": "nic.example.com", "pool": "p", "device": "d"})
    found = view(other, a_pod(claim="other"), a_device_class())
    assert (found.pods, found.claims) == ((), ())


def test_a_pod_that_is_over_is_not_shown() -> None:  # volcano-vgpu-device-plugin#130
    assert view(a_claim("claim", a_result()), a_pod(phase="Succeeded")).pods == ()


def test_a_missing_template_is_the_reason() -> None:  # k8s#129362
    pod = waiting()
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gone"}]
    assert reason(pod) == "no claim was made from template gone yet; does it exist?"


def test_a_missing_claim_is_the_reason() -> None:
    assert reason(waiting(claim="gone")) == "claim gone does not exist"


def test_a_missing_class_is_the_reason() -> None:
    assert reason(a_claim(), waiting()) == f"claim claim asks for class {CLASS}, which does not exist"


def test_no_card_left_is_the_reason_with_what_there_is() -> None:  # KAI#577
    found = view(
        a_device_class(), a_slice(a_card(1), a_card(2)), a_claim("x", a_result(1), a_result(2)), a_claim(), waiting()
    )
    (pod,) = [pod for pod in found.pods if pod.name == "p"]
    assert pod.waiting == f"claim claim waits for a card of class {CLASS}; of 2 cards 2 held"
    assert (pod.evidence, pod.waits_since) == ("0/1 nodes are available", "2026-01-01T01:00:00Z")
    assert ("PodPending", "pod ml/p") in [(one.kind, one.about) for one in found.problems]


def test_no_card_at_all_is_said_so() -> None:
    assert reason(a_device_class(), a_claim(), waiting()).endswith("; no node publishes a card")


def test_a_pod_on_a_node_whose_driver_is_silent_says_so() -> None:
    state = {"waiting": {"reason": "ContainerCreating"}}
    pod = a_pod("p", phase="Pending", node="node1", status={"containerStatuses": [{"name": "main", "state": state}]})
    given = (a_slice(a_card()), a_claim("claim", a_result()), pod)
    assert reason(*given, a_driver(ready="False")) == "node node1 is preparing it, and its driver does not answer"
    assert reason(*given, a_driver()) == "node node1 is preparing it"


def test_each_reason_has_its_word_from_the_one_list() -> None:
    templated = waiting()
    templated["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gone"}]
    bound = a_pod("p", phase="Pending", node="node1")
    cards_ = (a_slice(a_card()), a_device_class())
    seen: list[tuple[tuple[JSON, ...], Wait]] = [
        ((templated,), Wait.TEMPLATE),
        ((waiting(claim="gone"),), Wait.CLAIM),
        ((a_claim(), waiting()), Wait.CLASS),
        ((*cards_, a_claim(), waiting()), Wait.CARD),
        ((*cards_, a_claim("claim", a_result()), waiting()), Wait.SETTLED),
        ((*cards_, a_claim("claim", a_result()), bound, a_driver()), Wait.PREPARING),
        ((*cards_, a_claim("claim", a_result()), bound, a_driver(ready="False")), Wait.SILENT),
    ]
    for given, word in seen:
        (pod,) = view(*given).pods
        assert (pod.reason, bool(pod.waiting)) == (word, True)
    assert view(*cards_, a_claim("claim", a_result()), a_pod()).pods[0].reason == ""


def test_a_claim_shows_cards_nodes_and_pods() -> None:  # dynamo PR#13536
    (claim,) = view(a_slice(a_card()), a_claim("c", a_result(), pods=("pod",))).claims
    assert (claim.state, claim.cards, claim.nodes, claim.pods) == ("InUse", (name_of(1),), ("node1",), ("pod",))
    assert claim.amounts == {"memory": 80 * GI}


def test_one_claim_with_two_pods_is_one_card() -> None:  # KAI#1930
    found = view(a_slice(a_card()), a_claim("c", a_result(), pods=("one", "two")))
    (booked,) = found.namespaces
    assert (booked.name, booked.cards, booked.claims, booked.pods) == ("ml", 1, 1, 2)


def test_workload_types_come_from_the_pods_label_else_from_the_class() -> None:
    given = (
        a_slice(a_card(1), a_card(2)),
        a_class(),
        a_claim("a", a_result(1), pods=("labelled",)),
        a_claim("b", a_result(2), pods=("plain",)),
        a_pod("labelled", claim="a", workload_type="debugging"),
        a_pod("plain", claim="b"),
    )
    assert [(one.name, one.cards) for one in view(*given).workload_types] == [("debugging", 1), ("training", 1)]


def test_a_class_shows_what_it_matches_holds_and_who_waits_for_it() -> None:
    (found,) = view(a_slice(a_card()), a_class(matching=4), a_claim("a", a_result()), a_claim("b")).classes
    assert (found.matching, found.booked.cards, found.waiting, found.ready) == (4, 1, 1, "True")


def test_a_class_that_nobody_counted_matches_an_unknown_number() -> None:
    fresh = a_class()
    del fresh["status"]
    (found,) = view(fresh).classes
    assert (found.matching, found.ready) == (None, "")
