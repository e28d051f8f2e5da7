"""Plans for slices: by table where a rule has a number, by a model server where it has to hold at every moment."""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from api.resource import Device, Pool, RequestPolicy, Taint, Version
from kube import limits, slices
from kube.slices import Create, Delete, Replace, Scope, SeenSlice

SCOPE = Scope(driver="gpu.example.io", node_name="n1", node_uid="u1")
TAINT = Taint(key="example.io/sick", effect="NoSchedule")


def a_pool(count: int, *, tainted: int = 0, name: str = "p", kind: str = "a") -> Pool:
    return Pool(
        name=name,
        devices=tuple(
            Device(name=f"d{n}", attributes=(("kind", kind),), taints=(TAINT,) if n < tainted else ())
            for n in range(count)
        ),
    )


class Model:
    """What a server holds, and what an allocator makes of it."""

    def __init__(self) -> None:
        self.held: dict[str, SeenSlice] = {}
        self.version = 0

    @property
    def present(self) -> tuple[SeenSlice, ...]:
        return tuple(self.held.values())

    def perform(self, write: slices.Write) -> None:
        self.version += 1
        match write:
            case Create():
                assert write.name not in self.held
                self._store(write.name, f"uid{self.version}", write.body)
            case Replace():
                held, meta = self.held[write.name], write.body["metadata"]
                assert (meta["uid"], meta["resourceVersion"]) == (held.uid, held.resource_version)
                for key in ("driver", "nodeName"):
                    assert write.body["spec"][key] == held.spec[key]
                self._store(write.name, held.uid, write.body)
            case Delete():
                held = self.held.pop(write.name)
                assert (write.uid, write.resource_version) == (held.uid, held.resource_version)

    def _store(self, name: str, uid: str, body: dict[str, Any]) -> None:
        spec = copy.deepcopy(body["spec"])
        devices = spec.get("devices", [])
        heavy = any("taints" in device for device in devices)
        assert len(devices) <= (64 if heavy else 128)
        assert spec["pool"]["resourceSliceCount"] > 0
        for taint in (taint for device in devices for taint in device.get("taints", [])):
            taint.setdefault("timeAdded", "2026-01-01T00:00:00Z")
        meta = body["metadata"] | {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        self.held[name] = slices.seen({"metadata": meta, "spec": spec})

    @contextlib.contextmanager
    def first_device(self) -> Iterator[dict[str, Any]]:
        """To be changed, by whoever may write there."""
        item = self.present[0]
        spec = item.spec
        yield spec["devices"][0]
        self.held[item.name] = dataclasses.replace(item, packed=slices.packed(spec))

    def usable(self, pool: str) -> tuple[str, ...] | None:
        """The devices an allocator would use, as texts; None while the pool is absent or incomplete."""
        mine = [item for item in self.present if item.pool == pool]
        top = max((item.generation for item in mine), default=0)
        newest = sorted((item for item in mine if item.generation == top), key=lambda item: item.name)
        counts = {item.spec["pool"]["resourceSliceCount"] for item in newest}
        if not any(count == len(newest) for count in counts):  # as lenient as an allocator may be
            return None
        return tuple(
            f"{d['name']} {d['attributes']} {'taints' in d}" for i in newest for d in i.spec.get("devices", [])
        )


def shown(pool: Pool) -> tuple[str, ...]:
    return tuple(f"{d.name} {d.to_json()['attributes']} {bool(d.taints)}" for d in pool.devices)


def settle(model: Model, *pools: Pool, scope: Scope = SCOPE) -> tuple[slices.Write, ...]:
    writes = slices.plan(pools, model.present, scope)
    for write in writes:
        model.perform(write)
    assert slices.plan(pools, model.present, scope) == ()
    return writes


POOLS = st.builds(
    a_pool,
    st.sampled_from([0, 1, 2, 63, 64, 65, 127, 128, 129, 200, 300]),
    tainted=st.sampled_from([0, 0, 1, 64, 70, 300]),
    kind=st.sampled_from("ab"),
)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(st.lists(st.tuples(POOLS, st.integers(0, 8), st.sets(st.integers(0, 5))), min_size=1, max_size=5))
def test_an_allocator_sees_one_wanted_state_or_none_at_every_moment(
    story: list[tuple[Pool, int, set[int]]],
) -> None:
    """Each chapter wants something else, crashes after some writes, and loses some slices to a foreign hand."""
    model, wanted = Model(), set[tuple[str, ...] | None]({None})
    for pool, crash_after, lost in story:
        wanted.add(shown(pool))
        for number, write in enumerate(slices.plan((pool,), model.present, SCOPE)):
            if number == crash_after:
                break
            model.perform(write)
            assert model.usable("p") in wanted
        for name in [name for index, name in enumerate(sorted(model.held)) if index in lost]:
            del model.held[name]
    settle(model, story[-1][0])
    assert model.usable("p") == shown(story[-1][0])


@hypothesis.given(POOLS, POOLS)
def test_a_plan_is_done_once(first: Pool, second: Pool) -> None:
    model = Model()
    for pool in (first, second, first):
        settle(model, pool)
        assert model.usable("p") == shown(pool)
        assert {item.spec["pool"]["resourceSliceCount"] for item in model.present} == {len(model.present)}


def test_the_first_publication_has_generation_one_and_an_owner() -> None:
    (write,) = slices.plan((a_pool(2),), (), SCOPE)
    assert isinstance(write, Create)
    assert write.body["spec"]["pool"] == {"name": "p", "generation": 1, "resourceSliceCount": 1}
    assert write.body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
    ]


