"""Who uses a share, row by row of the table in driver/README.md: pods as the API server has them -> what is held, or why not.

By HAMi-core here; MPS keeps the same rule, the card's own driver another one (test_shares.py, tests/e2e/test_driverlimits.py).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import errors, resource
from tests.fakes.machine import Machine

JSON = dict[str, Any]
ALONE = "container with this share alone"
TOGETHER = "use this one together"


def _container(name: str, *claims: str, **more: Any) -> JSON:
    """`claims` by the pod's words for them: `left` and `right` are shares, `nic` is of another driver; `left/one` a request."""
    uses = [dict(zip(("name", "request"), claim.split("/"), strict=False)) for claim in claims]
    return {"name": name, "resources": {"claims": uses}, **more}


def _pod(*containers: JSON, init: tuple[JSON, ...] = (), name: str = "pod") -> JSON:
    words = {"left": "claim-left", "right": "claim-right", "nic": "claim-nic"}
    claims = [{"name": word, "resourceClaimName": claim} for word, claim in words.items()]
    spec = {"resourceClaims": claims, "containers": list(containers), "initContainers": list(init)}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


MAIN = _container("main", "left")
ROWS: dict[str, tuple[tuple[JSON, ...], str]] = {
    "one container, one share, no other claim": ((_pod(MAIN),), ""),
    "an init container beside": ((_pod(MAIN, init=(_container("load", "left"),)),), TOGETHER),
    "a sidecar beside": ((_pod(MAIN, init=(_container("log", "left", restartPolicy="Always"),)),), TOGETHER),
    "a second container on the same request": ((_pod(MAIN, _container("second", "left")),), TOGETHER),
    "an init container that uses no share": ((_pod(MAIN, init=(_container("fetch"),)),), ""),
    "several containers, each with a claim of its own": ((_pod(MAIN, _container("second", "right")),), ""),
    "one container with two claims": ((_pod(_container("main", "left", "right")),), ALONE),
    "one container with a claim of another driver beside": ((_pod(_container("main", "left", "nic")),), ALONE),
    "one claim in several pods": ((_pod(MAIN), _pod(MAIN, name="other")), TOGETHER),
}


@pytest.fixture
def held(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.hami_library = tmp_path / "libvgpu.so"
    machine.hami_library.write_bytes(b"the library")
    return machine


@pytest.mark.parametrize("row", ROWS)
async def test_a_share_is_held_for_containers_that_can_be_told_apart_and_else_refused_in_words(
    held: Machine, row: str
) -> None:
    """HAMi#592, #863, #2563, #3052, k8s-dra-driver PR#25"""
    held.pods, text = list(ROWS[row][0]), ROWS[row][1]
    async with held.node() as driver:
        strict = held.share("left", 0, firm={"memory": "Required"})
        if text:
            with pytest.raises(errors.Invalid, match=text):
                await driver.prepare(strict)
            (device,) = await driver.prepare(held.share("left", 0))
            assert device.data["enforcement"] == {"memory": "none", "cores": "none"}
        else:
            (device,) = await driver.prepare(strict)
            assert device.data["enforcement"] == {"memory": "hami", "cores": "hami"}


async def test_containers_that_use_one_request_each_are_held_each_by_itself(held: Machine) -> None:
    """Two requests of one claim, a container for each: each gets an account of its own (hdra shares one)."""
    claim = _two_requests(held)
    held.pods = [_pod(_container("main", "left/one"), _container("second", "left/two"))]
    async with held.node() as driver:
        devices = await driver.prepare(claim)
        assert [device.data["enforcement"] for device in devices] == [{"memory": "hami", "cores": "hami"}] * 2
        spec = held.spec("left") or {}
        accounts = {
            mount["hostPath"]
            for device in spec["devices"]
            for mount in device["containerEdits"]["mounts"]
            if mount["containerPath"] == "/var/lib/elastic-gpu"
        }
        assert len(accounts) == 2


async def test_a_container_that_uses_both_requests_of_a_claim_is_refused(held: Machine) -> None:
    """Both would be its card number 0, and the last one's limit would stand (hdra: env of two devices overwrites)."""
    held.pods = [_pod(_container("main", "left"))]
    async with held.node() as driver:
        with pytest.raises(errors.Invalid, match=ALONE):
            await driver.prepare(_two_requests(held))


def _two_requests(machine: Machine) -> resource.Claim:
    claim = machine.share("left", 0, 1, firm={"memory": "Required"})
    first, second = claim.results
    return replace(claim, results=(replace(first, request="one"), replace(second, request="two")))
