"""Why a pod has no card, by objects alone."""

from typing import Any

import pytest

from api import v1alpha1
from api.reasons import Missing, Reason, Verdict
from controller import selection
from explain import explanation, fitting, text
from tests.explain import objects

FULL = tuple(
    objects.a_claim(
        f"c{number}", on=f"node-{1 + number // 2}/gpu-{1 + number}", takes={"cores": "25", "memory": "21Gi"}
    )
    for number in range(4)
)


def _explained(
    *claims: Any, pod: Any = None, waiting: explanation.Waiting | None = None, **more: Any
) -> explanation.Explanation:
    now = objects.a_world(objects.a_claim("mine", **more.pop("mine", {})), *claims, **more)
    return explanation.explain(pod or objects.a_pod(claim="mine"), now, waiting)


def test_what_is_short_on_every_card_is_told_with_the_closest_and_who_is_in_the_way() -> None:
    # kubernetes/kubernetes: "cannot allocate all claims" was the whole explanation (KAI#577)
    closer = objects.a_claim("c9", on="node-2/gpu-4", takes={"cores": "10", "memory": "7Gi"})
    told = _explained(*FULL[:3], closer)
    assert told.verdict is Verdict.NO
    assert told.sentence == (
        "Pod team/pod does not fit: 4 cards: 3Gi of memory short, closest gpu-4 on node-2 with 17Gi free of 20Gi asked."
    )
    assert told.reason == Reason.CAPACITY
    assert told.changes == ("gpu-4 on node-2 is free when claim team/c9 ends",)
    assert [example.card for example in told.funnels[0].groups[0].examples] == ["gpu-4", "gpu-1"]


def test_a_pod_that_fits_waits_for_the_next_attempt() -> None:
    told = _explained(*FULL[:3])
    assert (told.verdict, told.node, told.cards) == (Verdict.NOW, "node-2", ("gpu-4",))
    assert told.sentence == "Pod team/pod fits now, on node node-2; it waits for the scheduler's next attempt."


def test_a_pod_that_fits_and_was_tried_long_ago_is_told_apart() -> None:
    # KAI#1217: the live scheduler says no, an offline replay says yes
    waiting = explanation.Waiting(tried_s=700, since="12:03", evidence="0/2 nodes are available")
    told = _explained(waiting=waiting)
    assert told.verdict is Verdict.DISAGREES
    assert told.sentence == "Pod team/pod should fit, on node node-1; the scheduler disagrees since 12:03."
    assert "The scheduler says: 0/2 nodes are available" in text.of_explanation(told)


def test_where_claims_of_others_are_hidden_what_looks_free_is_not_promised() -> None:
    told = _explained(unknown={"claims": "you may not list resourceclaims in all namespaces"})
    assert told.verdict is Verdict.UNKNOWN
    assert "you may not list resourceclaims" in told.sentence


def test_what_does_not_fit_even_beside_the_claims_that_may_be_seen_does_not_fit() -> None:
    told = _explained(*FULL, unknown={"claims": "you may not list resourceclaims in all namespaces"})
    assert told.verdict is Verdict.NO


@pytest.mark.parametrize("kind", ["slices", "device_classes"])
def test_without_inventory_or_classes_nothing_can_be_told(kind: str) -> None:
    told = _explained(unknown={kind: "you may not list them"})
    assert (told.verdict, told.sentence) == (
        Verdict.UNKNOWN,
        "Whether pod team/pod fits cannot be told: you may not list them.",
    )


@pytest.mark.parametrize(
    ("pod", "more", "missing", "words"),
    [
        (objects.a_pod(template="t"), {}, Missing.TEMPLATE, "ResourceClaimTemplate team/t: it does not exist"),
        (objects.a_pod(claim="gone"), {}, Missing.CLAIM, "ResourceClaim team/gone: it does not exist"),
        (objects.a_pod(), {}, Missing.NO_CLAIM, "gets no card: the pod names no claim"),
        (
            objects.a_pod(claim="mine"),
            {"classes": ()},
            Missing.CLASS,
            "DeviceClass inference.elasticgpu.io: it does not",
        ),
        (
            objects.a_pod(containers=[{"name": "m", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}]),
            {},
            Missing.UNTRANSLATED,
            "asks for nvidia.com/gpumem, which nothing has turned into a claim",
        ),
    ],
)
def test_the_first_link_that_is_missing_is_the_reason(pod: Any, more: Any, missing: Missing, words: str) -> None:
    # kubernetes/kubernetes#129362, HAMi#661
    told = _explained(pod=pod, **more)
    assert (told.verdict, told.reason) == (Verdict.NO, missing)
    assert words in told.sentence


def test_a_claim_of_a_template_that_is_not_made_yet_is_looked_at_as_it_will_be() -> None:
    told = _explained(pod=objects.a_pod(template="t"), templates=(objects.a_template("t"),))
    assert told.verdict is Verdict.NOW
    assert [link.kind for link in told.links] == ["Pod", "ResourceClaimTemplate", "Request"]


@pytest.mark.parametrize(
    ("more", "reason", "words"),
    [
        (
            {"mine": {"spec": objects.a_spec(memory="80Gi")}},
            Reason.SIZE,
            "4 cards too small: 80Gi of memory asked, the largest has 24Gi",
        ),
        (
            {"mine": {"spec": objects.a_spec(count=3)}},
            Reason.TOGETHER,
            "wants 3 cards on one node; node-1 has most, with 2",
        ),
        ({"classes": (objects.a_class(text="device.driver == 'x'"),)}, Reason.CLASS, "4 cards not of class inference"),
        (
            {"mine": {"spec": objects.a_spec(selectors=[{"cel": {"expression": "false"}}])}},
            Reason.SELECTOR,
            "4 cards not what the claim's own selector asks for",
        ),
        ({"pod": objects.a_pod(claim="mine", nodeSelector={"zone": "b"})}, Reason.NODE, "node selector wants zone=b"),
        ({"slices": ()}, Reason.POOL, "no card is published"),
        (
            {"slices": (objects.a_slice("node-1", objects.a_device("gpu-1"), of=2, generation=5),)},
            Reason.POOL,
            "1 pool not usable, such as egpu/node-1: 1 of 2 slices of generation 5 are there",
        ),
        (
            {"classes": (objects.a_class(text='device.attributes["gpu.elasticgpu.io"].model == "x"'),)},
            Reason.UNJUDGED,
            "no such key: model; kube-scheduler gives up the pod on all nodes",
        ),
    ],
)
def test_each_reason_is_told_in_words(more: Any, reason: Reason, words: str) -> None:
    told = _explained(**more)
    assert (told.verdict, told.reason) == (Verdict.NO, reason)
    assert words in told.sentence


def test_a_tainted_card_is_one_whether_its_slice_or_a_rule_says_so() -> None:
    taint = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule"}
    slices = (objects.a_slice("node-1", objects.a_device("gpu-1", taints=[taint]), objects.a_device("gpu-2")),)
    selector = {"driver": objects.DRIVER, "pool": "egpu/node-1", "device": "gpu-2"}
    rules = ({"spec": {"deviceSelector": selector, "taint": {"key": "cordoned", "effect": "NoSchedule"}}},)
    told = _explained(slices=slices, nodes_=(objects.a_node("node-1"),), rules=rules)
    assert told.reason == Reason.TAINT
    assert {group.text for group in told.funnels[0].groups} == {
        "1 card tainted: cordoned",
        "1 card tainted: gpu.elasticgpu.io/lost",
    }


def test_a_card_that_somebody_has_for_himself_is_held() -> None:
    whole = objects.a_claim("whole", on="node-1/gpu-1")
    del whole["status"]["allocation"]["devices"]["results"][0]["shareID"]
    told = _explained(whole, slices=(objects.a_slice("node-1", objects.a_device("gpu-1")),))
    assert told.reason == Reason.HELD
    assert told.changes == ("gpu-1 on node-1 is free when claim team/whole ends",)


def test_a_pod_with_its_cards_waits_for_something_else() -> None:
    told = _explained(mine={"on": "node-1/gpu-1"})
    assert (told.verdict, told.sentence) == (
        Verdict.SETTLED,
        "All claims of pod team/pod have their cards; it waits for something else.",
    )
    assert _explained(pod=objects.a_pod(claim="mine", node="node-1")).sentence == "Pod team/pod is on node node-1."


def test_all_claims_of_a_pod_are_looked_at_together() -> None:
    # modelplane PR#101: each request alone fits, and both need the same single device
    pod = objects.a_pod(claim="mine")
    pod["spec"]["resourceClaims"].append({"name": "other", "resourceClaimName": "other"})
    one_card = (objects.a_slice("node-1", objects.a_device("gpu-1")),)
    told = _explained(objects.a_claim("other"), pod=pod, slices=one_card)
    assert (told.verdict, told.reason) == (Verdict.NO, Reason.TOGETHER)
    assert "no node can meet all of them together" in told.sentence


def test_cards_are_counted_step_by_step_and_add_up() -> None:
    told = _explained(*FULL[:3], mine={"spec": objects.a_spec(memory="22Gi", count=2)})
    (funnel,) = told.funnels
    assert funnel.seen == 4
    assert funnel.left == ((Reason.CAPACITY, 1),)
    assert sum(group.cards for group in funnel.groups) + sum(funnel.candidates.values()) == 4


def test_cards_that_the_controller_allocates_are_for_its_classes_alone() -> None:
    taint = {"key": "gpu.elasticgpu.io/allocated-by", "value": "controller", "effect": "NoSchedule"}
    said = {"type": {"string": "gpu"}, "allocatedBy": {"string": "controller"}}
    given = objects.a_slice("node-1", objects.a_device("gpu-1", taints=[taint], attributes=said))
    others = objects.a_slice("node-2", objects.a_device("gpu-2", attributes={"type": {"string": "gpu"}}))
    made = {"packed": selection.selectors(v1alpha1.Cards(), given=True), "usual": selection.selectors(v1alpha1.Cards())}
    classes = [
        {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": found}}
        for name, found in made.items()
    ]
    now = objects.a_world(slices=(given, others), classes=(objects.a_class(), *classes))

    def asked(name: str) -> dict[str, Any]:
        exactly = {"deviceClassName": name, "capacity": {"requests": {"cores": "25", "memory": "6Gi"}}}
        return objects.a_claim(name, {"devices": {"requests": [{"name": "card", "exactly": exactly}]}})

    for name, node, who in (("packed", "node-1", "controller"), ("usual", "node-2", "scheduler")):
        told = explanation.explain(asked(name), now)
        assert told.sentence == f"Claim team/{name} fits now, on node {node}; it waits for the {who}'s next attempt."
        assert fitting.fit(asked(name), now).fits == 4
    only = objects.a_world(slices=(given,), classes=(objects.a_class(), *classes))
    assert explanation.explain(asked("usual"), only).reason == "NotOfTheClass"
    assert explanation.explain(objects.a_claim("other"), only).reason == "CardTainted"
