"""What the relay carries between a client and the server of its lease, and when it lets go. Real TLS on loopback."""

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from driver.remote import relay, relays
from tests.fakes.authority import Authority

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def relayed(folder: Path, serve: Serve) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    """A relay before a server that knows its clients by certificate; gives the way to connect to it."""
    authority = Authority()
    key, certificate = authority.issued("front", hosts=("127.0.0.1",))
    (folder / "front.pem").write_bytes(certificate + key)
    lease_key, lease_certificate = authority.issued("lease", uris=("urn:elasticgpu:lease:l:1",))
    (folder / "tls.pem").write_bytes(lease_certificate + lease_key)
    (folder / "ca.crt").write_text(authority.pem)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    trust.verify_mode = ssl.CERT_REQUIRED
    trust.load_cert_chain(folder / "front.pem")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = x509.load_pem_x509_certificate(certificate).public_key()
    spki = hashlib.sha256(public.public_bytes(serialization.Encoding.DER, form)).hexdigest()
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=trust) as front:
        port = front.sockets[0].getsockname()[1]
        link = relays.Link(port=0, host="127.0.0.1", front=port, spki=spki, credential="tls.pem")

        carried: list[asyncio.Task[None]] = []

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await relay.passed(folder, link, reader, writer)
            finally:
                writer.close()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            carried.append(asyncio.create_task(carry(reader, writer)))

        async with await asyncio.start_server(take, "127.0.0.1", 0) as door:
            near = door.sockets[0].getsockname()[1]
            yield lambda: asyncio.open_connection("127.0.0.1", near)
            await asyncio.gather(*carried)


async def test_a_client_that_goes_makes_room_for_the_next_at_a_server_that_takes_one_at_a_time(tmp_path: Path) -> None:
    """As ggml's server does. A relay that lingered for a minute each would not be through."""
    turn = asyncio.Lock()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with turn:
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
            writer.close()

    async with asyncio.timeout(60), relayed(tmp_path, serve) as connect:
        for number in range(3):
            reader, writer = await connect()
            writer.write(b"%d\n" % number)
            assert await reader.readline() == b"%d\n" % number
            writer.close()


async def test_an_answer_in_pieces_arrives_whole_though_the_client_has_said_that_it_says_no_more(
    tmp_path: Path,
) -> None:
    said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await said.wait()
        for _ in range(64):
            writer.write(bytes(2**16))
            await writer.drain()
        writer.close()

    async with relayed(tmp_path, serve) as connect:
        reader, writer = await connect()
        writer.write(b"all of it\n")
        writer.write_eof()
        said.set()
        assert len(await reader.read(-1)) == 64 * 2**16
        writer.close()
