"""A hundred thousand claims that nobody can meet: what is looked at, remembered and said does not grow with them."""

import datetime
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocation import choice, pods
from api import names
from controller import allotment, mirror, offers, snapshot
from hack.scale import objects, pending
from tests.controller import test_allocating as cluster_of
from tests.controller.test_flow import controller_of
from tests.controller.test_gangs import Store, a_mirror
from tests.fakes.apiserver import FakeAPIServer

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
MANY = 100_000
SHAPES = 40


class Counting(choice.Chooser):
    """How often a choice was really made."""

    made = 0

    def choose(self, *given: Any, **more: Any) -> choice.Choice | None:
        self.made += 1
        return super().choose(*given, **more)


class Looking(allotment.Answers):
    """How often it was really looked up why not."""

    looks = 0

    def of(self, shape: Any, look: Any) -> allotment.Refusal:
        def counted() -> allotment.Refusal:
            self.looks += 1
            found = look()
            assert isinstance(found, allotment.Refusal)
            return found

        return super().of(shape, counted)


def a_claim(number: int, count: int = 9) -> mirror.Claim:
    found = pending.claim(number)
    found["metadata"]["resourceVersion"] = "1"
    found["spec"]["devices"]["requests"][0]["exactly"]["count"] = count
    return mirror.claim(found)


def taken(known: mirror.Mirror, claims: dict[str, mirror.Claim]) -> None:
    """With one node of eight free cards."""
    (body,) = objects.slices_of(0, "u", given=True)
    for device in body["spec"]["devices"]:
        for taint in device["taints"]:
            taint["timeAdded"] = objects.THEN
    known.take(
        slices={"s": offers.slice_(body)},
        nodes={objects.node_name(0): pods.node(objects.node(0))},
        claims=claims,
        pods={},
        rules={},
        at=NOW,
    )


def classes() -> snapshot.Snapshot:
    body = objects.gpu_class(pending.CLASS, "Controller", "Immediate")
    body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    owner = {"kind": "ElasticGPUClass", "uid": "u"}
    meta = {"name": pending.CLASS, "uid": "d", "resourceVersion": "1", "ownerReferences": [owner]}
    text = {"cel": {"expression": f'device.driver == "{names.LOCAL_DRIVER}"'}}
    made = {"metadata": meta, "spec": {"selectors": [text]}}
    return snapshot.build(1, [snapshot.gpu_class(body)], [snapshot.device_class(made)], [])


def a_turn(known: mirror.Mirror, chooser: choice.Chooser, answers: allotment.Answers) -> list[allotment.Refusal]:
    """As the allocator goes through what waits: what was given, and what is refused by line."""
    turn = allotment.Turn(known=known, chooser=chooser, share_id=str, answers=answers)
    passed: set[Any] = set()
    refused = []
    for line, (want,) in known.lines.march(passed):
        found = turn.decide(want)
        if isinstance(found, allotment.Refusal):
            refused.append(found)
            passed.add(line)
    return refused


def test_a_hundred_thousand_that_ask_the_same_in_vain_are_one_look_and_one_that_fits_behind_them_is_given() -> None:
    known = mirror.Mirror()
    known.classes(classes())
    claims = {str(one): one for one in map(a_claim, range(MANY))}
    small = a_claim(MANY, count=1)
    taken(known, claims | {str(small): small})
    chooser, answers = Counting(known.cluster), Looking()
    refused = a_turn(known, chooser, answers)
    assert len(refused) == 1
    assert refused[0].never
    assert chooser.made == 2
    assert answers.looks == 1
    assert known.cluster.booked.pieces(small.uid)
    assert len({id(one.asked.wish) for one in claims.values() if one.asked is not None}) == 1
    (line,) = {name for name, (want,) in known.lines.march(()) if want.claims[0] is not small}
    assert len(known.lines.keys(line)) == MANY
    assert [want.claims[0].name for want in known.lines.first(line, 2)] == sorted(
        (one.name for one in claims.values()), key=lambda name: objects.uid("ResourceClaim", name)
    )[:2]


