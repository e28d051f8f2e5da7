"""Tells the kubelet who we are, on a socket of its own, and keeps what the kubelet made of it.

    kubelet sees the socket -> GetInfo (1 s) -> checks -> NotifyRegistrationStatus -> calls the DRA socket

The kubelet asks again whenever it starts; the answer is made once and never waits.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import structlog

from api.protos import registration_v1_pb2 as wire
from kubeletplugin import metrics

log = structlog.get_logger()


class Registration:
    def __init__(self, driver_name: str, endpoint: Path, services: Sequence[str], series: metrics.Metrics) -> None:
        self._info = wire.PluginInfo(
            type="DRAPlugin", name=driver_name, endpoint=str(endpoint), supported_versions=services
        )
        self._series = series
        self.registered = False
        """The kubelet's last word; False before the first."""
        self.first = asyncio.Event()
        """Set from the first time on that a kubelet has registered us."""
        self.refusal = ""
        """Why the kubelet's last word was no."""

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "pluginregistration.Registration",
            {
                "GetInfo": grpc.unary_unary_rpc_method_handler(
                    self._get_info, wire.InfoRequest.FromString, wire.PluginInfo.SerializeToString
                ),
                "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                    self._notify, wire.RegistrationStatus.FromString, wire.RegistrationStatusResponse.SerializeToString
                ),
            },
        )

    async def _get_info(self, _request: wire.InfoRequest, _context: Any) -> wire.PluginInfo:
        return self._info

    async def _notify(self, status: wire.RegistrationStatus, _context: Any) -> wire.RegistrationStatusResponse:
        self.registered = status.plugin_registered
        self._series.registered.set(self.registered)
        self.refusal = "" if self.registered else status.error
        if self.registered:
            self.first.set()
            log.info("registered by the kubelet", driver=self._info.name, endpoint=self._info.endpoint)
        else:
            log.error("the kubelet refuses this plugin; it will try again", driver=self._info.name, error=status.error)
        return wire.RegistrationStatusResponse()