def test_the_same_pool_gives_the_same_bytes() -> None:
    assert repr(slices.plan((a_pool(200, tainted=3),), (), SCOPE)) == repr(
        slices.plan((a_pool(200, tainted=3),), (), SCOPE)
    )


def test_one_changed_slice_keeps_its_generation() -> None:
    model = Model()
    settle(model, a_pool(128))
    (write,) = settle(model, a_pool(128, kind="b"))
    assert isinstance(write, Replace)
    assert write.body["spec"]["pool"]["generation"] == 1


def test_two_changed_slices_take_all_to_the_next_generation() -> None:
    model = Model()
    settle(model, a_pool(300))
    assert len(settle(model, a_pool(300, kind="b"))) == 3
    assert {item.generation for item in model.present} == {2}


def test_a_pool_that_shrinks_is_never_absent() -> None:
    model = Model()
    settle(model, a_pool(300))
    for write in slices.plan((a_pool(1),), model.present, SCOPE):
        model.perform(write)
        assert model.usable("p") in {shown(a_pool(300)), shown(a_pool(1))}


def test_a_slice_deleted_by_hand_comes_back() -> None:
    model = Model()
    settle(model, a_pool(1))
    model.held.clear()
    assert [type(write) for write in settle(model, a_pool(1))] == [Create]


def test_a_taint_halves_its_slice_only() -> None:
    """64 devices at most where one has a taint (AMD PR#88)."""
    model = Model()
    settle(model, a_pool(130))
    assert sorted(len(item.spec["devices"]) for item in model.present) == [2, 128]
    settle(model, a_pool(130, tainted=1))
    assert [len(item.spec["devices"]) for item in sorted(model.present, key=lambda i: i.name)] == [64, 66]


def test_names_are_in_the_order_in_which_devices_are_to_be_tried() -> None:
    names = [slices.slice_name(SCOPE, "p", index) for index in (0, 1, 15, 16, 255)]
    assert names == sorted(names)
    long = dataclasses.replace(SCOPE, node_name="n." * 126 + "n", driver="d" * 63)
    assert len(slices.slice_name(long, "p", 0)) <= 253


def test_a_pool_without_devices_still_says_that_the_driver_is_there() -> None:
    (write,) = slices.plan((Pool(name="p"),), (), SCOPE)
    assert isinstance(write, Create)
    assert "devices" not in write.body["spec"]


def test_pools_no_longer_wanted_and_strays_are_deleted() -> None:
    model = Model()
    settle(model, a_pool(1), a_pool(1, name="q"))
    (gone,) = settle(model, a_pool(1))
    assert isinstance(gone, Delete)
    stray = dataclasses.replace(model.present[0], name="00000-by-hand", uid="s")
    model.held[stray.name] = stray
    assert [write.name for write in settle(model, a_pool(1))] == ["00000-by-hand"]


def test_a_node_that_was_made_anew_becomes_the_owner() -> None:
    model = Model()
    settle(model, a_pool(1))
    (write,) = settle(model, a_pool(1), scope=dataclasses.replace(SCOPE, node_uid="u2"))
    assert isinstance(write, Replace)


def test_what_only_the_server_added_or_wrote_otherwise_is_no_difference() -> None:
    pool = Pool(
        name="p",
        devices=(
            Device(
                name="d",
                attributes=(("v", Version("1.2.3")), ("ok", True)),
                capacity=(("memory", 80 * 2**30),),
                taints=(dataclasses.replace(TAINT, added="2026-01-01T00:00:00Z"),),
            ),
        ),
    )
    model = Model()
    settle(model, pool)
    with model.first_device() as device:
        device["capacity"]["memory"]["value"] = "85899345920"
        device["taints"][0]["timeAdded"] = "2026-01-01T00:00:01Z"
        device["taints"][0]["value"] = None
    assert slices.plan((pool,), model.present, SCOPE) == ()
    with model.first_device() as device:
        device["attributes"]["ok"] = {"int": 1}
    assert len(slices.plan((pool,), model.present, SCOPE)) == 1


