"""Card -> holders -> what is left, and that the states add up."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view.objects import (
    DRIVER,
    GI,
    JSON,
    a_card,
    a_claim,
    a_pod,
    a_result,
    a_rule,
    a_slice,
    name_of,
    seen,
    view,
)
from view import cards, join, objects, picture, reader

State = picture.State


def only(found: join.View) -> picture.Card:
    (card,) = found.cards
    return card


def test_a_held_card_names_claim_pod_container_request_and_time() -> None:
    claim = a_claim("train", a_result(), pods=("pod",))
    claim["status"]["devices"] = [
        {"driver": "gpu.elasticgpu.io", "pool": "egpu/node1", "device": name_of(1), "data": {"enforcement": "whole"}}
    ]
    card = only(view(a_slice(a_card()), claim, a_pod(claim="train")))
    (holder,) = card.holders
    assert (card.state, card.node, card.free) == (State.HELD, "node1", {"memory": 0})
    assert (holder.namespace, holder.claim, holder.request, holder.class_name) == (
        "ml", "train", "card", "training.elasticgpu.io",
    )  # fmt: skip
    assert (holder.since, holder.enforcement, holder.amounts) == ("2026-01-01T00:05:00Z", "whole", {"memory": 80 * GI})
    assert holder.pods == (picture.PodUse(name="pod", uid="uid-pod", containers=("main",)),)


def test_shares_leave_what_they_do_not_take() -> None:
    shares = [
        a_claim(
            f"c{number}",
            a_result(shareID=f"id{number}", consumedCapacity={"memory": "20Gi", "cores": "30", "shares": "1"}),
        )
        for number in range(2)
    ]
    card = only(view(a_slice(a_card(shared=True)), *shares))
    assert (card.state, card.free) == (State.PARTLY, {"memory": 40 * GI, "cores": 40, "shares": 14})
    assert [holder.share_id for holder in card.holders] == ["id0", "id1"]


def test_a_claim_whose_server_stored_no_capacity_holds_the_whole_card() -> None:
    card = only(view(a_slice(a_card(shared=True)), a_claim("c", a_result())))
    assert (card.state, card.free) == (State.HELD, {"memory": 0, "cores": 0, "shares": 0})


def test_a_card_without_cores_left_still_takes_shares_of_memory() -> None:
    consumed = {"memory": "1Gi", "cores": "100", "shares": "1"}
    assert (
        only(view(a_slice(a_card(shared=True)), a_claim("c", a_result(consumedCapacity=consumed)))).state
        is State.PARTLY
    )


def test_a_card_both_held_and_tainted_is_counted_once() -> None:  # KEP-5677, caveat 7
    taint = {"key": "gpu.elasticgpu.io/xid", "value": "79", "effect": "NoSchedule", "timeAdded": "2026-01-02T00:00:00Z"}
    found = view(a_slice(a_card(1, taints=[taint]), a_card(2, taints=[taint]), a_card(3)), a_claim("c", a_result(1)))
    assert [card.state for card in found.cards] == [State.HELD, State.BLOCKED, State.FREE]
    assert found.cards[1].reason == "taint gpu.elasticgpu.io/xid=79"
    tally = found.total
    assert tally
    assert (tally.total, tally.held, tally.blocked, tally.free) == (3, 1, 1, 1)


def test_admin_access_observes_and_holds_nothing() -> None:  # autoscaler#7685
    found = view(a_slice(a_card()), a_claim("monitor", a_result(adminAccess=True)))
    card = only(found)
    assert (card.state, card.holders, len(card.observers)) == (State.FREE, (), 1)
    assert found.namespaces == ()


def test_only_the_newest_generation_of_a_pool_counts() -> None:  # kueue#14573
    found = view(a_slice(a_card(1), a_card(2), generation=4), a_slice(a_card(1), generation=5))
    assert [card.name for card in found.cards] == [name_of(1)]


def test_cards_of_an_incomplete_pool_are_blocked_with_what_is_missing() -> None:  # KEP-5677, caveat 9
    found = view(a_slice(a_card(), generation=5, of=2))
    assert only(found).state is State.BLOCKED
    assert only(found).reason == "pool egpu/node1 has 1 of 2 slices of generation 5"
    assert "PoolIncomplete" in [one.kind for one in found.problems]


def test_claims_that_may_not_be_read_make_cards_unknown_and_not_free() -> None:
    full = seen(a_slice(a_card()))
    why = "you may not list resourceclaims"
    found = join.View(dataclasses.replace(full, claims=objects.Part(unknown=why)))
    assert (only(found).state, only(found).reason, only(found).free) == (State.UNKNOWN, why, None)
    assert found.total
    assert found.total.memory_free is None
    assert found.unknown == {"claims": why}


def test_with_the_claims_of_one_namespace_its_own_cards_are_known_and_the_rest_is_not() -> None:
    full = seen(a_slice(a_card(1), a_card(2)))
    own = reader.part([a_claim("mine", a_result(1))], reader.claim, namespace="ml")
    found = join.View(dataclasses.replace(full, claims=own))
    assert [card.state for card in found.cards] == [State.HELD, State.UNKNOWN]
    assert found.cards[1].reason == "only claims of namespace ml could be read"


def test_an_object_that_makes_no_sense_costs_itself_and_is_named() -> None:  # HAMi#1932
    broken = a_claim("broken", {"request": "card"})
    found = view(a_slice(a_card()), broken, a_claim("good", a_result()))
    assert only(found).state is State.HELD
    (text,) = found.unreadable
    assert text.startswith("ml/broken: ")


def test_slices_of_other_drivers_do_not_concern_us() -> None:
    other = a_slice(a_card())
    other["spec"]["driver"] = "gpu.nvidia.com"
    assert view(other).cards == ()


amount = st.integers(min_value=0, max_value=90)


@st.composite
def clusters(draw: st.DrawFn) -> list[JSON]:
    """Nodes with shared and exclusive cards, tainted ones, pools in rewrite, claims on any of them and on none."""
    given: list[JSON] = []
    number = 0
    for node in range(draw(st.integers(0, 3))):
        cards = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            taints = [{"key": "k", "effect": draw(st.sampled_from(["NoSchedule", "NoExecute", "None"]))}]
            cards.append(a_card(number, shared=draw(st.booleans()), taints=taints if draw(st.booleans()) else []))
        given.append(a_slice(*cards, node=f"node{node}", of=draw(st.integers(1, 2))))
    for index in range(draw(st.integers(0, 8))):
        results = [
            a_result(
                draw(st.integers(1, 9)),
                node=f"node{draw(st.integers(0, 3))}",
                adminAccess=draw(st.booleans()),
                **(
                    {"consumedCapacity": {"memory": f"{draw(amount)}Gi", "cores": str(draw(amount)), "shares": "1"}}
                    if draw(st.booleans())
                    else {}
                ),
            )
            for _ in range(draw(st.integers(0, 3)))
        ]
        namespace = draw(st.sampled_from(["a", "b"]))
        given.append(a_claim(f"c{index}", *results, namespace=namespace, pods=("p",) if draw(st.booleans()) else ()))
    return given


@given(clusters())
def test_states_add_up_in_any_cluster(cluster: list[JSON]) -> None:
    found = view(*cluster)
    total = found.total
    assert total
    assert total.total == len(found.cards)
    assert total.free + total.partly + total.held + total.blocked + total.unknown == total.total
    for group in (found.models, found.nodes):
        for name in ("total", "free", "partly", "held", "blocked", "unknown", "memory", "memory_free"):
            assert sum(getattr(one.tally, name) for one in group) == getattr(total, name)


@given(clusters())
def test_what_is_free_and_what_is_held_make_the_card_unless_it_is_overbooked(cluster: list[JSON]) -> None:
    found = view(*cluster)
    over = {one.about for one in found.problems if one.kind == "Overbooked"}
    for card in found.cards:
        assert card.free is not None
        for name, size in card.capacity.items():
            taken = sum(holder.amounts.get(name, 0) for holder in card.holders)
            assert 0 <= card.free[name] <= size
            if card.state in (State.FREE, State.BLOCKED):
                assert (card.holders, card.free[name]) == ((), size)
            elif len(card.holders) == 1 and f"card {card.name}" not in over and card.capacity.keys() > {"memory"}:
                assert card.free[name] + taken == size
            elif taken > size:
                assert f"card {card.name}" in over


@given(clusters())
def test_a_card_is_counted_once_whoever_holds_it(cluster: list[JSON]) -> None:
    found = view(*cluster)
    held = [card for card in found.cards if card.holders]
    for booked in found.namespaces:
        mine = [card for card in held if any(holder.namespace == booked.name for holder in card.holders)]
        assert booked.cards == len(mine)


@pytest.mark.parametrize(
    ("selector", "blocked"),
    [
        ({"driver": DRIVER, "pool": "egpu/node1", "device": name_of(1)}, [1]),
        ({"driver": DRIVER, "pool": "egpu/node1"}, [1, 2]),
        ({"device": name_of(3)}, [3]),
        ({}, [1, 2, 3]),
        ({"driver": "gpu.nvidia.com"}, []),
        ({"pool": "egpu/node9", "device": name_of(1)}, []),
    ],
)
def test_a_taint_put_on_by_a_rule_counts_like_the_drivers_own(selector: JSON, blocked: list[int]) -> None:
    found = view(a_slice(a_card(1), a_card(2)), a_slice(a_card(3), node="node2"), a_rule(**selector))
    assert [card.name for card in found.cards if card.state is State.BLOCKED] == [name_of(number) for number in blocked]
    assert len([one for one in found.problems if one.kind == "CardTainted"]) == len(blocked)


def test_what_many_objects_name_is_kept_once() -> None:
    """A cluster of thousands of nodes is watched in a few hundred MiB by that."""
    cluster = seen(a_slice(a_card(1), a_card(2)), a_claim("one", a_result(1)), a_claim("two", a_result(2)))
    (sliced,), (one, two) = cluster.slices.items, cluster.claims.items
    assert one.results[0].pool is two.results[0].pool is sliced.pool
    assert one.results[0].device is sliced.devices[0].name
    assert sliced.devices[0].capacity is sliced.devices[1].capacity
    first, second = cards.build(cards.pools(cluster.slices.items), cluster.claims, cluster.pods)
    assert first.capacity is second.capacity
    assert first.free is second.free
