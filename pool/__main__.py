"""The agent's process: the only file that knows all its parts.

    settings --> cards, journal, servers, authority --> Agent
                 one TLS port (Front) --> the servers of leases
                                      --> gRPC on a socket of our own (Service) --> Agent
                 port: /healthz, /readyz, /metrics

SIGTERM ends it in order: no more calls, servers killed, journal closed. Leases outlive it and are LOST at the next start.
`egpu-pool controller-certificate` makes what a controller needs.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import functools
import os
import time
from pathlib import Path

import grpc
import structlog

from api import errors
from api.protos import pool_v1alpha1_pb2 as wire
from driver import nvml
from kube import program
from pool import agent, cards, credentials, front, identity, metrics, servers, service, settings, store

_NVML_LIMIT_S = 10.0
_OPTIONS = (("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.min_ping_interval_without_data_ms", 10_000))
_clock = functools.partial(datetime.datetime.now, datetime.UTC)  # noqa: TID251  the one clock, handed on from here
_log = structlog.get_logger("pool")


def _source(given: settings.Settings) -> cards.Cards:
    if given.cards_file:
        return cards.FileCards(Path(given.cards_file))
    libraries = (Path(given.nvml_library),) if given.nvml_library else ()
    return cards.DriverCards(nvml.NVML(libraries=libraries, limit_s=_NVML_LIMIT_S), Path(given.state_dir) / "drain")


def _authority(given: settings.Settings) -> credentials.Authority:
    folder = Path(given.authority_dir or given.state_dir)
    return credentials.Authority.load(folder, _clock, make=not given.authority_dir)


async def serve(given: settings.Settings) -> None:
    """Works until it is cancelled."""
    state = Path(given.state_dir)
    offered = await asyncio.to_thread(settings.offered, given)
    authority = await asyncio.to_thread(_authority, given)
    names = dict.fromkeys((given.advertise, *given.names, "localhost"))
    context, fingerprint = await asyncio.to_thread(authority.front, names, state)
    series = metrics.Metrics()
    group = Path(given.cgroup) if given.cgroup else None
    worker = agent.Agent(
        kept=store.Store(state),
        source=_source(given),
        runner=lambda lock: servers.Servers(lock=lock, cgroup=group),
        offered=offered,
        limits=agent.Limits(
            ttl_ms=given.ttl_s * 1000,
            longest_ttl_ms=given.longest_ttl_s * 1000,
            look_s=given.look_s,
            first_uid=given.first_uid,
            here=str(Path(__file__).parent),
        ),
        series=series,
        clock_ms=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
        started_s=int(_clock().timestamp()),
    )
    socket = state / "api.sock"
    door = front.Front(admit=worker.admit, api=socket, now=_clock)
    series.show(lambda: worker.table, lambda: tuple(worker.devices.values()))
    async with worker.working(door), contextlib.AsyncExitStack() as stack:
        socket.unlink(missing_ok=True)
        api = grpc.aio.server(options=_OPTIONS)
        stack.push_async_callback(api.stop, 1)
        port = await stack.enter_async_context(door.serving(*given.door, context))
        endpoint = wire.Endpoint(host=given.advertise, port=port, server_spki_sha256=fingerprint)
        calls = service.Service(
            worker=worker,
            door=door,
            nodes=identity.Identity(given.cluster, given.pool_id, time.monotonic),
            authority=authority,
            endpoint=endpoint,
            pool_id=given.pool_id,
            version=program.version(),
            series=series,
        )
        api.add_generic_rpc_handlers(calls.handlers())
        api.add_insecure_port(f"unix:{socket}")
        await api.start()
        await stack.enter_async_context(metrics.door(given.metrics_port, series.registry, lambda: worker.missing))
        _log.info("started", version=program.version(), settings=dataclasses.asdict(given), port=port)
        await asyncio.get_running_loop().create_future()


def _certificate(given: settings.Settings, cluster: str, folder: Path) -> None:
    """What the controller of a cluster shows, and whom it trusts: the three files of a TLS Secret."""
    authority = _authority(given)
    certificate, key = authority.for_controller(cluster)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", authority.pem)):
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(
        "egpu-pool", "Lends the cards of this host by lease. It is set by environment variables:", settings.manual()
    )
    commands = parser.add_subparsers(dest="command", metavar="")
    make = commands.add_parser("controller-certificate", help="make the certificate of a cluster's controller, and end")
    make.add_argument("cluster", help="UID of the cluster's namespace kube-system")
    make.add_argument("folder", type=Path, help="where tls.crt, tls.key and ca.crt are put")
    return parser


def main() -> None:
    """The entry point `egpu-pool`."""
    parser = _parser()
    asked = parser.parse_args()
    given = program.begin(parser, settings.load)
    if not asked.command:
        program.run(lambda stop: program.until(stop, serve(given)))
        return
    try:
        _certificate(given, asked.cluster, asked.folder)
    except errors.Invalid as error:
        parser.exit(2, f"egpu-pool: {error}\n")


if __name__ == "__main__":
    main()
