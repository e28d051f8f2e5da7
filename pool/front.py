"""The one door of the pool: TLS, and behind it the pool's API and the servers of the leases.

    certificate of a live lease  -> the server of that lease, and nothing else
    certificate of a controller  -> the API, as that cluster's controller
    no certificate               -> the API, where a node shows its token

What must stay true: a connection to a server lives no longer than its lease: `cut` ends it before anybody is told; a
certificate that is expired, foreign or of another token gets nothing. What passes is not looked at and not kept.
"""

import asyncio
import contextlib
import datetime
import itertools
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from api import errors
from pool import credentials, servers

_HANDSHAKE_S = 10
_CHUNK = 2**18
_CONNECTIONS = 256  # a lease
_log = structlog.get_logger("pool")

Admit = Callable[[credentials.Bearer], servers.Server]
"""The server of a lease. Raises an error of ours where its bearer may not go there."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Front:
    """`api`: the socket that serves the pool's API. `now`: the clock that certificates are judged by."""

    def __init__(self, *, admit: Admit, api: Path, now: credentials.Clock) -> None:
        self._admit = admit
        self._api = api
        self._now = now
        self._numbers = itertools.count(1)
        self._secret = secrets.token_hex(8)
        self._callers: dict[str, str] = {}
        self._open: dict[str, set[asyncio.StreamWriter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def cluster(self, peer: str) -> str | None:
        """Whose controller is at the other end of an API connection, by the peer that gRPC names.

        Empty: nobody's certificate. None: the connection did not come through this door.
        """
        return self._callers.get(peer.removeprefix("unix-abstract:"))

    def cut(self, lease_id: str) -> None:
        """Ends the lease's connections at once."""
        for writer in self._open.pop(lease_id, ()):
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Gives the port. Raises Conflict where it is taken."""
        try:
            server = await asyncio.start_server(
                self._take, host or None, port, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S, backlog=512
            )
        except OSError as error:
            raise errors.Conflict(f"{host or '*'}:{port} cannot be served: {error}; set another EGPU_LISTEN") from error
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await server.wait_closed()

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            certificate = writer.get_extra_info("peercert") or {}
            uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
            who = credentials.bearer(uris) if certificate else credentials.Bearer()
            if who.lease:
                await self._to_server(who, (reader, writer))
            else:
                await self._to_api(who.cluster, (reader, writer), certificate.get("notAfter"))
        except (errors.ElasticGPUError, OSError) as error:
            _log.info("connection refused", peer=str(writer.get_extra_info("peername")), reason=str(error))
        finally:
            writer.transport.abort()

    async def _to_server(self, who: credentials.Bearer, outside: Streams) -> None:
        server = self._admit(who)
        held = self._open.setdefault(who.lease, set())
        if len(held) >= _CONNECTIONS:
            raise errors.Conflict(f"lease {who.lease} has {_CONNECTIONS} connections already; close some")
        held.add(outside[1])
        try:
            inside = await server.connect()
            try:
                self._admit(who)  # its lease may have ended while we connected
                await _pipe(outside, inside)
            finally:
                inside[1].transport.abort()
        finally:
            held.discard(outside[1])

    async def _to_api(self, cluster: str, outside: Streams, until: str | None) -> None:
        """The name of our end tells the API who calls."""
        name = f"egpu-pool-{self._secret}-{next(self._numbers)}"
        door = socket.socket(socket.AF_UNIX)
        door.setblocking(False)
        try:
            door.bind(f"\0{name}")
            await asyncio.get_running_loop().sock_connect(door, str(self._api))
            inside = await asyncio.open_connection(sock=door)
        except BaseException:
            door.close()
            raise
        self._callers[name] = cluster
        left = None
        if until is not None:
            end = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(until), datetime.UTC)
            left = max((end - self._now()).total_seconds(), 0)
        try:
            async with asyncio.timeout(left):
                await _pipe(outside, inside)
        except TimeoutError:
            _log.info("a controller's certificate has run out", cluster=cluster)
        finally:
            del self._callers[name]
            inside[1].transport.abort()


async def _pipe(one: Streams, other: Streams) -> None:
    """Both ways until either ends: TLS has no half."""
    ways = [
        asyncio.create_task(_pass(one[0], other[1]), name="in"),
        asyncio.create_task(_pass(other[0], one[1]), name="out"),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
