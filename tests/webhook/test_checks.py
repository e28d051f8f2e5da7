"""What is refused at admission, and in which words."""

from typing import Any

import pytest

from tests.webhook.objects import JSON, a_claim, a_class, a_config, a_request
from webhook import checks, known

SHARE, WHOLE = "share.example.com", "whole.example.com"
CLASSES = {item.name: item for item in map(known.gpu_class, (a_class(SHARE), a_class(WHOLE, "Whole")))}
MEMORY = {"capacity": {"requests": {"memory": "1Gi"}}}


def refusal(item: JSON) -> str:
    return checks.finding(item["kind"], item, CLASSES).refusal


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_share_without_amounts_is_told_the_lines_to_add(kind: str) -> None:
    words = refusal(a_claim(a_request(SHARE), kind=kind))
    assert "request card is of class share.example.com, which gives shares of cards" in words
    assert 'capacity: {requests: {cores: "50", memory: 8Gi}}' in words


@pytest.mark.parametrize(
    "request_",
    [
        a_request(SHARE, **MEMORY),
        a_request(SHARE, capacity={"requests": {"gpu.elasticgpu.io/cores": "0"}}),
        a_request(WHOLE),
        a_request("gpu.example.com"),
        {"name": "card", "firstAvailable": [{"name": "a", "deviceClassName": WHOLE}]},
    ],
)
def test_what_names_an_amount_or_is_of_no_class_of_shares_is_taken(request_: JSON) -> None:
    assert refusal(a_claim(request_)) == ""


def test_each_alternative_is_looked_at() -> None:
    subs = [{"name": "a", "deviceClassName": WHOLE}, {"name": "b", "deviceClassName": SHARE}]
    assert "request card/b is of class share.example.com" in refusal(a_claim({"name": "card", "firstAvailable": subs}))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (a_config(memry="Required"), 'config of claim ns/c: unknown field "memry" at $; known: accept, '),
        (a_config(kind="Other"), "kind is 'Other' at $.kind"),
        (a_config(apiVersion="elasticgpu.io/v2"), "apiVersion is 'elasticgpu.io/v2'"),
        ({**a_config(memory="Sometimes"), "requests": ["card"]}, "config for request card of claim ns/c: "),
        ({"opaque": {"driver": "gpu.elasticgpu.io"}}, "parameters must be an object"),
        (a_config("remote.gpu.elasticgpu.io", kind="Other"), "kind is 'Other' at $.kind"),
    ],
)
def test_a_config_for_our_drivers_is_read_strictly(config: JSON, words: str) -> None:
    assert words in refusal(a_claim(a_request(WHOLE), config=[config]))


def test_a_config_for_another_driver_is_not_read() -> None:
    assert refusal(a_claim(a_request(WHOLE), config=[a_config("gpu.example.com", x=1)])) == ""


def test_the_config_of_a_hand_made_device_class_is_read_too() -> None:
    made = {"kind": "DeviceClass", "metadata": {"name": "d"}, "spec": {"config": [a_config(memry=1)]}}
    assert 'config of class d: unknown field "memry"' in refusal(made)


@pytest.mark.parametrize("spec", [None, {"devices": {"requests": [{"name": "x", "exactly": "y"}]}}, {"devices": []}])
def test_a_shape_that_is_none_is_refused_not_a_crash(spec: Any) -> None:  # NV PR#1384
    item = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}
    assert "unexpected shape" in refusal(item) or refusal(item) == ""


def warnings(name: str, created: str = "", kinds: tuple[str, ...] = ("t",)) -> tuple[str, ...]:
    older = a_class("older.example.com", workloadTypes=["t"], created="2026-01-01T00:00:00Z")
    classes = {item.name: item for item in [known.gpu_class(older)]}
    if created:
        classes[name] = known.gpu_class(a_class(name, created=created))
    return checks.finding("ElasticGPUClass", a_class(name, workloadTypes=list(kinds)), classes).warnings


def test_a_workload_type_that_is_taken_is_a_warning_to_the_younger_class() -> None:
    words = "workload type t belongs to class older.example.com, which is older; this class will not be accepted"
    assert warnings("new.example.com") == (words,)
    assert warnings("new.example.com", "2026-02-01T00:00:00Z") == (words,)
    assert warnings("new.example.com", "2025-01-01T00:00:00Z") == ()
    assert warnings("older.example.com") == ()
    assert warnings("new.example.com", kinds=("u",)) == ()


def test_a_class_is_read_strictly() -> None:
    assert "unknown field" in refusal(a_class("c", nodes=1))


def test_the_cel_text_of_a_class_is_judged_with_its_place() -> None:
    assert refusal(a_class("c", cards={"expression": 'device.driver == "x"'})) == ""
    assert "class c: cards.expression: " in refusal(a_class("c", cards={"expression": "device.drivr =="}))
