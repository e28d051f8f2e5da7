"""The picture as the page gets it: sums first, short rows, and names for those who may have them."""

import json

import pytest

from tests.view.objects import (
    GI,
    JSON,
    a_card,
    a_claim,
    a_driver,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_node,
    a_pod,
    a_pool,
    a_result,
    a_slice,
    name_of,
    seen,
    view,
)
from view import join, objects, pages, scope, totals

ALL = scope.Scope()
ML = scope.Scope(namespaces=frozenset({"ml"}))
LOST = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def a_share(number: int, memory: int, cores: int, **more: str) -> JSON:
    consumed = {"memory": str(memory), "cores": str(cores), "shares": "1"}
    return a_result(number, consumedCapacity=consumed, shareID=f"s-{memory}-{cores}", **more)


def two_tenants() -> join.View:
    return view(
        a_slice(a_card(1, shared=True)),
        a_node(),
        a_driver(),
        a_claim("mine", a_share(1, 8 * GI, 10), pods=("mine",)),
        a_pod("mine", claim="mine"),
        a_claim("theirs", a_share(1, 32 * GI, 20), namespace="secret", pods=("theirs",)),
        a_pod("theirs", claim="theirs", namespace="secret"),
        a_claim("leak", a_share(1, GI, 1), namespace="secret"),
        a_claim("wish", namespace="secret"),
        a_pod("hidden-pod", claim="wish", namespace="secret", phase="Pending"),
    )


@pytest.mark.parametrize(
    ("memory", "cores", "letter"),
    [(1, 0, "b"), (8 * GI, 10, "b"), (40 * GI, 10, "f"), (8 * GI, 70, "h"), (80 * GI - 1, 0, "j"), (80 * GI, 0, "k")],
)
def test_a_letter_says_how_much_is_booked_and_only_a_held_card_is_full(memory: int, cores: int, letter: str) -> None:
    found = view(a_slice(a_card(1, shared=True)), a_claim("c", a_share(1, memory, cores)))
    assert [totals.level(card) for card in found.cards] == [letter]


def test_what_is_wrong_has_letters_of_its_own() -> None:
    found = view(
        a_slice(a_card(1, taints=[LOST]), a_card(2, taints=[LOST]), a_card(3)), a_claim("c", a_result(1), pods=("p",))
    )
    assert [totals.level(card) for card in found.cards] == ["T", "B", "a"]
    assert pages.overview(found, ALL)["nodes"]["items"] == [["node1", "TBa", "nn", [0]]]


def test_an_unknown_card_is_neither_free_nor_0() -> None:
    known = seen(a_slice(a_card()))
    hidden = join.View(objects.Objects(slices=known.slices, claims=objects.Part(unknown="you may not list them")))
    assert [totals.level(card) for card in hidden.cards] == ["U"]
    shown = pages.node(hidden, ALL, "node1")
    assert shown is not None
    assert shown["cards"]["items"][0]["booked"] is None


def test_numbers_are_the_same_for_all_and_names_only_for_those_who_may() -> None:
    found = two_tenants()
    for make in (
        pages.overview,
        lambda of, whose: pages.node(of, whose, "node1"),
        lambda of, whose: pages.card(of, whose, name_of(1)),
    ):
        full, part = make(found, ALL), make(found, ML)
        assert "secret" in json.dumps(full)
        assert not {"secret", "theirs", "leak", "hidden-pod", "uid-secret-theirs"} & _words(part)
    one, other = (pages.card(found, whose, name_of(1)) for whose in (ALL, ML))
    assert one is not None
    assert other is not None
    for key in ("state", "free", "booked", "capacity", "level"):
        assert one["card"][key] == other["card"][key]
    assert [holder["amounts"] for holder in one["card"]["holders"]] == [
        holder["amounts"] for holder in other["card"]["holders"]
    ]


def test_of_a_card_that_two_pools_list_the_listing_is_shown_that_counts() -> None:
    found = view(
        a_far_slice(a_card(1), pool="attic"),
        a_far_slice(a_card(1), pool="lab"),
        a_far_claim("c", 1, pool="lab", pods=("p",)),
    )
    shown = pages.card(found, ALL, name_of(1))
    assert shown is not None
    assert (shown["card"]["pool"], shown["card"]["state"]) == ("lab", "Held")


def test_what_is_hidden_is_counted() -> None:
    found = two_tenants()
    everything, mine = pages.problems(found, ALL), pages.problems(found, ML)
    assert (everything["hidden"], mine["hidden"]) == (0, len(everything["items"]) - len(mine["items"]))
    assert mine["hidden"] == 2


def test_a_pod_of_a_hidden_namespace_is_not_there() -> None:
    found = two_tenants()
    assert pages.pod(found, ALL, "secret", "theirs") is not None
    assert pages.pod(found, ML, "secret", "theirs") is None
    assert [one["name"] for one in pages.pods(found, ML)["items"]] == ["mine"]
    assert pages.search(found, ML, "theirs")["items"] == []
    assert [one["kind"] for one in pages.search(found, ALL, "theirs")["items"]] == ["pod", "claim"]


