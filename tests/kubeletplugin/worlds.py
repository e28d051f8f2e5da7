"""All that a plugin meets, on real sockets: a kubelet, an API server, a scripted driver."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api import resource
from kube import apiserver
from kubeletplugin import contract, plugin
from tests.fakes.apiserver import FakeAPIServer
from tests.fakes.kubelet import CURRENT, FakeKubelet

DRIVER = "lamps.example.com"
NODE = "node-1"
POOL = f"lamps/{NODE}"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def ref(number: int = 1) -> contract.ClaimRef:
    return contract.ClaimRef(uid=resource.ClaimUID(f"uid-{number}"), namespace="default", name=f"claim-{number}")


def claim_json(number: int = 1, *, uid: str = "", allocated: bool = True, share_id: str = "") -> dict[str, Any]:
    """A claim as the API server stores it: two requests of ours, one of another driver."""
    results: list[dict[str, Any]] = [
        {"request": "gpu/big", "driver": DRIVER, "pool": POOL, "device": f"lamp-{number}"}
        | ({"shareID": share_id} if share_id else {}),
        {"request": "nic", "driver": "nic.example.com", "pool": "nics", "device": "eth0"},
    ]
    allocation = {"allocation": {"devices": {"results": results}}} if allocated else {}
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": uid or f"uid-{number}"},
        "status": allocation | {"reservedFor": [{"resource": "pods", "name": "pod", "uid": "pod-uid"}]},
    }


@dataclass(slots=True)
class ScriptedDriver:
    """Does what a test says, notes what it was asked."""

    data: dict[str, Any] = field(default_factory=lambda: {"watts": 7})
    calls: list[str] = field(default_factory=list)
    held: dict[str, contract.ClaimRef] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Prepare waits here; open unless a test clears it."""
    failures: dict[str, Exception] = field(default_factory=dict)
    """By UID, for Prepare and Unprepare."""
    entered: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    released: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    healths: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    dropped_fields: frozenset[str] = frozenset()
    claims_seen: asyncio.Queue[resource.Claim] = field(default_factory=asyncio.Queue)
    answers: dict[str, tuple[contract.PreparedDevice, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate.set()

    async def prepare(self, claim: resource.Claim) -> tuple[contract.PreparedDevice, ...]:
        self.calls.append(f"prepare {claim.uid}")
        self.entered.put_nowait(claim.uid)
        await self.gate.wait()
        if claim.uid in self.failures:
            raise self.failures[claim.uid]
        self.held[claim.uid] = contract.ClaimRef(uid=claim.uid, namespace=claim.namespace, name=claim.name)
        self.answers[claim.uid] = tuple(
            contract.PreparedDevice(
                requests=(result.base_request,),
                pool=result.pool,
                device=result.device,
                cdi_ids=(f"{DRIVER}/claim={claim.uid}-{result.device}",),
                share_id=result.share_id,
                data=self.data,
            )
            for result in claim.of_driver(DRIVER)
        )
        return self.answers[claim.uid]

    async def unprepare(self, ref: contract.ClaimRef) -> None:
        self.calls.append(f"unprepare {ref.uid}")
        if ref.uid in self.failures:
            raise self.failures[ref.uid]
        self.held.pop(ref.uid, None)
        self.released.put_nowait(ref.uid)

    async def prepared(self) -> tuple[contract.ClaimRef, ...]:
        return tuple(self.held.values())

    async def devices(self, ref: contract.ClaimRef) -> tuple[contract.PreparedDevice, ...]:
        return self.answers.get(ref.uid, ()) if ref.uid in self.held else ()

    async def seen(self, claim: resource.Claim) -> None:
        self.claims_seen.put_nowait(claim)

    async def pools(self) -> AsyncIterator[tuple[resource.Pool, ...]]:
        yield (resource.Pool(name=POOL, devices=(resource.Device(name="lamp-1"),)),)

    async def health(self) -> AsyncIterator[tuple[contract.DeviceHealth, ...]]:
        yield (contract.DeviceHealth(pool=POOL, device="lamp-1", health=contract.Health.HEALTHY),)
        while True:
            told = await self.healths.get()
            if isinstance(told, Exception):
                raise told
            yield told

    async def dropped(self, fields: frozenset[str]) -> None:
        self.dropped_fields = fields


@dataclass(slots=True)
class World:
    root: Path
    server: FakeAPIServer
    api: apiserver.APIServer
    kubelet: FakeKubelet

    def options(self, **given: Any) -> contract.Options:
        defaults: dict[str, Any] = {
            "driver_name": DRIVER,
            "node_name": NODE,
            "registry_dir": self.kubelet.registry_dir,
            "plugin_dir": self.kubelet.plugin_dir,
        }
        return contract.Options(**(defaults | given))

    def put_claim(self, number: int = 1, **given: Any) -> contract.ClaimRef:
        self.server.put(f"{CLAIMS}/claim-{number}", claim_json(number, **given))
        return ref(number)

    def devices_told(self, number: int = 1) -> list[dict[str, Any]]:
        stored = self.server.get(f"{CLAIMS}/claim-{number}") or {}
        return list(stored.get("status", {}).get("devices") or [])

    @contextlib.asynccontextmanager
    async def serving(self, driver: contract.Driver, **given: Any) -> AsyncIterator[plugin.Plugin]:
        """A plugin in this process, stopped in order at the end."""
        served, stop = plugin.Plugin(driver, self.options(**given), self.api), asyncio.Event()
        task = asyncio.create_task(served.run(stop), name="the plugin")
        try:
            yield served
        finally:
            stop.set()
            await task


@contextlib.asynccontextmanager
async def world(root: Path, *, services: tuple[str, ...] = CURRENT) -> AsyncIterator[World]:
    async with FakeAPIServer() as server, FakeKubelet(services=services) as kubelet:
        server.put(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "uid": "node-uid"}})
        async with apiserver.APIServer.connect(server.kubeconfig(root)) as api:
            yield World(root, server, api, kubelet)
