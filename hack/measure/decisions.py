"""How long a decision takes, beside upstream's allocator on the same cluster in the same run.

    python -m hack.measure.decisions [--nodes 1000 5000] [--quick]

Clusters of N nodes with eight cards, 90 % of all cards held by shares at random places. Upstream: its search over the nodes, one
after the other, with the setup that kube-scheduler does for each pod. Ours: a choice by policy over all nodes, booked at once;
a "no" is the choice that finds nothing and the explanation of it, for a question that was not asked before.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from allocation import bookings, choice, cluster, devices, pods, policies, requests
from api.reasons import Verdict
from explain import explanation, world
from hack.measure import crowd, figures
from hack.measure.allocator import Allocator

NODES = (1000, 5000)
_DECISIONS = 300
_LIMIT_S = 100.0
_P50_MS, _P99_MS, _NO_MS = 1, 5, 50
_BOUND_AT = 5000
"""What was promised was promised for so many nodes."""
_ROOM = pods.Room(cpu=1000, memory=2**30, pods=1)
JSON = dict[str, Any]


class Ours:
    """The cluster as the controller has it; `asked` is what explanations are made of."""

    def __init__(self, nodes: Sequence[JSON], slices: Sequence[JSON], held: Sequence[JSON]) -> None:
        self.known = cluster.Cluster()
        for one in nodes:
            self.known.put_node(pods.node(one))
        for one in slices:
            self.known.put_slice(devices.slice_(one))
        self.known.put_class(requests.class_(crowd.class_()))
        for one in held:
            self.known.book(one["metadata"]["uid"], bookings.pieces(one["status"]["allocation"]["devices"]["results"]))
        self.chooser = choice.Chooser(self.known)
        self.asked = world.World(cluster=self.known)

    def decide(self, claim: JSON, policy: policies.Policy, name: str) -> bool:
        """A choice and its booking; false where there is none."""
        wish = requests.claim(claim).wish
        found = self.chooser.choose([wish], policy, lambda node: self.known.free(node.name).holds(_ROOM), _ROOM)
        if found is not None:
            held = [bookings.Piece(key=p.device.key, share=p.share, taken=p.taken) for of in found.picks for p in of]
            self.known.book(name, tuple(held))
            self.known.guest(name, found.node.name, _ROOM)
        return found is not None

    def refuse(self, claim: JSON) -> None:
        """A choice that finds nothing, and why."""
        assert not self.decide(claim, policies.Policy.BIN_PACK, "no")
        assert explanation.explain(claim, self.asked).verdict is Verdict.NO


def measured(nodes: int, *, quick: bool = False) -> Iterator[figures.Figure]:
    held = list(crowd.full(nodes, 0.9))
    where, bound = f"{nodes} nodes x {crowd.CARDS}", nodes >= _BOUND_AT
    with Allocator() as upstream:
        ours, built_s, theirs_s = _taken_in(nodes, held, upstream)
        count = len(held)
        del held
        name = f"{where}, {count} claims taken in"
        yield figures.Figure(name=name, unit="s", ours=built_s, reference=theirs_s)
        for policy in policies.Policy:
            yield from _policy(ours, policy, where, upstream, bound=bound)
        refused = (
            ("no such card", crowd.claim("x", model="none")),
            ("eight whole cards of a node", crowd.claim("x", cores=None, count=8)),
            ("nine whole cards of a node", crowd.claim("x", cores=None, count=9)),
        )
        for told, claim in refused:
            yield _refusal(f"{where}, a no explained: {told}", ours, claim, upstream, bound=bound)
    yield from _one_share_each(nodes, where, bound=bound, quick=quick)


def _one_share_each(nodes: int, where: str, *, bound: bool, quick: bool) -> Iterator[figures.Figure]:
    """A share on one card of each node, and a pod that wants all eight: what upstream tries subset by subset."""
    with Allocator() as upstream:
        ours, *_ = _taken_in(
            nodes, [crowd.held(f"held-{number:08}", number, 0, 1) for number in range(nodes)], upstream
        )
        claim = crowd.claim("x", cores=None, count=8, model="")
        claim["spec"]["devices"]["requests"][0]["exactly"].pop("selectors")
        name = f"{where}, a no explained: eight cards, one has a share"
        yield _refusal(name, ours, claim, None if quick and bound else upstream, bound=bound)


def _taken_in(nodes: int, held: Sequence[JSON], upstream: Allocator) -> tuple[Ours, float, float]:
    """Ours and upstream's with the same cluster; seconds that each took."""
    listed, slices = [crowd.node(n) for n in range(nodes)], [crowd.slice_(n) for n in range(nodes)]
    began = time.perf_counter()
    ours = Ours(listed, slices, held)
    built = time.perf_counter()
    upstream.cluster(nodes=listed, slices=slices, classes=[crowd.class_()], claims=held)
    return ours, built - began, time.perf_counter() - built


def _policy(
    ours: Ours, policy: policies.Policy, where: str, upstream: Allocator, *, bound: bool
) -> Iterator[figures.Figure]:
    claim = crowd.claim("x")
    began = time.perf_counter()
    assert ours.decide(claim, policy, f"{policy} first")
    first = 1000 * (time.perf_counter() - began)
    count = min(_DECISIONS, len(ours.known.nodes) // 2)  # the cards that are left have to last
    wall, cpu = [], []
    for number in range(count):
        began, before = time.perf_counter(), time.thread_time()
        assert ours.decide(claim, policy, f"{policy} {number}")
        cpu.append(1000 * (time.thread_time() - before))
        wall.append(1000 * (time.perf_counter() - began))
    theirs = None
    if policy is policies.Policy.BIN_PACK:  # it knows no policy: one row is enough
        told = [upstream.allocate([claim]) for _ in range(3)]
        assert all(one["verdicts"][-1].get("found") for one in told)
        theirs = statistics.median(one["took_ms"] for one in told)
    name, p50, p99 = f"{where}, {policy}", _P50_MS if bound else None, _P99_MS if bound else None
    yield figures.Figure(name=f"{name}, p50", unit="ms", ours=statistics.median(wall), reference=theirs, at_most=p50)
    yield figures.Figure(name=f"{name}, p99", unit="ms", ours=_p99(wall), at_most=p99)
    yield figures.Figure(name=f"{name}, CPU, p99", unit="ms", ours=_p99(cpu), at_most=p99)
    yield figures.Figure(name=f"{name}, the first one ever", unit="ms", ours=first)


def _refusal(name: str, ours: Ours, claim: JSON, upstream: Allocator | None, *, bound: bool) -> figures.Figure:
    ours.refuse(crowd.claim("warm", cores=None, count=16))  # what is kept from one question to the next is there
    gc.collect()
    began = time.thread_time()
    ours.refuse(claim)
    took = 1000 * (time.thread_time() - began)
    theirs = upstream.allocate([claim], limit_s=_LIMIT_S)["took_ms"] if upstream else None
    return figures.Figure(name=name, unit="ms CPU", ours=took, reference=theirs, at_most=_NO_MS if bound else None)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--quick", action="store_true", help="upstream is not asked what takes it a minute")
    chosen = parser.parse_args()
    print(figures.table([one for nodes in chosen.nodes for one in measured(nodes, quick=chosen.quick)]))


if __name__ == "__main__":
    main()
