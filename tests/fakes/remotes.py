"""A cluster with remote pools: the API server with what the remote road needs, a controller's part of it, and claims.

async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
    cluster.add_pool(pool)
    async with cluster.controller():
        claim = cluster.claim("a", pool, 0)
        await cluster.until(lambda: cluster.condition("a", "attached"))
"""

import asyncio
import contextlib
import datetime
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from api import names, resource
from controller import metrics, remotes, remotewatcher, settings
from driver import disk
from driver.remote import __main__ as program
from driver.remote import node
from driver.remote import settings as node_settings
from kube import apiserver
from kubeletplugin import contract
from tests.fakes.apiserver import FakeAPIServer
from tests.fakes.authority import Authority
from tests.fakes.pool import FakePool

JSON = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
POOLS = "/apis/elasticgpu.io/v1alpha1/remotepools"
LEASES = "/apis/elasticgpu.io/v1alpha1/remoteleases"
CLUSTER_UID = "cluster-uid"
URI = f"urn:elasticgpu:cluster:{CLUSTER_UID}"


class Cluster:
    def __init__(self, server: FakeAPIServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.authority = Authority()
        self.credentials = self.authority.write(folder / "credentials", "controller", uris=(URI,))
        self.binding_s = 600
        self.epoch = 1
        self.late_s = 0.0
        """How far the clock of the controller is ahead."""
        server.put("/api/v1/namespaces/kube-system", {"metadata": {"uid": CLUSTER_UID}})
        self.add_node("node1")

    def add_node(self, name: str, *, ready: bool = True, **spec: Any) -> None:
        status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        self.server.put(f"/api/v1/nodes/{name}", {"metadata": {"uid": f"uid-{name}"}, "spec": spec, "status": status})

    def add_pool(self, pool: FakePool, name: str = "lab", **spec: Any) -> None:
        body = {"endpoint": pool.endpoint, "caBundle": pool.authority.pem, **spec}
        self.server.put(f"{POOLS}/{name}", {"spec": body})

    def claim(
        self,
        uid: str,
        pool: FakePool,
        *indexes: int,
        name: str = "",
        node: str = "node1",
        of: str = "lab",
        conditions: bool = True,
        config: Any = (),
        at: datetime.datetime | None = None,
        pods: tuple[str, ...] = ("pod",),
    ) -> JSON:
        """An allocated claim of these cards of a pool, as kube-scheduler leaves it before the pod is bound.

        Without conditions its pods are bound by now.
        """
        bound = {
            "bindingConditions": [names.ATTACHED],
            "bindingFailureConditions": [names.ATTACH_FAILED],
        }
        devices = sorted(pool.devices)
        results = [
            {"request": f"card-{index}", "driver": names.REMOTE_DRIVER, "pool": of, "device": devices[index]}
            | (bound if conditions else {})
            for index in indexes
        ]
        allocation: JSON = {"devices": {"results": results, "config": list(config)}}
        if conditions:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        moment = at or datetime.datetime.now(datetime.UTC)
        allocation["allocationTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        for pod in () if conditions else pods:
            place = f"/api/v1/namespaces/default/pods/{pod}"
            self.server.put(place, {"metadata": {"uid": f"uid-{pod}"}, "spec": {"nodeName": node}})
        users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
        body = {
            "metadata": {"uid": uid, "finalizers": ["resource.kubernetes.io/delete-protection"]},
            "spec": {},
            "status": {"allocation": allocation, "reservedFor": users},
        }
        return self.server.put(f"{CLAIMS}/{name or uid}", body)

    def get(self, name: str) -> JSON:
        found = self.server.get(f"{CLAIMS}/{name}")
        assert found is not None
        return found

    def deallocate(self, name: str) -> None:
        """As the resourceclaim controller does when no pod uses the claim any more."""
        found = self.get(name)
        found["status"] = {}
        self.server.put(f"{CLAIMS}/{name}", found)

    def devices(self, name: str) -> list[JSON]:
        found: list[JSON] = (self.get(name).get("status") or {}).get("devices") or []
        return found

    def condition(self, name: str, type_: str) -> bool:
        """Whether every one of the claim's devices has it."""
        devices = self.devices(name)
        ours = [one for one in _results(self.get(name)) if one["driver"] == names.REMOTE_DRIVER]
        return len(devices) == len(ours) > 0 and all(
            any(one["type"].endswith(f"/{type_}") and one["status"] == "True" for one in device.get("conditions") or ())
            for device in devices
        )

    def phases(self) -> list[str]:
        return [one["status"]["phase"] for one in self.server.list("remoteleases")]

    def taints(self, pool: str = "lab") -> dict[str, set[str]]:
        """Device -> the last words of its taints, as published."""
        return {
            device["name"]: {taint["key"].rpartition("/")[2] for taint in device.get("taints") or ()}
            for item in self.server.list("resourceslices")
            if item["spec"]["pool"]["name"] == pool
            for device in item["spec"].get("devices") or ()
        }

    def balanced(self, *pools: FakePool) -> None:
        """As many live leases as devices that claims hold, each for its own claim."""
        live = sorted((one.device_id, one.consumer.claim_uid) for pool in pools for one in pool.live())
        held = sorted(
            (result["device"], claim["metadata"]["uid"])
            for claim in self.server.list("resourceclaims")
            for result in _results(claim)
        )
        assert live == held

    async def until(self, condition: Callable[[], Any], *, within_s: float = 18) -> None:
        """In less than the controller takes to list all leases of a pool anew (20 s), which would hide a lost event."""
        await self.server.until(condition, within_s=within_s)

    def ref(self, name: str) -> contract.ClaimRef:
        return contract.ClaimRef(
            uid=resource.ClaimUID(self.get(name)["metadata"]["uid"]), namespace="default", name=name
        )

    def allocated(self, name: str) -> resource.Claim:
        return resource.claim(self.get(name))

    def spec(self, name: str) -> JSON | None:
        """What a runtime would read of the claim."""
        uid = self.get(name)["metadata"]["uid"]
        with contextlib.suppress(FileNotFoundError):
            found: JSON = json.loads((self.folder / f"cdi/k8s.remote.gpu.elasticgpu.io-claim_{uid}.json").read_text())
            return found
        return None

    def credential(self, name: str, request: str) -> Path:
        uid: str = self.get(name)["metadata"]["uid"]
        return self.folder / "keys" / uid / request

    @contextlib.asynccontextmanager
    async def node(
        self, name: str = "node1", *, relay: bool = False, kubeconfig: Path | None = None
    ) -> AsyncIterator[node.Node]:
        """A node driver's process, until the block ends; what was in memory is forgotten then."""
        self.server.put("/api/v1/namespaces/gpu/serviceaccounts/remote", {})
        self.server.tokens_node = name
        chosen = node_settings.Settings(
            node_name=name,
            namespace="gpu",
            pod_name="driver",
            pod_uid="pod-uid",
            service_account="remote",
            cdi_dir=self.folder / "cdi",
            credentials_dir=self.folder / "keys",
            relay=relay,
        )
        options = contract.Options(
            driver_name=names.REMOTE_DRIVER, node_name=name, plugin_dir=self.folder / f"plugins-{name}"
        )
        async with apiserver.APIServer.connect(kubeconfig or self.server.kubeconfig(self.folder)) as api:
            driver = program.assembled(chosen, options, api, disk.Disk())
            await driver.start()
            task = asyncio.create_task(driver.run())
            try:
                yield driver
            finally:
                task.cancel()
                await asyncio.wait([task])
                await driver.close()

    @contextlib.asynccontextmanager
    async def controller(self, **given: Any) -> AsyncIterator[metrics.Metrics]:
        """The controller's remote part, until the block ends; nothing of it is left in memory then."""
        chosen = settings.Settings(
            remote=True, remote_credentials=str(self.credentials), remote_binding_s=self.binding_s, **given
        )
        series = metrics.Metrics()
        async with apiserver.APIServer.connect(self.server.kubeconfig(self.folder)) as api:
            watch = remotewatcher.RemoteWatcher(api, chosen.namespace, chosen.remote_drivers)
            keepers = remotes.Remotes(api, watch, series, self.clock, chosen, self.epoch)
            tasks = [asyncio.create_task(watch.run()), asyncio.create_task(keepers.run())]
            try:
                yield series
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                wrong = [one for one in outcomes if not isinstance(one, asyncio.CancelledError)]
                assert not wrong, wrong

    def clock(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.late_s)


class Way:
    """A way of its own to a port of this machine, that can be cut: what is under way is lost, and nobody gets through."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[asyncio.StreamWriter] = set()
        self._whole = True
        self.port = 0

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator["Way"]:
        async with await asyncio.start_server(self._pass, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
            self.cut()

    def cut(self) -> None:
        self._whole = False
        for one in self._open:
            one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        inside, outside = await asyncio.open_connection("127.0.0.1", self._port)
        ends = {writer, outside}
        self._open |= ends
        try:
            await asyncio.gather(_copied(reader, outside), _copied(inside, writer))
        finally:
            self._open -= ends
            for one in ends:
                one.transport.abort()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """At its end the folder has what the server held and was asked, for whoever looks for secrets."""
    async with FakeAPIServer() as server:
        yield Cluster(server, folder)
        held = [*server.store.objects.values(), *(request.body for request in server.requests)]
        (folder / "objects.json").write_text(json.dumps(held))


def _results(claim: JSON) -> list[JSON]:
    """What is allocated to it."""
    found: list[JSON] = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", [])
    return found
