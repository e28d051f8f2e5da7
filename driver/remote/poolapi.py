"""A pool's API as a node sees it: known to the pool by its ServiceAccount token, good for the leases of this node alone.

    call + token -> deadline -> answer as values, or Refused with what it means

What must stay true: every call ends within its deadline; what was not answered is unknown, never undone. The server's
certificate is checked by the RemotePool's own authority, nothing else is trusted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
from google.protobuf import descriptor, message

from api import errors, lease
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs

T = TypeVar("T")
Token = Callable[[str], Awaitable[str]]
"""Gives the node's token for an audience."""

_DEADLINE_S = 5.0
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


class Refused(errors.Conflict):
    """The pool's no, and what it means."""

    def __init__(self, meaning: lease.Meaning, message: str) -> None:
        super().__init__(message)
        self.meaning = meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease of this node as its pool has it."""

    id: str
    token: int
    state: lease.State
    node: str
    reason: str = ""
    host: str = ""
    port: int = 0
    protocol: str = ""
    spki: str = ""
    profile: str = ""
    auth_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    certificate: bytes
    authorities: bytes
    lives_s: float


class PoolAPI:
    """One connection to one pool."""

    def __init__(self, name: str, spec: kinds.PoolSpec, cluster_uid: str, token: Token) -> None:
        self.name, self.spec = name, spec
        self._owner = wire.Owner(cluster_uid=cluster_uid)
        self._token = token
        trust = grpc.ssl_channel_credentials(spec.ca_bundle.encode())
        options: list[tuple[str, object]] = [*_OPTIONS]
        if spec.server_name:
            options.append(("grpc.ssl_target_name_override", spec.server_name))
        self._channel = grpc.aio.secure_channel(spec.endpoint, trust, options=options)
        self._stub = stubs.PoolStub(self._channel)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        await self._channel.close()

    async def lease(self, key: str) -> Lease | None:
        """By its key; None where the pool has no such lease."""
        try:
            return _lease(await self._call("GetLease", self._stub.GetLease, wire.LeaseRef(idempotency_key=key)))
        except Refused as error:
            if error.meaning is lease.Meaning.FINAL:
                return None
            raise

    async def attach(self, spec: kinds.LeaseSpec, within_s: float) -> Lease:
        consumer = wire.Consumer(
            namespace=spec.claim.namespace,
            claim_name=spec.claim.name,
            claim_uid=spec.claim.uid,
            share_id=spec.share_id,
            node_name=spec.node.name,
            node_uid=spec.node.uid,
        )
        ask = wire.AttachRequest(
            idempotency_key=spec.key,
            device_id=spec.device,
            owner=self._owner,
            consumer=consumer,
            ttl_ms=lease.TTL_MS,
            attach_within_ms=int(within_s * 1000),
            protocol=spec.protocol,
        )
        return _lease(await self._call("Attach", self._stub.Attach, ask))

    async def detach(self, *, key: str, lease_id: str, token: int, reason: str) -> None:
        """What the pool does not know is over, and so is what is another's by now."""
        by = {"lease_id": lease_id, "fencing_token": token} if lease_id else {"idempotency_key": key}
        ask = wire.DetachRequest(**by, owner=self._owner, reason=reason)
        try:
            await self._call("Detach", self._stub.Detach, ask)
        except Refused as error:
            if error.meaning is lease.Meaning.HELD:
                raise

    async def renew(self, refs: tuple[tuple[str, int], ...]) -> dict[str, str]:
        """Lease id -> why it is not prolonged; those that were are not in it."""
        leases = [wire.LeaseRef(lease_id=lease_id, fencing_token=token) for lease_id, token in refs]
        ask = wire.RenewLeasesRequest(leases=leases, owner=self._owner)
        answer = await self._call("RenewLeases", self._stub.RenewLeases, ask)
        return {
            one.lease_id: one.reason or one.lease.reason or "the pool has ended the lease"
            for one in answer.renewals
            if not one.renewed
        }

    async def credential(self, lease_id: str, token: int, csr: bytes) -> Credential:
        ask = wire.IssueCredentialRequest(lease_id=lease_id, fencing_token=token, csr=csr)
        answer = await self._call("IssueCredential", self._stub.IssueCredential, ask)
        lives_s = answer.expires_in_ms / 1000
        return Credential(certificate=answer.certificate, authorities=answer.authorities, lives_s=lives_s)

    async def _call(self, verb: str, method: Callable[..., Awaitable[T]], ask: object) -> T:
        token = await self._token(kinds.pool_id(self.name, self.spec))
        try:
            return await method(ask, timeout=_DEADLINE_S, metadata=(("authorization", f"Bearer {token}"),))
        except grpc.aio.AioRpcError as error:
            raise _translated(verb, self.name, error) from error
        except (asyncio.CancelledError, grpc.aio.UsageError):  # what is closed cancels open calls, and refuses new ones
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            words = f"pool {self.name}: {verb}: the connection was made anew meanwhile; it is asked again"
            raise errors.Unavailable(words) from None


def _translated(verb: str, pool: str, error: grpc.aio.AioRpcError) -> errors.ElasticGPUError:
    code = error.code().name
    meaning = lease.meaning(code, _refusal(error))
    words = f"pool {pool}: {verb}: {error.details() or code}"
    if meaning is lease.Meaning.AGAIN:
        return errors.Unavailable(f"{words}; whether it was done is unknown, it is asked again with the same key")
    return Refused(meaning, words)


def _refusal(error: grpc.aio.AioRpcError) -> lease.Kind | None:
    for key, value in error.trailing_metadata() or ():
        if key == lease.REFUSAL_METADATA and isinstance(value, bytes):
            try:
                kind = wire.Refusal.FromString(value).kind
            except message.DecodeError:  # the status alone says enough
                return None
            name = _word(wire.Refusal.Kind.DESCRIPTOR, kind)
            return lease.Kind(name) if name in lease.Kind.__members__ else None
    return None


def _word(of: descriptor.EnumDescriptor, number: int) -> str:
    """Empty for one that a newer pool may know."""
    found = of.values_by_number.get(number)
    return found.name if found is not None else ""


def _lease(item: wire.Lease) -> Lease:
    name, end = _word(wire.State.DESCRIPTOR, item.state), item.endpoint
    return Lease(
        id=item.lease_id,
        token=item.fencing_token,
        state=lease.State(name) if name in lease.State.__members__ else lease.State.LOST,
        node=item.consumer.node_name,
        reason=item.reason,
        host=end.host,
        port=end.port,
        protocol=end.protocol,
        spki=end.server_spki_sha256,
        profile=end.client_profile,
        auth_modes=tuple(end.auth_modes),
    )
