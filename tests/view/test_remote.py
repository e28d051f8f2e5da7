"""Cards of remote pools in the picture: where they are, who has them and by which lease, and what is wrong with them."""

import dataclasses
from typing import Any

from tests.view.objects import (
    FAR,
    JSON,
    THEN,
    a_card,
    a_claim,
    a_device_class,
    a_driver,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_node,
    a_pod,
    a_pool,
    a_rule,
    a_slice,
    name_of,
    seen,
    view,
)
from view import join, objects, picture, scope

State = picture.State
UNREACHABLE = {"key": f"{FAR}/unreachable", "effect": "NoSchedule", "timeAdded": THEN}


def wrong(*given: JSON, **hidden: str) -> dict[str, str]:
    """Kind -> what it is about."""
    parts: dict[str, Any] = {name: objects.Part(unknown=why) for name, why in hidden.items()}
    found = join.View(dataclasses.replace(seen(*given), **parts))
    return {one.kind: f"{one.about}: {one.message}" for one in found.problems}


def test_a_remote_card_is_a_card_with_a_pool_in_place_of_a_node() -> None:
    card, far = view(a_slice(a_card(1)), a_far_slice(a_card(2), pool="attic")).cards
    assert (card.remote, card.place, far.remote, far.place) == (False, "node1", True, "pool/attic")
    assert (far.node, far.state, far.model, far.free) == (
        "",
        State.FREE,
        "NVIDIA H100 80GB HBM3",
        {"memory": 80 * 2**30},
    )


def test_its_holder_has_a_claim_a_pod_the_node_that_uses_it_and_a_lease() -> None:
    claim = a_far_claim(pods=("pod",))
    (card,) = view(a_far_slice(a_card()), claim, a_pod(node="node2"), a_lease()).cards
    (holder,) = card.holders
    assert (card.state, card.free, holder.node) == (State.HELD, {"memory": 0}, "node2")
    assert (holder.claim, [pod.containers for pod in holder.pods]) == ("claim", [("main",)])
    assert holder.attachment == picture.Attachment(lease="lease-claim-1", phase="Attached", since=THEN)


def test_a_lease_that_ends_in_no_year_that_there_is_runs_out_at_no_known_time() -> None:
    end = a_lease(phase="Lost", since="9999-12-31T23:59:59Z")
    (card,) = view(a_far_slice(a_card()), a_far_claim(), end).cards
    (holder,) = card.holders
    assert holder.attachment
    assert holder.attachment.runs_out == ""


def test_a_lease_that_nobody_renews_says_when_it_runs_out() -> None:
    """Its pool ends it ten minutes later, whether the controller can reach it or not."""
    (card,) = view(a_far_slice(a_card()), a_far_claim(), a_lease(phase="Lost", reason="the card died")).cards
    (holder,) = card.holders
    assert holder.attachment
    assert (holder.attachment.runs_out, holder.attachment.reason) == ("2026-01-01T00:10:00Z", "the card died")


def test_a_claim_that_was_allocated_anew_has_its_new_lease_and_the_old_one_is_ending() -> None:
    old, new = a_lease(name="old", phase="Releasing"), a_lease(name="new")
    (card,) = view(a_far_slice(a_card()), a_far_claim(), old, new).cards
    assert [holder.attachment.lease for holder in card.holders if holder.attachment] == ["new"]
    assert [one.lease for one in card.ending] == ["old"]


def test_states_of_nodes_and_pools_are_apart_and_add_up() -> None:
    found = view(
        a_slice(a_card(1), a_card(2)),
        a_far_slice(a_card(3), a_card(4), a_card(5)),
        a_far_claim("c", 3),
        a_node(),
        a_pool(),
    )
    (node,), (pool,), total = found.nodes, found.remote_pools, found.total
    assert total
    assert (node.tally.total, pool.tally.total, total.total) == (2, 3, 5)
    assert (node.tally.free, pool.tally.free, pool.tally.held, total.free, total.held) == (2, 2, 1, 4, 1)
    assert [(model.remote, model.tally.total) for model in found.models] == [(False, 2), (True, 3)]
    assert dict(found.cells) == {"node1": "aa", "pool/lab": "kaa"}


def test_a_lease_names_its_claim_pods_and_node_and_whether_the_claim_holds_the_card() -> None:
    found = view(a_far_slice(a_card()), a_far_claim(pods=("pod",)), a_lease(), a_lease(2, claim="gone")).leases
    assert [(one.device, one.claim, one.pods, one.node, one.phase, one.held) for one in found] == [
        (name_of(1), "claim", ("pod",), "node2", "Attached", True), (name_of(2), "gone", (), "node2", "Attached", False),
    ]  # fmt: skip


