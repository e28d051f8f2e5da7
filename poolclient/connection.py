"""A pool's API at its caller's end: what the controller and the nodes' driver have in common, and all that they know of gRPC.

    call -> who we are, now -> deadline -> the pool's message, or an error that says what it means (`api.lease.Meaning`)

What must stay true: every call ends within its deadline; what was not answered is unknown, never undone; nothing but the
RemotePool's own authority is trusted. No call is repeated here: the caller decides anew.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor, message

from api import errors, lease
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs

_DEADLINE_S = 5.0
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Who calls: by a client certificate and its key, or by a token."""

    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""


class Refused(errors.Conflict):
    """The pool's no, and what it means. `ours`: where another lease has the card, whether that is of this cluster;
    `unknown`: the pool has not what was asked for.
    """

    def __init__(self, meaning: lease.Meaning, message: str, *, ours: bool = False, unknown: bool = False) -> None:
        super().__init__(message)
        self.meaning = meaning
        self.ours = ours
        self.unknown = unknown


class Connection:
    """One connection to one pool. `prove` is asked before each call; another certificate is another channel."""

    def __init__(
        self, name: str, spec: kinds.PoolSpec, owner: wire.Owner, prove: Callable[[], Awaitable[Proof]]
    ) -> None:
        self._name, self._spec, self._owner, self._prove = name, spec, owner, prove
        self._shown: tuple[bytes | None, bytes | None] = None, None
        self._channel: grpc.aio.Channel | None = None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self._replace(None)

    async def ask(self, verb: str, request: object) -> Any:
        """The answer to one call, within its deadline."""
        stub, metadata = await self._open(verb)
        with self._translated(verb):
            return await getattr(stub, verb)(request, timeout=_DEADLINE_S, metadata=metadata)

    async def watch(self, verb: str, after: int) -> AsyncGenerator[Any, None]:
        """What happens from a revision on, until the pool or the way to it ends it."""
        stub, metadata = await self._open(verb)
        stream = getattr(stub, verb)(wire.WatchRequest(after_revision=after), metadata=metadata)
        try:
            with self._translated(verb):
                async for event in stream:
                    yield event
        finally:
            stream.cancel()

    async def lease(self, key: str) -> wire.Lease | None:
        """By its key; None where the pool has no such lease."""
        try:
            held: wire.Lease = await self.ask("GetLease", wire.LeaseRef(idempotency_key=key))
        except Refused as error:
            if error.unknown:
                return None
            raise
        return held

    async def attach(self, intent: kinds.LeaseSpec, within_s: float) -> wire.Lease:
        consumer = wire.Consumer(
            namespace=intent.claim.namespace,
            claim_name=intent.claim.name,
            claim_uid=intent.claim.uid,
            share_id=intent.share_id,
            node_name=intent.node.name,
            node_uid=intent.node.uid,
        )
        ask = wire.AttachRequest(
            idempotency_key=intent.key,
            device_id=intent.device,
            owner=self._owner,
            consumer=consumer,
            ttl_ms=lease.TTL_MS,
            attach_within_ms=max(int(within_s * 1000), 1000),
            protocol=intent.protocol,
        )
        held: wire.Lease = await self.ask("Attach", ask)
        return held

    async def detach(self, *, key: str, lease_id: str, token: int, reason: str) -> wire.Lease:
        """By id and token, or by key alone. What the pool does not know is over."""
        by: dict[str, Any] = {"lease_id": lease_id, "fencing_token": token} if lease_id else {"idempotency_key": key}
        held: wire.Lease = await self.ask("Detach", wire.DetachRequest(**by, owner=self._owner, reason=reason[:200]))
        return held

    async def renew(self, refs: Iterable[tuple[str, int]]) -> wire.RenewLeasesResponse:
        """By id and token."""
        leases = [wire.LeaseRef(lease_id=lease_id, fencing_token=token) for lease_id, token in refs]
        ask = wire.RenewLeasesRequest(leases=leases, owner=self._owner)
        answer: wire.RenewLeasesResponse = await self.ask("RenewLeases", ask)
        return answer

    async def _open(self, verb: str) -> tuple[stubs.PoolStub, tuple[tuple[str, str], ...]]:
        proof = await self._prove()
        if self._closed:
            raise self._anew(verb)
        shown = proof.key, proof.certificate
        if self._channel is None or shown != self._shown:
            trust = grpc.ssl_channel_credentials(self._spec.ca_bundle.encode(), *shown)
            options: list[tuple[str, Any]] = [*_OPTIONS]
            if self._spec.server_name:
                options.append(("grpc.ssl_target_name_override", self._spec.server_name))
            self._shown = shown
            await self._replace(grpc.aio.secure_channel(self._spec.endpoint, trust, options=options))
        metadata = (("authorization", f"Bearer {proof.token}"),) if proof.token else ()
        return stubs.PoolStub(self._channel), metadata  # type: ignore[no-untyped-call]

    async def _replace(self, channel: grpc.aio.Channel | None) -> None:
        former, self._channel = self._channel, channel
        if former is not None:
            await former.close()

    def _anew(self, verb: str) -> errors.Unavailable:
        return errors.Unavailable(
            f"pool {self._name}: {verb}: the connection was made anew meanwhile; it is asked again"
        )

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        """A channel that is closed refuses new calls, and cancels its open ones as if their tasks were to end: only what was
        meant for the task goes on as such, for nobody would hear of the other.
        """
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._meant(verb, error) from error
        except (asyncio.CancelledError, grpc.aio.UsageError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            raise self._anew(verb) from None

    def _meant(self, verb: str, error: grpc.aio.AioRpcError) -> errors.ElasticGPUError:
        code = error.code().name
        kind, ours = _refusal(error)
        meaning = lease.meaning(code, kind)
        words = f"pool {self._name}: {verb}: {error.details() or code}"
        if meaning is lease.Meaning.AGAIN:
            return errors.Unavailable(f"{words}; whether it was done is unknown, it is asked again with the same key")
        return Refused(meaning, words, ours=ours, unknown=code == "NOT_FOUND")


def word(of: descriptor.EnumDescriptor, number: int) -> str:
    """The name of an enum's value; empty for one that a newer pool may know."""
    found = of.values_by_number.get(number)
    return found.name if found is not None else ""


def state(item: wire.Lease) -> lease.State:
    """What we do not understand is not to be had any more."""
    name = word(wire.State.DESCRIPTOR, item.state)
    return lease.State(name) if name in lease.State.__members__ else lease.State.LOST


def _refusal(error: grpc.aio.AioRpcError) -> tuple[lease.Kind | None, bool]:
    for key, value in error.trailing_metadata() or ():
        if key == lease.REFUSAL_METADATA and isinstance(value, bytes):
            try:
                found = wire.Refusal.FromString(value)
            except message.DecodeError:  # the status alone says enough
                return None, False
            name = word(wire.Refusal.Kind.DESCRIPTOR, found.kind)
            return (lease.Kind(name) if name in lease.Kind.__members__ else None), found.HasField("holder")
    return None, False
