"""A picture in, writes out: the ElasticGPU objects of all cards."""

import dataclasses
import json
from typing import Any

from msgspec import structs

from api import elasticgpu
from controller import gpus
from tests.view.objects import (
    JSON,
    a_card,
    a_claim,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_pod,
    a_result,
    a_slice,
    name_of,
    seen,
)
from view import join, objects, picture

AT, LATER = "2026-02-02T00:00:00Z", "2026-03-03T00:00:00Z"
SHARE: dict[str, Any] = {"consumedCapacity": {"memory": "10Gi", "cores": "5", "shares": "1"}}


def turn(*given: JSON, found: dict[str, gpus.GPU] | None = None, at: str = AT) -> dict[str, gpus.Write]:
    cluster = seen(*given)
    return {write.of: write for write in gpus.turn(cluster, join.View(cluster), found or {}, at)}


def stored(writes: dict[str, gpus.Write]) -> dict[str, gpus.GPU]:
    """The objects as the API server has them after these writes."""
    return {
        name: gpus.gpu({"metadata": {"name": name, "uid": f"uid-{name}"}, "status": write.body["status"]})
        for name, write in writes.items()
        if isinstance(write, gpus.Apply)
    }


def status(write: gpus.Write) -> JSON:
    assert isinstance(write, gpus.Apply)
    found: JSON = json.loads(json.dumps(write.body["status"]))
    return found


def test_each_card_gets_an_object_of_its_name_with_its_holders() -> None:
    writes = turn(a_slice(a_card(1), a_card(2)), a_claim("c", a_result(1), pods=("pod",)), a_pod(claim="c"))
    held, free = status(writes[name_of(1)]), status(writes[name_of(2)])
    assert (held["state"], held["heldBy"], held["free"]) == ("Held", "ml/pod", {"memory": "0"})
    assert held["holders"][0]["pods"] == [{"name": "pod", "containers": ["main"]}]
    assert (free["state"], free["capacity"], free["free"]) == ("Free", {"memory": "80Gi"}, {"memory": "80Gi"})
    assert [(one["type"], one["status"]) for one in free["conditions"]] == [
        ("Healthy", "True"),
        ("Published", "True"),
        ("UsedAsBooked", "True"),
    ]


def test_nothing_is_written_where_nothing_changed() -> None:
    given = (a_slice(a_card(1), a_card(2)), a_claim("c", a_result(1)))
    assert turn(*given, found=stored(turn(*given)), at=LATER) == {}


def test_a_card_that_agreed_with_its_object_is_not_compared_again_until_one_of_them_changes() -> None:
    cluster = seen(a_slice(a_card(1), a_card(2)))
    view, agreed = join.View(cluster), dict[gpus.GPU, picture.Card]()
    found = stored({write.of: write for write in gpus.turn(cluster, view, {}, AT)})
    assert list(gpus.turn(cluster, view, found, AT, agreed)) == []
    assert set(agreed) == set(found.values())
    unread = dict(zip(agreed, view.cards, strict=True))  # believed without a look: their status cannot be read
    blind = {name: gpus.gpu({"metadata": {"name": name, "uid": shown.uid}}) for name, shown in found.items()}
    believed = {blind[shown.name]: card for shown, card in unread.items()}
    assert list(gpus.turn(cluster, view, blind, AT, believed)) == []
    edited = blind | {name_of(1): structs.replace(blind[name_of(1)])}
    assert [write.of for write in gpus.turn(cluster, view, edited, AT, believed)] == [name_of(1)]
    after = seen(a_slice(a_card(1), a_card(2)), a_claim("c", a_result(2)))
    assert [write.of for write in gpus.turn(after, join.View(after), found, AT, agreed)] == [name_of(2)]


def test_objects_that_are_no_more_are_not_remembered() -> None:
    cluster = seen(a_slice(a_card(1)))
    view, agreed = join.View(cluster), dict[gpus.GPU, picture.Card]()
    found = stored({write.of: write for write in gpus.turn(cluster, view, {}, AT)})
    for _ in range(3):
        again = {name: structs.replace(shown) for name, shown in found.items()}
        assert list(gpus.turn(cluster, view, again, AT, agreed)) == []
    assert set(agreed) == set(again.values())


def test_one_claim_writes_one_object() -> None:
    slices = a_slice(a_card(1), a_card(2))
    assert list(turn(slices, a_claim("c", a_result(1)), found=stored(turn(slices)))) == [name_of(1)]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    taint = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": AT}
    before = stored(turn(a_slice(a_card(1))))
    (write,) = turn(a_slice(a_card(1, taints=[taint])), found=before, at=LATER).values()
    healthy, published, _ = status(write)["conditions"]
    assert (healthy["status"], healthy["reason"], healthy["lastTransitionTime"]) == ("False", "CardTainted", LATER)
    assert published["lastTransitionTime"] == AT


