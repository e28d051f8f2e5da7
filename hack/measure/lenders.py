"""What a controller takes that keeps 20 pools with 500 remote cards each: the whole program, all of its sockets real.

`python -m hack.measure.lenders` prints the table alone. The API server and the pools are those of the tests.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.measure import figures, programs
from tests.fakes.pool import FakePool
from tests.fakes.remotes import Cluster, a_cluster

_POOLS, _CARDS = 20, 500
_SETTLED_S = 20.0
_PATIENCE_S = 300.0


def measured() -> Iterator[figures.Figure]:
    with tempfile.TemporaryDirectory() as folder:
        rss, cpu = asyncio.run(_measure(Path(folder)))
    name = f"{_POOLS} pools x {_CARDS} cards"
    yield figures.Figure(name=f"RSS of a controller with {name}", unit="MiB", ours=rss, at_most=110)
    yield figures.Figure(name=f"CPU of a controller at rest with {name}", unit="ms/s", ours=cpu)


async def _measure(folder: Path) -> tuple[float, float]:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(a_cluster(folder))
        for number in range(_POOLS):
            pool = FakePool(cluster.authority, count=0)
            for card in range(_CARDS):
                pool.add(f"gpu-{number:08d}-0000-0000-0000-{card:012d}")
            cluster.add_pool(await stack.enter_async_context(pool), f"pool-{number}")
        environment = os.environ | {
            "KUBECONFIG": str(cluster.server.kubeconfig(folder)),
            "EGPU_REMOTE": "true",
            "EGPU_REMOTE_CREDENTIALS": str(cluster.credentials),
            "EGPU_NAMESPACE": "default",
            "EGPU_POD_NAME": "controller",
            "EGPU_PORT": "0",
            "EGPU_PAGE": "none",
        }
        program = programs.Program((sys.executable, "-m", "controller"), folder / "log", environment=environment)
        stack.callback(program.stop)
        async with asyncio.timeout(_PATIENCE_S):
            while min(_published(cluster), _shown(cluster)) < _POOLS * _CARDS:
                await asyncio.sleep(1)
                program.check()
        await asyncio.sleep(_SETTLED_S)
        before = program.cpu_ms()
        await asyncio.sleep(_SETTLED_S)
        return program.rss_mib(), (program.cpu_ms() - before) / _SETTLED_S


def _published(cluster: Cluster) -> int:
    return sum(len(item["spec"].get("devices") or ()) for item in _stored(cluster, "resourceslices"))


def _shown(cluster: Cluster) -> int:
    """ElasticGPUs with a status: until the last one stands the controller writes, a hundred a second, and is not at rest."""
    return sum("status" in item for item in _stored(cluster, "elasticgpus"))


def _stored(cluster: Cluster, resource: str) -> Iterator[dict[str, Any]]:
    """Looked at where they lie: a copy of them each second would be what is measured."""
    found = cluster.server.store.objects.items()
    return (item for place, item in found if place.collection.endswith(f"/{resource}"))


if __name__ == "__main__":
    print(figures.table(list(measured())))
