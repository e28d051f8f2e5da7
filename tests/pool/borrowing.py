"""What the tests of the agent do as controller, node and client."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from tests.fakes import lender

ATTACHING, ATTACHED, LOST = wire.ATTACHING, wire.ATTACHED, wire.LOST
RELEASING, RELEASED, FAILED = wire.RELEASING, wire.RELEASED, wire.FAILED
OWNER = wire.Owner(cluster_uid=lender.CLUSTER, controller_epoch=1)


def a_key() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "whoever")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return key, request.public_bytes(serialization.Encoding.PEM)


def ref(made: wire.Lease) -> wire.LeaseRef:
    return wire.LeaseRef(lease_id=made.lease_id, fencing_token=made.fencing_token)


def detaching(made: wire.Lease) -> wire.DetachRequest:
    return wire.DetachRequest(lease_id=made.lease_id, fencing_token=made.fencing_token, owner=OWNER)


async def lent(api: stubs.PoolStub, key: str = "k1", device: str = "gpu-0", **difference: Any) -> wire.Lease:
    return await lender.state(api, await api.Attach(lender.an_attach(key, device, **difference)), ATTACHED)


async def trusted(pool: lender.Lender, node: stubs.PoolStub, made: wire.Lease) -> ssl.SSLContext:
    """What a node makes for a client: its own key, the certificate for it, the pool's authority."""
    key, csr = a_key()
    got = await node.IssueCredential(
        wire.IssueCredentialRequest(lease_id=made.lease_id, fencing_token=made.fencing_token, csr=csr)
    )
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    chain = pool.folder / f"client-{made.lease_id}.pem"
    chain.write_bytes(got.certificate + private)
    context = ssl.create_default_context(cadata=got.authorities.decode())
    context.load_cert_chain(chain)
    return context


@contextlib.asynccontextmanager
async def client(
    pool: lender.Lender, context: ssl.SSLContext
) -> AsyncIterator[Callable[..., Awaitable[dict[str, Any]]]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", pool.port, ssl=context)

    async def ask(**call: Any) -> dict[str, Any]:
        writer.write(json.dumps(call).encode() + b"\n")
        line = await reader.readline()
        if not line:
            raise EOFError
        told: dict[str, Any] = json.loads(line)
        return told

    try:
        yield ask
    finally:
        writer.transport.abort()


async def no_way_in(pool: lender.Lender, context: ssl.SSLContext) -> None:
    with pytest.raises((EOFError, OSError)):
        async with client(pool, context) as ask:
            await ask(say=1)


def refused(kind: lease.Kind) -> Any:
    def check(error: BaseException) -> bool:
        assert isinstance(error, grpc.aio.AioRpcError)
        told = wire.Refusal.Kind.Name(lender.refusal(error).kind)
        return (told, error.code().name) == (kind.value, lease.STATUS[kind])

    return pytest.raises(grpc.aio.AioRpcError, check=check)


def status(code: grpc.StatusCode) -> Any:
    return pytest.raises(grpc.aio.AioRpcError, check=lambda error: error.code() is code)


async def launcher(agent: int) -> int:
    """The launcher below a process, from when it has told its server's number and only watches."""
    while not (found := [pid for pid in children(agent) if watches(pid)]):  # noqa: ASYNC110  a process tells nobody
        await asyncio.sleep(0.01)
    return found[0]


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def watches(pid: int) -> bool:
    if b"launcher.py" not in Path(f"/proc/{pid}/cmdline").read_bytes() or not children(pid):
        return False
    kept = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.name != "0"]
    return (
        len({place for place in kept if place.startswith("pipe:")}) == 1
    )  # its words; the one for the number is closed
