from hypothesis import given
from hypothesis import strategies as st

from allocation import bookings

KEYS = (("d", "p", "one"), ("d", "p", "two"))
PIECES = st.builds(
    lambda key, share, amount: bookings.Piece(key=key, share=share, taken=(("memory", amount),) if share else ()),
    st.sampled_from(KEYS),
    st.booleans(),
    st.integers(0, 3),
)
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.lists(PIECES, max_size=3).map(tuple)), max_size=12)


@given(changes=CHANGES)
def test_bookings_kept_step_by_step_equal_those_counted_anew(
    changes: list[tuple[str, tuple[bookings.Piece, ...] | None]],
) -> None:
    kept = bookings.Bookings()
    now: dict[str, tuple[bookings.Piece, ...]] = {}
    for claim, pieces in changes:
        before = {key: kept.of(key) for key in KEYS}
        told = kept.drop(claim) if pieces is None else kept.put(claim, pieces)
        now[claim] = pieces or ()
        fresh = bookings.Bookings()
        for name, held in now.items():
            fresh.put(name, held)
        assert {key: kept.of(key) for key in KEYS} == {key: fresh.of(key) for key in KEYS}
        assert {key for key in KEYS if kept.of(key) != before[key]} <= set(told)


def test_admin_access_books_nothing_and_a_share_without_an_amount_only_a_place() -> None:
    result = {"driver": "d", "pool": "p", "device": "one"}
    assert bookings.pieces([result | {"adminAccess": True}]) == ()
    kept = bookings.Bookings()
    kept.put("a", bookings.pieces([result | {"shareID": "1"}]))
    assert kept.of(KEYS[0]) == bookings.Booked(shares=1)
