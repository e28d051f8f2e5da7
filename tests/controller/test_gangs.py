"""What holds of a round over all that waits: gangs have all or nothing, who has waited long is not passed for ever, what is usual."""

import collections
import datetime
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import choice, pods, requests
from api.reasons import Reason
from controller import allotment, gangs, metrics, mirror, offers, snapshot
from tests.controller import test_allocating as cluster_of

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
SIZES = st.lists(st.lists(st.integers(10, 100), min_size=1, max_size=4), min_size=1, max_size=4)


class Store:
    """What was put, by kind, as the API server has it."""

    def __init__(self) -> None:
        self.kinds: collections.defaultdict[str, dict[str, Any]] = collections.defaultdict(dict)

    def put(self, path: str, body: dict[str, Any]) -> None:
        kind, name = path.split("/")[-2:]
        body["metadata"] |= {"uid": f"uid-{kind}-{name}", "resourceVersion": "1"}
        self.kinds[kind][name] = body


def a_mirror(store: Store, known: mirror.Mirror | None = None, seen: dict[int, Any] | None = None) -> mirror.Mirror:
    """`known`: to go on with. `seen`: by body, what was read of it, since what did not change is the very same to a mirror."""
    known, seen = known or mirror.Mirror(), {} if seen is None else seen

    def read(kind: str, project: Callable[[dict[str, Any]], Any], space: str = "") -> dict[str, Any]:
        for one in store.kinds[kind].values():
            if id(one) not in seen:
                seen[id(one)] = one, project(one)
        return {f"{space}{name}": seen[id(one)][1] for name, one in store.kinds[kind].items()}

    item = snapshot.gpu_class(store.kinds["elasticgpuclasses"][cluster_of.NAME])
    made = snapshot.DeviceClass(
        name=item.name, uid="u", resource_version="1", made_from=item.name, owner_uid=item.uid,
        spec={"selectors": [{"cel": {"expression": 'device.driver == "gpu.elasticgpu.io"'}}]},
    )  # fmt: skip
    known.classes(snapshot.build(1, [item], [made], []))
    known.take(
        slices=read("resourceslices", offers.slice_),
        nodes=read("nodes", pods.node),
        claims=read("resourceclaims", mirror.claim, "default/"),
        pods=read("pods", pods.pod, "default/"),
        rules={},
        at=NOW,
    )
    return known


def a_round(store: Store, before: str) -> list[str]:
    """Decides over all that waits, stores what was given, and tells who got it."""
    known = a_mirror(store)
    turn = allotment.Turn(known=known, chooser=choice.Chooser(known.cluster), share_id=lambda: "s", before=before)
    got = []
    for _, (want,) in known.lines.march(()):
        found = turn.decide(want)
        if isinstance(found, allotment.Allotment):
            (claim,) = want.claims
            store.kinds["resourceclaims"][claim.name]["status"] = {"allocation": found.allocations[0]}
            got.append(claim.name)
    return got


def end(store: Store, name: str) -> None:
    del store.kinds["resourceclaims"][name], store.kinds["pods"][name]


def test_what_is_usual_is_what_claims_hold_with_the_cpu_of_their_pods_and_of_those_beside_them() -> None:
    """Half a card goes with one CPU and three beside it; so four CPUs serve half of a free card, and none of it is scattered."""
    store: Any = Store()
    cluster_of.put_class(store)
    cluster_of.put_node(store, "node-1")
    cluster_of.put_node(store, "node-2")
    cluster_of.put_cards(store, "node-1")
    cluster_of.put_claim(store, "half", cores=50)
    cluster_of.put_pod(store, "half", "half", cpu="1")
    assert a_round(store, "") == ["half"]
    cluster_of.put_pod(store, "beside", cpu="3", nodeName="node-1")
    cluster_of.put_pod(store, "elsewhere", cpu="8", nodeName="node-2")
    mix = a_mirror(store).usual()
    assert [(kind.part, kind.count, kind.cpu) for kind, _ in mix.kinds] == [(0.5, 1, 1000)]
    assert mix.waste([1.0], pods.Room(cpu=4000, memory=2**40, pods=9)) == 0.5


