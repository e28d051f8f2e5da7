"""The calls of the kubelet: an answer for every claim of a call, whatever becomes of the others.

    call -> its claims side by side -> flight -> claim read -> driver -> values -> call's answer

v1beta1 is v1 without the share id: one set of messages serves both, an older kubelet skips the field that it does not
know.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc
import structlog

from api import resource
from api.protos import dra_v1_pb2 as wire
from kubeletplugin import claims, contract, flights, metrics, statuses

SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
"""What is told at registration -> the gRPC service. In this order: a kubelet takes the first that it knows."""

T = TypeVar("T")
log = structlog.get_logger()


class Service:
    def __init__(
        self,
        driver: contract.Driver,
        found: claims.Claims,
        in_flight: flights.Flights,
        writer: statuses.Statuses,
        series: metrics.Metrics,
    ) -> None:
        self._driver = driver
        self._claims = found
        self._flights = in_flight
        self._statuses = writer
        self._series = series

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                self._prepare_all,
                wire.NodePrepareResourcesRequest.FromString,
                wire.NodePrepareResourcesResponse.SerializeToString,
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                self._unprepare_all,
                wire.NodeUnprepareResourcesRequest.FromString,
                wire.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        }
        return tuple(grpc.method_handlers_generic_handler(name, methods) for name in SERVICES.values())

    async def _prepare_all(
        self, request: wire.NodePrepareResourcesRequest, _context: Any
    ) -> wire.NodePrepareResourcesResponse:
        answers = await asyncio.gather(*(self._prepare(_ref(claim)) for claim in request.claims))
        return wire.NodePrepareResourcesResponse(claims=dict(answers))

    async def _unprepare_all(
        self, request: wire.NodeUnprepareResourcesRequest, _context: Any
    ) -> wire.NodeUnprepareResourcesResponse:
        answers = await asyncio.gather(*(self._unprepare(_ref(claim)) for claim in request.claims))
        return wire.NodeUnprepareResourcesResponse(claims=dict(answers))

    async def _prepare(self, ref: contract.ClaimRef) -> tuple[str, wire.NodePrepareResourceResponse]:
        async def work() -> tuple[contract.PreparedDevice, ...]:
            found = await self._claims.get(ref)
            devices = await self._driver.prepare(found.claim)
            self._statuses.want(found, devices)
            return devices

        devices, error = await self._answer(
            ref, flights.Kind.PREPARE, self._flights.fly(ref.uid, flights.Kind.PREPARE, work)
        )
        return ref.uid, wire.NodePrepareResourceResponse(devices=map(_device, devices or ()), error=error)

    async def _unprepare(self, ref: contract.ClaimRef) -> tuple[str, wire.NodeUnprepareResourceResponse]:
        async def work() -> None:
            await self._driver.unprepare(ref)
            self._statuses.forget(ref.uid)

        _, error = await self._answer(
            ref, flights.Kind.UNPREPARE, self._flights.fly(ref.uid, flights.Kind.UNPREPARE, work)
        )
        return ref.uid, wire.NodeUnprepareResourceResponse(error=error)

    async def _answer(self, ref: contract.ClaimRef, kind: flights.Kind, flight: Awaitable[T]) -> tuple[T | None, str]:
        """The flight's result, or the text that the pod's events will show. Counts and logs it once."""
        series, method, started = self._series, kind.value, time.perf_counter()
        result, text, outcome = None, "", "ok"
        with series.in_flight[method].track_inprogress():
            try:
                result = await flight
            except Exception as error:
                outcome = metrics.outcome(error)
                text = str(error) or outcome
                if outcome == "defect":
                    text = f"claim {ref}: the driver failed unexpectedly ({error!r:.200}); its log has the stack"
                    log.exception("driver failed", method=method, claim=str(ref), uid=ref.uid)
        seconds = time.perf_counter() - started
        series.duration[method].observe(seconds)
        series.claims[method, outcome].inc()
        if outcome == "ok":
            log.info("claim handled", method=method, claim=str(ref), uid=ref.uid, seconds=round(seconds, 4))
        else:
            log.warning("claim refused", method=method, claim=str(ref), uid=ref.uid, outcome=outcome, error=text)
        return result, text


def _ref(claim: wire.Claim) -> contract.ClaimRef:
    return contract.ClaimRef(uid=resource.ClaimUID(claim.uid), namespace=claim.namespace, name=claim.name)


def _device(device: contract.PreparedDevice) -> wire.Device:
    return wire.Device(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )
