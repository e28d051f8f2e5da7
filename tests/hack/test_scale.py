"""The large cluster that the controller is measured with is what it says it is."""

from collections import Counter

from api import names
from hack.scale import load, objects
from kube import slices
from view import join, reader
from view import objects as seen

NODES = 20


def _view() -> join.View:
    made = [one for number in range(NODES) for one in load.whole(number, {})]
    of = {kind: [one for one in made if one["kind"] == kind] for kind in {one["kind"] for one in made}}
    return join.View(
        seen.Objects(
            slices=reader.part(of["ResourceSlice"], reader.slice_),
            claims=reader.part(of["ResourceClaim"], reader.claim),
            pods=reader.part(of["Pod"], reader.pod),
            drivers=reader.part(of["Pod"], reader.driver_pod),
            nodes=reader.part(of["Node"], reader.node),
            device_classes=seen.Part(items=(seen.DeviceClass(name=objects.BY_SCHEDULER, ours=True),)),
            rules=seen.Part(),
            classes=seen.Part(),
        )
    )


def test_nine_tenths_of_all_cards_are_held_and_nothing_is_wrong() -> None:
    view = _view()
    held = sum(holder.amounts[names.CORES] for card in view.cards for holder in card.holders)
    assert held == NODES * objects.CARDS * 90
    assert all((card.free or {})[names.CORES] >= 0 for card in view.cards)
    assert [problem.kind for problem in view.problems] == []


def test_the_card_that_the_last_event_takes_is_free() -> None:
    node, place = objects.free_card(NODES)
    states = {card.name: card.state for card in _view().cards}
    assert states[objects.card(node, place).name] == "Free"


def test_no_name_or_uid_is_given_twice() -> None:
    made = [one for number in range(NODES) for one in load.whole(number, {})]
    for key in ("name", "uid"):
        counted = Counter((one["kind"], one["metadata"][key]) for one in made)
        assert max(counted.values()) == 1


def test_a_slice_given_to_the_controller_replaces_the_one_that_is_there() -> None:
    (before,) = objects.slices_of(1, "u", given=False)
    before["metadata"] |= {"uid": "s", "resourceVersion": "1"}
    (after,) = objects.slices_of(1, "u", given=True, present=(slices.seen(before),))
    assert after["metadata"]["name"] == before["metadata"]["name"]
    taints = [taint["key"] for device in after["spec"]["devices"] for taint in device["taints"]]
    assert taints == [names.ALLOCATED_BY_TAINT] * objects.CARDS
