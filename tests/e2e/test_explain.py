"""Whether there is room and why not, told before the scheduler tries and seen to be so on the real cluster."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.manifests import CLASS, a_claim, a_pod, a_request
from tests.e2e.stage import Stage, until

pytestmark = pytest.mark.e2e
Egpu = Callable[..., Any]
FAILING = "failing-expression.example.com"


def test_as_many_pods_run_as_fit_says_and_the_next_one_is_told_who_is_in_the_way(stage: Stage, egpu: Egpu) -> None:
    room = egpu("fit", "--class", CLASS)["fits"]
    assert room == 4
    for number in range(room):
        stage.create(a_claim(f"claim-{number}"), a_pod(f"pod-{number}", claim=f"claim-{number}"))
    stage.ready(*(f"pod-{number}" for number in range(room)))
    assert egpu("fit", "--class", CLASS)["fits"] == 0
    stage.create(a_claim("one-more"), a_pod("one-more", claim="one-more"))
    stage.pending_because("one-more", ".")
    told = egpu("explain", "pod/one-more", "-n", stage.namespace)
    assert told["verdict"] == "DoesNotFit"
    assert told["evidence"].startswith("0/2 nodes are available")
    assert any(f"when claim {stage.namespace}/claim-" in change for change in told["changes"])
    stage.delete("pod", "pod-0")
    stage.ready("one-more")
    assert egpu("explain", "pod/one-more", "-n", stage.namespace)["verdict"] == "HasItsCards"


def test_a_claim_that_no_pod_uses_yet_is_told_where_it_would_land(stage: Stage, egpu: Egpu) -> None:
    stage.create(a_claim("claim", requests=[a_request(count=2)]))
    told = egpu("explain", "claim/claim", "-n", stage.namespace)
    assert (told["verdict"], told["node"], len(told["cards"])) == ("FitsNow", "node1", 2)
    stage.start(a_pod(claim="claim"))
    results = stage.kubectl.objects("resourceclaim", "claim", "-n", stage.namespace)[0]["status"]["allocation"][
        "devices"
    ]
    assert [one["device"] for one in results["results"]] == told["cards"]


@pytest.fixture
def failing(stage: Stage) -> Iterator[Stage]:
    text = 'device.attributes["gpu.elasticgpu.io"].noSuchAttribute == "x"'
    item = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClass",
        "metadata": {"name": FAILING},
        "spec": {"backend": "Whole", "cards": {"expression": text}},
    }
    stage.create(item)
    yield stage
    stage.kubectl("delete", "elasticgpuclass", FAILING)


def test_an_expression_that_would_stop_every_pod_is_not_applied(failing: Stage) -> None:
    def accepted() -> Any:
        (found,) = failing.kubectl.objects("elasticgpuclass", FAILING)
        conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions") or ()}
        found = conditions.get("Accepted") or {"reason": ""}
        return found if found["reason"] == "ExpressionFails" else None

    condition = until("the class is judged", accepted)
    assert condition["status"] == "False"
    assert "no such key: noSuchAttribute" in condition["message"]
    assert not failing.kubectl.objects("deviceclass", FAILING)
