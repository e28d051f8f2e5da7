"""What amounts by old names mean, and which of them are refused with what to write instead."""

from typing import Any

import pytest

from api import errors
from translate import asks

WHERE = "container main"
UNITS = asks.Units()
CARD = asks.Units(card_memory_mib=81559)
QGPU, TENCENT, ELASTIC = "tke.cloud.tencent.com/qgpu", "tencent.com/vcuda", "elasticgpu.io/gpu"


def read(units: asks.Units = UNITS, **limits: Any) -> asks.Ask | None:
    return asks.read({"limits": limits}, units, WHERE)


def parts(limits: dict[str, Any], units: asks.Units = UNITS) -> tuple[int, int | None, int | None]:
    ask = asks.read({"limits": limits}, units, WHERE)
    assert ask is not None
    return ask.count, ask.cores, ask.memory_mib


@pytest.mark.parametrize(
    ("limits", "meaning"),
    [
        ({"nvidia.com/gpu": 1}, (1, None, None)),
        ({"nvidia.com/gpu": "4"}, (4, None, None)),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "3k", "nvidia.com/gpucores": 30}, (1, 30, 3000)),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 8192}, (2, 0, 8192)),
        ({"nvidia.com/gpumem": 8192}, (1, 0, 8192)),  # HAMi#2679: no count
        ({"nvidia.com/gpucores": 50}, (1, 50, None)),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100}, (1, None, None)),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100}, (1, None, None)),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 0, "nvidia.com/gpucores": 0}, (1, None, None)),
        ({f"{QGPU}-core": 200}, (2, None, None)),
        ({f"{QGPU}-core": 100, f"{QGPU}-memory": 10}, (1, None, None)),
        ({f"{QGPU}-core": 30, f"{QGPU}-memory": 8}, (1, 30, 8192)),
        ({f"{QGPU}-core": 130, f"{QGPU}-memory": 9}, (2, 65, 4608)),
        ({f"{QGPU}-memory": 8}, (1, 0, 8192)),
        ({f"{TENCENT}-core": 50, f"{TENCENT}-memory": 30}, (1, 50, 7680)),
        ({f"{TENCENT}-core": 300}, (3, None, None)),
        ({"aliyun.com/gpu-mem": 3}, (1, 0, 3072)),
        ({f"{ELASTIC}-core": 200}, (2, None, None)),
        ({f"{ELASTIC}-core": 25, f"{ELASTIC}-memory": 4096}, (1, 25, 4096)),
        ({f"{ELASTIC}-memory": 4096}, (1, 0, 4096)),
    ],
)
def test_amounts_are_read_in_the_units_of_their_system(
    limits: dict[str, Any], meaning: tuple[int, int | None, int | None]
) -> None:
    assert parts(limits) == meaning


def test_parts_of_a_cards_memory_need_to_know_the_card() -> None:
    percent = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    assert parts(percent, CARD) == (1, 0, 40779)
    assert parts({f"{ELASTIC}-core": 50}, CARD) == (1, 50, 40779)
    with pytest.raises(errors.Invalid, match=r"is 50, a part of a card's memory.*write nvidia.com/gpumem in MiB"):
        parts(percent)


def test_the_unit_of_gpushare_is_a_setting() -> None:
    assert parts({"aliyun.com/gpu-mem": 3000}, asks.Units(gpushare_mib=1)) == (1, 0, 3000)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "16Gi"}, "asks for 17179869184 MiB"),  # HAMi website PR#714
        ({"nvidia.com/gpu": 0, "nvidia.com/gpumem": 100}, "nvidia.com/gpu is 0, yet a part"),  # HAMi#2679
        ({"nvidia.com/gpu": -1}, "is -1; it must be a whole number"),
        ({"nvidia.com/gpu": "1500m"}, "is 1500m; it must be a whole number"),
        ({"nvidia.com/gpu": "one"}, "nvidia.com/gpu: quantity 'one' is not a number"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 101}, "asks for 101 % of a card"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1, "nvidia.com/gpumem-percentage": 1}, "keep one"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 101}, "the most is 100"),
        ({"nvidia.com/gpu": 1, "nvidia.com/priority": 0}, "nvidia.com/priority has no equal here"),
        ({"nvidia.com/gpu": 64}, "asks for 64 cards; a container can have 32"),
        ({f"{QGPU}-core": 30}, "add tke.cloud.tencent.com/qgpu-memory in GiB"),
        ({f"{QGPU}-core": 250, f"{QGPU}-memory": 9}, "neither whole cards nor a part of two"),
        ({f"{QGPU}-core-greedy": 30, f"{QGPU}-memory": 1}, "nothing is pre-empted"),
        ({f"{TENCENT}-core": 50}, "has both"),
        ({f"{TENCENT}-memory": 50}, "has both"),
        ({f"{TENCENT}-core": 150, f"{TENCENT}-memory": 50}, "use a multiple of 100"),
        ({"aliyun.com/gpu-mem": "1.5"}, "it must be a whole number"),  # gpushare-scheduler-extender#16
        ({f"{ELASTIC}-core": 150}, "neither a part of a card nor whole cards"),
        ({f"{ELASTIC}-core": 50}, "elasticgpu.io/gpu-memory in MiB beside it"),
        ({"nvidia.com/gpu": 1, f"{QGPU}-core": 30}, "in the words of nvidia.com and qGPU"),
    ],
)
def test_what_has_no_equal_is_refused_with_what_to_write(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.Invalid, match=f"^container main: .*{words}"):
        parts(limits)


@pytest.mark.parametrize(
    "limits", [{}, {"cpu": 1}, {"nvidia.com/gpu": 0}, {"nvidia.com/gpu": 0, "nvidia.com/gpumem": 0}]
)
def test_nothing_and_zero_ask_for_nothing(limits: dict[str, Any]) -> None:
    assert read(**limits) is None


def test_requests_count_where_limits_are_missing_and_must_not_differ() -> None:  # HAMi#2679
    assert asks.read({"requests": {"nvidia.com/gpu": 2}}, UNITS, WHERE) is not None
    with pytest.raises(errors.Invalid, match="is 1 in limits and 2 in requests"):
        asks.read({"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 2}}, UNITS, WHERE)


def test_only_old_names_are_taken_out_of_resources() -> None:
    given = {"limits": {"cpu": 1, "nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}, "claims": [{"name": "nic"}]}
    assert asks.without(given) == {"limits": {"cpu": 1}, "claims": [{"name": "nic"}]}
    assert asks.without({"limits": {}}) == {"limits": {}}
