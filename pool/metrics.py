"""What the pool tells Prometheus, and its port: /metrics, /healthz, /readyz."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api import errors, lease, names
from pool import devices, leases

_PREFIX = names.METRIC_PREFIX + "pool_"
_LIMIT_S = 5


class Metrics:
    """The series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.calls = prometheus_client.Counter(
            _PREFIX + "calls", "Calls of the pool's API.", ["method", "status"], registry=self.registry
        )
        self.renewals = prometheus_client.Counter(
            _PREFIX + "renewals", "Leases renewed, or not.", ["renewed"], registry=self.registry
        )
        self.attach = prometheus_client.Histogram(
            _PREFIX + "attach_seconds", "From Attach to ATTACHED.", registry=self.registry
        )
        for renewed in ("true", "false"):
            self.renewals.labels(renewed)

    def show(self, table: Callable[[], leases.Table], cards: Callable[[], tuple[devices.Device, ...]]) -> None:
        """The table as it is when asked."""
        self.registry.register(_Table(table, cards))


class _Table(Collector):
    def __init__(self, table: Callable[[], leases.Table], cards: Callable[[], tuple[devices.Device, ...]]) -> None:
        self._table = table
        self._cards = cards

    def collect(self) -> Iterator[GaugeMetricFamily]:
        table, cards = self._table(), self._cards()
        held = GaugeMetricFamily(_PREFIX + "leases", "Leases that hold a card, by state.", labels=["state"])
        live = [table.leases[id_].state for id_ in table.holders.values()]
        for state in lease.State:
            if not state.ended:
                held.add_metric([state.value], live.count(state))
        yield held
        offered = GaugeMetricFamily(_PREFIX + "devices", "Cards of the pool, by state.", labels=["state"])
        for kind in devices.State:
            offered.add_metric([kind.value], sum(card.state is kind for card in cards))
        yield offered


@contextlib.asynccontextmanager
async def door(
    port: int, registry: prometheus_client.CollectorRegistry, unready: Callable[[], str]
) -> AsyncIterator[None]:
    """Listens inside the block; 0 switches it off. `unready` says what is missing, or nothing."""
    if not port:
        yield
        return

    def answer(target: str) -> tuple[str, bytes]:
        match target.partition("?")[0]:
            case "/metrics":
                text = prometheus_client.generate_latest(prometheus_client.REGISTRY)
                return "200 OK", text + prometheus_client.generate_latest(registry)
            case "/healthz":
                return "200 OK", b"ok\n"
            case "/readyz":
                missing = unready()
                return ("503 Service Unavailable", f"{missing}\n".encode()) if missing else ("200 OK", b"ok\n")
        return "404 Not Found", b"there are /metrics, /healthz and /readyz\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_LIMIT_S):
                request = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                status, body = answer(request[1].decode(errors="replace") if len(request) > 1 else "")
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, None, port)
    except OSError as error:
        raise errors.Conflict(f"port {port} for metrics and probes: {error}; set another EGPU_METRICS_PORT") from error
    async with server:
        yield