@settings(deadline=None, max_examples=60)
@given(gangs=SIZES, missing=st.sets(st.integers(0, 3)))
def test_a_gang_has_all_that_it_asks_for_or_nothing(gangs: list[list[int]], missing: set[int]) -> None:
    store: Any = Store()
    cluster_of.put_class(store)
    for node in ("node-1", "node-2"):
        cluster_of.put_node(store, node)
        cluster_of.put_cards(store, node)
    for number, members in enumerate(gangs):
        size = len(members) + (number in missing)
        for index, cores in enumerate(members):
            name = f"g{number}-{index}"
            cluster_of.put_claim(store, name, cores=cores)
            cluster_of.put_pod(store, name, name, gang=f"g{number}", of=size)
    known = a_mirror(store)
    turn = allotment.Turn(known=known, chooser=choice.Chooser(known.cluster), share_id=lambda: "s", avoided={})
    taken: collections.Counter[tuple[str, str]] = collections.Counter()
    seen = 0
    for _, wants in known.lines.march(()):
        given_, refusal = turn.decide_all(wants)
        assert bool(given_) != bool(refusal)
        seen += len(wants)
        number = int(str(wants[0].pod and wants[0].pod.gang)[1:])
        assert len(given_) in ((0,) if number in missing else (0, len(gangs[number])))
        for one in given_:
            for result in one.allocations[0]["devices"]["results"]:
                taken[result["pool"], result["device"]] += int(result["consumedCapacity"]["cores"])
        booked = [want for want in wants if known.cluster.booked.pieces(want.claims[0].uid)]
        assert len(booked) == len(given_)
    assert seen == sum(map(len, gangs))
    assert all(cores <= 100 for cores in taken.values())


