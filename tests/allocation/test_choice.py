"""Choices by policy: they fit by the same rules, cost what has changed, and are the best ones."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocation import bookings, choice, cluster, devices, fragmentation, pods, policies, requests, search
from allocation.policies import Policy
from api import errors
from hack.measure import crowd
from tests.allocation import clusters
from tests.allocation.test_oracle import built

QUARTER = requests.claim(crowd.claim("quarter")).wish
HALF = requests.claim(crowd.claim("half", cores=50, memory_gib=40)).wish
WHOLE = requests.claim(crowd.claim("whole", cores=None)).wish
PAIR = requests.claim(crowd.claim("pair", cores=None, count=2)).wish


def a_cluster(nodes: int = 4) -> cluster.Cluster:
    known = cluster.Cluster()
    for number in range(1, nodes + 1):
        known.put_node(pods.node(crowd.node(number)))
        known.put_slice(devices.slice_(crowd.slice_(number)))
    known.put_class(requests.class_(crowd.class_()))
    return known


def anywhere(_: Any) -> bool:
    return True


def take(known: cluster.Cluster, name: str, found: choice.Choice) -> None:
    held = [
        bookings.Piece(key=pick.device.key, share=pick.share, taken=pick.taken) for of in found.picks for pick in of
    ]
    known.book(name, tuple(held))


def cards(found: choice.Choice | None) -> tuple[str, list[str]]:
    assert found is not None
    return found.node.name, [pick.device.key[2] for of in found.picks for pick in of]


def test_binpack_fills_a_card_and_then_the_next_one_of_the_same_node() -> None:
    known = a_cluster()
    chooser = choice.Chooser(known)
    got = []
    for number in range(3):
        found = chooser.choose([HALF], Policy.BIN_PACK, anywhere)
        got.append(cards(found))
        assert found is not None
        take(known, str(number), found)
    assert len({node for node, _ in got}) == 1
    assert Counter(card for _, (card,) in got).most_common()[0][1] == 2


def test_spread_takes_the_emptiest_node_each_time() -> None:
    known = a_cluster()
    chooser = choice.Chooser(known)
    nodes = set()
    for number in range(4):
        found = chooser.choose([HALF], Policy.SPREAD, anywhere)
        assert found is not None
        nodes.add(found.node.name)
        take(known, str(number), found)
    assert len(nodes) == 4


def test_a_node_that_is_not_allowed_is_passed_over_and_none_left_is_none() -> None:
    known = a_cluster(2)
    chooser = choice.Chooser(known)
    first, _ = cards(chooser.choose([HALF], Policy.BIN_PACK, anywhere))
    other, _ = cards(chooser.choose([HALF], Policy.BIN_PACK, lambda node: node.name != first))
    assert other != first
    assert chooser.choose([HALF], Policy.BIN_PACK, lambda node: False) is None


def test_least_fragmentation_leaves_whole_cards_whole_where_they_are_asked_for() -> None:
    """Half a card is free on one node, whole cards on another: a half goes to the half."""
    known = a_cluster(2)
    known.book("a", (bookings.Piece(key=(crowd.DRIVER, "cards/node-00001", "gpu-3"), share=True, taken=QUARTER_TAKEN),))
    chooser = choice.Chooser(known)
    chooser.usual(
        fragmentation.Mix(Counter({fragmentation.Kind(part=1.0, count=1): 9, fragmentation.Kind(part=0.5, count=1): 1}))
    )
    assert cards(chooser.choose([HALF], Policy.LEAST_FRAGMENTATION, anywhere)) == ("node-00001", ["gpu-3"])


def test_least_fragmentation_gives_what_needs_much_cpu_the_node_that_has_more_than_its_cards_can_use() -> None:
    """Sixteen CPUs go with a card as a rule; one node has 256 for eight cards, the other 48."""
    known = a_cluster(2)
    for number, cpu in ((1, "256"), (2, "48")):
        node = crowd.node(number)
        node["status"]["allocatable"]["cpu"] = cpu
        known.put_node(pods.node(node))
    chooser = choice.Chooser(known)
    chooser.usual(fragmentation.Mix(Counter({fragmentation.Kind(part=0.5, count=1, cpu=8000): 9})))
    heavy, light = pods.Room(cpu=40_000, pods=1), pods.Room(cpu=1000, pods=1)
    assert cards(chooser.choose([HALF], Policy.LEAST_FRAGMENTATION, anywhere, heavy))[0] == "node-00001"
    assert cards(chooser.choose([HALF], Policy.LEAST_FRAGMENTATION, anywhere, light))[0] == "node-00002"


@given(
    free=st.lists(st.sampled_from((0.0, 0.19, 0.5, 0.53, 1.0)), min_size=1, max_size=8),
    cpu=st.integers(0, 128_000),
    less=st.integers(0, 128_000),
)
def test_waste_grows_with_what_is_free_at_most_and_less_cpu_never_lessens_it(
    free: list[float], cpu: int, less: int
) -> None:
    kinds = {
        fragmentation.Kind(part=0.5, count=1, cpu=8000): 5,
        fragmentation.Kind(part=1.0, count=8, cpu=64_000): 1,
        fragmentation.Kind(part=0.0, count=0, cpu=12_000): 3,
    }
    mix = fragmentation.Mix(Counter(kinds))
    waste = mix.waste(free, pods.Room(cpu=cpu))
    assert 0 <= waste <= 18 * sum(free) + 1e-9
    assert waste <= mix.waste(free, pods.Room(cpu=max(cpu - less, 0))) + 1e-9


def test_least_fragmentation_keeps_a_free_part_for_what_fills_it_and_not_for_what_fits_with_less_over() -> None:
    """0.32 goes beside 0.65, four of 0.24 on a card of their own, though one would leave less of the other's place."""
    asked = {0.65: 10, 0.32: 20, 0.24: 40}
    mix = fragmentation.Mix(Counter({fragmentation.Kind(part=part, count=1): many for part, many in asked.items()}))

    def waste(*free: float) -> float:
        return mix.waste(free, pods.Room(cpu=64_000))

    assert waste(0.35, 0.76 - 0.24) < waste(0.35 - 0.24, 0.76)
    assert waste(0.35 - 0.32, 0.76) < waste(0.35, 0.76 - 0.32)


