"""Explanations say what the search itself says, node by node, and count every card once."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from allocation import requests, search
from api import errors
from api.reasons import Reason, Verdict
from explain import explanation, fitting, world
from tests.allocation import clusters


def _world(case: dict[str, Any]) -> world.World:
    return world.build(slices=case["slices"], classes=case["classes"], claims=case["allocated"], nodes_=case["nodes"])


def _searched(now: world.World, claim: dict[str, Any]) -> str:
    """As kube-scheduler does in a small cluster: every node is looked at, and what stops one stops all."""
    found = False
    for name in sorted(now.cluster.nodes):
        try:
            found |= now.cluster.search(now.cluster.nodes[name], [requests.wish(claim["spec"])]) is not None
        except search.TooHard:
            return "too hard"
        except (errors.Invalid, errors.NotReady):
            return "no"
    return "yes" if found else "no"


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    derandomize=True,
    max_examples=300,
)
@given(case=clusters.clusters())
def test_the_verdict_is_that_of_the_search_and_cards_add_up(case: dict[str, Any]) -> None:
    now = _world(case)
    for claim in case["claims"]:
        told = explanation.explain({"kind": "ResourceClaim", **claim}, now)
        expected = {"yes": Verdict.NOW, "no": Verdict.NO, "too hard": Verdict.UNKNOWN}[_searched(now, claim)]
        assert told.verdict is expected, told.sentence
        for funnel in told.funnels:
            ruled_out = sum(group.cards for group in funnel.groups if group.reason is not Reason.POOL)
            assert ruled_out + sum(funnel.candidates.values()) == funnel.seen


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    derandomize=True,
    max_examples=100,
)
@given(case=clusters.clusters())
def test_as_many_copies_fit_as_can_be_booked_one_after_the_other(case: dict[str, Any]) -> None:
    now = _world(case)
    for claim in case["claims"][:1]:
        before = {key: now.cluster.booked.of(key) for key in now.holders}
        told = fitting.fit({"kind": "ResourceClaim", **claim}, now, 5)
        assert (told.fits > 0) == (explanation.explain({"kind": "ResourceClaim", **claim}, now).verdict is Verdict.NOW)
        assert {key: now.cluster.booked.of(key) for key in now.holders} == before
