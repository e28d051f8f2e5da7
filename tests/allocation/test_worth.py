"""What free parts of cards are worth: fixed by what packings of the usual parts cost, looked at from both sides."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import worth

PARTS = st.dictionaries(st.integers(1, worth.GRAIN), st.integers(1, 20), min_size=1, max_size=12)


def worths(asked: dict[int, int]) -> tuple[float, ...]:
    return worth.worths({size / worth.GRAIN: many for size, many in asked.items()})


def first_fit(asked: dict[int, int]) -> int:
    """Cards that the parts take when the biggest come first and each takes the first card that has room."""
    cards: list[int] = []
    for size in sorted(asked, reverse=True):
        for _ in range(asked[size]):
            at = next((at for at, free in enumerate(cards) if free >= size), None)
            if at is None:
                cards.append(worth.GRAIN)
                at = len(cards) - 1
            cards[at] -= size
    return len(cards)


def test_halves_are_worth_half_a_card_and_what_is_too_small_for_one_is_worth_nothing() -> None:
    found = worths({500: 7})
    assert (found[499], found[500], found[999], found[1000]) == (0, 0.5, 0.5, 1)


def test_a_part_costs_a_whole_card_where_too_few_ask_for_what_fits_beside_it() -> None:
    found = worths({810: 100, 160: 10})
    assert (found[810], found[190]) == (1, 0)
    found = worths({810: 100, 160: 200})
    assert found[190] == pytest.approx(1 / 6)
    assert found[810] == pytest.approx(5 / 6)


def test_parts_that_fill_a_card_together_share_its_cost() -> None:
    """Of 0.65 and 0.32 in equal number nothing is left over, though three of 0.32 would fill a card too."""
    found = worths({650: 50, 320: 100})
    assert found[650] == pytest.approx(2 / 3)
    assert found[350] == pytest.approx(1 / 3)


def test_whole_cards_alone_make_a_part_worth_nothing_and_no_parts_at_all_everything_nothing() -> None:
    assert worths({1000: 5})[999:] == (0, 1)
    assert set(worth.worths({})) == {0}


def test_a_part_between_two_grains_takes_the_bigger_and_one_of_a_grain_its_own() -> None:
    assert worth.worths({0.3334: 3})[333:335] == (0, 0.5)
    assert all(worths({grain: 1})[grain - 1 : grain + 1] == (0, 1) for grain in range(501, 1001))


@settings(deadline=None, max_examples=50)
@given(asked=PARTS)
def test_prices_lie_between_the_size_of_all_parts_and_what_one_way_of_packing_takes(asked: dict[int, int]) -> None:
    found = worths(asked)
    cost = sum(many * found[size] for size, many in asked.items())
    together = sum(size * many for size, many in asked.items()) / worth.GRAIN
    assert together - 1e-6 <= cost <= first_fit(asked) + 1e-6


@settings(deadline=None, max_examples=50)
@given(asked=PARTS, one=st.integers(0, worth.GRAIN), other=st.integers(0, worth.GRAIN))
def test_two_free_parts_are_never_worth_more_than_the_one_that_they_would_make(
    asked: dict[int, int], one: int, other: int
) -> None:
    found = worths(asked)
    assert found[worth.GRAIN] == pytest.approx(1)
    assert all(less <= more for less, more in itertools.pairwise(found))
    if one + other <= worth.GRAIN:
        assert found[one] + found[other] <= found[one + other] + 1e-6


def test_more_parts_than_have_prices_are_left_out_by_what_they_take_in_all() -> None:
    many = dict.fromkeys(range(501, 525), 100)
    assert worths(many | {100: 1}) == worths(many)