@settings(deadline=None, max_examples=60)
@given(groups=SIZES, least=st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_a_pod_group_has_as_many_as_it_needs_or_nothing_and_more_only_where_they_fit(
    groups: list[list[int]], least: list[int]
) -> None:
    store: Any = Store()
    cluster_of.put_class(store)
    cluster_of.put_node(store, "node-1")
    cluster_of.put_cards(store, "node-1")
    for number, members in enumerate(groups):
        for index, cores in enumerate(members):
            name = f"g{number}-{index}"
            cluster_of.put_claim(store, name, cores=cores)
            cluster_of.put_pod(store, name, name, schedulingGroup={"podGroupName": f"g{number}"})
    known = a_mirror(store)
    turn = allotment.Turn(
        known=known,
        chooser=choice.Chooser(known.cluster),
        share_id=lambda: "s",
        groups={f"default/g{number}": least[number] for number in range(len(groups))},
    )
    for _, wants in known.lines.march(()):
        number = int(str(wants[0].pod and wants[0].pod.group)[1:])
        given_, refusal = turn.decide_all(wants)
        assert len(wants) == len(groups[number])
        assert not given_ or len(given_) >= least[number]
        assert (refusal is None) == (len(given_) == len(wants))
        assert len(given_) == sum(bool(known.cluster.booked.pieces(want.claims[0].uid)) for want in wants)


def test_a_pod_group_does_not_wait_for_what_kube_scheduler_allocates_after_it_and_a_gang_by_annotation_does() -> None:
    """kube-scheduler places no pod of the group before all can be; so nothing would ever be allocated."""
    store: Any = Store()
    cluster_of.put_class(store)
    cluster_of.put_node(store, "node-1")
    cluster_of.put_cards(store, "node-1")
    for gang, spec in (("a", {"gang": "a", "of": 2}), ("g", {"schedulingGroup": {"podGroupName": "g"}})):
        cluster_of.put_claim(store, f"{gang}-ours", cores=10)
        cluster_of.put_pod(store, f"{gang}-ours", f"{gang}-ours", **spec)
        cluster_of.put_claim(store, f"{gang}-theirs", cores=10, deviceClassName="theirs.example.com")
        cluster_of.put_pod(store, f"{gang}-theirs", f"{gang}-theirs", **spec)
    known = a_mirror(store)
    by_annotation, by_group = (gangs.of(wants[0].pod) for _, wants in known.lines.march(()))
    assert by_annotation
    assert by_group
    assert (known.settled(by_annotation), known.settled(by_group)) == (0, 0)  # nobody knows that class
    known.cluster.put_class(requests.class_({"metadata": {"name": "theirs.example.com"}, "spec": {}}))
    assert (known.settled(by_annotation), known.settled(by_group)) == (0, 1)


@settings(deadline=None, max_examples=12)
@given(small=st.lists(st.integers(10, 60), min_size=60, max_size=60))
def test_who_has_waited_long_gets_a_node_though_small_ones_keep_coming(small: list[int]) -> None:
    store: Any = Store()
    cluster_of.put_class(store, policy="Spread")
    for node in ("node-1", "node-2"):
        cluster_of.put_node(store, node, cpu="64")
        cluster_of.put_cards(store, node)
    cores = iter(small)
    for number in range(20):
        cluster_of.put_claim(store, f"s{number:02}", cores=next(cores))
        cluster_of.put_pod(store, f"s{number:02}", f"s{number:02}", created="2026-01-01T00:00:00Z")
    running = list(a_round(store, before=""))
    cluster_of.put_claim(store, "big", cores=100, count=2)
    cluster_of.put_pod(store, "big", "big", created="2026-02-01T00:00:00Z")
    for number in range(20, 60):
        cluster_of.put_claim(store, f"s{number:02}", cores=next(cores))
        cluster_of.put_pod(store, f"s{number:02}", f"s{number:02}", created="2026-03-01T00:00:00Z")
        if running:
            end(store, running.pop(0))
        got = a_round(store, before="2026-02-15T00:00:00Z")
        if "big" in got:
            return
        running += got
    raise AssertionError(f"big still waits, {running} run")


def test_what_is_refused_says_what_came_closest_in_the_words_of_explain() -> None:
    store: Any = Store()
    cluster_of.put_class(store)
    cluster_of.put_node(store, "node-1", zone="a")
    cluster_of.put_cards(store, "node-1")
    for name in ("one", "two"):
        cluster_of.put_claim(store, name, cores=75)
        cluster_of.put_pod(store, name, name)
    assert sorted(a_round(store, "")) == ["one", "two"]
    cluster_of.put_claim(store, "half", cores=50)
    cluster_of.put_pod(store, "half", "half")
    cluster_of.put_claim(store, "elsewhere", cores=10)
    cluster_of.put_pod(store, "elsewhere", "elsewhere", nodeSelector={"zone": "b"})
    cluster_of.put_claim(store, "three", cores=10, count=3)
    cluster_of.put_pod(store, "three", "three")
    known = a_mirror(store)
    turn = allotment.Turn(known=known, chooser=choice.Chooser(known.cluster), share_id=lambda: "s")
    told = {str(want).partition("/")[2]: turn.decide(want) for _, (want,) in known.lines.march(())}
    refused = {name: found for name, found in told.items() if isinstance(found, allotment.Refusal)}
    assert {name: found.reason for name, found in refused.items()} == {
        "half": Reason.CAPACITY,
        "elsewhere": Reason.NODE,
        "three": Reason.TOGETHER,
    }
    assert "2 cards: 25% of cores short, closest gpu-" in refused["half"].message
    assert "on nodes that are ruled out: the pod's node selector" in refused["elsewhere"].message
    assert "wants 3 cards on one node; node-1 has most, with 2" in refused["three"].message
    series = metrics.Metrics()
    series.waiting(collections.Counter(found.reason for found in refused.values()))
    name = "elasticgpu_controller_allocation_refused"
    assert series.registry.get_sample_value(name, {"reason": "NotEnoughLeft"}) == 1
    assert series.registry.get_sample_value(name, {"reason": "Held"}) == 0
    assert series.registry.get_sample_value("elasticgpu_controller_allocation_waiting") == 3
