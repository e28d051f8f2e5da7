"""A snapshot in, writes out: every verdict on a class as a table."""

from dataclasses import replace
from typing import Any

import pytest

from controller import classes, snapshot
from tests.controller import objects

AT = "2026-02-02T00:00:00Z"
JSON = dict[str, Any]


def _snapshot(
    *classes_: JSON, device_classes: tuple[JSON, ...] = (), slices: tuple[JSON, ...] = ()
) -> snapshot.Snapshot:
    return snapshot.build(
        1,
        map(snapshot.gpu_class, classes_),
        map(snapshot.device_class, device_classes),
        map(snapshot.slice_, slices),
    )


def _turn(
    *classes_: JSON, refusals: dict[str, classes.Refusal] | None = None, **rest: Any
) -> tuple[classes.Write, ...]:
    return classes.turn(_snapshot(*classes_, **rest), refusals or {}, AT)


def _made(data: JSON, **meta: Any) -> JSON:
    """The DeviceClass as it is after our first write."""
    [write] = _turn(data)
    assert isinstance(write, classes.Create)
    stored = {"uid": "uid-made", "resourceVersion": "8"} | meta
    return write.body | {"metadata": write.body["metadata"] | stored}


def _conditions(write: classes.Write) -> dict[str, tuple[str, str, str]]:
    assert isinstance(write, classes.Report)
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in write.body["status"]["conditions"]}


def test_a_new_class_gets_its_device_class_and_the_status_waits() -> None:
    [write] = _turn(objects.a_class())
    assert isinstance(write, classes.Create)
    assert write.body["metadata"] == {
        "name": objects.NAME,
        "labels": {"elasticgpu.io/class": objects.NAME, "app.kubernetes.io/managed-by": "elastic-gpu"},
        "ownerReferences": [
            {
                "apiVersion": "elasticgpu.io/v1alpha1",
                "kind": "ElasticGPUClass",
                "name": objects.NAME,
                "uid": f"uid-{objects.NAME}",
                "controller": True,
            }
        ],
    }


def test_a_class_whose_device_class_is_in_place_is_ready() -> None:
    data = objects.a_class()
    [write] = _turn(data, device_classes=(_made(data),), slices=(objects.a_slice(objects.a_device("gpu-1")),))
    assert _conditions(write) == {
        "Accepted": ("True", "Accepted", ""),
        "Matching": ("True", "CardsFound", "1 matching"),
        "Ready": ("True", "DeviceClassInPlace", "claims can name deviceClassName: training.elasticgpu.io"),
    }
    assert isinstance(write, classes.Report)
    assert write.body["metadata"] == {"uid": f"uid-{objects.NAME}", "resourceVersion": "7"}
    status = write.body["status"]
    assert (status["observedGeneration"], status["deviceClass"], status["matchingCards"]) == (2, objects.NAME, 1)
    assert {condition["lastTransitionTime"] for condition in status["conditions"]} == {AT}


def _config(data: JSON) -> JSON:
    [config] = _made(data)["spec"]["config"]
    assert config["opaque"]["driver"] == "gpu.elasticgpu.io"
    parameters: JSON = config["opaque"]["parameters"]
    return parameters


def test_the_device_class_tells_the_node_driver_what_is_given() -> None:
    version = {"apiVersion": "elasticgpu.io/v1alpha1"}
    assert _config(objects.a_class()) == version | {"kind": "CardConfig"}
    assert _config(objects.a_class(backend="Share")) == version | {
        "kind": "ShareConfig",
        "memory": "Required",
        "cores": "BestEffort",
        "accept": ["Driver", "MPS", "HAMi"],
    }
    firm = {"memory": "BestEffort", "cores": "Required", "accept": ["HAMi"], "fallback": "WholeCard"}
    assert _config(objects.a_class(backend="Share", share=firm)) == version | {"kind": "ShareConfig"} | firm


LAX = {"backend": "Share", "share": {"memory": "BestEffort"}}


