"""What the node driver counts, and the one small HTTP door for Prometheus and for the kubelet's probes.

/metrics   the series      /healthz   the event loop answers      /readyz   the kubelet has registered us, or why not
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api import errors, names
from driver import booking, records, usage

CARDS = Gauge(f"{names.METRIC_PREFIX}cards", "Cards of this node by health", ("health",))
CARDS_READ = Gauge(f"{names.METRIC_PREFIX}cards_read", "1 while the cards of this node can be read")
STEP_SECONDS = Histogram(
    f"{names.METRIC_PREFIX}step_seconds",
    "Seconds of each step of preparing and unpreparing a claim",
    ("step",),
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 10),
)
SET_ASIDE = Counter(
    f"{names.METRIC_PREFIX}records_set_aside", "Claim records that could not be read and were set aside"
)
REPAIRED = Counter(
    f"{names.METRIC_PREFIX}cdi_files_repaired", "CDI files that were missing or changed and were put back"
)

USE_READ = Gauge(
    f"{names.METRIC_PREFIX}card_use_read", "1 while what a card's processes use can be read", ("card_uuid",)
)
MPS_SERVING = Gauge(
    f"{names.METRIC_PREFIX}mps_serving",
    "1 while the MPS daemon of this node serves clients; no series where the node is not set up for it",
    ("program",),
)
MPS_STARTS = Counter(f"{names.METRIC_PREFIX}mps_starts", "Starts of the MPS daemon", ("program",))
SHARES_STORED = Gauge(
    f"{names.METRIC_PREFIX}shares_stored",
    "1 while the API server stores that cards can be shared; 0: it leaves those fields out, and only whole cards are offered",
)
SHARES_STORED.set(1)

for _step in ("intent", "write CDI file", "done", "remove CDI file", "remove record"):
    STEP_SECONDS.labels(_step)

_LIMIT_S = 5.0
_CLAIM = ("claim_uid", "claim_namespace", "claim_name", "card_uuid", "device")
_LABELS = (*_CLAIM, "phase", "admin_access")
_SHARE = (*_CLAIM, "request", "share_id", "backend")

Held = Callable[[], Iterable[records.Record]]


class Measured(Protocol):
    """What is used, and when a limit was last seen in force."""

    @property
    def use(self) -> usage.Usage: ...

    @property
    def verified(self) -> Mapping[usage.Key, datetime.datetime]: ...


class Holders(Collector):
    """The claims and the cards they hold, read when somebody asks: nothing to keep up to date (dcgm-exporter#718)."""

    def __init__(self, held: Held, measured: Measured | None = None) -> None:
        self._held = held
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        holds = _family("claim_holds_card", "1 for each card that a claim holds", *_LABELS)
        cores = _family("claim_cores_percent", "Cores of a card that a claim has booked", *_SHARE)
        memory = _family("claim_memory_bytes", "Memory of a card that a claim has booked", *_SHARE)
        held_by = _family(
            "claim_enforcement", "1 for what holds a claim to its part of a card", *_SHARE, "limit", "rung"
        )
        found = self._measured
        used = None if found is None else _Used(found.use)
        limits = None if found is None else _Limits(found.verified)
        for record in tuple(self._held()):
            for holding in record.holdings:
                admin = str(holding.admin_access).lower()
                claim = (record.uid, record.namespace, record.name, holding.card, holding.device)
                holds.add_metric((*claim, record.phase.value, admin), 1)
                if holding.admin_access:
                    continue
                share = (*claim, holding.request, holding.share_id, holding.backend)
                cores.add_metric(share, holding.cores)
                memory.add_metric(share, holding.memory_mib * booking.MIB)
                if used is not None:
                    used.add(share, usage.key(record, holding))
                if holding.backend != "whole":
                    if limits is not None:
                        limits.add(share, usage.key(record, holding), holding)
                    held_by.add_metric((*share, "memory", holding.enforcement), 1)
                    held_by.add_metric((*share, "cores", holding.cores_enforcement), 1)
        yield from (holds, cores, memory, held_by)
        for more in (used, limits):
            yield from () if more is None else more.families()


class _Used:
    """Series of what is used: zero for a share without a process; of a card only while it can be read."""

    def __init__(self, found: usage.Usage) -> None:
        self._found = found
        self._memory = _family("claim_memory_used_bytes", "Memory of a card that a claim's processes use", *_SHARE)
        self._cores = _family("claim_cores_used_percent", "How busy a claim's processes keep a card", *_SHARE)
        self._processes = _family("claim_processes", "Processes of a claim on a card", *_SHARE)

    def add(self, share: tuple[str, ...], key: usage.Key) -> None:
        use = self._found.shares.get(key, usage.Use())
        self._memory.add_metric(share, use.memory_bytes)
        self._cores.add_metric(share, use.cores)
        self._processes.add_metric(share, use.processes)

    def families(self) -> Iterator[Metric]:
        used = _family("card_memory_used_bytes", "Memory of a card that is in use", "card_uuid")
        beyond = _family(
            "card_memory_unbooked_bytes", "Memory of a card that processes use and no claim has booked", "card_uuid"
        )
        for card, use in self._found.cards.items():
            used.add_metric((card,), use.used_bytes)
            beyond.add_metric((card,), use.unbooked_bytes)
        yield from (self._memory, self._cores, self._processes, used, beyond)


class _Limits:
    """Series of what holds shares: the limit where there is one, and when it was last seen in force; 0: not yet."""

    def __init__(self, verified: Mapping[usage.Key, datetime.datetime]) -> None:
        self._verified = verified
        self._limit = _family("claim_memory_limit_bytes", "What a claim's share of a card is held to", *_SHARE)
        self._time = _family(
            "claim_limit_verified_timestamp_seconds", "When a share's limit was last seen in force", *_SHARE
        )

    def add(self, share: tuple[str, ...], key: usage.Key, holding: records.Holding) -> None:
        if holding.enforcement != "none":
            self._limit.add_metric(share, holding.memory_limit_mib * booking.MIB)
        if {holding.enforcement, holding.cores_enforcement} != {"none"}:
            last = self._verified.get(key)
            self._time.add_metric(share, 0 if last is None else last.timestamp())

    def families(self) -> Iterator[Metric]:
        yield from (self._limit, self._time)


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{names.METRIC_PREFIX}{name}", text, labels=labels)


@contextlib.asynccontextmanager
async def door(
    port: int, held: Held, unready: Callable[[], str], measured: Measured | None = None
) -> AsyncIterator[None]:
    """Listens on `port` of every address inside the block; 0 switches it off. `unready` is the reason, or nothing.

    Raises Unavailable if the port is taken.
    """
    holders = Holders(held, measured)
    REGISTRY.register(holders)
    try:
        if not port:
            yield
            return
        try:
            server = await asyncio.start_server(lambda *streams: _serve(unready, *streams), None, port)
        except OSError as error:
            raise errors.Unavailable(
                f"port {port} for metrics and probes: {error}; set another EGPU_METRICS_PORT"
            ) from error
        async with server:
            yield
    finally:
        REGISTRY.unregister(holders)


async def _serve(unready: Callable[[], str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, one answer, and the connection is closed."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_LIMIT_S):
            request = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
            status, body = _answer(request[1].decode(errors="replace") if len(request) > 1 else "", unready())
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
    writer.close()


def _answer(target: str, unready: str) -> tuple[str, bytes]:
    match target.partition("?")[0]:
        case "/metrics":
            return "200 OK", generate_latest()
        case "/healthz":
            return "200 OK", b"ok\n"
        case "/readyz" if unready:
            return "503 Service Unavailable", f"{unready}\n".encode()
        case "/readyz":
            return "200 OK", b"ok\n"
    return "404 Not Found", b"there are /metrics, /healthz and /readyz\n"