def test_a_search_finds_by_all_words_and_says_what_it_left_out() -> None:
    found = view(*(a_slice(*(a_card(8 * at + one) for one in range(8)), node=f"node{at}") for at in range(20)))
    assert [one["name"] for one in pages.search(found, ALL, "NODE 19")["items"]] == ["node19"]
    many = pages.search(found, ALL, "h100")
    assert (len(many["items"]), many["more"]) == (50, 110)
    assert pages.search(found, ALL, name_of(3)[:12].upper())["items"][0]["name"] == name_of(3)


def test_waiting_pods_come_first_and_the_longest_waiting_before_the_others() -> None:
    def waits(name: str, since: str) -> JSON:
        condition = {"type": "PodScheduled", "status": "False", "message": "m", "lastTransitionTime": since}
        return a_pod(name, claim=f"c-{name}", phase="Pending", status={"conditions": [condition]})

    found = view(
        a_slice(a_card()), a_claim("c", a_result(1), pods=("a",)), a_pod("a", claim="c"),
        waits("late", "2026-01-03T00:00:00Z"), waits("early", "2026-01-02T00:00:00Z"), a_claim("c-late"), a_claim("c-early"),
    )  # fmt: skip
    assert [one["name"] for one in pages.pods(found, ALL)["items"]] == ["early", "late", "a"]
    assert [one["name"] for one in pages.overview(found, ALL)["waiting"]["items"]] == ["early", "late"]


def test_the_first_screen_of_five_thousand_nodes_is_small() -> None:
    """Names as long as clouds make them."""
    cards = [
        a_slice(*(a_card(8 * at + one) for one in range(8)), node=f"ip-10-{at // 256:03}-{at % 256:03}.eu-west-1")
        for at in range(5000)
    ]
    found = pages.overview(view(*cards), ALL)
    assert len(json.dumps(found, separators=(",", ":"))) <= 300 * 1024
    assert len(found["nodes"]["items"]) == 5000


def _words(document: object) -> set[str]:
    text = json.dumps(document)
    return {word for word in ("secret", "theirs", "leak", "hidden-pod", "uid-secret-theirs") if word in text}


def test_pools_are_rows_beside_the_nodes_and_models_are_told_apart_by_number() -> None:
    found = pages.overview(view(a_slice(a_card(1)), a_node(), a_far_slice(a_card(2), a_card(3)), a_pool()), ALL)
    assert [(one["name"], one["remote"]) for one in found["models"]] == [
        ("NVIDIA H100 80GB HBM3", remote) for remote in (False, True)
    ]
    assert found["nodes"]["items"] == [["node1", "a", "yn", [0]]]
    assert found["pools"]["items"] == [["lab", "aa", "y", [1]]]


def test_a_pool_has_a_page_with_its_cards_leases_and_problems() -> None:
    claim, other = a_far_claim(pods=("pod",)), a_far_claim("other", 2, namespace="secret", pods=("spy",))
    lost = a_lease(2, claim="other", namespace="secret", phase="Lost", reason="of other")
    cluster = view(a_far_slice(a_card(1), a_card(2)), a_pool(), claim, other, a_lease(), lost)
    found = pages.pool(cluster, ML, "lab")
    assert found
    assert [card["state"] for card in found["cards"]["items"]] == ["Held", "Held"]
    assert [(one["phase"], one["claim"], one["pods"]) for one in found["leases"]["items"]] == [
        ("Attached", "claim", ["pod"]), ("Lost", "", []),
    ]  # fmt: skip
    assert found["problems"] == []
    assert "secret" not in json.dumps(found)
    assert pages.pool(cluster, ML, "attic") is None
    everything = pages.pool(cluster, ALL, "lab")
    assert everything
    assert [one["kind"] for one in everything["problems"]] == ["LeaseLost"]


def test_a_node_without_cards_has_a_page_when_a_remote_card_is_used_there() -> None:
    cluster = view(a_far_slice(a_card(1)), a_far_claim(node="node9"))
    found = pages.node(cluster, ALL, "node9")
    assert found
    assert [card["name"] for card in found["remote"]["items"]] == [name_of(1)]
    assert pages.node(cluster, ALL, "node8") is None


def test_a_pool_and_its_cards_are_found_by_words() -> None:
    cluster = view(a_far_slice(a_card(1)), a_pool())
    assert [(hit["kind"], hit["at"]) for hit in pages.search(cluster, ALL, "lab")["items"]] == [("pool", "")]
    assert [(hit["kind"], hit["at"]) for hit in pages.search(cluster, ALL, "gpu-00000001")["items"]] == [
        ("card", "pool/lab")
    ]
