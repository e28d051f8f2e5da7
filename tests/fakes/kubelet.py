"""A kubelet as a plugin sees it: real sockets, the kubelet's order of calls and its checks.

    async with FakeKubelet() as kubelet:                # its directories: kubelet.registry_dir, kubelet.plugin_dir
        plugin = await kubelet.plugin("gpu.example.com")    # found in the registry directory, asked, checked, told
        answers = await plugin.prepare(ref)                 # uid -> answer
        await plugin.health_of("pool", "device", "UNHEALTHY")
        await kubelet.restart()

Without a root it makes a short one of its own: pytest's folders leave no room in the 107 bytes of a socket's path.
`services` are what this kubelet's release speaks. Like the real one it keeps a connection to each endpoint, calls the
newest instance of a driver that has a connection, and forgets an instance when its registration socket vanishes.
"""

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self

import grpc

from api.protos import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    registration_v1_pb2,
    registration_v1_pb2_grpc,
)
from kubeletplugin import contract

DRA: Mapping[str, Any] = {
    "v1.DRAPlugin": (dra_v1_pb2, dra_v1_pb2_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc.DRAPluginStub),
}
HEALTH: Mapping[str, Any] = {
    "v1.DRAResourceHealth": (dra_health_v1_pb2, dra_health_v1_pb2_grpc.DRAResourceHealthStub),
    "v1alpha1.DRAResourceHealth": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub),
}
CURRENT = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
LOOK_S = 0.02
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Plugin:
    """One registered instance of a driver."""

    def __init__(self, info: Any, services: tuple[str, ...], socket: Path) -> None:
        self.name, self.endpoint, self.socket = info.name, info.endpoint, socket
        self.service = next(name for name in info.supported_versions if name in services and name in DRA)
        self.health_service = next((n for n in services if n in HEALTH and n in info.supported_versions), "")
        self.health: dict[tuple[str, str], Any] = {}
        self.health_messages = 0
        self._changed = asyncio.Condition()
        self.channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}")
        self._pb, stub = DRA[self.service]
        self._stub = stub(self.channel)
        self._watch = asyncio.create_task(self._follow_health(), name=f"kubelet health {info.endpoint}")

    async def prepare(self, *refs: contract.ClaimRef, timeout_s: float = 45) -> dict[str, Any]:
        """Each claim's answer by uid. Raises grpc.aio.AioRpcError past the deadline; an answer must be there for each."""
        request = self._pb.NodePrepareResourcesRequest(claims=[self._claim(ref) for ref in refs])
        return self._answers(refs, await _done(self._stub.NodePrepareResources(request, timeout=timeout_s)))

    async def unprepare(self, *refs: contract.ClaimRef, timeout_s: float = 45) -> dict[str, Any]:
        request = self._pb.NodeUnprepareResourcesRequest(claims=[self._claim(ref) for ref in refs])
        return self._answers(refs, await _done(self._stub.NodeUnprepareResources(request, timeout=timeout_s)))

    async def prepared(self, ref: contract.ClaimRef) -> tuple[Any, ...]:
        """The devices of one claim, which must succeed."""
        answer = (await self.prepare(ref))[ref.uid]
        assert answer.error == "", answer.error
        return tuple(answer.devices)

    async def refused(self, ref: contract.ClaimRef) -> str:
        """The error text of one claim, which must fail."""
        answer = (await self.prepare(ref))[ref.uid]
        assert answer.error, answer
        return str(answer.error)

    async def released(self, ref: contract.ClaimRef) -> None:
        answer = (await self.unprepare(ref))[ref.uid]
        assert answer.error == "", answer.error

    async def health_of(self, pool: str, device: str, state: str) -> str:
        """Waits until the device has this state; its message."""
        pb, _ = HEALTH[self.health_service]
        wanted = pb.HealthStatus.Value(state)
        await self.health_when(lambda: (pool, device) in self.health and self.health[pool, device].health == wanted)
        return str(self.health[pool, device].message)

    async def health_when(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    async def drop_connection(self) -> None:
        """Loses the connection and makes a new one, health stream included."""
        await self.close()
        self.channel = grpc.aio.insecure_channel(f"unix:{self.endpoint}")
        self._stub = DRA[self.service][1](self.channel)
        self._watch = asyncio.create_task(self._follow_health(), name=f"kubelet health {self.endpoint}")

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self.channel.close()

    async def _follow_health(self) -> None:
        if not self.health_service:
            return
        pb, stub = HEALTH[self.health_service]
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for message in stub(self.channel).NodeWatchResources(pb.NodeWatchResourcesRequest()):
                    await self._told(message)
            async with self._changed:
                self.health.clear()
                self._changed.notify_all()
            await asyncio.sleep(LOOK_S)

    async def _told(self, message: Any) -> None:
        async with self._changed:
            self.health_messages += 1
            self.health |= {(one.device.pool_name, one.device.device_name): one for one in message.devices}
            self._changed.notify_all()

    def _claim(self, ref: contract.ClaimRef) -> Any:
        return self._pb.Claim(uid=ref.uid, namespace=ref.namespace, name=ref.name)

    @staticmethod
    def _answers(refs: tuple[contract.ClaimRef, ...], response: Any) -> dict[str, Any]:
        answers = dict(response.claims)
        assert set(answers) == {ref.uid for ref in refs}, (
            f"kubelet: skipped or unknown ResourceClaims: {sorted(answers)}"
        )
        return answers


class FakeKubelet:
    def __init__(self, root: Path | None = None, *, services: tuple[str, ...] = CURRENT) -> None:
        self._own_root = tempfile.TemporaryDirectory(prefix="kubelet-") if root is None else None
        root = root or Path(self._own_root.name)  # type: ignore[union-attr]
        self.registry_dir, self.plugin_dir = root / "plugins_registry", root / "plugins"
        self.services = services
        self.refusals: list[str] = []
        """What this kubelet told plugins that it does not take."""
        self._plugins: dict[tuple[Any, ...], Plugin | None] = {}
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.registry_dir.mkdir(parents=True, exist_ok=True)
        self.plugin_dir.mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._run(), name="kubelet plugin watcher")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()
        if self._own_root is not None:
            self._own_root.cleanup()

    async def _end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for plugin in self._plugins.values():
            if plugin:
                await plugin.close()
        self._plugins.clear()

    @contextlib.asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """No kubelet inside the block; after it one that knows nothing, as after a restart."""
        await self._end()
        yield
        await self.__aenter__()

    async def restart(self) -> None:
        async with self.stopped():
            pass

    def instances(self, name: str) -> list[Plugin]:
        """The registered instances of a driver, oldest first."""
        return [plugin for plugin in self._plugins.values() if plugin and plugin.name == name]

    async def plugin(self, name: str, *, instances: int = 1, timeout_s: float = 60) -> Plugin:
        """The newest instance, once that many are registered."""
        await self.when(lambda: len(self.instances(name)) == instances, timeout_s)
        return self.instances(name)[-1]

    async def gone(self, name: str, timeout_s: float = 60) -> None:
        await self.when(lambda: not self.instances(name), timeout_s)

    async def when(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    async def _run(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        seen = {}
        for path in self.registry_dir.glob("*.sock"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_socket() and not path.name.startswith("."):
                    seen[path, path.stat().st_ino, path.stat().st_mtime_ns] = path
        changed = False
        for key in [key for key in self._plugins if key not in seen]:
            plugin, changed = self._plugins.pop(key), True
            if plugin:
                await plugin.close()
        for key, path in seen.items():
            if self._plugins.get(key) is None:
                self._plugins[key], changed = await self._register(path), True
        if changed:
            async with self._changed:
                self._changed.notify_all()

    async def _register(self, path: Path) -> Plugin | None:
        """None: tried again at the next look."""
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            stub = registration_v1_pb2_grpc.RegistrationStub(channel)
            try:
                info = await stub.GetInfo(registration_v1_pb2.InfoRequest(), timeout=1)
                problem = self._problem(info)
                status = registration_v1_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
                await stub.NotifyRegistrationStatus(status, timeout=5)
            except grpc.aio.AioRpcError:
                return None
        if problem:
            self.refusals.append(problem)
            return None
        return Plugin(info, self.services, path)

    def _problem(self, info: Any) -> str:
        if info.type != "DRAPlugin":
            return f"no handler registered for plugin type: {info.type}"
        if not (NAME.fullmatch(info.name) and len(info.name) <= 63):
            return f"plugin validation failed: driver name {info.name!r}"
        if not info.endpoint.startswith("/") or len(info.endpoint.encode()) > 107:
            return f"plugin validation failed: endpoint {info.endpoint!r}"
        if not any(name in self.services and name in DRA for name in info.supported_versions):
            return f"none of {list(info.supported_versions)} are supported by the kubelet ({list(self.services)})"
        if any(plugin.endpoint == info.endpoint for plugin in self.instances(info.name)):
            return f"endpoint {info.endpoint} already registered"
        return ""


async def _done(call: Awaitable[Any]) -> Any:
    """A call that ended because its plugin was replaced under it looks like a cancelled task of the caller's."""
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionError("the plugin was replaced while the call ran") from None