def test_of_many_that_ask_differently_a_few_are_explained_in_each_turn_until_all_are() -> None:
    known = mirror.Mirror()
    known.classes(classes())
    taken(known, {str(one): one for one in (a_claim(number, 9 + number) for number in range(SHAPES))})
    chooser, answers = choice.Chooser(known.cluster), Looking()
    told = a_turn(known, chooser, answers)
    assert len(told) == SHAPES
    assert sum(one is not allotment.LATER for one in told) == answers.looks == 8
    for turns in range(2, SHAPES // 8 + 1):
        told = a_turn(known, chooser, answers)
        assert answers.looks <= 8 + 16 * (turns - 1)
    assert allotment.LATER not in told
    assert {one.message.partition("wants ")[2].split()[0] for one in told} == {
        str(9 + number) for number in range(SHAPES)
    }


def test_all_of_a_few_that_ask_differently_are_explained_anew_in_each_turn() -> None:
    known = mirror.Mirror()
    known.classes(classes())
    taken(known, {str(one): one for one in (a_claim(number, 9 + number) for number in range(5))})
    chooser, answers = choice.Chooser(known.cluster), Looking()
    for turns in range(1, 4):
        assert allotment.LATER not in a_turn(known, chooser, answers)
        assert answers.looks == 5 * turns


NAMES = st.integers(0, 3).map(str)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), NAMES, st.sampled_from([10, 50])),
        st.tuples(st.just("pod"), NAMES, NAMES),
        st.tuples(st.just("bound"), NAMES, NAMES),
        st.tuples(st.sampled_from(["no claim", "no pod", "allocated", "deleting"]), NAMES, st.just("")),
        st.tuples(st.sampled_from(["Immediate", "WaitForFirstConsumer"]), NAMES, st.just("")),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=60)
@given(STEPS)
@example([("claim", "1", 10), ("pod", "0", "1"), ("allocated", "1", ""), ("claim", "1", 10)])
def test_who_waits_is_the_same_whatever_came_before(steps: list[tuple[str, str, Any]]) -> None:
    store: Any = Store()
    cluster_of.put_class(store)
    cluster_of.put_node(store, "node-1")
    cluster_of.put_cards(store, "node-1")
    known = a_mirror(store)
    seen: dict[int, Any] = {}
    for what, name, more in steps:
        _step(store, what, name, more)
        again = a_mirror(store, known, seen)
        fresh = a_mirror(store)
        assert _told(again) == _told(fresh)
        assert again.cluster.free("node-1") == fresh.cluster.free("node-1")


def _step(store: Any, what: str, name: str, more: Any) -> None:
    claims, known_pods = store.kinds["resourceclaims"], store.kinds["pods"]
    if what == "claim":
        claims.pop(name, None)
        cluster_of.put_claim(store, name, cores=more)
    elif what in ("pod", "bound"):
        known_pods.pop(name, None)
        where: dict[str, Any] = {"nodeName": "node-1"} if what == "bound" else {}
        cluster_of.put_pod(store, name, more, **where)
    elif what.startswith("no "):
        (claims if what == "no claim" else known_pods).pop(name, None)
    elif what in ("Immediate", "WaitForFirstConsumer"):
        cluster_of.put_class(store, mode=what)
    elif name in claims and what == "deleting":
        claims[name] = {**claims[name], "metadata": {**claims[name]["metadata"], "deletionTimestamp": "now"}}
    elif name in claims:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
        given_ = {"nodeSelector": {"nodeSelectorTerms": [term]}, "devices": {"results": []}}
        claims[name] = {**claims[name], "status": {"allocation": given_}}


def _told(known: mirror.Mirror) -> list[Any]:
    return [
        (line, want.key, [(str(one), one.allocated) for one in want.claims])
        for line, wants in known.lines.march(())
        for want in wants
    ]


async def test_of_hundreds_that_are_refused_alike_the_first_in_each_namespace_are_told(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        cluster_of.put_node(server, "node-1")
        cluster_of.put_cards(server, "node-1")
        cluster_of.put_class(server, mode="Immediate")
        for number in range(300):
            cluster_of.put_claim(server, f"big-{number:03}", count=3)
        by_uid = sorted(server.list("resourceclaims"), key=lambda claim: str(claim["metadata"]["uid"]))
        first = {claim["metadata"]["name"] for claim in by_uid[:16]}
        async with controller_of(server, tmp_path):
            await server.until(lambda: len(server.list("events")) == 16, within_s=60)
            cluster_of.put_claim(server, "last", count=4)  # it is told after all that was to be said of the others
            await server.until(lambda: _events(server, "last"), within_s=60)
            told = {event["involvedObject"]["name"] for event in server.list("events")}
            assert told == first | {"last"}


def _events(server: FakeAPIServer, name: str) -> list[Any]:
    return [event for event in server.list("events") if event["involvedObject"]["name"] == name]
