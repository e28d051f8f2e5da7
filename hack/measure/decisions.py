"""How long a decision takes, beside upstream's allocator on the same cluster in the same run, and how it grows.

    python -m hack.measure.decisions [--nodes 100 1000 5000]

Clusters of N nodes with eight cards, 90 % of all cards held by shares at random places. Upstream: its search over the nodes, one after
the other, with the setup that kube-scheduler does for each pod. Ours: a choice by policy over all nodes, booked at once.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from allocation import bookings, choice, cluster, devices, pods, policies, requests
from hack.measure import crowd
from hack.measure.allocator import Allocator

_DECISIONS = 300
_LIMIT_S = 100.0


class Ours:
    def __init__(self, nodes: int, held: Sequence[dict[str, Any]]) -> None:
        self.known = cluster.Cluster()
        for number in range(nodes):
            self.known.put_node(pods.node(crowd.node(number)))
            self.known.put_slice(devices.slice_(crowd.slice_(number)))
        self.known.put_class(requests.class_(crowd.class_()))
        for one in held:
            self.known.book(one["metadata"]["uid"], bookings.pieces(one["status"]["allocation"]["devices"]["results"]))
        self.chooser = choice.Chooser(self.known)

    def decide(self, claim: dict[str, Any], policy: policies.Policy, name: str) -> float:
        """Milliseconds of a choice and its booking; negative where there is none."""
        wish, room = requests.claim(claim).wish, pods.Room(cpu=1000, memory=2**30, pods=1)
        started = time.perf_counter()
        found = self.chooser.choose([wish], policy, lambda node: self.known.free(node.name).holds(room), room)
        if found is not None:
            held = [bookings.Piece(key=p.device.key, share=p.share, taken=p.taken) for of in found.picks for p in of]
            self.known.book(name, tuple(held))
            self.known.guest(name, found.node.name, room)
        took = 1000 * (time.perf_counter() - started)
        return took if found is not None else -took


def _row(name: str, ours: str, theirs: str) -> None:
    print(f"| {name:<58} | {ours:>26} | {theirs:>16} |", flush=True)


def measured(nodes: int) -> None:
    held = list(crowd.full(nodes, 0.9))
    started = time.perf_counter()
    ours = Ours(nodes, held)
    built_s = time.perf_counter() - started
    print(f"\n{nodes} nodes, {nodes * crowd.CARDS} cards, {len(held)} claims", flush=True)
    _row("", "ours", "upstream")
    with Allocator() as upstream:
        started = time.perf_counter()
        upstream.cluster(
            nodes=[crowd.node(number) for number in range(nodes)],
            slices=[crowd.slice_(number) for number in range(nodes)],
            classes=[crowd.class_()],
            claims=held,
        )
        _row("the cluster taken in, s", f"{built_s:.1f}", f"{time.perf_counter() - started:.1f}")
        for policy in policies.Policy:
            _policy(ours, policy, (lambda: upstream.allocate([crowd.claim("x")])) if policy == "BinPack" else None)
        for name, claim in (
            ("no: no such card", crowd.claim("x", model="none")),
            ("no: eight whole cards of a node", crowd.claim("x", cores=None, count=8)),
            ("no: nine whole cards of a node", crowd.claim("x", cores=None, count=9)),
        ):
            took = -ours.decide(claim, policies.Policy.BIN_PACK, "no")
            again = -ours.decide(claim, policies.Policy.BIN_PACK, "no")
            assert took > 0
            limit = {"limit_s": _LIMIT_S}
            told = upstream.allocate([claim], **limit)
            _row(f"{name}, ms: first, again", f"{took:.1f}, {again:.2f}", f"{told['took_ms']:.0f}")
    print(
        f"resident at the end, ours: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB with the claims' JSON"
    )


def _policy(ours: Ours, policy: policies.Policy, upstream: Callable[[], dict[str, Any]] | None) -> None:
    claim = crowd.claim("x")
    first = ours.decide(claim, policy, f"{policy} first")
    count = min(_DECISIONS, len(ours.known.nodes) // 2)  # the cards that are left have to last
    times = sorted(ours.decide(claim, policy, f"{policy} {number}") for number in range(count))
    assert times[0] > 0
    told = [upstream() for _ in range(3)] if upstream else []
    assert all(one["verdicts"][-1].get("found") for one in told)
    theirs = f"{statistics.median(one['took_ms'] for one in told):.0f}" if told else ""
    p50, p99 = times[count // 2], times[int(count * 0.99)]
    _row(f"one claim, {policy}, ms: p50, p99, the first one ever", f"{p50:.2f}, {p99:.2f}, {first:.0f}", theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000])
    for nodes in parser.parse_args().nodes:
        measured(nodes)


if __name__ == "__main__":
    main()