@pytest.mark.parametrize(
    ("spec", "device", "state"),
    [
        (LAX, {"shareable": True}, ("True", "CardsFound", "1 matching")),
        ({"backend": "Share"}, {"shareable": True, "memoryEnforcement": "mps"}, ("True", "CardsFound", "1 matching")),
        (
            {"backend": "Share", "share": {"memory": "BestEffort", "fallback": "WholeCard"}},
            {},
            (
                "True",
                "CardsFound",
                "1 matching; none of them can be shared, so each claim gets a whole card, as share.fallback says",
            ),
        ),
        (
            LAX,
            {},
            (
                "False",
                "NoShares",
                "1 cards match, and none can be shared: their node drivers offer whole cards only, or the API server "
                "does not store that cards can be shared (Kubernetes 1.36, or the feature gate DRAConsumableCapacity "
                "before that)",
            ),
        ),
        (
            {"backend": "Share"},
            {"shareable": True},
            (
                "False",
                "NoEnforcement",
                "1 cards match, and none can hold a share to its memory by Driver, MPS, HAMi, which the class requires; "
                "their attributes memoryEnforcement and coresEnforcement tell what they can",
            ),
        ),
        (
            LAX | {"cards": {"productNames": ["*T4*"]}},
            {},
            ("False", "NoMatchingCard", "none of 1 cards matches; there are NVIDIA L40S"),
        ),
    ],
)
def test_a_class_of_shares_says_why_there_are_none(spec: JSON, device: JSON, state: tuple[str, str, str]) -> None:
    data = objects.a_class(**spec)
    [write] = _turn(data, device_classes=(_made(data),), slices=(objects.a_slice(objects.a_device("gpu-1", **device)),))
    assert _conditions(write)["Matching"] == state


def test_nothing_is_written_when_nothing_changed() -> None:
    data = objects.a_class()
    made = (_made(data),)
    [write] = _turn(data, device_classes=made)
    assert isinstance(write, classes.Report)
    assert _turn(data | {"status": write.body["status"]}, device_classes=made) == ()


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    data = objects.a_class()
    made = (_made(data),)
    [first] = _turn(data, device_classes=made)
    assert isinstance(first, classes.Report)
    seen = data | {"status": first.body["status"]}
    later = _snapshot(seen, device_classes=made, slices=(objects.a_slice(objects.a_device("gpu-1")),))
    [second] = classes.turn(later, {}, "2026-03-03T00:00:00Z")
    assert isinstance(second, classes.Report)
    times = {c["type"]: c["lastTransitionTime"] for c in second.body["status"]["conditions"]}
    assert times == {"Accepted": AT, "Ready": AT, "Matching": "2026-03-03T00:00:00Z"}


@pytest.mark.parametrize(
    ("slices", "cards", "state"),
    [
        ((), {}, ("False", "NoMatchingCard", "no node publishes a card of driver gpu.elasticgpu.io")),
        (
            (objects.a_slice(objects.a_device("gpu-1"), objects.a_device("gpu-2", product="NVIDIA T4")),),
            {"productNames": ["*H100*"]},
            ("False", "NoMatchingCard", "none of 2 cards matches; there are NVIDIA L40S, NVIDIA T4"),
        ),
        (
            (objects.a_slice(objects.a_device("gpu-1", product=None)),),
            {"productNames": ["*"]},
            ("False", "NoMatchingCard", "none of 1 cards matches; there are unnamed ones"),
        ),
        (
            (objects.a_slice(objects.a_device("gpu-1")),),
            {"expression": "false"},
            ("False", "NoMatchingCard", "none of 1 cards matches; there are NVIDIA L40S"),
        ),
        (
            (objects.a_slice(objects.a_device("gpu-1"), objects.a_device("gpu-2", product="NVIDIA T4")),),
            {"expression": 'device.attributes["gpu.elasticgpu.io"].productName.endsWith("T4")'},
            ("True", "CardsFound", "1 matching"),
        ),
        (
            (objects.a_slice(objects.a_device("gpu-1")),),
            {"expression": 'device.attributes["gpu.elasticgpu.io"].uuid == "GPU-1"'},
            (
                "True",
                "CardsFound",
                "1 matching; at most, since the expression was not judged: it looks at what each card has for itself",
            ),
        ),
    ],
)
def test_a_class_says_which_cards_it_matches(
    slices: tuple[JSON, ...], cards: JSON, state: tuple[str, str, str]
) -> None:
    data = objects.a_class(cards=cards)
    [write] = _turn(data, device_classes=(_made(data),), slices=slices)
    assert _conditions(write)["Matching"] == state
    assert _conditions(write)["Ready"][0] == "True"


