"""The rules of the search that people trip over, one by one; all of them together are in test_oracle."""

from typing import Any

import pytest

from allocation import bookings, cluster, devices, nodes, requests
from api import errors
from hack.measure import crowd

NODE = nodes.Node(name="node-00001", labels={})


def a_cluster(cards: int = 8, **device: Any) -> cluster.Cluster:
    """One node with eight cards. `device` changes the first one."""
    known = cluster.Cluster()
    known.put_node(NODE)
    body = crowd.slice_(1)
    first = body["spec"]["devices"][0]
    body["spec"]["devices"] += [first | {"name": f"gpu-{number}"} for number in range(8, cards)]
    first |= device
    known.put_slice(devices.slice_(body))
    known.put_class(requests.class_(crowd.class_()))
    return known


def hold(known: cluster.Cluster, card: int, parts: int) -> None:
    result = crowd.held(f"held-{card}", 1, card, parts)["status"]["allocation"]["devices"]["results"]
    known.book(f"held-{card}", bookings.pieces(result))


def found(known: cluster.Cluster, *claims: dict[str, Any]) -> list[list[str]] | None:
    picks = known.search(NODE, [requests.claim(one).wish for one in claims])
    return None if picks is None else [[pick.device.key[2] for pick in of] for of in picks]


def changed(claim: dict[str, Any], **exactly: Any) -> dict[str, Any]:
    claim["spec"]["devices"]["requests"][0]["exactly"] |= exactly
    return claim


def test_one_request_never_has_two_parts_of_a_card_and_two_claims_may() -> None:
    assert found(a_cluster(), crowd.claim("x", count=2)) == [["gpu-0", "gpu-1"]]
    assert found(a_cluster(), crowd.claim("x"), crowd.claim("y")) == [["gpu-0"], ["gpu-0"]]


def test_a_capacity_that_is_not_named_is_taken_by_its_default() -> None:
    known = a_cluster()
    only_memory = changed(crowd.claim("x"), capacity={"requests": {"memory": "1Gi"}})
    assert found(known, only_memory, crowd.claim("y")) == [["gpu-0"], ["gpu-1"]]


def test_all_needs_every_card_and_one_that_is_in_use_is_enough_to_refuse() -> None:
    known = a_cluster()
    every = changed(crowd.claim("x"), allocationMode="All")
    assert found(known, every) == [[f"gpu-{number}" for number in range(8)]]
    hold(known, 3, 4)
    assert found(known, every) is None


def test_admin_access_sees_a_full_card_only_where_it_asks_for_nothing_of_it() -> None:
    known = a_cluster()
    for card in range(8):
        hold(known, card, 4)
    watch = changed(crowd.claim("x"), adminAccess=True)
    assert found(known, watch) is None
    assert found(known, changed(watch, capacity={"requests": {"cores": "0", "memory": "1Mi"}})) is None
    hold(known, 2, 3)
    assert found(known, watch) == [["gpu-2"]]
    assert found(a_cluster(), changed(crowd.claim("x"), adminAccess=True)) == [["gpu-0"]]


def test_a_text_that_cannot_be_judged_on_a_device_stops_the_pod() -> None:
    text = f'device.attributes["{crowd.DRIVER}"].missing == "x"'
    with pytest.raises(errors.Invalid, match="gives up the pod"):
        found(a_cluster(), changed(crowd.claim("x"), selectors=[{"cel": {"expression": text}}]))


def test_a_tainted_card_is_for_those_who_tolerate_it() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    known = a_cluster(taints=[taint])
    assert found(known, crowd.claim("x")) == [["gpu-1"]]
    tolerations = [{"key": "broken", "operator": "Exists"}]
    assert found(known, changed(crowd.claim("x"), tolerations=tolerations)) == [["gpu-0"]]


def test_a_count_that_a_node_lacks_by_one_card_is_refused_without_a_try_of_every_subset() -> None:
    """Of 24 cards one has a share: 16 million subsets, and more than the search would try."""
    known = a_cluster(cards=24)
    hold(known, 7, 1)
    assert found(known, crowd.claim("x", cores=None, count=24)) is None
    two = changed(crowd.claim("y", cores=None, count=12), count=12)
    assert found(known, two, crowd.claim("x", cores=None, count=24)) is None


def test_a_claim_of_more_than_32_cards_is_wrong_everywhere() -> None:
    with pytest.raises(errors.Invalid, match="32"):
        found(a_cluster(), crowd.claim("x", count=33))
