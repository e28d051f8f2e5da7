"""The picture kept up to date is the picture made anew, whatever happens in whatever order."""

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.view.objects import (
    FAR,
    JSON,
    THEN,
    a_card,
    a_claim,
    a_class,
    a_device_class,
    a_driver,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_node,
    a_pod,
    a_pool,
    a_result,
    a_rule,
    a_slice,
    name_of,
    seen,
)  # fmt: skip
from view import document, join, ledger, objects, pages, scope

PARTS = (
    "pools", "cards", "total", "models", "nodes", "classes", "namespaces", "workload_types", "cells", "waiting", "pods", "claims", "problems",
    "unknown", "remote_pools", "leases",
)  # fmt: skip
HIDDEN = ("claims", "pods", "slices", "nodes", "drivers", "device_classes", "remote_pools", "leases")
NODES, PODS, CLAIMS = ("node1", "node2", ""), ("a", "b", "c"), ("x", "y", "z")
TAINT = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": THEN}
numbers = st.integers(1, 4)
flags = st.booleans()


def slices() -> st.SearchStrategy[JSON]:
    def made(node: str, cards: list[tuple[int, bool, bool, str]], generation: int, of: int, index: int) -> JSON:
        devices = [
            a_card(n, shared=shared, model=model, **({"taints": [TAINT]} if bad else {}))
            for n, shared, bad, model in cards
        ]
        found = a_slice(*devices, node=node or "far", generation=generation, of=of, index=index)
        if not node:
            del found["spec"]["nodeName"]
        return found

    card = st.tuples(numbers, flags, flags, st.sampled_from(("H100", "L40S")))
    cards = st.lists(card, max_size=3, unique_by=lambda one: one[0])
    return st.builds(made, st.sampled_from(NODES), cards, st.integers(1, 2), st.integers(1, 2), st.integers(0, 1))


def claims() -> st.SearchStrategy[JSON]:
    def made(name: str, space: str, at: list[tuple[int, str, bool, bool]], pods: list[str], of_class: str) -> JSON:
        consumed = {"memory": "10Gi", "cores": "25", "shares": "1"}
        results = [
            a_result(
                n,
                node=node,
                **({"adminAccess": True} if admin else {}),
                **({"consumedCapacity": consumed} if part else {}),
            )
            for n, node, admin, part in at
        ]
        return a_claim(name, *results, namespace=space, pods=tuple(pods), of_class=of_class)

    at = st.lists(st.tuples(numbers, st.sampled_from(("node1", "node2", "far")), flags, flags), max_size=2)
    classes = st.sampled_from(("training.elasticgpu.io", "other", "foreign"))
    return st.builds(
        made,
        st.sampled_from(CLAIMS),
        st.sampled_from(("ml", "web")),
        at,
        st.lists(st.sampled_from(PODS), max_size=2, unique=True),
        classes,
    )


def pods() -> st.SearchStrategy[JSON]:
    def made(name: str, space: str, claim: str, phase: str, node: str, again: bool) -> JSON:
        found = a_pod(
            name,
            namespace=space,
            claim=claim,
            phase=phase,
            node=node,
            workload_type="training" if again else "simulation",
        )
        found["metadata"]["uid"] = (
            f"uid-{space}-{name}-again" if again else f"uid-{name}" if space == "ml" else f"uid-{space}-{name}"
        )
        return found

    return st.builds(
        made, st.sampled_from(PODS), st.sampled_from(("ml", "web")), st.sampled_from((*CLAIMS, "missing")),
        st.sampled_from(("Running", "Pending", "Succeeded")), st.sampled_from(("", "node1", "node2")), flags,
    )  # fmt: skip


def lending() -> st.SearchStrategy[JSON]:
    """What a pool, its cards, leases and the claims that hold them come to."""

    def slice_(cards: list[tuple[int, bool, str]], pool: str, generation: int, of: int) -> JSON:
        taint = {"key": "remote.gpu.elasticgpu.io/draining", "effect": "NoSchedule", "timeAdded": THEN}
        devices = [a_card(n, model=model, **({"taints": [taint]} if bad else {})) for n, bad, model in cards]
        return a_far_slice(*devices, pool=pool, generation=generation, of=of)

    labs, who = st.sampled_from(("lab", "attic")), st.sampled_from(CLAIMS)
    card = st.tuples(numbers, flags, st.sampled_from(("H100", "H100", "L40S")))
    cards = st.lists(card, max_size=3, unique_by=lambda one: one[0])
    attached, used = st.sampled_from(("True", "False", "")), st.lists(st.sampled_from(PODS), max_size=1)
    phases = st.sampled_from(("Attaching", "Attached", "Lost", "Failed", "Releasing"))
    return st.one_of(
        st.builds(slice_, cards, labs, st.integers(1, 2), st.integers(1, 2)),
        st.builds(
            lambda name, n, pool, told, pods: a_far_claim(name, n, pool=pool, attached=told, pods=tuple(pods)),
            *(who, numbers, labs, attached, used),
        ),
        st.builds(lambda name, answers: a_pool(name, reachable=answers), labs, st.sampled_from(("True", "False", ""))),
        st.builds(
            lambda n, claim, pool, phase, name: a_lease(n, claim=claim, pool=pool, phase=phase, name=name),
            *(numbers, who, labs, phases, st.sampled_from(("", "one", "two"))),
        ),
        st.builds(lambda driver: a_rule("far", driver=driver), st.sampled_from(("gpu.elasticgpu.io", FAR))),
    )


