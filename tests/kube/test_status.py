"""The apply patch of a driver's own entries, against a server that merges them by their keys."""

import dataclasses
from typing import Any

import pytest

from api import errors, resource
from kube import status
from kube.apiserver import APIServer, Patch
from kube.status import Condition, DeviceStatus
from tests.fakes.apiserver import FakeAPIServer

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
DRIVER = "gpu.example.io"
READY = Condition(type="Ready", status=True, reason="Up", message="m", since="2026-01-01T00:00:00Z")
RESULTS = [
    {"request": "r", "driver": DRIVER, "pool": "p", "device": "d0"},
    {"request": "r", "driver": DRIVER, "pool": "p", "device": "d1", "shareID": "s1"},
    {"request": "r", "driver": "other.io", "pool": "p", "device": "d0"},
]


@pytest.fixture(autouse=True)
def claims(server: FakeAPIServer) -> None:
    others = [{"driver": "other.io", "pool": "p", "device": "d0", "data": {"x": 1}}]
    state = {"allocation": {"devices": {"results": RESULTS}}, "devices": others}
    server.put(f"{CLAIMS}/c", {"spec": {}, "status": state})


async def claim(api: APIServer) -> resource.Claim:
    data = await api.get(f"{CLAIMS}/c")
    assert data is not None
    return resource.claim(data)


async def apply(api: APIServer, to: resource.Claim, *entries: DeviceStatus) -> list[dict[str, Any]]:
    body = status.patch(to, DRIVER, entries)
    stored = await api.patch(status.path(to), body, kind=Patch.APPLY, fieldManager=DRIVER, force=True)
    assert stored is not None
    devices: list[dict[str, Any]] = stored["status"]["devices"]
    return devices


async def test_own_entries_are_set_and_removed_and_those_of_others_stay(api: APIServer) -> None:
    whole = DeviceStatus(pool="p", device="d0", data={"uuid": "u"})
    share = DeviceStatus(pool="p", device="d1", share_id="s1", conditions=(READY,))
    devices = await apply(api, await claim(api), whole, share)
    assert [(d["driver"], d["device"], d.get("shareID")) for d in devices] == [
        ("other.io", "d0", None),
        (DRIVER, "d0", None),
        (DRIVER, "d1", "s1"),
    ]
    assert devices[1]["data"] == {"uuid": "u"}
    assert devices[2]["conditions"][0]["status"] == "True"
    devices = await apply(api, await claim(api), whole)
    assert [d["device"] for d in devices] == ["d0", "d0"]


async def test_a_claim_that_changed_or_was_replaced_is_a_conflict(api: APIServer) -> None:
    old = await claim(api)
    entry = DeviceStatus(pool="p", device="d0", data={"uuid": "u"})
    await apply(api, old, entry)
    other = resource.ClaimUID("other")
    for stale in (old, dataclasses.replace(old, uid=other), dataclasses.replace(old, uid=other, resource_version="")):
        with pytest.raises(errors.Conflict):
            await apply(api, stale, entry)


async def test_a_device_that_the_claim_does_not_hold_is_refused_before_it_is_sent(api: APIServer) -> None:
    held = await claim(api)
    with pytest.raises(errors.Invalid, match="claim ns/c holds no device p/d7"):
        status.patch(held, DRIVER, (DeviceStatus(pool="p", device="d7"),))
    with pytest.raises(errors.Invalid, match="holds no device"):
        status.patch(held, DRIVER, (DeviceStatus(pool="p", device="d1"),))  # its share is named s1
