"""Our CEL beside upstream's own compiler and environment of 1.37.2: what is refused, what it costs, what it says."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import cel
from api import errors
from cel import cost
from hack.measure.celreference import Judge
from tests.cel import texts

LINES = [line for line in (Path(__file__).parent / "texts.txt").read_text().split("\n") if line]
CARD: dict[str, Any] = {
    "driver": texts.DRIVER,
    "shared": True,
    "attributes": {
        "productName": {"string": "NVIDIA L40S"},
        "driverVersion": {"version": "580.95.5"},
        "healthy": {"bool": True},
        "resource.kubernetes.io/numaNode": {"int": 1},
    },
    "capacity": {"memory": {"value": "48Gi"}},
}
CASES = 20 * (settings.default or settings()).max_examples
"""2,000, the same each time; 20,000 others with --hypothesis-profile=nightly."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Judge]:
    if shutil.which("go") is None:
        pytest.skip("Go is missing: the reference cannot be built")
    with Judge() as judge:
        yield judge


def ours(text: str, data: dict[str, Any], *, stored: bool) -> Any:
    try:
        program = cel.compile(text, stored=stored)
    except errors.Invalid:
        return "refused"
    try:
        return program.cost, program.matches(
            cel.device(data | {"allowMultipleAllocations": data["shared"]}, data["driver"])
        )
    except cel.Failed:
        return program.cost, "failed"


def theirs(judge: Judge, text: str, data: dict[str, Any], *, stored: bool) -> Any:
    answer = judge.judge(text, [data], stored=stored)
    if answer.get("refused") or (answer["cost"] > cost.LIMIT and not stored):
        return "refused"
    (verdict,) = answer["verdicts"]
    return answer["cost"], "failed" if verdict.get("failed") else verdict["matches"]


@pytest.mark.parametrize("stored", [False, True])
def test_it_judges_the_known_texts_as_the_api_server_and_the_scheduler_do(upstream: Judge, stored: bool) -> None:
    assert len(LINES) > 500
    differ = {
        text: (here, there)
        for text in LINES
        if (here := ours(text, CARD, stored=stored)) != (there := theirs(upstream, text, CARD, stored=stored))
    }
    assert not differ


def test_values_of_every_kind_stand_beside_each_other_as_upstream_has_it(upstream: Judge) -> None:
    """What is of Kubernetes' own kinds on the left is an error for ==, true for !=, and passed over by `in`."""
    kinds: tuple[str, ...] = (
        'semver("1.2.3")',
        'quantity("1")',
        'ip("10.0.0.1")',
        'cidr("10.0.0.0/8")',
        'url("http://a/b")',
    )
    kinds += ("timestamp(0)", 'duration("1s")', "[1]", '{"a": 1}', "null", "1", "1u", '"a"', "1.0", "true", 'b"a"')
    lists = ("[1]", '["a"]', "[true]", "[1.5]", "[dyn(1)]", "[null]", '[quantity("1")]', "[device.driver]")
    maps = ('{"a": 1}', "{1: 1}", "{true: 1}", "device.attributes")
    told = [f"dyn({one}) {sign} dyn({other})" for one in kinds for sign in ("==", "!=") for other in kinds]
    told += [f"{mark}(dyn({one}) in {among})" for one in kinds for mark in ("", "!") for among in (*lists, *maps)]
    differ = {
        text: (here, there)
        for text in told
        if (here := ours(text, CARD, stored=False)) != (there := theirs(upstream, text, CARD, stored=False))
    }
    assert not differ


@pytest.mark.timeout(1800)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    derandomize=CASES == 2000,
    max_examples=CASES,
)
@given(text=texts.texts(), data=texts.devices())
def test_it_judges_any_text_on_any_device_as_upstream_does(upstream: Judge, text: str, data: dict[str, Any]) -> None:
    for stored in (False, True):
        assert ours(text, data, stored=stored) == theirs(upstream, text, data, stored=stored)
