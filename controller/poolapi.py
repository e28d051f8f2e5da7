"""A pool's API as the controller sees it, by the controller's certificate: the messages of `poolclient` as values.

What must stay true: a certificate that was replaced on disk is taken up by the next call but those of a few seconds.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from api import errors, names
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from controller import remote
from poolclient import connection

_LOOK_S = 10.0
"""Between two looks at the certificate on disk."""
_PAGE = 500
_MOST = 20_000
"""Cards of one pool. Whoever has taken over its host could name new ones without end."""
_ATTRIBUTES = {
    names.UUID: "uuid",
    names.PRODUCT_NAME: "product_name",
    names.BRAND: "brand",
    names.ARCHITECTURE: "architecture",
    names.COMPUTE_CAPABILITY: "compute_capability",
    names.DRIVER_VERSION: "driver_version",
    names.CUDA_DRIVER_VERSION: "cuda_driver_version",
}


class PoolAPI:
    """One connection to one pool, for one reign of the controller (`epoch`)."""

    def __init__(self, name: str, spec: kinds.PoolSpec, credentials: Path, cluster_uid: str, epoch: int) -> None:
        self._name = name
        self._credentials = credentials
        owner = wire.Owner(cluster_uid=cluster_uid, controller_epoch=epoch)
        self._pool = connection.Connection(name, spec, owner, self._proof)
        self._read: connection.Proof | None = None
        self._looked_at = 0.0

    async def close(self) -> None:
        await self._pool.close()

    async def info(self) -> wire.PoolInfo:
        found: wire.PoolInfo = await self._pool.ask("GetPoolInfo", wire.GetPoolInfoRequest())
        return found

    async def devices(self) -> tuple[tuple[remote.Device, ...], int]:
        """All cards, and the revision that they are of."""
        found, token = [], ""
        while True:
            ask = wire.ListDevicesRequest(page_size=_PAGE, page_token=token)
            page: wire.DeviceList = await self._pool.ask("ListDevices", ask)
            found += [_device(item) for item in page.devices]
            token = page.next_page_token
            if len(found) > _MOST or (token and not page.devices):
                raise errors.Invalid(
                    f"pool {self._name} lists cards without end, {len(found)} until now: look at its host"
                )
            if not token:
                return tuple(found), page.revision

    async def leases(self) -> tuple[tuple[remote.Lease, ...], int]:
        """All that are not over, and the revision that they are of."""
        found: wire.LeaseList = await self._pool.ask("ListLeases", wire.ListLeasesRequest())
        return tuple(_lease(item) for item in found.leases), found.revision

    async def lease(self, key: str) -> remote.Lease | None:
        """By its key; None where the pool has no such lease."""
        held = await self._pool.lease(key)
        return None if held is None else _lease(held)

    async def changes(self, after: int) -> AsyncGenerator[remote.Lease, None]:
        """Leases as they change, until the pool or the way to it ends it."""
        async with contextlib.aclosing(self._pool.watch("WatchLeases", after)) as events:
            async for event in events:
                yield _lease(event.lease)

    async def attach(self, intent: kinds.LeaseSpec, within_s: float) -> remote.Lease:
        return _lease(await self._pool.attach(intent, within_s))

    async def detach(self, *, key: str, lease_id: str, token: int, reason: str) -> remote.Lease:
        """By id and token, or by key alone. What the pool does not know is over."""
        return _lease(await self._pool.detach(key=key, lease_id=lease_id, token=token, reason=reason))

    async def renew(self, leases: tuple[remote.Lease, ...]) -> None:
        """What is not renewed shows in the next listing."""
        await self._pool.renew((held.id, held.token) for held in leases)

    async def _proof(self) -> connection.Proof:
        now = asyncio.get_running_loop().time()
        if self._read is None or now - self._looked_at >= _LOOK_S:
            self._read = await asyncio.to_thread(_read, self._credentials, self._name)
            self._looked_at = now
        return self._read


def _read(folder: Path, pool: str) -> connection.Proof:
    """The pool's own pair where there is one: pools have authorities of their own."""
    certificate, key = folder / f"{pool}.crt", folder / f"{pool}.key"
    if not certificate.exists():
        certificate, key = folder / "tls.crt", folder / "tls.key"
    try:
        return connection.Proof(certificate=certificate.read_bytes(), key=key.read_bytes())
    except OSError as error:
        raise errors.NotReady(
            f"the controller has no certificate for pool {pool}: {error}; put {pool}.crt and {pool}.key, or tls.crt and "
            "tls.key for all pools, into the Secret that the chart's remote.credentialsSecret names"
        ) from error


def _device(item: wire.Device) -> remote.Device:
    return remote.Device(
        name=item.device_id,
        state=connection.word(wire.DeviceState.DESCRIPTOR, item.state)
        or "UNWELL",  # what we do not understand is not lent
        reason=item.reason,
        attributes=tuple(
            (name, sys.intern(text)) for name, field in _ATTRIBUTES.items() if (text := getattr(item, field))
        ),
        memory=item.memory_bytes,
    )


def _lease(item: wire.Lease) -> remote.Lease:
    return remote.Lease(
        id=item.lease_id,
        key=item.idempotency_key,
        device=item.device_id,
        token=item.fencing_token,
        state=connection.state(item),
        age_s=item.age_ms / 1000,
        revision=item.revision,
        reason=item.reason,
        by_node=item.owner.controller_epoch == 0,
        data={
            "clientProfile": item.endpoint.client_profile,
            "endpoint": f"{item.endpoint.host}:{item.endpoint.port}",
            "leaseID": item.lease_id,
            "protocol": item.endpoint.protocol,
            "serverFingerprint": item.endpoint.server_spki_sha256,
        },
    )
