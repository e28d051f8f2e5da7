"""What users are told of their remote cards, by the whole controller between an API server and a pool."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from controller import __main__ as controller
from controller import settings
from kube import apiserver
from tests.fakes.pool import FakePool
from tests.fakes.remotes import Cluster, a_cluster


@contextlib.asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[None]:
    """A whole controller, stopped as SIGTERM stops it."""
    given = settings.Settings(
        namespace="egpu", pod_name="one", port=0, page_port=0, remote=True, remote_credentials=str(cluster.credentials)
    )
    async with apiserver.APIServer.connect(cluster.server.kubeconfig(cluster.folder)) as api:
        task = asyncio.create_task(controller.serve(api, given), name="controller")
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def said(cluster: Cluster, reason: str) -> dict[str, str]:
    """Kind of the object -> the text of its event of this reason."""
    events = [event for event in cluster.server.list("events") if event["reason"] == reason]
    return {event["involvedObject"]["kind"]: event["message"] for event in events}


def a_pod_of(cluster: Cluster, claim: str) -> None:
    spec = {"nodeName": "node1", "resourceClaims": [{"name": "c", "resourceClaimName": claim}]}
    body = {
        "metadata": {"uid": "uid-pod"},
        "spec": spec | {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
    cluster.server.put("/api/v1/namespaces/default/pods/pod", body)


async def test_claim_and_pod_hear_that_the_card_is_attached_and_later_that_it_is_lost(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with running(cluster):
            cluster.claim("a", pool, 0)
            a_pod_of(cluster, "a")
            await cluster.until(lambda: said(cluster, "CardAttached").keys() == {"Pod", "ResourceClaim"}, within_s=60)
            [held] = pool.live()
            pool.change(held.idempotency_key, "LOST", "XID 79")
            await cluster.until(lambda: said(cluster, "CardLost").keys() == {"Pod", "ResourceClaim"}, within_s=60)
    assert f"card {held.device_id} of pool lab is lost: XID 79;" in said(cluster, "CardLost")["Pod"]
    assert said(cluster, "CardAttached")["Pod"] == f"card {held.device_id} of pool lab is attached for node node1"


async def test_claim_and_pod_hear_why_a_card_was_not_attached(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        pool.fault("Attach", code="INVALID_ARGUMENT", times=-1)
        async with running(cluster):
            cluster.claim("a", pool, 0)
            a_pod_of(cluster, "a")
            await cluster.until(
                lambda: said(cluster, "CardNotAttached").keys() == {"Pod", "ResourceClaim"}, within_s=60
            )
    assert "of pool lab was not attached: " in said(cluster, "CardNotAttached")["Pod"]
    assert said(cluster, "CardAttached") == {}