def test_of_claims_that_may_not_be_read_it_is_not_known_whether_they_hold_a_card() -> None:
    given = seen(a_far_slice(a_card()), a_pool(), a_lease())
    found = join.View(dataclasses.replace(given, claims=objects.Part(unknown="you may not list resourceclaims")))
    assert [one.held for one in found.leases] == [None]
    assert [one.kind for one in found.problems] == []
    assert [card.state for card in found.cards] == [State.UNKNOWN]


def test_a_claim_made_again_under_the_same_name_does_not_hold_the_lease_of_the_one_before() -> None:
    assert [one.held for one in view(a_far_slice(a_card()), a_far_claim(), a_lease(uid="another")).leases] == [False]


def test_a_pool_that_does_not_answer_is_one_problem_and_not_one_of_each_card() -> None:
    cards = [a_card(number, taints=[UNREACHABLE]) for number in range(9)]
    found = wrong(a_far_slice(*cards), a_pool(reachable="False", why="connection refused"))
    assert found == {"PoolUnreachable": "pool lab: does not answer; nobody new gets its 9 cards: connection refused"}


def test_who_may_not_list_remotepools_hears_of_it_by_the_taints_of_the_cards() -> None:
    found = wrong(a_far_slice(a_card(1, taints=[UNREACHABLE]), a_card(2)), remote_pools="you may not list remotepools")
    assert found == {"PoolUnreachable": "pool lab: does not answer; nobody new gets 1 of its 2 cards"}
    (row,) = join.View(dataclasses.replace(seen(a_far_slice()), remote_pools=objects.Part(unknown="no"))).remote_pools
    assert (row.known, row.reachable, row.reason, row.leases) == (None, None, "no", None)


def test_a_pool_that_nobody_has_asked_yet_is_unknown_and_not_wrong() -> None:
    found = view(a_pool(reachable=""))
    assert [(one.reachable, one.reason, one.tally.total) for one in found.remote_pools] == [
        (None, "the controller has not asked it yet", 0)
    ]
    assert found.problems == ()


def test_draining_and_lost_cards_are_counted_with_the_time_of_the_first() -> None:
    def tainted(number: int, key: str, at: str) -> JSON:
        return a_card(number, taints=[{"key": f"{FAR}/{key}", "effect": "NoSchedule", "timeAdded": at}])

    cards = (tainted(1, "draining", "2026-01-03T00:00:00Z"), tainted(2, "draining", THEN), tainted(3, "lost", THEN))
    found = view(a_far_slice(*cards, a_card(4)), a_pool())
    assert [(one.kind, one.since) for one in found.problems] == [("PoolDraining", THEN), ("PoolCardsLost", THEN)]
    assert "2 of its 4 cards" in found.problems[0].message
    assert [card.state for card in found.cards] == [State.BLOCKED] * 3 + [State.FREE]


def test_slices_without_their_pool_are_a_problem_unless_pools_could_not_be_read() -> None:
    assert "PoolGone" in wrong(a_far_slice(a_card()))
    assert wrong(a_far_slice(a_card()), remote_pools="not asked for") == {}


def test_a_card_that_is_given_back_says_so_with_its_age() -> None:
    releasing = {"key": f"{FAR}/releasing", "effect": "NoSchedule"}
    given = (a_far_slice(a_card(taints=[releasing])), a_pool(), a_lease(phase="Releasing", reason="its claim is gone"))
    (problem,), (card,) = view(*given).problems, view(*given).cards
    assert (problem.kind, problem.since, problem.namespace) == ("LeaseReleasing", THEN, "ml")
    assert "and its pool has not confirmed it: its claim is gone" in problem.message
    assert (card.state, card.reason) == (State.BLOCKED, f"taint {FAR}/releasing")


def test_a_lease_whose_claim_is_gone_says_how_it_is_given_back() -> None:
    (problem,) = view(a_far_slice(a_card()), a_pool(), a_lease()).problems
    assert (problem.kind, problem.command) == ("LeaseUnclaimed", "kubectl delete remotelease lease-claim-1")


def test_a_lost_session_names_the_pod_that_has_to_be_made_again() -> None:
    claim = a_far_claim(pods=("pod",))
    found = view(
        a_far_slice(a_card()), a_pool(), claim, a_pod(node="node2"), a_lease(phase="Lost", reason="the card died")
    )
    (problem,) = found.problems
    assert (problem.kind, problem.command) == ("LeaseLost", "kubectl delete pod pod -n ml")


