"""The program egpu-pool as people and probes meet it. Needs root."""

import asyncio
import datetime
import os
import socket
import sys
from pathlib import Path

import grpc
import pytest

from api import errors, lease
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from pool import credentials
from tests.fakes import lender, ports
from tests.fakes.lender import Lender
from tests.pool.borrowing import lent


async def run(*arguments: str, **environment: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pool", *arguments),
        cwd=lender.ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_help_lists_every_setting() -> None:
    code, said = await run("--help")
    assert code == 0
    assert all(name in said for name in ("EGPU_POOL_ID", "EGPU_PROFILES", "EGPU_REVIEW_URL", "controller-certificate"))


async def test_a_wrong_setting_ends_it_with_the_name_of_the_variable() -> None:
    code, said = await run(EGPU_LISTEN="nowhere")
    assert (code, "EGPU_LISTEN" in said) == (2, True)


async def test_without_profiles_it_says_which_there_are(tmp_path: Path) -> None:
    code, said = await run(EGPU_STATE_DIR=str(tmp_path / "state"))
    assert (code, "EGPU_PROFILES is empty; known: cricket, fake, ggml-rpc, lupine" in said) == (1, True)


async def test_a_door_that_is_taken_ends_it_with_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AssertionError, match=f"127.0.0.1:{port} cannot be served"):
            async with Lender(tmp_path, EGPU_LISTEN=f"127.0.0.1:{port}"):
                pass


async def test_the_certificate_that_it_makes_for_a_controller_is_the_one_it_takes(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool:
        folder = tmp_path / "made"
        code, said = await run(
            *("controller-certificate", "cluster-9", str(folder)), EGPU_STATE_DIR=str(pool.state), EGPU_PROFILES="fake"
        )
        assert code == 0, said
        assert {path.name for path in folder.iterdir()} == {"tls.crt", "tls.key", "ca.crt"}
        assert (folder / "tls.key").stat().st_mode & 0o77 == 0
        assert (folder / "ca.crt").read_bytes() == (pool.state / "ca.pem").read_bytes()
        async with pool.channel((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes()) as channel:
            told = await stubs.PoolStub(channel).ListLeases(wire.ListLeasesRequest())
            assert list(told.leases) == []


async def test_an_authority_of_ones_own_is_used_and_never_made_up(tmp_path: Path) -> None:
    own = tmp_path / "own"
    credentials.Authority.load(own, lender.now)
    async with Lender(tmp_path, EGPU_AUTHORITY_DIR=str(own)) as pool:
        assert not (pool.state / "ca.key").exists()
        authority = credentials.Authority.load(own, lender.now)
        certificate, key = authority.for_controller(lender.CLUSTER)
        trust = grpc.ssl_channel_credentials(authority.pem, key, certificate)
        async with grpc.aio.secure_channel(f"127.0.0.1:{pool.port}", trust) as channel:
            await stubs.PoolStub(channel).GetPoolInfo(wire.GetPoolInfoRequest())
    with pytest.raises(errors.Invalid, match="must be a certificate and its key"):
        credentials.Authority.load(tmp_path / "nothing", lender.now, make=False)
    assert not (tmp_path / "nothing").exists()


async def test_probes_and_series(tmp_path: Path) -> None:
    port = ports.free()
    async with Lender(tmp_path, EGPU_METRICS_PORT=str(port)) as pool, pool.controller() as api:
        await lent(api)

        async def get(target: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
            text = (await reader.read()).decode()
            writer.close()
            return text

        assert "200 OK" in await get("/healthz")
        assert "200 OK" in await get("/readyz")
        assert "404" in await get("/")
        series = await get("/metrics")
        assert 'elasticgpu_pool_leases{state="ATTACHED"} 1.0' in series
        assert 'elasticgpu_pool_devices{state="OFFERED"} 2.0' in series
        assert 'elasticgpu_pool_calls_total{method="attach",status="OK"} 1.0' in series
        assert 'elasticgpu_pool_renewals_total{renewed="true"} 0.0' in series


def test_a_certificate_of_a_lease_names_it_its_token_and_its_claim(tmp_path: Path) -> None:
    who = credentials.bearer(["urn:elasticgpu:lease:lease-a:token:7", "urn:elasticgpu:claim:u", "spiffe://other"])
    assert who == credentials.Bearer(lease="lease-a", token=7, claim="u")
    assert credentials.bearer([f"{lease.CLUSTER_URI}c"]) == credentials.Bearer(cluster="c")
    for uris in (
        [],
        ["urn:elasticgpu:lease:lease-a:token:7"],
        ["urn:elasticgpu:lease:lease-a:token:x", "urn:elasticgpu:claim:u"],
        ["urn:elasticgpu:lease:lease-a", "urn:elasticgpu:claim:u"],
        [f"{lease.CLUSTER_URI}c", "urn:elasticgpu:claim:u"],
    ):
        with pytest.raises(errors.Invalid, match="for no lease and no controller"):
            credentials.bearer(uris)


async def test_a_controllers_connection_ends_with_its_certificate(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool:
        soon = datetime.timedelta(days=365, seconds=-10)
        authority = credentials.Authority.load(pool.state, lambda: lender.now() - soon)
        certificate, key = authority.for_controller(lender.CLUSTER)
        async with pool.channel(certificate, key) as channel:
            watch = stubs.PoolStub(channel).WatchLeases(wire.WatchRequest())
            with pytest.raises(grpc.aio.AioRpcError, check=lambda error: error.code() is grpc.StatusCode.UNAVAILABLE):
                await watch.read()
    assert "a controller's certificate has run out" in pool.said