QUARTER_TAKEN = (("cores", 25), ("memory", 20 * crowd.GIB))
PLACES = st.tuples(st.integers(1, 3), st.integers(0, 7), st.integers(1, 4))
CHANGES = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | PLACES), max_size=20)


@given(
    changes=CHANGES,
    wish=st.sampled_from((QUARTER, HALF, WHOLE, PAIR)),
    policy=st.sampled_from((Policy.BIN_PACK, Policy.SPREAD)),
)
@settings(deadline=None)
def test_after_any_changes_the_node_is_as_good_as_the_best_of_all(
    changes: list[tuple[str, tuple[int, int, int] | None]], wish: requests.Wish, policy: Policy
) -> None:
    known = a_cluster(3)
    chooser = choice.Chooser(known)
    for claim, place in changes:
        if place is None:
            known.book(claim, ())
        else:
            node, card, parts = place
            key = (crowd.DRIVER, f"cards/node-{node:05}", f"gpu-{card}")
            taken = (("cores", 25 * parts), ("memory", 20 * parts * crowd.GIB))
            known.book(claim, (bookings.Piece(key=key, share=True, taken=taken),))
        found = chooser.choose([wish], policy, anywhere)
        frees = {
            node.name: policies.free([device for pool in known.pools_of(node) for device in pool.here], known.booked.of)
            for node in known.nodes.values()
            if known.search(node, [wish]) is not None
        }
        if found is None:
            assert not frees
        else:
            best = max(frees.values()) if policy is Policy.SPREAD else min(frees.values())
            assert frees[found.node.name] == pytest.approx(best)


@given(case=clusters.clusters(), policy=st.sampled_from(list(Policy)))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_a_policy_finds_a_node_exactly_where_the_search_does(case: dict[str, Any], policy: Policy) -> None:
    known = built(case)
    wishes = [requests.claim(one).wish for one in case["claims"]]
    try:
        fits = {node.name for node in known.nodes.values() if known.search(node, wishes) is not None}
        found = choice.Chooser(known).choose(wishes, policy, anywhere)
    except (errors.ElasticGPUError, search.TooHard):
        return
    if found is None:
        assert not fits
    else:
        assert found.node.name in fits


def test_what_was_found_for_one_request_is_not_taken_for_another_of_the_same_claim() -> None:
    """Equal claims come as new objects each time, and an object's place in memory is used again."""
    known = a_cluster(1)
    chooser = choice.Chooser(known)
    two = crowd.claim("two")
    (first,) = two["spec"]["devices"]["requests"]
    other = crowd.claim("other", model="none")["spec"]["devices"]["requests"][0] | {"name": "other"}
    listed = {
        "name": "listed",
        "firstAvailable": [{"name": "a", **other["exactly"]}, {"name": "b", **first["exactly"]}],
    }
    two["spec"]["devices"]["requests"] = [first, listed]
    for number in range(200):
        found = chooser.choose([requests.claim(two).wish], Policy.BIN_PACK, anywhere)
        if number < 10:
            assert found is not None
            assert [pick.option.name for of in found.picks for pick in of] == ["card", "listed/b"]
            take(known, str(number), found)


def test_a_text_that_fails_on_some_cards_leaves_nothing_behind_when_they_go() -> None:
    known = a_cluster(2)
    strange = crowd.slice_(2)
    for device in strange["spec"]["devices"]:
        del device["attributes"]["productName"]
    known.put_slice(devices.slice_(strange))
    chooser = choice.Chooser(known)
    for _ in range(3):
        with pytest.raises(errors.Invalid):
            chooser.choose([QUARTER], Policy.SPREAD, anywhere)
    known.drop_slice(strange["metadata"]["name"])
    for number in range(3):
        found = chooser.choose([QUARTER], Policy.SPREAD, anywhere)
        assert found is not None
        take(known, str(number), found)
