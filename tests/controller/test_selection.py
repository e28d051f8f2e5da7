"""Which cards a class is made of, by its CEL texts."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from api import v1alpha1
from controller import selection, snapshot
from tests.controller import objects

CARDS: tuple[dict[str, Any], ...] = (
    {"product": "NVIDIA L40S", "memory": "48Gi"},
    {"product": "NVIDIA A100-SXM4-80GB (PCIe)", "memory": "80Gi"},
    {"product": None, "memory": None},
)


def _cards(**wanted: Any) -> v1alpha1.Cards:
    return v1alpha1.decode_class({"spec": {"backend": "Whole", "cards": wanted}}, "class c").cards


def _seen(*cards: dict[str, Any]) -> Mapping[snapshot.Card, int]:
    return dict(snapshot.slice_(objects.a_slice(*(objects.a_device("gpu-1", **card) for card in cards))).cards)


def _among(type_: str = "gpu") -> Mapping[snapshot.Card, int]:
    return _seen(*({"type": type_} | card for card in CARDS))


def _count(cards: v1alpha1.Cards, among: Mapping[snapshot.Card, int], share: v1alpha1.Share | None = None) -> int:
    return sum(selection.judged(cards, among, share).matching.values())


HEAD = (
    'device.driver == "gpu.elasticgpu.io" && '
    '"type" in device.attributes["gpu.elasticgpu.io"] && device.attributes["gpu.elasticgpu.io"].type == "gpu" && '
    '!("allocatedBy" in device.attributes["gpu.elasticgpu.io"] && '
    'device.attributes["gpu.elasticgpu.io"].allocatedBy == "controller")'
)


def test_a_class_without_wishes_takes_every_card_of_the_driver() -> None:
    assert selection.selectors(_cards()) == [{"cel": {"expression": HEAD}}]
    assert _count(_cards(), _among()) == 3


def test_every_test_of_an_optional_attribute_asks_first_whether_it_is_there() -> None:
    [selector] = selection.selectors(_cards(productNames=["*L40S*", "A?"], minMemory="24Gi"))
    assert selector["cel"]["expression"] == HEAD + (
        ' && "productName" in device.attributes["gpu.elasticgpu.io"]'
        ' && device.attributes["gpu.elasticgpu.io"].productName.matches("^(?:.*L40S.*|A.)$")'
        ' && "memory" in device.capacity["gpu.elasticgpu.io"]'
        ' && device.capacity["gpu.elasticgpu.io"].memory.compareTo(quantity("24Gi")) >= 0'
    )


def test_the_users_expression_stands_in_a_selector_of_its_own_and_cannot_lift_the_driver_test() -> None:
    trick = "true) || (true"
    assert selection.selectors(_cards(expression=trick)) == [
        {"cel": {"expression": HEAD}},
        {"cel": {"expression": trick}},
    ]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"productNames": ["*L40S*"]}, 1),
        ({"productNames": ["L40S"]}, 0),
        ({"productNames": ["nvidia l40s"]}, 0),
        ({"productNames": ["NVIDIA L40?"]}, 1),
        ({"productNames": ["NVIDIA ????"]}, 1),
        ({"productNames": ["*(PCIe)"]}, 1),
        ({"productNames": ["NVIDIA.L40S", "[N]*"]}, 0),
        ({"productNames": ["*L40S", "*A100*"]}, 2),
        ({"productNames": ["*"]}, 2),
        ({"minMemory": "48Gi"}, 1 + 1),
        ({"minMemory": "48.5Gi"}, 1),
        ({"minMemory": 60 << 30}, 1),
        ({"minMemory": "60G"}, 1),
        ({"minMemory": "0"}, 2),
        ({"productNames": ["*L40S*"], "minMemory": "60Gi"}, 0),
    ],
)
def test_cards_are_counted_by_name_and_memory(wanted: dict[str, Any], count: int) -> None:
    assert _count(_cards(**wanted), _among()) == count


def test_a_device_that_is_no_whole_card_is_not_counted() -> None:
    assert _count(_cards(), _among("mig")) == 0


@pytest.mark.parametrize("glob", ['a"b', "a\\b", "a.b+c(d)|e[f]{g}^$", "per%cent"])
def test_special_characters_of_a_glob_stay_themselves_in_cel(glob: str) -> None:
    [selector] = selection.selectors(_cards(productNames=[glob]))
    literal = selector["cel"]["expression"].partition(".matches(")[2].removesuffix(")")
    pattern = json.loads(literal)
    assert pattern.startswith("^(?:")
    assert _count(_cards(productNames=[glob]), _seen(*[{"product": glob}] * 3)) == 3


REQUIRED, BEST_EFFORT, BURST = v1alpha1.Enforcement


def test_a_class_of_shares_takes_only_cards_that_hold_what_it_requires() -> None:
    share = v1alpha1.Share(memory=REQUIRED, cores=BEST_EFFORT, accept=(v1alpha1.Rung.MPS, v1alpha1.Rung.HAMI))
    [selector] = selection.selectors(_cards(), share)
    assert selector["cel"]["expression"] == HEAD + (
        ' && "memoryEnforcement" in device.attributes["gpu.elasticgpu.io"]'
        ' && device.attributes["gpu.elasticgpu.io"].memoryEnforcement in ["mps","hami"]'
    )
    among = _seen(*({"memoryEnforcement": word} for word in ("none", "driver", "mps", "hami")))
    assert _count(_cards(), among, share) == 2


def test_best_effort_takes_every_card() -> None:
    share = v1alpha1.Share(memory=BEST_EFFORT, cores=BURST)
    assert selection.selectors(_cards(), share) == [{"cel": {"expression": HEAD}}]


OWN = 'device.attributes["gpu.elasticgpu.io"]'


def test_the_users_expression_is_judged_on_the_cards_that_the_rest_of_the_class_takes() -> None:
    judged = selection.judged(
        _cards(productNames=["NVIDIA*"], expression=f'{OWN}.productName.contains("L40S")'), _among()
    )
    assert (sum(judged.matching.values()), judged.failing, judged.unsure) == (1, {}, "")


def test_cards_that_the_users_expression_cannot_be_judged_on_are_told_apart_from_others() -> None:
    judged = selection.judged(_cards(expression=f'{OWN}.productName.contains("L40S")'), _among())
    assert [card.product_name for card in judged.failing] == [None]
    assert judged.why == "no such key: productName"
    assert sum(judged.matching.values()) == 1


def test_an_expression_about_single_cards_is_not_judged_on_kinds_of_them() -> None:
    judged = selection.judged(_cards(expression=f'{OWN}.uuid == "GPU-1"'), _among())
    assert sum(judged.matching.values()) == 3
    assert judged.unsure == "it looks at what each card has for itself"


def test_cards_that_differ_in_nothing_but_uuid_and_address_are_one_kind() -> None:
    devices = [objects.a_device(f"gpu-{number}") for number in (1, 2)]
    for number, device in enumerate(devices):
        device["attributes"] |= {
            "uuid": {"string": f"GPU-{number}"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{number}:00.0"},
        }
    assert [count for _, count in snapshot.slice_(objects.a_slice(*devices)).cards] == [2]
