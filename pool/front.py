"""The one door of the pool: TLS, and behind it the pool's API and the servers of the leases.

    certificate of a live lease  -> the server of that lease, and nothing else
    certificate of a controller  -> the API, as that cluster's controller
    no certificate               -> the API, where a node shows its token

What must stay true: a connection to a server lives no longer than its lease: `cut` ends it before anybody is told; a
certificate that is expired, foreign or of another token gets nothing; who has not proven who he is keeps nobody out, for
few such connections wait, and not for long. What passes is not looked at and not kept.
"""

import asyncio
import collections
import contextlib
import datetime
import functools
import itertools
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import structlog

from api import errors
from pool import credentials, servers

_PATIENCE_S = 15.0
"""So long a connection may take to prove whose it is: by a certificate, or by a call with a token that the cluster knows."""
_STRANGERS = 256
"""So many that have not may wait at once."""
_CHUNK = 2**18
_CONNECTIONS = 256
"""Of a lease, or of a node."""
_BACKLOG = 512
_AGAIN_S = 0.1
_TELL_S = 60.0
_log = structlog.get_logger("pool")

Admit = Callable[[credentials.Bearer], servers.Server]
"""The server of a lease. Raises an error of ours where its bearer may not go there."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Known = Callable[[], None]
"""Says that a connection is a stranger's no more."""


class Front:
    """`api`: the socket that serves the pool's API. `now`: the clock that certificates are judged by."""

    def __init__(self, *, admit: Admit, api: Path, now: credentials.Clock) -> None:
        self._admit = admit
        self._api = api
        self._now = now
        self._numbers = itertools.count(1)
        self._secret = secrets.token_hex(8)
        self._callers: dict[str, tuple[str, asyncio.StreamWriter, Known]] = {}
        self._open: dict[str, set[asyncio.StreamWriter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], str] = {}
        """Where they come from, the oldest first."""
        self._tell_again = 0.0

    def cluster(self, peer: str) -> str | None:
        """Whose controller is at the other end of an API connection, by the peer that gRPC names.

        Empty: nobody's certificate. None: the connection did not come through this door.
        """
        found = self._callers.get(peer.removeprefix("unix-abstract:"))
        return None if found is None else found[0]

    def known(self, peer: str, node: str) -> None:
        """A call over that API connection has proven which node it is of. Raises Conflict where that has too many."""
        found = self._callers.get(peer.removeprefix("unix-abstract:"))
        if found is not None:
            self._admitted(f"node {node}", found[1])
            found[2]()

    def cut(self, lease_id: str) -> None:
        """Ends the lease's connections at once."""
        for writer in self._open.pop(lease_id, ()):
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Gives the port. Raises Conflict where it is taken."""
        try:
            listeners = await asyncio.to_thread(_listeners, host, port)
        except OSError as error:
            raise errors.Conflict(f"{host or '*'}:{port} cannot be served: {error}; set another EGPU_LISTEN") from error
        accepting = [asyncio.create_task(self._accept(one, context), name="door") for one in listeners]
        try:
            yield listeners[0].getsockname()[1]
        finally:
            ending = (*accepting, *self._tasks)
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)
            for one in listeners:
                one.close()

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        while True:
            try:
                line, address = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:  # no file is left for it: one that waits without a name makes room
                _log.warning("nobody more can be let in for the moment", reason=str(error))
                self._turn_away()
                await asyncio.sleep(_AGAIN_S)
                continue
            task = asyncio.create_task(self._serve(line, str(address[0]), context), name="connection")
            self._tasks.add(task)
            self._strangers[task] = str(address[0])
            task.add_done_callback(functools.partial(self._gone, line))
            if len(self._strangers) > _STRANGERS:
                self._turn_away()

    def _gone(self, line: socket.socket, task: asyncio.Task[None]) -> None:
        line.close()  # also where the task had not begun
        self._tasks.discard(task)
        self._strangers.pop(task, None)

    def _turn_away(self) -> None:
        """The oldest stranger of the address that has most: whoever opens many stands in his own way first."""
        many = collections.Counter(self._strangers.values())
        most = max(many.values(), default=0)
        for task, host in self._strangers.items():
            if many[host] == most:
                del self._strangers[task]
                task.cancel()
                break
        else:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._tell_again:
            self._tell_again = now + _TELL_S
            _log.warning("many connections prove nothing; the oldest are cut", most_from=host, of_those=most)

    async def _serve(self, line: socket.socket, host: str, context: ssl.SSLContext) -> None:
        writer, task = None, asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(_PATIENCE_S) as patience:
                outside = await _secured(line, context)
                writer = outside[1]
                await self._lead(outside, functools.partial(self._met, task, patience))
        except (errors.ElasticGPUError, OSError) as error:
            reason = str(error) or f"it has not proven whose it is in {_PATIENCE_S:g} s"
            (_log.info if writer else _log.debug)("connection refused", peer=host, reason=reason)
        finally:
            if writer is not None:
                writer.transport.abort()

    def _met(self, task: asyncio.Task[Any], patience: asyncio.Timeout) -> None:
        self._strangers.pop(task, None)
        if not patience.expired():
            patience.reschedule(None)

    async def _lead(self, outside: Streams, known: Known) -> None:
        certificate = outside[1].get_extra_info("peercert") or {}
        uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        who = credentials.bearer(uris) if certificate else credentials.Bearer()
        if who.lease:
            await self._to_server(who, outside, known)
        else:
            await self._to_api(who.cluster, outside, known, certificate.get("notAfter"))

    def _admitted(self, whose: str, writer: asyncio.StreamWriter) -> None:
        held = self._open.setdefault(whose, set())
        if len(held - {writer}) >= _CONNECTIONS:
            raise errors.Conflict(f"{whose} has {_CONNECTIONS} connections already; close some")
        held.add(writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        """Whoever has no connection left is not remembered: nodes come and go."""
        for whose, held in tuple(self._open.items()):
            held.discard(writer)
            if not held:
                del self._open[whose]

    async def _to_server(self, who: credentials.Bearer, outside: Streams, known: Known) -> None:
        server = self._admit(who)
        known()
        self._admitted(who.lease, outside[1])
        try:
            inside = await server.connect()
            try:
                self._admit(who)  # its lease may have ended while we connected
                await _pipe(outside, inside)
            finally:
                inside[1].transport.abort()
        finally:
            self._close(outside[1])

    async def _to_api(self, cluster: str, outside: Streams, known: Known, until: str | None) -> None:
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
        self._callers[name] = cluster, outside[1], known
        left = None
        if until is not None:
            known()
            end = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(until), datetime.UTC)
            left = max((end - self._now()).total_seconds(), 0)
        try:
            async with asyncio.timeout(left):
                await _pipe(outside, inside)
        except TimeoutError:
            _log.info("a controller's certificate has run out", cluster=cluster)
        finally:
            del self._callers[name]
            self._close(outside[1])
            inside[1].transport.abort()


def _listeners(host: str, port: int) -> list[socket.socket]:
    """One for each address of the name; without a name, one for all of this host."""
    if not host and socket.has_dualstack_ipv6():
        found = [socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)]
    else:
        with contextlib.ExitStack() as opened:
            addresses = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104
            found = [
                opened.enter_context(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
                for family, _, _, _, address in addresses
            ]
            opened.pop_all()
    for one in found:
        one.setblocking(False)
    return found


async def _secured(line: socket.socket, context: ssl.SSLContext) -> Streams:
    """The connection after its TLS handshake."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, line, ssl=context, ssl_handshake_timeout=_PATIENCE_S
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


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