def test_use_that_nobody_booked_is_a_condition_of_its_own() -> None:
    """HAMi#1069: a card that is well and full of strangers."""
    taint = {"key": "gpu.elasticgpu.io/used-beyond-booking", "value": "4Gi", "effect": "None", "timeAdded": AT}
    (write,) = turn(a_slice(a_card(1, taints=[taint]))).values()
    assert status(write)["state"] == "Free"
    conditions = {one["type"]: (one["status"], one["message"]) for one in status(write)["conditions"]}
    assert conditions["Healthy"] == ("True", "")
    words = f"processes use 4Gi or more of its memory that no claim has booked, since {AT}"
    assert conditions["UsedAsBooked"] == ("False", words)


def test_the_object_goes_with_the_card() -> None:
    (write,) = turn(a_slice(a_card(1)), found=stored(turn(a_slice(a_card(1), a_card(2))))).values()
    assert write == gpus.Remove(of=name_of(2), uid=f"uid-{name_of(2)}")


def test_a_claim_keeps_the_object_of_a_card_that_is_gone_and_the_object_says_so() -> None:
    claim = a_claim("c", a_result(2))
    before = stored(turn(a_slice(a_card(1), a_card(2)), claim))
    writes = turn(a_slice(a_card(1)), claim, found=before)
    gone = status(writes[name_of(2)])
    assert (gone["state"], gone["reason"]) == ("Unknown", "no longer published")
    assert "claim ml/c still holds it" in gone["conditions"][-1]["message"]
    assert turn(a_slice(a_card(1)), claim, found=before | stored(writes)) == {}
    assert isinstance(turn(a_slice(a_card(1)), found=before | stored(writes))[name_of(2)], gpus.Remove)


def test_objects_stay_while_their_pool_is_rewritten() -> None:
    before = stored(turn(a_slice(a_card(1), a_card(2))))
    writes = turn(a_slice(a_card(1), generation=2, of=2), found=before)
    assert name_of(2) not in writes
    assert status(writes[name_of(1)])["state"] == "Blocked"


def test_holders_and_pods_are_bounded_and_the_rest_is_counted() -> None:
    pods = tuple(f"p{number}" for number in range(10))
    claims = [a_claim(f"c{number:02}", a_result(1, shareID=str(number), **SHARE), pods=pods) for number in range(20)]
    (write,) = turn(a_slice(a_card(1, memory="800Gi", shared=True)), *claims).values()
    found = status(write)
    assert (len(found["holders"]), found["moreHolders"]) == (elasticgpu.MOST_HOLDERS, 4)
    assert (len(found["holders"][0]["pods"]), found["holders"][0]["morePods"]) == (elasticgpu.MOST_PODS, 2)
    assert found["heldBy"] == "ml/p0, ml/p1, ml/p2 and 197 more"


def test_a_card_that_two_nodes_list_is_shown_where_it_is_held() -> None:
    given = (a_slice(a_card(1)), a_slice(a_card(1), node="node2"), a_claim("c", a_result(1)))
    (write,) = turn(*given).values()
    assert status(write)["node"] == "node1"


def test_nothing_is_written_while_claims_are_not_known() -> None:
    cluster = dataclasses.replace(seen(a_slice(a_card(1))), claims=objects.Part(unknown="not listed yet"))
    assert list(gpus.turn(cluster, join.View(cluster), {}, AT)) == []


def test_an_object_that_cannot_be_read_is_written_anew() -> None:
    broken = gpus.gpu({"metadata": {"name": name_of(1), "uid": "u"}, "status": {"state": 3}})
    assert list(turn(a_slice(a_card(1)), found={name_of(1): broken})) == [name_of(1)]


def test_a_remote_card_has_a_pool_for_its_place_and_the_node_and_lease_of_its_holder() -> None:
    claim = a_far_claim("c", pods=("pod",), node="node9")
    writes = turn(a_slice(a_card(2)), a_far_slice(a_card(1)), claim, a_pod(claim="c", node="node9"), a_lease(claim="c"))
    far, near = status(writes[name_of(1)]), status(writes[name_of(2)])
    assert (near["place"], near["node"]) == ("node1", "node1")
    assert (far["place"], far["pool"], "node" in far, far["state"], far["heldBy"]) == (
        "pool/lab",
        "lab",
        False,
        "Held",
        "ml/pod",
    )
    (holder,) = far["holders"]
    assert (holder["node"], holder["lease"]) == ("node9", "lease-c-1: Attached")


def test_the_object_of_a_remote_card_goes_with_it_and_names_the_pool_while_a_claim_holds_it() -> None:
    claim = a_far_claim("c")
    before = stored(turn(a_far_slice(a_card(1)), claim))
    gone = status(turn(a_far_slice(), claim, found=before)[name_of(1)])
    assert gone["conditions"][-1]["message"].startswith("no pool publishes it any more")
    assert isinstance(turn(a_far_slice(), found=before)[name_of(1)], gpus.Remove)
