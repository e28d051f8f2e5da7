"""Cards of classes with reclaimPolicy Retain: kept back when they are released, until somebody frees them."""

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api import names
from controller import retention
from tests.cli.conftest import put
from tests.controller import objects
from tests.controller.test_flow import CLASSES, controller_of
from tests.controller.test_observing import shown
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import (
    JSON,
    a_card,
    a_claim,
    a_far_claim,
    a_far_slice,
    a_pod,
    a_result,
    a_slice,
    name_of,
    seen,
)
from view import join

CLASS = "kept.example.com"
RULES = retention.RULES
CLAIM = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c"
SHARED = a_card(shared=True)
PART = {"consumedCapacity": {"cores": "10", "memory": "1Gi", "shares": "1"}}


class Cluster:
    """One card; claims come and go, the controller looks whenever it does, admins free the card."""

    def __init__(self, *, whole: bool) -> None:
        self.keeping = {CLASS: whole}
        self.claims: dict[str, JSON] = {}
        self.rule: JSON | None = None
        self.versions = itertools.count(1)

    def view(self) -> join.View:
        return join.View(seen(a_slice(SHARED), *self.claims.values(), *([self.rule] if self.rule else ())))

    def look(self) -> int:
        rules = seen(*([self.rule] if self.rule else ())).rules.items
        writes = list(retention.turn(self.view().cards, rules, self.keeping))
        for write in writes:
            assert isinstance(write, retention.Make) == (self.rule is None)
            if self.rule is not None:
                assert write.body["metadata"].pop("resourceVersion") == self.rule["metadata"]["resourceVersion"]
            self.rule = write.body | {
                "metadata": write.body["metadata"] | {"resourceVersion": str(next(self.versions))}
            }
        return len(writes)

    def book(self, name: str, of_class: str = CLASS) -> None:
        self.claims[name] = a_claim(name, a_result(shareID=name, **PART), of_class=of_class)

    @property
    def effect(self) -> str:
        return "" if self.rule is None else str(self.rule["spec"]["taint"]["effect"])

    @property
    def shown(self) -> bool:
        (card,) = self.view().cards
        return any(taint.key == names.RETAINED_TAINT for taint in card.taints)


def test_a_whole_card_is_tainted_while_it_is_held_so_that_nobody_comes_in_between() -> None:
    cluster = Cluster(whole=True)
    cluster.book("one")
    cluster.look()
    assert (cluster.effect, cluster.shown) == ("NoSchedule", False)
    del cluster.claims["one"]
    assert cluster.shown


def test_a_shared_card_stays_open_until_one_of_its_claims_has_gone() -> None:
    cluster = Cluster(whole=False)
    cluster.book("one")
    cluster.book("two")
    cluster.look()
    assert (cluster.effect, cluster.shown) == ("None", False)
    del cluster.claims["one"]
    cluster.look()
    assert (cluster.effect, cluster.shown) == ("NoSchedule", True)
    (card,) = cluster.view().cards
    assert (card.state, card.reason) == ("Held", f"taint {names.RETAINED_TAINT}")


STEPS = st.lists(st.sampled_from(["book", "book other", "release", "look", "free"]), max_size=30)


@given(whole=st.booleans(), steps=STEPS)
@settings(deadline=None)
def test_what_was_seen_held_and_was_released_is_kept_back_until_it_is_freed(whole: bool, steps: list[str]) -> None:
    cluster, numbers = Cluster(whole=whole), itertools.count()
    noticed: set[str] = set()
    kept = False
    for step in (*steps, "look"):
        match step:
            case "book" if cluster.effect != "NoSchedule":
                cluster.book(f"kept-{next(numbers)}")
            case "book other" if cluster.effect != "NoSchedule":
                cluster.book(f"other-{next(numbers)}", "other.example.com")
            case "release" if cluster.claims:
                name = sorted(cluster.claims)[0]
                del cluster.claims[name]
                kept = kept or name in noticed
            case "free":
                cluster.rule, kept, noticed = None, False, set()
            case "look":
                cluster.look()
                assert cluster.look() == 0
                noticed |= {name for name in cluster.claims if name.startswith("kept-")} if not kept else set()
                assert cluster.shown == kept
                assert (cluster.effect == "NoSchedule") == (kept or (whole and bool(noticed)))
                assert (cluster.effect == "") == (not kept and not noticed)


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        server.said["/apis/resource.k8s.io/v1"] = {"resources": [{"name": "devicetaintrules"}]}
        put(server, a_slice(a_card()))
        server.put(f"{CLASSES}/{CLASS}", objects.a_class(CLASS, reclaimPolicy="Retain"))
        yield server


def released(server: FakeAPIServer) -> bool:
    return "Retained" in {one["type"] for one in shown(server, 1).get("conditions", ())}


async def test_a_released_card_is_blocked_until_its_rule_is_deleted(server: FakeAPIServer, tmp_path: Path) -> None:
    rule = f"{RULES}/retained-{name_of(1)}"
    async with controller_of(server, tmp_path):
        await server.until(lambda: server.list("deviceclasses"), within_s=60)
        put(server, a_claim("c", a_result(1), pods=("pod",), of_class=CLASS), a_pod(claim="c"))
        await server.until(lambda: server.get(rule), within_s=60)
        await server.until(lambda: shown(server, 1).get("state") == "Held", within_s=60)
        assert not released(server)
        assert not [event for event in server.list("events") if event["reason"] == "CardTainted"]
        server.remove(CLAIM)
        await server.until(lambda: released(server), within_s=60)
        assert shown(server, 1)["state"] == "Blocked"
    server.remove(rule)
    async with controller_of(server, tmp_path, "two"):
        await server.until(lambda: shown(server, 1).get("state") == "Free", within_s=60)
    assert not server.list("devicetaintrules")


async def test_a_claim_that_goes_while_no_controller_works_is_kept_back_all_the_same(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(controller_of(server, tmp_path))
        put(server, a_claim("c", a_result(1), pods=("pod",), of_class=CLASS), a_pod(claim="c"))
        await server.until(lambda: server.list("devicetaintrules"), within_s=60)
    server.remove(CLAIM)
    async with controller_of(server, tmp_path, "two"):
        await server.until(lambda: released(server), within_s=60)
    (rule,) = server.list("devicetaintrules")
    assert rule["spec"]["taint"]["effect"] == "NoSchedule"


def test_a_card_of_a_remote_pool_is_never_kept_back() -> None:
    """Its pool gives it out anew only when it is clean; a rule here would name the wrong driver."""
    found = join.View(seen(a_far_slice(SHARED), a_far_claim("c", of_class=CLASS))).cards
    assert found[0].holders
    assert list(retention.turn(found, (), {CLASS: True})) == []
