"""Relays for clients that show no certificate: plain inside the pod's own network namespace, mTLS from the node on.

    texts beside credentials -> pods' processes -> a listener on each pod's loopback
    client in the pod -> listener -> TLS with the lease's credential, the pool's key pinned -> the lease's server

A process of its own, so that an update of the driver ends no session; it asks neither API server nor pool. What must stay
true: the credential is read here and never seen in the pod; a text that is gone ends its listeners and connections.
"""

import asyncio
import contextlib
import hashlib
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from api import errors
from driver.remote import netns, relays
from driver.remote import settings as chosen
from kube import program

_LOOK_S = 0.1
_CONNECT_S = 10.0
_QUIET_S = 0.5
"""TCP does not tell who closed from who only says no more: the rest of an answer may pause so long. A server that takes one
client after another, as ggml's, is held up by no more than that.
"""
_CHUNK = 2**18
_log = structlog.get_logger()


@dataclass(slots=True)
class _Open:
    """What is open for one text: listeners by pod, and connections."""

    relay: relays.Relay
    listeners: dict[tuple[str, int], asyncio.Server] = field(default_factory=dict)
    connections: set[asyncio.Task[None]] = field(default_factory=set)
    said: set[str] = field(default_factory=set)

    async def close(self) -> None:
        for server in self.listeners.values():
            server.close()
        for task in self.connections:
            task.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)


class Relays:
    """Keeps a listener for each link of each text below `directory`, in each of its pods that is there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[Path, _Open] = {}

    async def run(self) -> None:
        """Works until it is cancelled."""
        try:
            while True:
                await self._turn()
                await asyncio.sleep(_LOOK_S)
        finally:
            for found in self._open.values():
                await found.close()

    async def _turn(self) -> None:
        wanted = await asyncio.to_thread(_read, self._directory)
        for path in [path for path, kept in self._open.items() if wanted.get(path) != kept.relay]:
            await self._open.pop(path).close()
        for path, relay in wanted.items():
            self._open.setdefault(path, _Open(relay))
        waiting = {
            pod
            for kept in self._open.values()
            for pod in kept.relay.pods
            if any((pod, link.port) not in kept.listeners for link in kept.relay.links)
        }
        for pod, process in (await asyncio.to_thread(netns.pods, waiting)).items():
            for path, kept in self._open.items():
                if pod in kept.relay.pods:
                    await self._listen(path, kept, pod, process)

    async def _listen(self, path: Path, kept: _Open, pod: str, process: int) -> None:
        for link in kept.relay.links:
            if (pod, link.port) in kept.listeners:
                continue
            try:
                made = await asyncio.to_thread(netns.listening, process, link.port)
            except errors.ElasticGPUError as error:
                if str(error) not in kept.said:
                    kept.said.add(str(error))
                    _log.warning("no listener in a pod", pod=pod, reason=str(error))
                continue

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: relays.Link = link
            ) -> None:
                task = asyncio.current_task()
                assert task is not None
                kept.connections.add(task)
                try:
                    await passed(path.parent, link, reader, writer)
                except (OSError, errors.ElasticGPUError, TimeoutError) as error:
                    _log.warning("connection ended", pod=pod, front=f"{link.host}:{link.front}", reason=str(error))
                finally:
                    kept.connections.discard(task)
                    writer.close()

            kept.listeners[pod, link.port] = await asyncio.start_server(serve, sock=made)
            _log.info("listening in a pod", pod=pod, port=link.port, front=f"{link.host}:{link.front}")


async def passed(folder: Path, link: relays.Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, from the pod to the server of its lease, until both sides are done."""
    trust = await asyncio.to_thread(_context, folder, link.credential)
    async with asyncio.timeout(_CONNECT_S):
        far_reader, far_writer = await asyncio.open_connection(
            link.host, link.front, ssl=trust, server_hostname=link.host
        )
    up = asyncio.create_task(_piped(reader, far_writer))
    down = asyncio.create_task(_piped(far_reader, writer))
    try:
        _pinned(far_writer, link)
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        if up.done() and not down.done():  # TLS cannot say "no more from me": the answer may still be on its way
            down.cancel()
            await asyncio.wait({down})
            await _last_words(far_reader, writer)
        for task in (up, down):
            if task.done() and not task.cancelled():
                task.result()
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        far_writer.close()


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the reader's side has said all."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


async def _last_words(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What comes until the reader's side is quiet; a cancelled read has lost nothing of it."""
    with contextlib.suppress(TimeoutError):
        while data := await asyncio.wait_for(reader.read(_CHUNK), _QUIET_S):
            writer.write(data)
            await writer.drain()


def _context(folder: Path, credential: str) -> ssl.SSLContext:
    """Read for each connection: credentials are renewed in place."""
    number = credential.removeprefix("tls.pem")
    trust = ssl.create_default_context(cafile=str(folder / f"ca.crt{number}"))
    trust.load_cert_chain(folder / credential)
    return trust


def _pinned(writer: asyncio.StreamWriter, link: relays.Link) -> None:
    """Raises Invalid where another key answers than the pool has told of."""
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    key = x509.load_der_x509_certificate(shown).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    found = hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()
    if found != link.spki.lower():
        raise errors.Invalid(f"the server at {link.host}:{link.front} shows another key than the pool has told of")


def _read(directory: Path) -> dict[Path, relays.Relay]:
    found = {}
    for path in directory.glob(f"*/*/{relays.FILE}"):
        with contextlib.suppress(OSError, errors.Corrupt):
            found[path] = relays.decode(path.read_bytes())
    return found


def main() -> None:
    """The entry point `egpu-relay`. EGPU_CREDENTIALS_DIR and EGPU_LOG_LEVEL are those of the driver of remote cards."""
    parser = program.parser("egpu-relay", "Relays for clients that show no certificate.")
    parser.parse_args()
    given = program.begin(parser, chosen.load_relay)
    _log.info("starting", version=program.version(), directory=str(given.credentials_dir), pid=os.getpid())
    program.run(lambda stop: program.until(stop, Relays(given.credentials_dir).run()))


if __name__ == "__main__":
    main()
