"""A pool's API as the controller sees it: the only door to it, by the controller's certificate.

    call -> deadline -> answer as values, or Refused with what it means (`api.lease.Meaning`)

What must stay true: every call ends within its deadline; what was not answered is unknown, never undone; a certificate
that was replaced on disk is taken up by the next connection. No call is repeated here: the keeper decides anew.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf import descriptor, message

from api import errors, lease, names
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from controller import remote

T = TypeVar("T")

_DEADLINE_S = 5.0
_LOOK_S = 10.0
"""Between two looks at the certificate on disk."""
_PAGE = 500
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)
_ATTRIBUTES = {
    names.UUID: "uuid",
    names.PRODUCT_NAME: "product_name",
    names.BRAND: "brand",
    names.ARCHITECTURE: "architecture",
    names.COMPUTE_CAPABILITY: "compute_capability",
    names.DRIVER_VERSION: "driver_version",
    names.CUDA_DRIVER_VERSION: "cuda_driver_version",
}


class Refused(errors.Conflict):
    """The pool's no, and what it means. `ours`: where another lease has the card, whether that is of this cluster."""

    def __init__(self, meaning: lease.Meaning, message: str, *, ours: bool = False) -> None:
        super().__init__(message)
        self.meaning = meaning
        self.ours = ours


