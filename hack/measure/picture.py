"""The picture of a large cluster: made anew after one event, as the page's first screen, as a scrape. `python -m hack.measure.picture`

5,000 nodes with 40,000 cards, 30,000 claims with a pod each -> values as the informers keep them -> one claim changes, again and again
the same and 20 remote pools with 10,000 cards and a lease each        -> one lease changes, again and again
"""

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import prometheus_client
from msgspec import structs

from controller import metrics, observer
from hack.measure import figures
from view import join, ledger, objects, pages, scope

_NODES, _CARDS, _CLAIMS, _EVENTS = 5000, 8, 30_000, 300
_POOLS, _LENT = 20, 500
_THEN = "2026-01-01T00:00:00Z"
_SIZE = (("cores", 100), ("memory", 80 * 2**30), ("shares", 16))
_PART = (("cores", 25), ("memory", 10 * 2**30), ("shares", 1))


def measured() -> Iterator[figures.Figure]:
    claims, seen = _cluster()
    kept = ledger.Ledger()
    kept.view(seen())
    wall, cpu = [], []
    for event in range(_EVENTS):
        at = event * 97 % _CLAIMS
        claims[at] = structs.replace(claims[at], since=f"2026-01-01T00:05:{event % 60:02}Z")
        now = seen()
        took = _took(lambda now=now: kept.view(now))  # type: ignore[misc]
        wall.append(took[0])
        cpu.append(took[1])
    name = f"picture of {_NODES * _CARDS} cards after an event"
    yield figures.Figure(name=f"{name}, p99", unit="ms", ours=_p99(wall), at_most=50)
    yield figures.Figure(name=f"{name}, CPU, p99", unit="ms", ours=_p99(cpu), at_most=50)
    yield from _lent(seen())
    view = join.View(seen())
    yield figures.Figure(name="the same made anew", unit="ms", ours=_took(lambda: view.problems)[0])
    view = kept.view(seen())
    screens: list[bytes] = []
    cost = _took(
        lambda: screens.append(json.dumps(pages.overview(view, scope.Scope()), separators=(",", ":")).encode())
    )
    yield figures.Figure(name=f"first screen of {_NODES} nodes, once a picture", unit="ms", ours=cost[0], at_most=150)
    yield figures.Figure(name="the same, CPU", unit="ms", ours=cost[1], at_most=150)
    yield figures.Figure(name="its size before compression", unit="KiB", ours=len(screens[0]) / 1024, at_most=300)
    series = metrics.Metrics()
    series.see(cast("observer.Scene", SimpleNamespace(view=view)))
    cost = _took(lambda: prometheus_client.generate_latest(series.registry) + series.nodes())
    yield figures.Figure(name=f"scrape of {_NODES} nodes", unit="ms", ours=cost[0], at_most=100)
    yield figures.Figure(name="the same, CPU", unit="ms", ours=cost[1], at_most=100)


def _lent(near: objects.Objects) -> Iterator[figures.Figure]:
    pools = [_pool(number) for number in range(_POOLS)]
    leases = [_lease(number) for number in range(_POOLS * _LENT)]
    slices, claims = (*near.slices.items, *pools), (*near.claims.items, *map(_far_claim, range(len(leases))))
    known = tuple(objects.RemotePool(name=pool.pool, created=_THEN, reachable=True) for pool in pools)

    def seen() -> objects.Objects:
        return dataclasses.replace(
            near,
            slices=objects.Part(items=slices),
            claims=objects.Part(items=claims),
            remote_pools=objects.Part(items=known),
            leases=objects.Part(items=tuple(leases)),
        )

    kept = ledger.Ledger()
    kept.view(seen())
    cpu = []
    for event in range(_EVENTS):
        at = event * 97 % len(leases)
        leases[at] = structs.replace(leases[at], phase="Attaching" if event % 2 else "Attached")
        now = seen()
        cpu.append(_took(lambda now=now: kept.view(now))[1])  # type: ignore[misc]
    name = f"the same with {_POOLS * _LENT} cards of {_POOLS} remote pools, one lease changed, CPU"
    yield figures.Figure(name=f"{name}, p50", unit="ms", ours=statistics.median(cpu), at_most=50)
    yield figures.Figure(name=f"{name}, p99", unit="ms", ours=_p99(cpu))


