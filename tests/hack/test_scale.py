"""The large cluster that the controller is measured with is what it says it is."""

import datetime
from collections import Counter
from typing import Any

from allocation import choice, pods
from api import names
from controller import allotment, mirror, snapshot
from hack.scale import load, objects, pending
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


class _Counting(choice.Chooser):
    """How often a choice was really made."""

    made = 0

    def choose(self, *given: Any, **more: Any) -> choice.Choice | None:
        self.made += 1
        return super().choose(*given, **more)


def test_thousands_of_claims_that_ask_the_same_in_vain_are_looked_at_once_and_keep_what_they_ask_once() -> None:
    known = mirror.Mirror()
    known.classes(_classes())
    claims = {one["metadata"]["name"]: mirror.claim(one) for one in map(_pending, range(3000))}
    given = {"s": mirror.slice_(_given())}
    nodes = {objects.node_name(0): pods.node(objects.node(0))}
    known.take(slices=given, nodes=nodes, claims=claims, pods={}, rules={}, at=datetime.datetime.now(datetime.UTC))
    chooser = _Counting(known.cluster)
    turn = allotment.Turn(known=known, chooser=chooser, share_id=str)
    refused = [turn.decide(want) for want in known.waiting()]
    assert len(refused) == 3000
    assert all(isinstance(one, allotment.Refusal) and one.never for one in refused)
    assert chooser.made == 1
    assert len({id(one.asked.wish) for one in claims.values() if one.asked is not None}) == 1


def _pending(number: int) -> objects.JSON:
    found = pending.claim(number)
    found["metadata"]["resourceVersion"] = "1"
    return found


def _given() -> objects.JSON:
    (body,) = objects.slices_of(0, "u", given=True)
    for device in body["spec"]["devices"]:
        for taint in device["taints"]:
            taint["timeAdded"] = objects.THEN
    return body


def _classes() -> snapshot.Snapshot:
    body = objects.gpu_class(pending.CLASS, "Controller", "Immediate")
    body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    owner = {"kind": "ElasticGPUClass", "uid": "u"}
    meta = {"name": pending.CLASS, "uid": "d", "resourceVersion": "1", "ownerReferences": [owner]}
    text = {"cel": {"expression": f'device.driver == "{names.LOCAL_DRIVER}"'}}
    made = {"metadata": meta, "spec": {"selectors": [text]}}
    return snapshot.build(1, [snapshot.gpu_class(body)], [snapshot.device_class(made)], [])