class PoolAPI:
    """One connection to one pool, for one reign of the controller (`epoch`)."""

    def __init__(self, name: str, spec: kinds.PoolSpec, credentials: Path, cluster_uid: str, epoch: int) -> None:
        self._name = name
        self._spec = spec
        self._credentials = credentials
        self._owner = wire.Owner(cluster_uid=cluster_uid, controller_epoch=epoch)
        self._channel: grpc.aio.Channel | None = None
        self._stub: stubs.PoolStub | None = None
        self._loaded = (0.0, 0.0)
        self._looked_at = -_LOOK_S

    async def close(self) -> None:
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def info(self) -> wire.PoolInfo:
        return await self._call(
            "GetPoolInfo", (await self._open()).GetPoolInfo(wire.GetPoolInfoRequest(), timeout=_DEADLINE_S)
        )

    async def devices(self) -> tuple[tuple[remote.Device, ...], int]:
        """All cards, and the revision that they are of."""
        found, token = [], ""
        while True:
            stub = await self._open()  # anew for each page: the one before may be closed by now
            ask = wire.ListDevicesRequest(page_size=_PAGE, page_token=token)
            page = await self._call("ListDevices", stub.ListDevices(ask, timeout=_DEADLINE_S))
            found += [_device(item) for item in page.devices]
            token = page.next_page_token
            if not token:
                return tuple(found), page.revision

    async def leases(self) -> tuple[tuple[remote.Lease, ...], int]:
        """All that are not over, and the revision that they are of."""
        stub = await self._open()
        found = await self._call("ListLeases", stub.ListLeases(wire.ListLeasesRequest(), timeout=_DEADLINE_S))
        return tuple(_lease(item) for item in found.leases), found.revision

    async def changes(self, after: int) -> AsyncGenerator[remote.Lease, None]:
        """Leases as they change, until the pool or the way to it ends it."""
        stub = await self._open()
        stream = stub.WatchLeases(wire.WatchRequest(after_revision=after))
        try:
            async for event in stream:
                yield _lease(event.lease)
        except grpc.aio.AioRpcError as error:
            raise _translated("WatchLeases", self._name, error) from error
        except asyncio.CancelledError:
            raise _cut("WatchLeases", self._name) from None
        finally:
            stream.cancel()

    async def attach(self, intent: kinds.LeaseSpec, within_s: float) -> remote.Lease:
        ask = wire.AttachRequest(
            idempotency_key=intent.key,
            device_id=intent.device,
            owner=self._owner,
            consumer=_consumer(intent),
            ttl_ms=lease.TTL_MS,
            attach_within_ms=max(int(within_s * 1000), 1000),
            protocol=intent.protocol,
        )
        stub = await self._open()
        return _lease(await self._call("Attach", stub.Attach(ask, timeout=_DEADLINE_S)))

    async def detach(self, *, key: str, lease_id: str, token: int, reason: str) -> remote.Lease:
        """By id and token, or by key alone. What the pool does not know is over."""
        by = {"lease_id": lease_id, "fencing_token": token} if lease_id else {"idempotency_key": key}
        stub = await self._open()
        ask = wire.DetachRequest(**by, owner=self._owner, reason=reason[:200])
        return _lease(await self._call("Detach", stub.Detach(ask, timeout=_DEADLINE_S)))

    async def renew(self, leases: tuple[remote.Lease, ...]) -> None:
        """What is not renewed shows in the next listing."""
        stub = await self._open()
        refs = [wire.LeaseRef(lease_id=held.id, fencing_token=held.token) for held in leases]
        ask = wire.RenewLeasesRequest(leases=refs, owner=self._owner)
        await self._call("RenewLeases", stub.RenewLeases(ask, timeout=_DEADLINE_S))

    async def _open(self) -> stubs.PoolStub:
        now = asyncio.get_running_loop().time()
        if self._stub is not None and now - self._looked_at < _LOOK_S:
            return self._stub
        certificate, key, loaded = await asyncio.to_thread(_read, self._credentials, self._name)
        self._looked_at = now
        if self._stub is None or loaded != self._loaded:
            await self.close()
            trust = grpc.ssl_channel_credentials(self._spec.ca_bundle.encode(), key, certificate)
            options = list(_OPTIONS)
            if self._spec.server_name:
                options.append(("grpc.ssl_target_name_override", self._spec.server_name))  # type: ignore[arg-type]
            self._channel = grpc.aio.secure_channel(self._spec.endpoint, trust, options=options)
            self._stub, self._loaded = stubs.PoolStub(self._channel), loaded  # type: ignore[no-untyped-call]
        return self._stub

    async def _call(self, verb: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise _translated(verb, self._name, error) from error
        except asyncio.CancelledError:
            raise _cut(verb, self._name) from None


def _cut(verb: str, pool: str) -> BaseException:
    """A channel that is closed cancels its open calls as if their tasks were to end: only what was meant for the task goes on
    as such, for nobody would hear of the other.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    return errors.Unavailable(f"pool {pool}: {verb}: the connection was made anew meanwhile; it is asked again")


def _translated(verb: str, pool: str, error: grpc.aio.AioRpcError) -> errors.ElasticGPUError:
    code = error.code().name
    kind, ours = _refusal(error)
    meaning = lease.meaning(code, kind)
    words = f"pool {pool}: {verb}: {error.details() or code}"
    if meaning is lease.Meaning.AGAIN:
        return errors.Unavailable(f"{words}; whether it was done is unknown, it is asked again with the same key")
    return Refused(meaning, words, ours=ours)


def _refusal(error: grpc.aio.AioRpcError) -> tuple[lease.Kind | None, bool]:
    for key, value in error.trailing_metadata() or ():
        if key == lease.REFUSAL_METADATA and isinstance(value, bytes):
            try:
                found = wire.Refusal.FromString(value)
            except message.DecodeError:  # the status alone says enough
                return None, False
            name = _word(wire.Refusal.Kind.DESCRIPTOR, found.kind)
            return (lease.Kind(name) if name in lease.Kind.__members__ else None), found.HasField("holder")
    return None, False


def _word(of: descriptor.EnumDescriptor, number: int) -> str:
    """Empty for one that a newer pool may know."""
    found = of.values_by_number.get(number)
    return found.name if found is not None else ""


def _read(folder: Path, pool: str) -> tuple[bytes, bytes, tuple[float, float]]:
    """The pool's own pair where there is one: pools have authorities of their own."""
    certificate, key = folder / f"{pool}.crt", folder / f"{pool}.key"
    if not certificate.exists():
        certificate, key = folder / "tls.crt", folder / "tls.key"
    try:
        return certificate.read_bytes(), key.read_bytes(), (certificate.stat().st_mtime, key.stat().st_mtime)
    except OSError as error:
        raise errors.NotReady(
            f"the controller has no certificate for pool {pool}: {error}; put {pool}.crt and {pool}.key, or tls.crt and "
            "tls.key for all pools, into the Secret that the chart's remote.credentialsSecret names"
        ) from error


def _consumer(intent: kinds.LeaseSpec) -> wire.Consumer:
    return wire.Consumer(
        namespace=intent.claim.namespace,
        claim_name=intent.claim.name,
        claim_uid=intent.claim.uid,
        share_id=intent.share_id,
        node_name=intent.node.name,
        node_uid=intent.node.uid,
    )


def _device(item: wire.Device) -> remote.Device:
    return remote.Device(
        name=item.device_id,
        state=_word(wire.DeviceState.DESCRIPTOR, item.state) or "UNWELL",  # what we do not understand is not lent
        reason=item.reason,
        attributes=tuple(
            (name, sys.intern(text)) for name, field in _ATTRIBUTES.items() if (text := getattr(item, field))
        ),
        memory=item.memory_bytes,
    )


def _lease(item: wire.Lease) -> remote.Lease:
    name = _word(wire.State.DESCRIPTOR, item.state)
    return remote.Lease(
        id=item.lease_id,
        key=item.idempotency_key,
        device=item.device_id,
        token=item.fencing_token,
        state=lease.State(name) if name in lease.State.__members__ else lease.State.LOST,
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
