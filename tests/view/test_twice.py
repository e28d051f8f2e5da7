"""A card that several pools list is one card in every sum, and everybody counts the same listing."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.view.objects import (
    GI,
    JSON,
    a_card,
    a_claim,
    a_far_claim,
    a_far_slice,
    a_node,
    a_pool,
    a_result,
    a_slice,
    name_of,
    view,
)
from view import pages, picture, scope, totals, twice

BAD = {"taints": [{"key": "remote.gpu.elasticgpu.io/draining", "effect": "NoSchedule"}]}
POOLS = ("attic", "cellar", "lab")
State = picture.State

listings = st.dictionaries(
    st.sampled_from(POOLS),
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=5, unique_by=lambda one: one[0]),
)
holds = st.lists(
    st.tuples(st.sampled_from(POOLS), st.integers(1, 5), st.sampled_from(("ml", "web")), st.integers(0, 2)),
    max_size=5,
    unique_by=lambda one: (one[0], one[1]),
)


def far(pool: str, *numbers: int, bad: bool = False, **more: str) -> JSON:
    return a_far_slice(*(a_card(n, **(BAD if bad else {}), **more) for n in numbers), pool=pool)


def cluster(listed: dict[str, list[tuple[int, bool]]], held: list[tuple[str, int, str, int]]) -> list[JSON]:
    """Beside what pools list, a node has cards 4, 5 and 6: those are other ones."""
    slices = [
        a_far_slice(*(a_card(n, **(BAD if bad else {})) for n, bad in cards), pool=pool)
        for pool, cards in listed.items()
    ]
    claims = {(space, str(n)): [] for _, _, space, n in held}
    for pool, number, space, n in held:
        claims[space, str(n)] += a_far_claim("x", number, pool=pool)["status"]["allocation"]["devices"]["results"]
    given_ = [a_claim(name, *results, namespace=space) for (space, name), results in claims.items()]
    return [a_slice(a_card(4), a_card(5), a_card(6)), a_node(), *slices, *given_, a_claim("near", a_result(4))]


@given(listings, holds)
@settings(max_examples=200, deadline=None)
def test_states_are_disjoint_and_add_up_to_the_cards_that_there_are(
    listed: dict[str, list[tuple[int, bool]]], held: list[tuple[str, int, str, int]]
) -> None:
    found = view(*cluster(listed, held))
    total = found.total
    assert total is not None
    names = {n for cards in listed.values() for n, _ in cards}
    taken = {n for pool, n, _, _ in held if n in dict(listed.get(pool, ()))}
    open_ = {n for cards in listed.values() for n, bad in cards if not bad} - taken
    assert (total.total, total.held, total.free) == (3 + len(names), 1 + len(taken), 2 + len(open_))
    assert total.blocked == len(names - taken - open_)
    assert total.total == total.free + total.partly + total.held + total.blocked + total.unknown
    assert (total.memory, total.memory_free) == (80 * GI * total.total, 80 * GI * total.free)
    near, distant = totals.supply(found.models)
    assert (near.total, distant.total) == (3, len(names))
    assert near.total == sum(node.tally.total for node in found.nodes)
    for space in found.namespaces:
        of = {(pool, n) for pool, n, owner, _ in held if owner == space.name and n in dict(listed.get(pool, ()))}
        assert space.cards == len({n for _, n in of}) + (space.name == "ml")


@given(listings, holds, st.randoms())
@settings(deadline=None)
def test_of_each_card_one_listing_counts_whatever_the_order(
    listed: dict[str, list[tuple[int, bool]]], held: list[tuple[str, int, str, int]], chance: object
) -> None:
    cards = list(view(*cluster(listed, held)).cards)
    counted = twice.once(cards)
    assert set(Counter(card.name for card in counted if card.remote).values()) <= {1}
    assert {card.name for card in counted} == {card.name for card in cards}
    assert sorted(map(_key, (*counted, *twice.spare(cards)))) == sorted(map(_key, cards))
    chance.shuffle(cards)  # type: ignore[attr-defined]
    assert sorted(map(_key, twice.once(cards))) == sorted(map(_key, counted))


def _key(card: picture.Card) -> tuple[str, str]:
    return card.place, card.name


def test_the_listing_counts_where_it_is_held_else_where_it_can_be_had_else_the_first_by_name() -> None:
    held = view(far("attic", 1), far("lab", 1), a_far_claim(pool="lab"))
    assert [(card.pool, card.state) for card in twice.once(held.cards)] == [("lab", State.HELD)]
    blocked = view(far("attic", 1, bad=True), far("lab", 1))
    assert [(card.pool, card.state) for card in twice.once(blocked.cards)] == [("lab", State.FREE)]
    alike = view(far("lab", 1), far("cellar", 1), far("attic", 1))
    assert [card.pool for card in twice.once(alike.cards)] == ["attic"]
    assert [card.pool for card in twice.spare(alike.cards)] == ["cellar", "lab"]
    assert [card.pool for card in twice.by_name(reversed(alike.cards)).values()] == ["attic"]


def test_each_pool_still_has_a_row_of_all_that_it_lists() -> None:
    found = view(far("attic", 1, 2), far("lab", 1, 2), a_far_claim(pool="lab"), a_pool("attic"), a_pool())
    assert [(pool.name, pool.tally.total, pool.tally.held) for pool in found.remote_pools] == [
        ("attic", 2, 0),
        ("lab", 2, 1),
    ]
    assert found.cells == {"pool/attic": "aa", "pool/lab": "ka"}
    assert found.total is not None
    assert (found.total.total, found.total.held, found.total.free) == (2, 1, 1)


def test_a_card_that_is_promised_by_way_of_two_pools_is_one_card_of_two_claims() -> None:
    found = view(
        far("attic", 1),
        far("lab", 1),
        a_far_claim("one", pool="lab"),
        a_far_claim("two", pool="attic", namespace="web"),
    )
    assert [(space.name, space.cards, space.claims) for space in found.namespaces] == [("ml", 1, 1), ("web", 1, 1)]
    assert found.total is not None
    assert (found.total.total, found.total.held) == (1, 1)
    mine = view(far("attic", 1), far("lab", 1), a_far_claim("one", pool="lab"), a_far_claim("two", pool="attic"))
    assert [(space.cards, space.claims) for space in mine.namespaces] == [(1, 2)]


def test_a_model_that_only_a_spare_listing_names_is_no_model_and_its_pool_is_drawn_all_the_same() -> None:
    found = view(far("attic", 1), far("lab", 1, model="another name"), a_pool("attic"), a_pool())
    assert [(model.name, model.tally.total) for model in found.models] == [("NVIDIA H100 80GB HBM3", 1)]
    drawn = pages.overview(found, scope.Scope())["pools"]["items"]
    assert drawn == [["attic", "a", "y", [0]], ["lab", "a", "y", []]]


def test_a_card_that_was_moved_is_the_one_of_the_node_where_it_is_held() -> None:
    moved = (a_slice(a_card(1)), a_slice(a_card(1), node="node2"))
    assert twice.by_name(view(*moved).cards)[name_of(1)].node == "node2"
    assert twice.by_name(view(*moved, a_claim("x", a_result(1))).cards)[name_of(1)].node == "node1"