def test_a_claim_whose_remote_card_is_published_no_more_asks_no_node_driver() -> None:
    (problem,) = view(a_far_slice(a_card(2)), a_pool(), a_far_claim(pods=("pod",)), a_pod(node="node2")).problems
    assert (problem.kind, problem.command) == ("CardGone", "kubectl delete pod pod -n ml")
    assert "driver" not in problem.message


def test_a_pod_waits_for_its_card_to_be_attached_or_says_why_that_failed() -> None:
    pod = a_pod(phase="Pending", node="")
    given = (a_far_slice(a_card()), pod, a_device_class(driver=FAR))
    (waiting,) = view(*given, a_far_claim(attached="", pods=("pod",))).pods
    assert waiting.waiting == f"card {name_of(1)} of pool lab is being attached"
    failed = a_far_claim(pods=("pod",))
    failed["status"]["devices"][0]["conditions"] = [
        {"type": f"{FAR}/attach-failed", "status": "True", "reason": "CardNotAttached", "message": "the pool is full"}
    ]
    (waiting,) = view(*given, failed).pods
    assert waiting.waiting == f"card {name_of(1)} of pool lab could not be attached: the pool is full"


def test_a_pod_that_waits_is_told_of_near_and_far_cards_apart() -> None:
    wish = (a_claim("wish"), a_pod(claim="wish", phase="Pending"), a_device_class())
    (near,), (both,) = (
        view(a_slice(a_card(1)), *wish).pods,
        view(a_slice(a_card(1)), a_far_slice(a_card(2)), *wish).pods,
    )
    assert near.waiting.endswith("; of 1 cards 1 free")
    assert both.waiting.endswith("; of 1 cards 1 free; of 1 remote cards 1 free")
    (far,) = view(a_far_slice(a_card(2)), *wish).pods
    assert far.waiting.endswith("; no node publishes a card; of 1 remote cards 1 free")


def test_pods_and_claims_name_the_pool_and_the_node_that_uses_the_card() -> None:
    found = view(a_far_slice(a_card()), a_far_claim(pods=("pod",)), a_pod(node="node2"))
    ((card,), (claim,)) = found.pods[0].cards, found.claims
    assert (card.node, card.pool, card.remote) == ("", "lab", True)
    assert (claim.nodes, claim.pools) == (("node2",), ("lab",))


def test_a_rule_for_one_driver_taints_no_card_of_the_other() -> None:
    given = (a_slice(a_card(1)), a_far_slice(a_card(2)))
    states = [
        [card.state for card in view(*given, a_rule(driver=driver)).cards] for driver in ("gpu.elasticgpu.io", FAR)
    ]
    assert states == [[State.BLOCKED, State.FREE], [State.FREE, State.BLOCKED]]


def test_a_pool_that_is_not_whole_blocks_its_cards_and_names_the_pool() -> None:
    (problem,) = view(a_far_slice(a_card(), of=2), a_pool()).problems
    assert (problem.kind, problem.command) == ("PoolIncomplete", "kubectl describe remotepool lab")


def test_who_may_not_see_a_namespace_sees_its_leases_without_names() -> None:
    found = view(
        a_far_slice(a_card()), a_far_claim(pods=("pod",)), a_lease(phase="Releasing", reason="claim c is gone")
    )
    tenant = scope.Scope(namespaces=frozenset({"web"}))
    (lease,) = scope.leases(found.leases, tenant)
    assert (lease.device, lease.phase, lease.node) == (name_of(1), "Releasing", "node2")
    assert (lease.namespace, lease.claim, lease.pods, lease.reason) == ("", "", (), "")
    (holder,) = scope.card(found.cards[0], tenant).holders
    assert (holder.claim, holder.attachment and holder.attachment.reason) == ("", "")
    assert scope.problems(found.problems, tenant) == tuple(one for one in found.problems if not one.namespace)


def test_cards_that_two_pools_list_are_one_problem_a_pair_of_pools() -> None:
    """Two RemotePools may be one agent, for two kinds of nodes."""
    shared = [a_card(1), a_card(2)]
    found = view(
        a_far_slice(*shared, a_card(3), pool="lab"),
        a_far_slice(*shared, pool="attic"),
        a_far_slice(a_card(9), pool="cellar"),
        a_slice(a_card(3)),
        a_node(),
        a_driver(),
        *(a_pool(name) for name in ("lab", "attic", "cellar")),
    )
    (problem,) = found.problems
    assert (problem.kind, problem.about) == ("PoolCardsTwice", "pool lab")
    assert problem.message.startswith("lists 2 cards that pool attic lists too: each counts once")
    assert problem.command == "kubectl describe remotepool lab attic"
