"""What a ledger remembers, beside sets that say the same."""

import hypothesis
from hypothesis import strategies as st

from view import registers

KEYS = st.sets(st.integers(0, 4))
MEMBERS = st.one_of(st.integers(0, 20).map(str), st.tuples(st.just("ns"), st.integers(0, 20).map(str)))


@hypothesis.given(st.lists(st.tuples(MEMBERS, KEYS), max_size=120))
def test_an_index_knows_who_names_a_key_be_they_one_few_or_many(story: list[tuple[object, set[int]]]) -> None:
    index: registers.Index[int, object] = registers.Index()
    named: dict[object, set[int]] = {}
    for member, keys in story:
        before = named.get(member, set())
        assert index.put(member, before, keys) == before | keys
        named[member] = keys
        for key in range(5):
            assert index.of(key) == {one for one, its in named.items() if key in its}
    assert index.of(*range(5)) == {one for one, its in named.items() if its}


def test_thousands_that_name_one_thing_come_and_go_as_fast_as_few() -> None:
    """By the number of steps, not by the clock: a set takes over where a tuple would be copied each time."""
    index = registers.Index[str, int]()
    for member in range(100):
        index.put(member, (), ("shared",))
    members = index._members["shared"]
    index.put(100, (), ("shared",))
    assert index._members["shared"] is members