def test_the_slices_of_an_older_generation_of_a_pool_do_not_count() -> None:
    old = objects.a_slice(objects.a_device("gpu-1"), objects.a_device("gpu-2"), generation=1, name="old")
    new = objects.a_slice(objects.a_device("gpu-1"), generation=2, name="new")
    other = objects.a_slice(objects.a_device("gpu-3"), pool="egpu/node-2", name="other")
    assert sum(_snapshot(slices=(old, new, other)).cards.values()) == 2


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"backend": "Remote"}, "remote cards are switched off here; the chart's remote.enabled switches them on"),
        (
            {"reclaimPolicy": "Retain"},
            "reclaimPolicy Retain needs DeviceTaintRules, which this API server does not have (Kubernetes 1.37 has)",
        ),
    ],
)
def test_what_is_not_built_yet_is_said_and_gets_no_device_class(spec: JSON, text: str) -> None:
    [write] = _turn(objects.a_class(**spec))
    conditions = _conditions(write)
    assert conditions["Accepted"] == conditions["Ready"] == ("False", "NotImplemented", text)


def test_a_class_that_turns_into_something_not_built_loses_its_device_class() -> None:
    """Else its claims would get cards of this machine where remote ones are asked for."""
    made = _made(objects.a_class())
    delete, report = _turn(objects.a_class(backend="Remote"), device_classes=(made,))
    assert delete == classes.Delete(of=objects.NAME, uid="uid-made", resource_version="8")
    assert isinstance(report, classes.Report)
    assert report.body["status"]["deviceClass"] == ""


def test_a_workload_type_belongs_to_the_oldest_class_and_the_condition_names_it() -> None:
    first = objects.a_class("zz", created="2026-01-01T00:00:00Z", workloadTypes=["training"])
    second = objects.a_class("aa", created="2026-01-02T00:00:00Z", workloadTypes=["debug", "training"])
    create, refused = _turn(second, first)
    assert (create.of, refused.of) == ("zz", "aa")
    assert _conditions(refused)["Ready"] == (
        "False",
        "WorkloadTypeTaken",
        "workload type training belongs to class zz, which is older; take it out of workloadTypes of one of the two",
    )


def test_of_two_classes_of_one_age_the_name_decides() -> None:
    _, refused = _turn(objects.a_class("bb", workloadTypes=["t"]), objects.a_class("aa", workloadTypes=["t"]))
    assert refused.of == "bb"


def test_a_class_that_is_not_built_yet_holds_its_workload_type_all_the_same() -> None:
    """Else the younger one would lose it, and its DeviceClass, on the day of an upgrade."""
    first = objects.a_class("zz", created="2026-01-01T00:00:00Z", backend="Remote", workloadTypes=["t"])
    second = objects.a_class("aa", created="2026-01-02T00:00:00Z", workloadTypes=["t"])
    assert _conditions(_turn(first, second)[1])["Accepted"][1] == "WorkloadTypeTaken"


def test_a_device_class_made_by_hand_is_not_touched() -> None:
    [write] = _turn(objects.a_class(), device_classes=(objects.a_device_class(),))
    assert _conditions(write)["Ready"] == (
        "False",
        "NameTaken",
        "DeviceClass training.elasticgpu.io exists and was not made from this class; delete it, or name the class otherwise",
    )
    assert isinstance(write, classes.Report)
    assert write.body["status"]["deviceClass"] == ""