def _took(act: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds by the clock and of this thread."""
    wall, cpu = time.perf_counter(), time.thread_time()
    act()
    return (time.perf_counter() - wall) * 1000, (time.thread_time() - cpu) * 1000


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _cluster() -> tuple[list[objects.Claim], Callable[[], objects.Objects]]:
    slices = tuple(_slice(node) for node in range(_NODES))
    claims = [_claim(number) for number in range(_CLAIMS)]
    pods = tuple(_pod(number) for number in range(_CLAIMS))
    nodes = tuple(objects.Node(name=_node(node), ready=True, since=_THEN) for node in range(_NODES))
    drivers = tuple(
        objects.DriverPod(node=_node(node), name=f"driver-{node}", namespace="egpu", ready=True, since=_THEN)
        for node in range(_NODES)
    )

    def seen() -> objects.Objects:
        return objects.Objects(
            slices=objects.Part(items=slices),
            claims=objects.Part(items=tuple(claims)),
            pods=objects.Part(items=pods),
            nodes=objects.Part(items=nodes),
            drivers=objects.Part(items=drivers),
            classes=objects.Part(),
            device_classes=objects.Part(items=(objects.DeviceClass(name="inference", ours=True),)),
            rules=objects.Part(),
        )

    return claims, seen


def _node(number: int) -> str:
    return f"ip-10-{number // 256:03}-{number % 256:03}.eu-west-1"


def _name(card: int) -> str:
    return f"gpu-{card:08x}-0d4e-4f7b-9c31-5e2b7a90d101"


def _slice(node: int) -> objects.Slice:
    devices = tuple(
        objects.Device(name=_name(card), uuid=_name(card), model="NVIDIA H100 80GB HBM3", capacity=_SIZE, shared=True)
        for card in range(_CARDS * node, _CARDS * (node + 1))
    )
    name = _node(node)
    return objects.Slice(name=name, pool=f"egpu/{name}", generation=1, of=1, node=name, created=_THEN, devices=devices)


def _pool(number: int) -> objects.Slice:
    devices = tuple(
        objects.Device(name=_name(card), uuid=_name(card), model="NVIDIA L40S", capacity=_SIZE)
        for card in range(10**6 + _LENT * number, 10**6 + _LENT * (number + 1))
    )
    name = f"pool-{number}"
    return objects.Slice(name=name, pool=name, generation=1, of=1, node="", created=_THEN, devices=devices, remote=True)


def _lease(number: int) -> objects.Lease:
    of, claim = f"pool-{number // _LENT}", f"far-{number}"
    return objects.Lease(
        name=f"lease-{number}", pool=of, device=_name(10**6 + number), namespace=f"team-{number % 200}", claim=claim,
        uid=claim, node=_node(number), phase="Attached", since=_THEN, created=_THEN,
    )  # fmt: skip


def _far_claim(number: int) -> objects.Claim:
    pool = f"pool-{number // _LENT}"
    result = objects.Result(request="card", pool=pool, device=_name(10**6 + number), remote=True)
    return objects.Claim(
        namespace=f"team-{number % 200}", name=f"far-{number}", uid=f"far-{number}", created=_THEN, since=_THEN,
        classes=(("card", "simulation"),), allocated=True, results=(result,), other_users=1, node=_node(number),
    )  # fmt: skip


def _claim(number: int) -> objects.Claim:
    pool = f"egpu/{_node(number // _CARDS)}"
    result = objects.Result(request="card", pool=pool, device=_name(number), share_id="s", consumed=_PART)
    return objects.Claim(
        namespace=f"team-{number % 200}", name=f"claim-{number}", uid=f"claim-{number}", created=_THEN, since=_THEN,
        classes=(("card", "inference"),), allocated=True, results=(result,), reserved_for=((f"pod-{number}", f"pod-{number}"),),
    )  # fmt: skip


def _pod(number: int) -> objects.Pod:
    claim = f"claim-{number}"
    return objects.Pod(
        namespace=f"team-{number % 200}", name=f"pod-{number}", uid=f"pod-{number}", node=_node(number // _CARDS),
        phase="Running", created=_THEN, words=("card",), claims=(claim,), uses=(objects.Use(container="main", word="card"),),
    )  # fmt: skip


if __name__ == "__main__":
    print(figures.table(list(measured())))
