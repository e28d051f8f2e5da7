"""What a claim's annotation may ask of its shares, as tables."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import errors, resource
from driver import records, resize

BOOKED = 8192


def a_holding(request: str = "card", **more: Any) -> records.Holding:
    facts: dict[str, Any] = {"backend": "share", "memory_mib": BOOKED, "enforcement": "driver"}
    place = {"pool": "egpu/n", "device": "gpu-0", "card": "GPU-0", "minor": 0}
    return records.Holding(request=request, **place, **{**facts, **more})


def limits(text: str | None, *holdings: records.Holding) -> list[int]:
    annotations = () if text is None else (("elasticgpu.io/memory-limit", text), ("other.example.com/x", "y"))
    claim = resource.Claim(uid=resource.ClaimUID("a"), namespace="ns", name="a", results=(), annotations=annotations)
    return [
        holding.memory_limit_mib for holding in resize.asked(claim, holdings or (a_holding(),), frozenset({"driver"}))
    ]


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        (None, BOOKED),
        ("", BOOKED),
        (" ", BOOKED),
        ("6Gi", 6144),
        ("8Gi", 8192),
        ("1Mi", 1),
        ("1500M", 1430),
        ("card=2Gi", 2048),
    ],
)
def test_a_limit_up_to_the_booking_is_taken_and_without_one_the_booking_is_the_limit(
    text: str | None, mib: int
) -> None:
    assert limits(text) == [mib]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8193Mi", "may have 1 to 8192 MiB, .* and not 8193 MiB. A booking cannot grow"),
        ("0", "and not 0 MiB"),
        ("1023Ki", "and not 0 MiB"),
        ("-1Gi", "MiB"),
        ("much", "much"),
        ("other=1Gi", "'other=1Gi' names no request of this claim for a share of a card .card."),
        ("1Gi,", "'' names no request|''"),
    ],
)
def test_what_cannot_be_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(errors.Invalid, match=words) as refused:
        limits(text)
    assert str(refused.value).startswith("elasticgpu.io/memory-limit: ")


def test_each_request_has_a_limit_of_its_own_and_has_to_be_named() -> None:
    two = (a_holding("left"), a_holding("right/sub"), a_holding("whole", backend="whole", memory_mib=0))
    assert limits("right=1Gi", *two) == [BOOKED, 1024, 0]
    assert limits("left=2Gi, right=1Gi", *two) == [2048, 1024, 0]
    with pytest.raises(errors.Invalid, match=r"'1Gi' names no request .*\(left, right\); write <request>=<amount>"):
        limits("1Gi", *two)


@pytest.mark.parametrize(("held_by", "words"), [("hami", "is held by hami"), ("none", "is held by nothing")])
def test_what_takes_no_other_limit_while_programs_run_says_so(held_by: str, words: str) -> None:
    """HAMi#740, #1224: a limit that was changed and not taken."""
    with pytest.raises(errors.Invalid, match=f"{words}, .* The card's own driver does"):
        limits("1Gi", a_holding(enforcement=held_by))


@given(st.text(max_size=20))
def test_whatever_is_written_there_no_share_gets_more_than_it_has_booked(text: str) -> None:
    try:
        (mib,) = limits(text)
    except errors.Invalid:
        return
    assert 1 <= mib <= BOOKED