def test_a_taint_keeps_its_time_when_its_slice_is_rewritten() -> None:
    model = Model()
    settle(model, a_pool(2, tainted=1))
    with model.first_device() as device:
        device["taints"][0]["timeAdded"] = "2025-05-05T00:00:00Z"
    (write,) = settle(model, a_pool(2, tainted=1, kind="b"))
    assert isinstance(write, Replace)
    assert write.body["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2025-05-05T00:00:00Z"


def test_lost_fields_are_named_by_their_path() -> None:
    sent = {
        "devices": [
            {
                "name": "d",
                "allowMultipleAllocations": True,
                "capacity": {"memory": {"value": "1", "requestPolicy": {"default": "1"}}},
                "taints": [{"key": "k", "effect": "NoSchedule"}],
                "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}],
                "attributes": {},
            }
        ]
    }
    stored = {"devices": [{"name": "d", "capacity": {"memory": {"value": "1"}}}]}
    assert slices.dropped(sent, stored) == {
        "devices.allowMultipleAllocations",
        "devices.capacity.requestPolicy",
        "devices.taints",
        "devices.consumesCounters",
    }
    assert slices.dropped(sent, sent) == frozenset()


def test_without_taints_a_sick_device_is_withheld_and_the_others_stay() -> None:
    """7b: a 1.34 server stores slices without their taints, with no word."""
    pool = slices.reduced(a_pool(3, tainted=1), frozenset({"devices.taints"}))
    assert [device.name for device in pool.devices] == ["d1", "d2"]
    assert slices.reduced(a_pool(3, tainted=1), frozenset({"devices.allowMultipleAllocations"})) == a_pool(3, tainted=1)


SHARED = Device(
    name="d",
    shareable=True,
    capacity=(("memory", 80 * 2**30), ("shares", 16)),
    policies=(
        ("memory", RequestPolicy(default=80 * 2**30, least=2**20, step=2**20)),
        ("shares", RequestPolicy(default=1, least=1, step=1, most=1)),
    ),
)


def test_a_shared_device_says_how_much_a_share_takes() -> None:
    assert SHARED.to_json() == {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {
            "memory": {
                "value": "80Gi",
                "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
            },
            "shares": {
                "value": "16",
                "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1", "max": "1"}},
            },
        },
    }


@pytest.mark.parametrize("field", ["devices.allowMultipleAllocations", "devices.capacity.requestPolicy"])
def test_where_shares_cannot_be_stored_whole_devices_are_offered(field: str) -> None:
    """7b: a server stored the device without the one, and another might without the other: then nobody gets a part."""
    reduced = slices.reduced(Pool(name="p", devices=(SHARED,)), frozenset({field}))
    assert reduced.devices == (dataclasses.replace(SHARED, shareable=False, policies=()),)
    assert slices.unshared(frozenset({field}))
    assert not slices.unshared(frozenset({"devices.taints"}))


def test_what_a_server_drops_is_not_wanted_of_it_again() -> None:
    model, dropped = Model(), frozenset({"devices.taints", "devices.attributes.string"})
    for write in slices.plan((a_pool(3, tainted=1),), (), SCOPE, dropped):
        model.perform(write)
    assert slices.plan((a_pool(3, tainted=1),), model.present, SCOPE, dropped) == ()


def test_the_dry_run_carries_one_device_of_each_shape() -> None:
    body = slices.trial((a_pool(100, tainted=7),), SCOPE)
    assert [device.get("taints") is not None for device in body["spec"]["devices"]] == [True, False]
    assert slices.risky((a_pool(2),)) == frozenset()
    assert slices.risky((a_pool(2, tainted=1),)) == {"taints"}


def test_a_bad_device_or_attribute_is_left_out_with_its_reason_and_costs_nobody_else() -> None:
    """AMD PR#68: one four-part driver version, zero slices."""
    good = Device(name="good", attributes=(("v", Version("1.2.3-rc.1+b")), ("resource.kubernetes.io/pcieRoot", "pci0")))
    pool = Pool(
        name="p",
        devices=(
            good,
            Device(name="Upper"),
            dataclasses.replace(good, attributes=()),
            Device(name="v4", attributes=(("v", Version("1.2.3.4")), ("text", "x" * 65), ("1st", 1), ("n", 5))),
            Device(name="taint", taints=(Taint(key="bad key", effect="NoSchedule"),)),
            Device(name="many", attributes=tuple((f"a{n}", n) for n in range(33))),
            Device(name="cap", capacity=(("no good", 1),)),
            dataclasses.replace(SHARED, capacity=(("memory", 2**30), ("shares", 16))),
        ),
    )
    kept, reasons = limits.checked(pool)
    assert kept.devices == (good, Device(name="v4", attributes=(("n", 5),)))
    assert len(reasons) == 9
    assert (
        "device 'v4' comes without attribute 'v': '1.2.3.4' is not a semantic version of at most 64 characters"
        in reasons
    )
    assert any("'good' is left out of pool 'p': another device of the pool has that name" in text for text in reasons)
