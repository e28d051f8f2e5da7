"""The agent as a process, over its real door: lending, ending, crashing, and what it refuses. Needs root."""

import asyncio
import contextlib
import json
import signal
import ssl
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
from tests.fakes.lender import Lender, an_attach, refusal, state

ATTACHED, LOST, RELEASING, RELEASED, FAILED = (
    wire.ATTACHED,
    wire.LOST,
    wire.RELEASING,
    wire.RELEASED,
    wire.FAILED,
)
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
    return await state(api, await api.Attach(an_attach(key, device, **difference)), ATTACHED)


async def trusted(pool: Lender, node: stubs.PoolStub, made: wire.Lease) -> ssl.SSLContext:
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
async def client(pool: Lender, context: ssl.SSLContext) -> Any:
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


async def no_way_in(pool: Lender, context: ssl.SSLContext) -> None:
    with pytest.raises((EOFError, OSError)):
        async with client(pool, context) as ask:
            await ask(say=1)


def refused(kind: lease.Kind) -> Any:
    def check(error: BaseException) -> bool:
        assert isinstance(error, grpc.aio.AioRpcError)
        told = wire.Refusal.Kind.Name(refusal(error).kind)
        return (told, error.code().name) == (kind.value, lease.STATUS[kind])

    return pytest.raises(grpc.aio.AioRpcError, check=check)


def status(code: grpc.StatusCode) -> Any:
    return pytest.raises(grpc.aio.AioRpcError, check=lambda error: error.code() is code)


async def test_a_card_is_lent_reached_through_the_door_and_given_back(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        cards = await api.ListDevices(wire.ListDevicesRequest(page_size=1))
        assert [card.device_id for card in cards.devices] == ["gpu-0"]
        following = await api.ListDevices(wire.ListDevicesRequest(page_size=1, page_token=cards.next_page_token))
        assert [card.device_id for card in following.devices] == ["gpu-1"]
        made = await lent(api)
        assert (made.endpoint.port, made.endpoint.protocol, made.endpoint.auth_modes) == (pool.port, "fake", ["mtls"])
        async with client(pool, await trusted(pool, node, made)) as ask:
            told = await ask(say="hello")
            assert (told["said"], told["card"], told["uid"]) == ("hello", "GPU-0", 64000)
            assert (await ask(multiply=[[[1, 2]], [[3], [4]]]))["product"] == [[11]]
        await api.Detach(detaching(made))
        over = await state(api, made, RELEASED)
        assert over.reason == "detached"
        again = await lent(api, "k2")
        assert again.fencing_token > made.fencing_token


async def test_a_session_ends_with_its_lease_and_its_certificate_is_worth_nothing_after(tmp_path: Path) -> None:
    """Row 19: a fenced node that comes back computes no more."""
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        context = await trusted(pool, node, made)
        async with client(pool, context) as ask:
            await ask(say=1)
            fence = wire.FenceRequest(
                owner=OWNER, device=wire.DeviceFence(device_id="gpu-0", up_to_token=made.fencing_token)
            )
            (ending,) = (await api.Fence(fence)).leases
            assert ending.state == RELEASING
            with pytest.raises((EOFError, OSError)):
                await ask(say=2)
        await state(api, made, RELEASED)
        second = await lent(api, "k2")
        await no_way_in(pool, context)
        async with client(pool, await trusted(pool, node, second)) as ask:
            assert (await ask(say=3))["said"] == 3


async def test_row_12(tmp_path: Path) -> None:
    """The server dies while its pod runs: the lease is lost, and stays so."""
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        context = await trusted(pool, node, made)
        async with client(pool, context) as ask:
            with pytest.raises((EOFError, OSError)):
                await ask(die=9)
        lost = await state(api, made, LOST)
        assert lost.reason == "the server ended with status 9"
        assert not lost.HasField("endpoint")
        await no_way_in(pool, context)
        (renewal,) = (await node.RenewLeases(wire.RenewLeasesRequest(leases=[ref(made)]))).renewals
        assert (renewal.renewed, renewal.lease.state) == (False, LOST)
        assert (await api.Attach(an_attach())).state == LOST


async def test_row_13(tmp_path: Path) -> None:
    """The host restarts: another incarnation, and the old certificate leads nowhere."""
    async with Lender(tmp_path) as pool:
        async with pool.controller() as api, pool.node("n1") as node:
            before = await api.GetPoolInfo(wire.GetPoolInfoRequest())
            made = await lent(api)
            context = await trusted(pool, node, made)
        await pool.stop(signal.SIGKILL)
        await pool.start()
        async with pool.controller() as api:
            after = await api.GetPoolInfo(wire.GetPoolInfoRequest())
            assert after.incarnation > before.incarnation
            lost = await api.GetLease(ref(made))
            assert (lost.state, lost.fencing_token) == (LOST, made.fencing_token)
            await no_way_in(pool, context)
            with refused(lease.Kind.HELD):
                await api.Attach(an_attach("k2"))
            await api.Detach(detaching(made))
            await state(api, made, RELEASED)
            assert (await lent(api, "k2")).fencing_token > made.fencing_token