def test_a_device_class_made_by_hand_is_not_deleted_either() -> None:
    [write] = _turn(objects.a_class(backend="Remote"), device_classes=(objects.a_device_class(),))
    assert isinstance(write, classes.Report)


def test_what_somebody_added_to_our_device_class_is_taken_out() -> None:
    data = objects.a_class()
    made = _made(data)
    made["spec"] = {"selectors": [], "extendedResourceName": "example.com/gpu"}
    [write] = _turn(data, device_classes=(made,))
    assert isinstance(write, classes.Change)
    assert write.body["metadata"]["uid"] == "uid-made"
    assert write.body["metadata"]["resourceVersion"] == "8"
    assert write.body["spec"] == write.spec | {"extendedResourceName": None}


def test_a_class_made_again_takes_its_device_class_over() -> None:
    """The owner's uid is the old one; left so, the garbage collector would take it."""
    data = objects.a_class()
    made = _made(data)
    data["metadata"]["uid"] = "uid-second"
    [write] = _turn(data, device_classes=(made,))
    assert isinstance(write, classes.Change)
    assert write.body["metadata"]["ownerReferences"][0]["uid"] == "uid-second"


def test_a_refused_device_class_is_not_sent_again_and_the_servers_words_become_the_condition() -> None:
    data = objects.a_class(cards={"expression": "device.driver =="})
    [create] = _turn(data)
    assert isinstance(create, classes.Create)
    refusals = {objects.NAME: classes.Refusal(spec=create.spec, message="the words")}
    [write] = _turn(data, refusals=refusals)
    assert _conditions(write)["Ready"] == ("False", "Refused", "the words")
    [again] = _turn(objects.a_class(cards={"expression": "true"}), refusals=refusals)
    assert isinstance(again, classes.Create)


def test_a_refused_change_leaves_the_former_device_class_in_place() -> None:
    made = _made(objects.a_class())
    data = objects.a_class(cards={"expression": "("})
    [change] = _turn(data, device_classes=(made,))
    assert isinstance(change, classes.Change)
    refusals = {objects.NAME: classes.Refusal(spec=change.spec, message="the words")}
    [write] = _turn(data, device_classes=(made,), refusals=refusals)
    assert _conditions(write)["Ready"][:2] == ("False", "Refused")
    assert isinstance(write, classes.Report)
    assert write.body["status"]["deviceClass"] == objects.NAME


FAILS = {"expression": 'device.attributes["gpu.elasticgpu.io"].brand == "Tesla"'}
FAILING = (
    "cards.expression cannot be judged on 1 cards (NVIDIA L40S): no such key: brand; kube-scheduler gives up a pod on all "
    'nodes when it meets such a card, so the text has to ask first whether an attribute is there: "x" in '
    'device.attributes["domain"] && ...'
)


def test_an_expression_that_fails_on_some_card_is_not_applied_and_the_condition_says_where_and_why() -> None:
    # kubernetes/kubernetes: an evaluation error on one device stops the pod on every node
    [write] = _turn(objects.a_class(cards=FAILS), slices=(objects.a_slice(objects.a_device("gpu-1")),))
    assert _conditions(write)["Accepted"] == _conditions(write)["Ready"] == ("False", "ExpressionFails", FAILING)


def test_a_card_that_comes_later_and_fails_an_expression_is_told_and_leaves_the_device_class_in_place() -> None:
    data = objects.a_class(cards=FAILS)
    [write] = _turn(data, device_classes=(_made(data),), slices=(objects.a_slice(objects.a_device("gpu-1")),))
    assert isinstance(write, classes.Report)
    assert _conditions(write)["Ready"][:2] == ("False", "ExpressionFails")
    assert write.body["status"]["deviceClass"] == objects.NAME


def test_a_card_that_the_rest_of_the_class_leaves_out_cannot_make_its_expression_fail() -> None:
    cards = FAILS | {"productNames": ["*H100*"]}
    [write] = _turn(objects.a_class(cards=cards), slices=(objects.a_slice(objects.a_device("gpu-1")),))
    assert isinstance(write, classes.Create)


