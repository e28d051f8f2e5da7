"""Our allocation beside upstream's own allocator, the one that kube-scheduler 1.37.2 runs, on the same clusters and claims."""

import itertools
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from allocation import amounts, bookings, cluster, devices, nodes, requests, results, search
from api import errors
from hack.measure.allocator import Allocator
from tests.allocation import clusters


@pytest.fixture(scope="module")
def upstream() -> Iterator[Allocator]:
    if shutil.which("go") is None:
        pytest.skip("Go is missing: the reference allocator cannot be built")
    with Allocator() as program:
        yield program


CASES = 20 * (settings.default or settings()).max_examples
"""2,000, and 20,000 with --hypothesis-profile=nightly."""


@pytest.mark.timeout(1800)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    max_examples=CASES,
)
@given(case=clusters.clusters() | clusters.tight())
def test_it_chooses_what_kube_scheduler_chooses_or_refuses_where_it_refuses(
    upstream: Allocator, case: dict[str, Any]
) -> None:
    """A case that is too hard for ours is left out: upstream would run into its own limit, or nearly."""
    expected = theirs(upstream, case)
    try:
        found = ours(case)
    except search.TooHard:
        assume(False)
    assert found == expected


def theirs(upstream: Allocator, case: dict[str, Any]) -> list[Any]:
    upstream.cluster(nodes=case["nodes"], slices=case["slices"], classes=case["classes"], claims=case["allocated"])
    answer = upstream.allocate(case["claims"], all=True, limit_s=60.0)
    return [_told(verdict) for verdict in answer["verdicts"]]


def _told(verdict: dict[str, Any]) -> Any:
    if verdict.get("found") is not None:
        return [_comparable(one) for one in verdict["found"]]
    if verdict.get("error") and not verdict.get("node_only"):
        return "stopped"
    return "refused"


def ours(case: dict[str, Any]) -> list[Any]:
    known = built(case)
    claims = [requests.claim(one) for one in case["claims"]]
    ids = (f"share {number}" for number in itertools.count())
    out: list[Any] = []
    for node in known.nodes.values():
        try:
            found = known.search(node, [claim.wish for claim in claims])
        except search.TooHard:  # an error too, but not an answer
            raise
        except errors.ElasticGPUError:
            out.append("stopped")
            continue
        out.append(
            "refused"
            if found is None
            else [
                _comparable(results.allocation(claim, picks, known.classes, node.name, lambda: next(ids)))
                for claim, picks in zip(claims, found, strict=True)
            ]
        )
    return out


def built(case: dict[str, Any]) -> cluster.Cluster:
    known = cluster.Cluster()
    for one in case["nodes"]:
        known.put_node(nodes.Node(name=one["metadata"]["name"], labels=one["metadata"]["labels"]))
    for one in case["slices"]:
        known.put_slice(devices.slice_(one))
    for one in case["classes"]:
        known.classes[one["metadata"]["name"]] = requests.class_(one)
    for one in case["allocated"]:
        held = bookings.pieces(one["status"]["allocation"]["devices"]["results"])
        known.booked.put(one["metadata"]["uid"], held)
    return known


def _comparable(allocation: dict[str, Any]) -> Any:
    """What has to be equal: all but the random ids of shares, and how an amount is written."""
    found = []
    for result in allocation["devices"]["results"]:
        taken = {name: amounts.amount(value) for name, value in (result.get("consumedCapacity") or {}).items()}
        found.append({**result, "shareID": "shareID" in result, "consumedCapacity": taken})
    return found, allocation["devices"].get("config") or [], allocation.get("nodeSelector")
