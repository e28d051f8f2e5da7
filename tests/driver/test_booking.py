"""The books of a card: exact in MiB and percent, never over, never below zero."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import errors, resource
from driver import booking, inventory, records

CARD = inventory.Card(uuid=inventory.CardUUID("GPU-0"), minor=0, memory_bytes=81559 * booking.MIB + 5)


def _holding(cores: int = 25, memory_mib: int = 8192, **more: Any) -> records.Holding:
    facts: dict[str, Any] = {"request": "r", "pool": "p", "device": "gpu-0", "card": "GPU-0", "minor": 0}
    return records.Holding(**{**facts, "backend": "share", "cores": cores, "memory_mib": memory_mib, **more})


def _beside(*holdings: records.Holding) -> tuple[booking.Neighbour, ...]:
    return tuple(booking.Neighbour(holder=f"claim ns/{number}", holding=held) for number, held in enumerate(holdings))


def _result(**consumed: str) -> resource.Result:
    return resource.Result(
        request="r", driver="d", pool="p", device="gpu-0", consumed_capacity=tuple(sorted(consumed.items()))
    )


@pytest.mark.parametrize(
    ("cores", "memory", "amount"),
    [
        ("0", "1Mi", (0, 1)),
        ("1", "1048576", (1, 1)),
        ("100", "81559Mi", (100, 81559)),
        ("34", "7630Mi", (34, 7630)),  # 33.3 and 8G, as kube-scheduler rounds them to our steps
        ("50", "8Gi", (50, 8192)),
    ],
)
def test_what_was_allocated_is_read_to_the_mib(cores: str, memory: str, amount: tuple[int, int]) -> None:
    read = booking.consumed(_result(cores=cores, memory=memory, shares="1"))
    assert read == booking.Amount(cores=amount[0], memory_mib=amount[1], shares=1)


@pytest.mark.parametrize(
    ("consumed", "text"),
    [
        ({"cores": "101", "memory": "1Mi"}, "101 cores are consumed, a card has 100"),
        ({"cores": "33.3", "memory": "1Mi"}, "cores 33.3 is consumed, which is not in whole percent"),
        ({"cores": "1", "memory": "8G"}, "memory 8G is consumed, which is not in whole MiB"),
        ({"cores": "1", "memory": "1"}, "memory 1 is consumed, which is not in whole MiB"),
        ({"cores": "-1", "memory": "1Mi"}, "cores -1 is consumed, which is not in whole percent"),
        ({"cores": "1"}, "its consumedCapacity has no memory"),
        ({"cores": "1", "memory": "much"}, "quantity 'much' is not a number"),
    ],
)
def test_an_amount_that_was_never_published_is_refused(consumed: dict[str, str], text: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        booking.consumed(_result(**consumed))
    assert text in str(refused.value)


def test_an_allocator_that_counts_nothing_is_told_from_one_that_counts_zero() -> None:
    assert booking.consumed(_result()) is None


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (_holding(cores=75, memory_mib=81559 - 8192), True),
        (_holding(cores=76, memory_mib=1), False),
        (_holding(cores=0, memory_mib=81559 - 8192 + 1), False),  # one MiB more than is left
    ],
)
def test_a_share_gets_what_is_left_and_no_mib_more(wanted: records.Holding, fits: bool) -> None:
    """KAI#416, KK#136269"""
    if fits:
        booking.refuse_overbooked(wanted, CARD, _beside(_holding()), 16)
        return
    with pytest.raises(errors.Conflict, match="75 % of the cores and 73367 MiB are left") as refused:
        booking.refuse_overbooked(wanted, CARD, _beside(_holding()), 16)
    assert "1 of 16 shares are taken by claim ns/0" in str(refused.value)


def test_the_number_of_shares_is_counted_too_and_not_all_holders_are_listed() -> None:
    small = _beside(*[_holding(cores=1, memory_mib=1)] * 6)
    booking.refuse_overbooked(_holding(), CARD, small[:5], 6)
    with pytest.raises(errors.Conflict, match=r"6 of 6 shares are taken by claim ns/0, .* and 2 more"):
        booking.refuse_overbooked(_holding(), CARD, small, 6)


def test_whole_and_share_keep_each_other_out() -> None:
    whole = _holding(backend="whole", cores=100, memory_mib=81559)
    for wanted, there in ((whole, _holding()), (_holding(), whole), (whole, whole)):
        with pytest.raises(errors.Conflict, match="device gpu-0 is still held by claim ns/0"):
            booking.refuse_overbooked(wanted, CARD, _beside(there), 16)


def test_a_record_of_the_first_release_holds_the_whole_card() -> None:
    old = records.Holding(request="r", pool="p", device="gpu-0", card="GPU-0", minor=0)
    with pytest.raises(errors.Conflict):
        booking.refuse_overbooked(_holding(), CARD, _beside(old), 16)


def test_a_card_that_does_not_tell_its_memory_gives_no_share_now() -> None:
    bare = inventory.Card(uuid=CARD.uuid, minor=0)
    with pytest.raises(errors.NotReady, match="does not tell its memory now"):
        booking.refuse_overbooked(_holding(), bare, (), 16)


SHARES = st.builds(_holding, cores=st.integers(0, 100), memory_mib=st.integers(1, 81559))


@given(st.lists(st.tuples(SHARES, st.booleans(), st.integers(0, 20)), max_size=60), st.integers(1, 16))
def test_no_story_of_prepare_and_unprepare_overbooks_a_card_or_leaves_less_than_nothing(
    story: list[tuple[records.Holding, bool, int]], most: int
) -> None:
    held: list[records.Holding] = []
    for wanted, releases, which in story:
        if releases and held:
            held.pop(which % len(held))
        try:
            booking.refuse_overbooked(wanted, CARD, _beside(*held), most)
        except errors.Conflict:
            over = booking.booked([*held, wanted])
            assert over.cores > 100 or over.memory_mib > 81559 or over.shares > most
        else:
            held.append(wanted)
        sum_ = booking.booked(held)
        assert 0 <= sum_.cores <= 100
        assert 0 <= sum_.memory_mib <= 81559
        assert 0 <= sum_.shares <= most
        assert booking.booked([]) == booking.Amount()