def test_a_class_with_a_field_of_a_newer_release_is_not_guessed_at() -> None:
    data = objects.a_class(cards={"colour": "red"})
    [write] = _turn(data, device_classes=(_made(objects.a_class()),))
    text = f'class {objects.NAME}: unknown field "colour" at $.spec.cards; known: expression, minMemory, productNames'
    assert _conditions(write)["Accepted"] == ("False", "Invalid", text)
    assert _conditions(write)["Matching"][:2] == ("Unknown", "Invalid")


def test_a_status_that_cannot_be_read_is_written_anew() -> None:
    data = objects.a_class(status={"conditions": "none"})
    [write] = _turn(data, device_classes=(_made(objects.a_class()),))
    assert isinstance(write, classes.Report)


def _remote(*classes_: JSON, **rest: Any) -> tuple[classes.Write, ...]:
    return classes.turn(replace(_snapshot(*classes_, **rest), remote_cards=True), {}, AT)


def test_a_class_of_remote_cards_selects_the_remote_driver_by_the_attributes_of_the_local_one() -> None:
    [create] = _remote(objects.a_class(backend="Remote", cards={"productNames": ["A*"]}))
    [selector] = create.body["spec"]["selectors"]
    assert selector["cel"]["expression"].startswith(
        'device.driver == "remote.gpu.elasticgpu.io" && "type" in device.attributes["gpu.elasticgpu.io"]'
    )
    [config] = create.body["spec"]["config"]
    parameters = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "RemoteConfig"}
    assert config["opaque"] == {"driver": "remote.gpu.elasticgpu.io", "parameters": parameters}


@pytest.mark.parametrize(
    ("backend", "message"),
    [("Remote", "no RemotePool has a card of driver remote.gpu.elasticgpu.io"), ("Whole", "1 matching")],
)
def test_a_class_counts_the_cards_of_its_own_driver_alone(backend: str, message: str) -> None:
    data = objects.a_class(backend=backend)
    [create] = _remote(data)
    made = create.body | {"metadata": create.body["metadata"] | {"uid": "u", "resourceVersion": "1"}}
    [report] = _remote(data, device_classes=(made,), slices=(objects.a_slice(objects.a_device("gpu-1")),))
    assert _conditions(report)["Matching"][2] == message


def test_a_resource_name_goes_to_the_device_class() -> None:
    [create] = _turn(objects.a_class(extendedResourceName="nvidia.com/gpu"))
    assert isinstance(create, classes.Create)
    assert create.spec["extendedResourceName"] == "nvidia.com/gpu"


def test_a_class_allocated_by_the_controller_is_made_of_the_cards_that_are_given_to_it() -> None:
    """kube-scheduler must find no card for it where the taint does not reach."""
    [write] = _turn(objects.a_class(allocation={"by": "Controller"}))
    assert isinstance(write, classes.Create)
    (selector,) = write.spec["selectors"]
    assert selector["cel"]["expression"].endswith('device.attributes["gpu.elasticgpu.io"].allocatedBy == "controller"')


@pytest.mark.parametrize(
    ("by", "there", "message"),
    [
        ("Scheduler", "scheduler", "1 matching"),
        ("Controller", "controller", "1 matching"),
        ("Scheduler", "controller", "1 cards match, and all are on nodes that are given to the controller"),
        ("Controller", "scheduler", "1 cards match, and none is on a node that is given to the controller"),
    ],
)
def test_each_card_is_for_the_classes_of_one_allocator(by: str, there: str, message: str) -> None:
    """Also for a claim that tolerates every taint."""
    data, found = objects.a_class(allocation={"by": by}), objects.a_slice(objects.a_device("gpu-1", allocatedBy=there))
    [create] = _turn(data, slices=(found,))
    made = create.body | {"metadata": create.body["metadata"] | {"uid": "u", "resourceVersion": "1"}}
    [report] = _turn(data, device_classes=(made,), slices=(found,))
    assert _conditions(report)["Matching"][2].startswith(message)
