"""Long lists come as text, and most of it is passed over: they give what their objects give one by one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view.objects import (
    ATTACHED,
    DRIVER,
    FAILED,
    JSON,
    THEN,
    a_card,
    a_claim,
    a_far_claim,
    a_far_slice,
    a_pod,
    a_result,
    a_slice,
    name_of,
)
from view import objects, reader

SHARE = {"shareID": "s1", "consumedCapacity": {"memory": "10Gi", "cores": 25}}
TAINT = {"key": "k", "effect": "NoSchedule", "timeAdded": THEN}
OWN = {f"{DRIVER}/uuid": {"string": "GPU-1"}, f"{DRIVER}/productName": {"string": "H100"}, "type": {"string": "gpu"}}
CARDS = [
    a_card(1),
    a_card(2, memory="48Gi", shared=True, taints=[TAINT, TAINT | {"value": "v"}]),
    {"name": "gpu-in-full", "attributes": OWN},
    {"name": "gpu-bare"},
]
RESULTS = [
    a_result(1),
    a_result(2, **SHARE),
    a_result(3, adminAccess=True, bindingConditions=[ATTACHED], bindingFailureConditions=[FAILED]),
    {"request": "nic", "driver": "nic.example.com", "pool": "p", "device": "eth0"},
]
SAID = [
    {"driver": DRIVER, "pool": "egpu/node1", "device": name_of(1), "data": {"enforcement": "none", "uuid": "GPU-1"}},
    {
        "driver": DRIVER,
        "pool": "egpu/node1",
        "device": name_of(2),
        "shareID": "s1",
        "data": {"enforcement": {"a": "b"}},
    },
    {"driver": DRIVER, "pool": "egpu/node1", "device": name_of(3), "conditions": [{"type": FAILED, "status": "True"}]},
    {"driver": "nic.example.com", "pool": "p", "device": "eth0", "data": ["of its own"]},
]
PLACE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]}
SEVERAL = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}
USERS = [
    {"resource": "pods", "name": "a", "uid": "u"},
    {"resource": "jobs", "apiGroup": "batch", "name": "b", "uid": "v"},
]
FIRST = {
    "name": "either",
    "firstAvailable": [{"name": "near", "deviceClassName": "c"}, {"name": "far", "deviceClassName": "d"}],
}


def listed(*items: Any) -> bytes:
    managed = [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]
    return json.dumps(
        {"items": [item | {"metadata": item["metadata"] | {"managedFields": managed}} for item in items]}
    ).encode()


@st.composite
def slices(draw: st.DrawFn) -> JSON:
    make, of_them = draw(st.sampled_from([(a_slice, CARDS), (a_far_slice, CARDS[:2])]))
    cards = draw(st.lists(st.sampled_from(of_them), max_size=4))
    item = make(
        *cards, generation=draw(st.integers(0, 2**40)), of=draw(st.integers(1, 9)), index=draw(st.integers(0, 9))
    )
    if draw(st.booleans()):
        item["spec"]["driver"] = "nic.example.com"
    return item


@st.composite
def claims(draw: st.DrawFn) -> JSON:
    results = draw(st.lists(st.sampled_from(RESULTS), max_size=4))
    item = a_claim(
        draw(st.text("abc", min_size=1)), *results, devices=draw(st.lists(st.sampled_from(SAID), max_size=4))
    )
    if draw(st.booleans()):
        item["status"]["reservedFor"] = USERS
    if draw(st.booleans()):
        item["spec"]["devices"]["requests"].append(FIRST)
    if draw(st.booleans()):
        item["metadata"]["deletionTimestamp"] = THEN
    if results:
        item["status"]["allocation"]["nodeSelector"] = draw(st.sampled_from([PLACE, SEVERAL, None]))
    return item


@given(found=st.lists(slices(), max_size=3), held=st.lists(claims(), max_size=3))
def test_a_list_gives_what_its_objects_give_one_by_one(found: list[JSON], held: list[JSON]) -> None:
    for read, items in ((reader.slice_, found), (reader.claim, held)):
        one_by_one = tuple(value for item in items if (value := read(item)) is not None)
        assert reader.part(reader.items(read, listed(*items)), read) == objects.Part(items=one_by_one)


def test_everything_of_a_claim_is_read() -> None:
    given = a_claim("c", *RESULTS, devices=SAID, reservedFor=USERS)
    given["status"]["allocation"]["nodeSelector"] = PLACE
    given["spec"]["devices"]["requests"].append(FIRST)
    (claim,) = reader.part(reader.items(reader.claim, listed(given)), reader.claim).items
    assert (claim.namespace, claim.name, claim.uid, claim.created) == ("ml", "c", "uid-ml-c", THEN)
    assert (claim.allocated, claim.since, claim.node) == (True, "2026-01-01T00:05:00Z", "node1")
    assert (claim.reserved_for, claim.other_users, claim.deleting) == ((("a", "u"),), 1, False)
    assert dict(claim.classes) == {"card": "training.elasticgpu.io", "either/near": "c", "either/far": "d"}
    whole, share, watching = claim.results
    assert (whole.device, whole.consumed, whole.enforcement, whole.admin) == (name_of(1), (), "none", False)
    assert share.consumed == (("cores", 25), ("memory", 10 * 2**30))
    assert (share.share_id, share.enforcement) == ("s1", "a: b")
    assert (watching.admin, watching.awaited) == (True, "could not be attached: ")


def test_everything_of_a_card_is_read() -> None:
    (one,) = reader.part(reader.items(reader.slice_, listed(a_slice(*CARDS))), reader.slice_).items
    plain, shared, full, bare = one.devices
    assert (plain.model, plain.bus_id, plain.driver_version) == ("NVIDIA H100 80GB HBM3", "0000:01:00.0", "580.95.5")
    assert (plain.name, plain.shared, plain.taints) == (name_of(1), False, ())
    assert dict(shared.capacity) == {"cores": 100, "memory": 48 * 2**30, "shares": 16}
    assert [(taint.key, taint.value, taint.since) for taint in shared.taints] == [("k", "", THEN), ("k", "v", THEN)]
    assert (full.uuid, full.model) == ("GPU-1", "H100")
    assert (bare.uuid, bare.model, bare.capacity) == (None, None, ())


@pytest.mark.parametrize("odd", [{"pool": 3}, {"device": None}, {"consumedCapacity": {"memory": "many"}}])
def test_an_odd_one_in_a_list_costs_itself_alone_and_is_named(odd: JSON) -> None:  # HAMi#1932
    text = listed(a_claim("before", a_result(1)), a_claim("broken", a_result(2) | odd), a_claim("after", a_result(3)))
    found = reader.part(reader.items(reader.claim, text), reader.claim)
    assert [claim.name for claim in found.items] == ["before", "after"]
    (words,) = found.unreadable
    assert words.startswith("ml/broken: ")


def test_what_is_null_is_as_what_is_not_there() -> None:
    bare: JSON = {"metadata": {"name": "c", "namespace": "n", "uid": "u"}}
    empty = {"allocation": None, "reservedFor": None, "devices": None}
    nulls = bare | {"spec": {"devices": {"requests": None}}, "status": empty}
    assert reader.claim(nulls) == reader.claim(bare)
    card = {"name": "gpu-bare", "attributes": None, "capacity": None, "allowMultipleAllocations": None, "taints": None}
    assert reader.slice_(a_slice(card)) == reader.slice_(a_slice({"name": "gpu-bare"}))


def test_a_list_without_items_and_kinds_that_are_short_are_read_too() -> None:
    for text in (b"{}", b'{"items": null}', b'{"items": []}'):
        assert list(reader.items(reader.claim, text)) == list(reader.items(reader.pod, text)) == []
    (pod,) = reader.part(reader.items(reader.pod, listed(a_pod("p"))), reader.pod).items
    assert pod.name == "p"


def test_a_remote_card_is_told_apart() -> None:
    (near, far) = reader.part(reader.items(reader.slice_, listed(a_slice(), a_far_slice())), reader.slice_).items
    assert (near.remote, far.remote, far.node) == (False, True, "")
    (claim,) = reader.part(reader.items(reader.claim, listed(a_far_claim())), reader.claim).items
    assert [result.remote for result in claim.results] == [True]
