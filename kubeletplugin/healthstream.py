"""The health of devices as a stream: the driver is asked once, every kubelet that watches gets the same.

    Driver.health() -> last full list -> each stream: at once, on change, and again before the kubelet forgets

A kubelet takes a device as unknown that it has not heard of for its timeout. So the list is repeated while the driver
stands by it; when the driver's iterator fails, nothing is repeated until it works again. v1alpha1 has the messages of v1.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from api.protos import dra_health_v1_pb2 as wire
from kubeletplugin import contract

SERVICES = {
    "v1.DRAResourceHealth": "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth": "v1alpha1.DRAResourceHealth",
}
_MESSAGE_LIMIT = 1024
_KUBELETS_TIMEOUT_S = 30


class HealthStream:
    def __init__(self, driver: contract.Driver, repeat_s: float) -> None:
        self._driver = driver
        self._repeat_s = repeat_s
        self._timeout_s = int(max(_KUBELETS_TIMEOUT_S, 3 * repeat_s))
        self._last: wire.NodeWatchResourcesResponse | None = None
        self._changed = asyncio.Event()
        self._ended = False

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        method = grpc.unary_stream_rpc_method_handler(
            self._watch, wire.NodeWatchResourcesRequest.FromString, wire.NodeWatchResourcesResponse.SerializeToString
        )
        return tuple(
            grpc.method_handlers_generic_handler(name, {"NodeWatchResources": method}) for name in SERVICES.values()
        )

    async def run(self) -> None:
        """Follows the driver. Where its iterator ends, the last list holds."""
        try:
            async for devices in self._driver.health():
                self._tell(wire.NodeWatchResourcesResponse(devices=map(self._device, devices)))
        except BaseException:
            self._last = None
            raise

    def end(self) -> None:
        """Ends every stream, so that a stopping server has nothing to wait for."""
        self._ended = True
        self._tell(None)

    def _tell(self, message: wire.NodeWatchResourcesResponse | None) -> None:
        self._last = message
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(
        self, _request: wire.NodeWatchResourcesRequest, _context: Any
    ) -> AsyncIterator[wire.NodeWatchResourcesResponse]:
        while not self._ended:
            changed = self._changed
            if self._last is not None:
                yield self._last
            try:
                async with asyncio.timeout(self._repeat_s):
                    await changed.wait()
            except TimeoutError:
                pass

    def _device(self, device: contract.DeviceHealth) -> wire.DeviceHealth:
        text = device.message
        return wire.DeviceHealth(
            device=wire.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=wire.HealthStatus.Name(device.health.value),
            last_updated_time=device.since_s,
            health_check_timeout_seconds=self._timeout_s,
            message=text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 3] + "...",
        )