def retained(node: int, claim: str) -> JSON:
    rule = a_rule("kept", pool=f"egpu/node{node}", device=name_of(1))
    rule["metadata"]["annotations"] = {"elasticgpu.io/retained-for": f"uid-ml-{claim}"}
    return rule


def others() -> st.SearchStrategy[JSON]:
    return st.one_of(
        st.builds(
            lambda name, ready: a_node(name, ready=ready),
            st.sampled_from(("node1", "node2")),
            st.sampled_from(("True", "False")),
        ),
        st.builds(
            lambda name, ready: a_driver(name, ready=ready),
            st.sampled_from(("node1", "node2")),
            st.sampled_from(("True", "False")),
        ),
        st.builds(lambda ready: a_class(ready=ready), st.sampled_from(("True", "False"))),
        st.builds(a_device_class, st.sampled_from(("training.elasticgpu.io", "other"))),
        st.just(a_device_class("foreign", driver="gpu.nvidia.com")),
        st.builds(lambda n: a_rule("rule", pool=f"egpu/node{n}"), st.integers(1, 2)),
        st.builds(lambda n: a_rule("everywhere", device=name_of(n)), numbers),
        st.builds(retained, st.integers(1, 2), st.sampled_from(CLAIMS)),
    )


events = st.lists(
    st.tuples(flags, st.one_of(slices(), claims(), claims(), pods(), pods(), others(), lending(), lending())),
    min_size=4,
    max_size=16,
)


SHARE = {"consumedCapacity": {"memory": "10Gi", "cores": "25", "shares": "1"}}
BASE = (
    a_slice(a_card(1, shared=True), a_card(2)),
    a_slice(a_card(3, shared=True), a_card(4), node="node2"),
    a_far_slice(a_card(1), a_card(2)),
    a_pool(),
    a_lease(1, claim="x"),
    *(a_node(node) for node in ("node1", "node2")),
    *(a_driver(node) for node in ("node1", "node2")),
    a_class(),
    a_device_class(),
    a_claim("x", a_result(1, **SHARE), pods=("a", "b")),
    a_claim("y", a_result(3, node="node2", **SHARE), a_result(4, node="node2"), pods=("c",)),
    a_claim("z"),
    a_pod("a", claim="x"),
    a_pod("b", claim="x"),
    a_pod("c", claim="y", node="node2", phase="Pending"),
)


class World:
    """Objects as an informer keeps them: who did not change is the very same."""

    def __init__(self, *given: JSON) -> None:
        self.raw: dict[tuple[str, str, str], JSON] = {}
        self._kept: dict[str, dict[Any, Any]] = {}
        for item in given:
            self.happen(False, item)

    def happen(self, gone: bool, item: JSON) -> None:
        meta = item["metadata"]
        key = (item["kind"], meta.get("namespace", ""), meta["name"])
        if gone:
            self.raw.pop(key, None)
        else:
            self.raw[key] = item

    def seen(self, hidden: str = "") -> objects.Objects:
        fresh = seen(*self.raw.values())
        parts = {}
        for field in dataclasses.fields(fresh):
            part = getattr(fresh, field.name)
            before = self._kept.get(field.name, {})
            same = {item: before.get(item, item) for item in part.items}
            self._kept[field.name] = same
            parts[field.name] = dataclasses.replace(part, items=tuple(same.values()))
        if hidden:
            parts[hidden] = objects.Part(unknown="you may not list them")
        return objects.Objects(**parts)


def same(kept: join.View, anew: join.View) -> None:
    for part in PARTS:
        assert getattr(kept, part) == getattr(anew, part), part


@given(events)
@settings(max_examples=250, deadline=None)
def test_a_picture_kept_up_to_date_is_the_picture_made_anew(happenings: list[tuple[bool, JSON]]) -> None:  # HAMi#1458
    world, kept = World(*BASE), ledger.Ledger()
    kept.view(world.seen())
    for gone, item in happenings:
        world.happen(gone, item)
        found = world.seen()
        same(kept.view(found), join.View(found))


