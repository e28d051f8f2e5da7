"""Classes with reclaimPolicy Retain: a card that was released is nobody's until an admin frees it, on the real cluster."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from api import names
from tests.e2e.manifests import a_claim, a_pod
from tests.e2e.stage import Object, Stage, until
from tests.e2e.test_controller_allocated import fenced
from tests.e2e.test_view import Egpu, card_of

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRADeviceTaintRules", "DRADeviceTaints")]
WHOLE, SHARE = "kept.example.com", "kept-share.example.com"


def _class(name: str, **spec: Any) -> Object:
    kind = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": name}}
    return kind | {"spec": {"reclaimPolicy": "Retain"} | spec}


@pytest.fixture
def kept(stage: Stage) -> Iterator[Stage]:
    yield from _with(stage, _class(WHOLE, backend="Whole"))


@pytest.fixture
def kept_shares(stage: Stage) -> Iterator[Stage]:
    """Allocated by the controller, which has node1's cards."""
    stage.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}=controller")
    until("the cards bear the taint", lambda: fenced(stage))
    share = {"memory": "BestEffort", "cores": "BestEffort"}
    yield from _with(stage, _class(SHARE, backend="Share", share=share, allocation={"by": "Controller"}))
    stage.kubectl("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}-")
    until("the cards are kube-scheduler's again", lambda: fenced(stage, fully=False))


def _with(stage: Stage, found: Object) -> Iterator[Stage]:
    name = found["metadata"]["name"]
    stage.create(found)
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{name}", "--timeout=120s")
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    stage("delete", "resourceclaims", "--all", "--timeout=120s")
    stage.kubectl("delete", "elasticgpuclass", name)
    stage.kubectl("delete", "devicetaintrules", "--all")


def _request(of: str, card: str = "", **exactly: Any) -> list[Object]:
    """Of this card alone, where one is named."""
    uuid = f'device.attributes["gpu.elasticgpu.io"].uuid.lowerAscii() == "{card}"'
    narrow = {"selectors": [{"cel": {"expression": uuid}}]} if card else {}
    return [{"name": "card", "exactly": {"deviceClassName": of} | narrow | exactly}]


def _rule(stage: Stage, card: str) -> tuple[str, str]:
    """Effect of the card's rule, and for whom it is."""
    for found in stage.kubectl.objects("devicetaintrules"):
        if found["metadata"]["name"] == f"{names.RETAINED_RULE}{card}":
            return found["spec"]["taint"]["effect"], found["metadata"]["annotations"][names.RETAINED_FOR]
    return "", ""


def test_a_released_card_waits_for_an_admin_and_then_serves_again(kept: Stage, egpu: Egpu) -> None:
    kept.start(a_claim("first", _request(WHOLE)), a_pod("first", claim="first"))
    card = card_of(kept, "first")
    until("the rule is made while the card is held", lambda: _rule(kept, card)[0] == "NoSchedule")
    assert egpu("card", card)["state"] == "Held"
    kept.delete("pod", "first")
    kept.delete("resourceclaim", "first")
    kept.create(a_claim("next", _request(WHOLE, card)), a_pod("next", claim="next"))
    kept.pending_because("next", "cannot allocate all claims")
    until("the object says so", lambda: "Retained" in _conditions(kept, card))
    (problem,) = [one for one in egpu("status")["problems"] if one["kind"] == "CardRetained"]
    assert problem["command"] == f"kubectl egpu release {card}"
    assert kept.kubectl("egpu", "release", card) == f"card/{card} free again\n"
    kept.ready("next")


def _conditions(stage: Stage, card: str) -> set[str]:
    found = json.loads(stage.kubectl("get", "elasticgpu", card, "-o", "json"))
    return {one["type"] for one in found["status"].get("conditions", ())}


@pytest.mark.needs("DRAConsumableCapacity")
def test_a_released_share_closes_its_card_and_leaves_the_others(kept_shares: Stage, egpu: Egpu) -> None:
    amounts = {"capacity": {"requests": {"cores": "20", "memory": "2Gi"}}}
    for name in ("one", "two"):
        kept_shares.start(a_claim(name, _request(SHARE, **amounts)), a_pod(name, claim=name))
    card = card_of(kept_shares, "one")
    assert card_of(kept_shares, "two") == card
    until("the rule knows both", lambda: _rule(kept_shares, card)[1].count(",") == 1)
    assert _rule(kept_shares, card)[0] == "None"
    kept_shares.delete("pod", "one")
    until("the card is closed", lambda: _rule(kept_shares, card)[0] == "NoSchedule")
    kept_shares.start(a_claim("three", _request(SHARE, **amounts)), a_pod("three", claim="three"))
    assert card_of(kept_shares, "three") != card
    assert card_of(kept_shares, "two") == card
