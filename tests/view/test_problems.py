"""What is wrong: each found, each with its age and a command, and none invented from what could not be read."""

import dataclasses

from tests.view.objects import (
    JSON,
    THEN,
    a_card,
    a_claim,
    a_class,
    a_driver,
    a_node,
    a_pod,
    a_result,
    a_slice,
    name_of,
    seen,
)
from view import join, objects, picture

HEALTHY = (a_node(), a_driver(), a_slice(a_card()))


def problems(*given: JSON) -> dict[str, picture.Problem]:
    return {one.kind: one for one in join.View(seen(*given)).problems}


def test_a_healthy_cluster_has_none() -> None:
    assert problems(*HEALTHY, a_class(), a_claim("claim", a_result(), pods=("pod",)), a_pod()) == {}


def test_a_claim_that_nobody_uses_is_listed_with_its_age_and_card() -> None:  # k8s#118613, radar PR#878
    found = problems(*HEALTHY, a_claim("left", a_result()))["ClaimUnused"]
    assert (found.about, found.since) == ("claim ml/left", "2026-01-01T00:05:00Z")
    assert name_of(1) in found.message
    assert found.command == "kubectl delete resourceclaim left -n ml"


def test_a_claim_on_a_card_that_is_gone_is_listed() -> None:
    found = problems(*HEALTHY, a_claim("c", a_result(7), pods=("pod",)), a_pod(claim="c"))["CardGone"]
    assert name_of(7) in found.message
    assert found.command == "kubectl delete pod pod -n ml"


def test_a_card_whose_nodes_driver_is_away_costs_no_pod() -> None:
    """The kubelet takes the slices of a driver that is gone for half a minute; its pods go on."""
    found = problems(a_node(), a_claim("c", a_result(), pods=("pod",)), a_pod(claim="c"))["CardGone"]
    assert found.message.endswith("which is no longer published: no driver answers on node node1")
    assert found.command.startswith("kubectl get pods -A -l app.kubernetes.io/name=elastic-gpu")


def test_a_claim_kept_for_a_pod_that_is_gone_is_listed() -> None:
    assert problems(*HEALTHY, a_claim("c", a_result(), pods=("dead",)))["UserGone"].about == "claim ml/c"


def test_a_tainted_card_is_listed_since_its_taint() -> None:
    taint = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": "2026-01-02T00:00:00Z"}
    given = (a_node(), a_driver(), a_slice(a_card(taints=[taint])), a_claim("c", a_result(), pods=("pod",)))
    found = problems(*given, a_pod(claim="c"))["CardTainted"]
    assert (found.since, found.command) == ("2026-01-02T00:00:00Z", f"kubectl egpu card {name_of(1)}")


def test_use_that_nobody_booked_is_listed_with_its_amount() -> None:  # HAMi#1069
    taint = {"key": "gpu.elasticgpu.io/used-beyond-booking", "value": "4Gi", "effect": "None"}
    found = problems(a_node(), a_driver(), a_slice(a_card(taints=[taint])))["CardTainted"]
    assert "(4Gi or more of its memory is used and not booked by any claim):None" in found.message


def test_a_node_whose_driver_is_silent_is_listed_while_the_node_is_well() -> None:  # k8s#141912
    found = problems(a_node(), a_driver(ready="False"), a_slice(a_card()))["DriverSilent"]
    assert (found.about, found.since) == ("node node1", "2026-01-01T00:10:00Z")
    assert "DriverSilent" in problems(a_node(), a_slice(a_card()))
    assert "DriverSilent" not in problems(a_node(ready="False"), a_driver(ready="False"), a_slice(a_card()))


def test_cards_of_a_node_that_is_gone_are_listed() -> None:
    assert problems(a_driver(), a_slice(a_card()))["NodeGone"].command.endswith("spec.nodeName=node1")


def test_a_class_that_is_not_ready_and_one_that_matches_nothing_are_listed() -> None:
    empty = a_class("b")
    empty["status"]["conditions"] += [
        {
            "type": "Matching",
            "status": "False",
            "reason": "NoMatchingCard",
            "message": "none",
            "lastTransitionTime": THEN,
        }
    ]
    found = problems(*HEALTHY, a_class("a", ready="False"), empty)
    assert (found["ClassNotReady"].about, found["ClassMatchesNothing"].about) == ("class a", "class b")


def test_a_pod_that_waits_is_listed_with_the_command_that_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "m", "lastTransitionTime": THEN}
    pod = a_pod("patient", claim="wish", phase="Pending", status={"conditions": [condition]})
    found = problems(*HEALTHY, a_claim("wish"), pod)["PodPending"]
    assert (found.about, found.command) == ("pod ml/patient", "kubectl egpu explain pod/patient -n ml")


def test_holders_that_have_more_than_the_card_are_listed() -> None:
    taken = {"memory": "50Gi", "cores": "10", "shares": "1"}
    claims = [a_claim(name, a_result(consumedCapacity=taken, shareID=name), pods=("pod",)) for name in "ab"]
    assert "Overbooked" in problems(a_node(), a_driver(), a_slice(a_card(shared=True)), *claims)


def test_nothing_is_taken_for_gone_because_it_could_not_be_read() -> None:
    given = seen(a_claim("c", a_result(7), pods=("dead",)))
    hidden = objects.Part(unknown="forbidden")
    found = join.View(dataclasses.replace(given, slices=hidden, pods=hidden, nodes=hidden, drivers=hidden))
    assert found.problems == ()
    pending = dataclasses.replace(given, slices=hidden, pods=dataclasses.replace(given.pods, partial=True))
    assert join.View(pending).problems == ()


def test_without_the_inventory_there_are_no_numbers() -> None:  # kubestellar/console#12605
    found = join.View(dataclasses.replace(seen(*HEALTHY), slices=objects.Part(unknown="forbidden")))
    assert (found.total, found.nodes, found.cards) == (None, (), ())