@given(events, st.sampled_from(HIDDEN))
@settings(max_examples=30, deadline=None)
def test_so_it_is_when_a_kind_cannot_be_read_for_a_while(happenings: list[tuple[bool, JSON]], hidden: str) -> None:
    world, kept = World(*BASE), ledger.Ledger()
    kept.view(world.seen())
    for number, (gone, item) in enumerate(happenings):
        world.happen(gone, item)
        found = world.seen(hidden if number % 8 in (3, 4, 5) else "")
        same(kept.view(found), join.View(found))


@given(events)
@settings(max_examples=100, deadline=None)
def test_who_asks_of_one_pod_is_told_what_all_pods_are_told_of_it(happenings: list[tuple[bool, JSON]]) -> None:
    world = World(*BASE)
    for gone, item in happenings:
        world.happen(gone, item)
    found = world.seen()
    kept, every = ledger.Ledger().view(found), join.View(found).pods
    assert kept.rows(found.pods.items) == every
    assert [(pod.namespace, pod.name) for pod in kept.listed] == [(row.namespace, row.name) for row in every]
    waiting = sorted(kept.waiting, key=lambda row: (row.waits_since, row.namespace, row.name))
    told = [document.plain(row) for row in (*waiting, *(row for row in every if not row.waiting))]
    assert pages.pods(kept, scope.Scope()) == {"items": told, "more": 0}
    for pod in found.pods.items:
        own = tuple(row for row in every if (row.namespace, row.name) == (pod.namespace, pod.name))
        assert kept.rows([pod]) == own
        assert kept.pod(pod.namespace, pod.name) == (own[0] if own else None)
    assert kept.pod("ml", "nobody") is None


def test_of_pods_those_that_run_well_are_no_rows_until_somebody_asks() -> None:
    world = World(*BASE)
    view = ledger.Ledger().view(world.seen())
    assert ([row.name for row in view.waiting], "pods" in vars(view)) == (["c"], False)
    assert [row.name for row in view.pods] == ["a", "b", "c"]


def test_a_picture_that_was_given_out_stays_as_it_is() -> None:
    world, kept = World(), ledger.Ledger()
    for item in (
        a_slice(a_card(1), a_card(2)),
        a_node(),
        a_driver(),
        a_claim("x", a_result(1), pods=("a",)),
        a_pod("a", claim="x"),
    ):
        world.happen(False, item)
    first = kept.view(world.seen())
    copies = {part: getattr(first, part) for part in PARTS}
    known = dict(first.known.cards)
    world.happen(True, a_claim("x"))
    world.happen(False, a_slice(a_card(2)))
    kept.view(world.seen())
    assert {part: getattr(first, part) for part in PARTS} == copies
    assert first.known.cards == known


def test_what_an_event_does_not_touch_is_the_very_same_object() -> None:
    world, kept = World(), ledger.Ledger()
    for item in (
        a_slice(a_card(1)),
        a_slice(a_card(2), node="node2"),
        a_claim("x", a_result(1)),
        a_claim("y", a_result(2, node="node2")),
    ):
        world.happen(False, item)
    first = kept.view(world.seen())
    world.happen(False, a_claim("x", a_result(1), pods=("a",)))
    second = kept.view(world.seen())
    assert first.cards[1] is second.cards[1]
    assert first.nodes[1] is second.nodes[1]
    assert first.cards[0] is not second.cards[0]


def test_of_a_pool_one_lease_makes_one_card_anew() -> None:
    world, kept = World(a_far_slice(a_card(1), a_card(2)), a_far_claim("x", 1), a_lease(1, claim="x")), ledger.Ledger()
    first = kept.view(world.seen()).cards
    world.happen(False, a_lease(1, claim="x", phase="Lost"))
    second = kept.view(world.seen()).cards
    assert [old is new for old, new in zip(first, second, strict=True)] == [False, True]


def test_a_card_that_is_held_by_way_of_two_pools_is_counted_once_and_still_when_one_lets_go() -> None:
    one, two = a_far_claim("x", 1, pool="lab"), a_far_claim("y", 1, pool="attic")
    world, kept = World(a_far_slice(a_card(1)), a_far_slice(a_card(1), pool="attic"), one), ledger.Ledger()
    for gone, item in ((False, two), (True, one), (False, one), (True, a_far_slice(pool="attic")), (True, one)):
        world.happen(gone, item)
        found = kept.view(world.seen())
        same(found, join.View(world.seen()))
        assert [space.cards for space in found.namespaces] in ([1], [])
        assert found.total is not None
        assert found.total.total == 1
