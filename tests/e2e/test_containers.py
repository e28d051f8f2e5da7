"""A pool's host as a container of our own image: paused, cut off and killed, and what the controller makes of it."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api import remote as kinds
from controller import poolapi
from tests.e2e.containers import Host, a_host
from tests.fakes import secrets
from tests.fakes.remotes import CLUSTER_UID, POOLS, Cluster, a_cluster

pytestmark = pytest.mark.e2e


class Cards:
    devices = ("gpu-real0000", "gpu-real0001")


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    folder = Path(tempfile.mkdtemp(prefix="egpu-", dir="/var/tmp"))
    try:
        async with a_host(folder) as host:
            yield host
    finally:
        shutil.rmtree(folder)


async def _lending(cluster: Cluster, host: Host) -> kinds.PoolSpec:
    cluster.credentials = await host.certificate(CLUSTER_UID)
    spec = {"endpoint": host.endpoint, "caBundle": (cluster.credentials / "ca.crt").read_text()}
    cluster.server.put(f"{POOLS}/lab", {"spec": spec})
    await host.start()
    return kinds.PoolSpec(endpoint=spec["endpoint"], ca_bundle=spec["caBundle"])


async def _balanced(cluster: Cluster, spec: kinds.PoolSpec, *held: str) -> None:
    """By the pool's own word."""
    asked = poolapi.PoolAPI("lab", spec, cluster.credentials, CLUSTER_UID, cluster.epoch)
    leases, _ = await asked.leases()
    await asked.close()
    assert sorted(one.device for one in leases) == sorted(held)


@pytest.mark.parametrize("how", ["paused", "cut_off"])
async def test_row_02_and_27_a_host_that_does_not_answer_loses_nothing_and_attaches_when_it_is_back(
    tmp_path: Path, host: Host, how: str
) -> None:
    async with a_cluster(tmp_path) as cluster:
        spec = await _lending(cluster, host)
        async with cluster.controller(remote_fresh_s=2):
            cluster.claim("a", Cards, 0)  # type: ignore[arg-type]
            await cluster.until(lambda: cluster.condition("a", "attached"), within_s=60)
            async with getattr(host, how)():
                gone = {"unreachable"}
                await cluster.until(lambda: all(one == gone for one in cluster.taints().values()), within_s=60)
                cluster.claim("b", Cards, 1)  # type: ignore[arg-type]
                await cluster.until(lambda: sorted(cluster.phases()) == ["Attached", "Attaching"], within_s=60)
                assert cluster.condition("a", "healthy")
            await cluster.until(lambda: cluster.condition("b", "attached"), within_s=60)
            await cluster.until(lambda: not any(cluster.taints().values()), within_s=60)
            await _balanced(cluster, spec, *Cards.devices)
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.phases() == ["Attached"], within_s=60)
            await _balanced(cluster, spec, Cards.devices[1])
    secrets.none_below(tmp_path)


async def test_row_13_a_host_that_is_killed_has_lost_what_it_lent(tmp_path: Path, host: Host) -> None:
    async with a_cluster(tmp_path) as cluster:
        spec = await _lending(cluster, host)
        async with cluster.controller():
            cluster.claim("a", Cards, 0)  # type: ignore[arg-type]
            await cluster.until(lambda: cluster.condition("a", "attached"), within_s=60)
            await host.kill()
            await host.start()
            await cluster.until(lambda: cluster.phases() == ["Lost"], within_s=60)
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.phases() == [], within_s=60)
            cluster.claim("b", Cards, 0)  # type: ignore[arg-type]
            await cluster.until(lambda: cluster.condition("b", "attached"), within_s=60)
            await _balanced(cluster, spec, Cards.devices[0])
    secrets.none_below(tmp_path)
