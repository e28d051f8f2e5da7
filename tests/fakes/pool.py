# ruff: noqa: N802  gRPC names its methods
"""A pool of remote cards at its socket: real gRPC over real TLS, its rules kept in memory, faults on demand.

async with FakePool(authority, count=2) as pool:
    pool.endpoint, pool.authority.pem             # for a RemotePool
    pool.fault("Attach", code="UNAVAILABLE")       # the next call; after=True: carried out, its answer is lost
    await pool.until(lambda: pool.live())
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from cryptography import x509

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from tests.fakes.authority import Authority

_CODES = {kind: grpc.StatusCode[status] for kind, status in lease.STATUS.items()}


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` calls of a verb."""

    verb: str
    times: int = 1
    code: str = ""
    kind: lease.Kind | None = None
    delay_s: float = 0
    hang: bool = False
    gate: asyncio.Event | None = None
    """What the call waits for before it is carried out."""
    after: bool = False


@dataclass(slots=True)
class FakePool:
    authority: Authority
    count: int = 2
    host: str = "127.0.0.1"
    port: int = 0
    pool_id: str = "lab"
    attaching: bool = False
    """Whether Attach answers ATTACHING, until `attached` is called."""
    devices: dict[str, Any] = field(default_factory=dict)
    leases: dict[str, Any] = field(default_factory=dict)
    """By key, ended ones too."""
    cancelled: set[str] = field(default_factory=set)
    tokens: dict[str, int] = field(default_factory=dict)
    ends_watches: bool = False
    """Whether each watch is ended as soon as it is open."""
    epoch: int = 0
    revision: int = 1
    incarnation: int = 1
    calls: list[tuple[str, Any]] = field(default_factory=list)
    audiences: set[str] = field(default_factory=set)
    lives_s: float = 3600
    """Of certificates for leases, by the clock of this machine; what callers are told is TTL_MS."""
    _faults: list[Fault] = field(default_factory=list)
    _pulse: asyncio.Event = field(default_factory=asyncio.Event)
    _server: Any = None
    _trail: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(self.count):
            self.add(f"gpu-{number:08d}-0000-0000-0000-000000000000")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, on the same port again after a `stop`. What it holds stays."""
        key, certificate = self.authority.issued("pool", hosts=(self.host, "localhost"))
        trust = grpc.ssl_server_credentials(
            [(key, certificate)], root_certificates=self.authority.pem.encode(), require_client_auth=False
        )
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        stubs.add_PoolServicer_to_server(_Service(self), self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_secure_port(f"{self.host}:{self.port}", trust)
        assert self.port
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
            while any("rpc_task" in repr(task) or "HandleExceptions" in repr(task) for task in asyncio.all_tasks()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # calls that were cut end behind the server's own end

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    # what a test does and asks

    def add(self, device_id: str, **more: Any) -> None:
        self.revision += 1
        self.devices[device_id] = wire.Device(
            device_id=device_id,
            uuid=device_id.replace("gpu-", "GPU-"),
            product_name="NVIDIA A100",
            compute_capability="8.0",
            driver_version="580.95.05",
            memory_bytes=80 << 30,
            protocols=["fake"],
            state=wire.OFFERED,
            revision=self.revision,
            **more,
        )

    def fault(self, verb: str, **what: Any) -> Fault:
        fault = Fault(verb, **what)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        self._faults.clear()

    def live(self) -> list[Any]:
        """Leases that hold a card."""
        return [one for one in self.leases.values() if one.state not in (wire.RELEASED, wire.FAILED)]

    def count_of(self, verb: str) -> int:
        return sum(name == verb for name, _ in self.calls)

    def change(self, key: str, state: str, reason: str = "") -> None:
        """What befalls a lease."""
        self.revision += 1
        held = self.leases[key]
        held.state, held.reason, held.revision = wire.State.Value(state), reason, self.revision
        if state == "ATTACHED":
            held.endpoint.CopyFrom(
                wire.Endpoint(
                    host=self.host,
                    port=40000,
                    protocol="fake",
                    auth_modes=["mtls"],
                    client_profile="fake",
                    server_spki_sha256="ab" * 32,
                )
            )
        self._trail.append(_copy(held))
        self._tell()

    def forget(self) -> None:
        """Its state is lost, and it counts anew. Call it while it is stopped."""
        assert self._server is None
        self.leases.clear()
        self._trail.clear()
        self.revision = 0

    async def until(self, condition: Callable[[], Any], *, within_s: float = 18) -> None:
        """In less than the controller takes to list all leases anew (20 s), which would hide a lost event."""
        async with asyncio.timeout(within_s):
            while not condition():
                await self._pulse.wait()

    def _tell(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    async def suffer(self, verb: str, request: Any, context: Any) -> Fault | None:
        """What is to happen after the call was carried out."""
        self.calls.append((verb, _copy(request)))
        self._tell()
        fault = next((one for one in self._faults if one.verb == verb and one.times), None)
        if fault is None:
            return None
        fault.times -= 1
        await asyncio.sleep(fault.delay_s)
        if fault.hang:
            await asyncio.Event().wait()
        if fault.gate is not None:
            await fault.gate.wait()
        if fault.after:
            return fault
        if fault.kind is not None:
            await refuse(context, fault.kind, "injected")
        if fault.code:
            await context.abort(grpc.StatusCode[fault.code], "injected")
        return None


class _Service(stubs.PoolServicer):
    def __init__(self, pool: FakePool) -> None:
        self._pool = pool

    async def GetPoolInfo(self, request: Any, context: Any) -> Any:
        await self._pool.suffer("GetPoolInfo", request, context)
        pool = self._pool
        return wire.PoolInfo(
            pool_id=pool.pool_id, incarnation=pool.incarnation, revision=pool.revision, protocols=["fake"]
        )

    async def ListDevices(self, request: Any, context: Any) -> Any:
        await self._pool.suffer("ListDevices", request, context)
        found = sorted(self._pool.devices)
        start = found.index(request.page_token) if request.page_token else 0
        size = min(request.page_size or 100, 100)
        page, rest = found[start : start + size], found[start + size :]
        return wire.DeviceList(
            revision=self._pool.revision,
            devices=[self._pool.devices[name] for name in page],
            next_page_token=rest[0] if rest else "",
        )

    async def ListLeases(self, request: Any, context: Any) -> Any:
        await self._pool.suffer("ListLeases", request, context)
        return wire.LeaseList(revision=self._pool.revision, leases=self._pool.live())

    async def WatchLeases(self, request: Any, context: Any) -> AsyncIterator[Any]:
        pool, seen = self._pool, 0
        await pool.suffer("WatchLeases", request, context)
        while not pool.ends_watches:
            pulse = pool._pulse
            fresh = pool._trail[seen:]
            seen += len(fresh)  # there may be more by the time these are told
            for held in fresh:
                if held.revision > request.after_revision:
                    yield wire.LeaseEvent(revision=held.revision, lease=held)
            await pulse.wait()

    async def Attach(self, request: Any, context: Any) -> Any:
        pool = self._pool
        fault = await pool.suffer("Attach", request, context)
        key, device = request.idempotency_key, request.device_id
        if request.owner.controller_epoch:
            if request.owner.controller_epoch < pool.epoch:
                await refuse(context, lease.Kind.DEPOSED, "a newer controller has spoken")
            pool.epoch = request.owner.controller_epoch
        if device not in pool.devices:
            await refuse(context, lease.Kind.UNKNOWN_DEVICE, f"no device {device}")
        held = pool.leases.get(key)
        if key in pool.cancelled or (held is not None and held.state in (wire.RELEASED, wire.FAILED)):
            await refuse(context, lease.Kind.ENDED, "that key is used up", held)
        if held is None:
            holder = next((one for one in pool.live() if one.device_id == device), None)
            if holder is not None:
                mine = holder.owner.cluster_uid == request.owner.cluster_uid
                await refuse(context, lease.Kind.HELD, f"{device} is held", holder if mine else None)
            pool.tokens[device] = pool.tokens.get(device, 0) + 1
            pool.leases[key] = wire.Lease(
                lease_id=f"lease-{len(pool.leases)}",
                idempotency_key=key,
                device_id=device,
                fencing_token=pool.tokens[device],
                state=wire.ATTACHING,
                owner=request.owner,
                consumer=request.consumer,
                expires_in_ms=lease.TTL_MS,
            )
            pool.change(key, "ATTACHING" if pool.attaching else "ATTACHED")
        await _lose(fault, context)
        return pool.leases[key]

    async def GetLease(self, request: Any, context: Any) -> Any:
        await self._pool.suffer("GetLease", request, context)
        return await self._found(request, context)

    async def RenewLeases(self, request: Any, context: Any) -> Any:
        await self._pool.suffer("RenewLeases", request, context)
        by_id = {one.lease_id: one for one in self._pool.leases.values()}
        renewals = []
        for ref in request.leases:
            held = by_id.get(ref.lease_id)
            good = held is not None and held.state == wire.ATTACHED and held.fencing_token == ref.fencing_token
            renewals.append(wire.Renewal(lease_id=ref.lease_id, lease=held, renewed=good))
        return wire.RenewLeasesResponse(renewals=renewals)

    async def IssueCredential(self, request: Any, context: Any) -> Any:
        await self._pool.suffer("IssueCredential", request, context)
        held = await self._found(request, context)
        node = self._node(context)
        if node is not None and node != held.consumer.node_name:
            await refuse(context, lease.Kind.FORBIDDEN, f"the lease is for node {held.consumer.node_name}")
        csr = x509.load_pem_x509_csr(request.csr)
        uri = f"urn:elasticgpu:lease:{held.lease_id}:{held.fencing_token}"
        public: Any = csr.public_key()
        certificate = self._pool.authority.signed(public, held.lease_id, uris=(uri,), lives_s=self._pool.lives_s)
        return wire.Credential(
            certificate=certificate,
            authorities=self._pool.authority.pem.encode(),
            expires_in_ms=lease.TTL_MS,
            endpoint=held.endpoint,
        )

    async def Detach(self, request: Any, context: Any) -> Any:
        pool = self._pool
        fault = await pool.suffer("Detach", request, context)
        by_id = [one for one in pool.leases.values() if one.lease_id == request.lease_id and request.lease_id]
        held = by_id[0] if by_id else pool.leases.get(request.idempotency_key)
        if held is None:
            pool.cancelled.add(request.idempotency_key)
            return wire.Lease(idempotency_key=request.idempotency_key, state=wire.RELEASED)
        if request.lease_id and request.fencing_token != held.fencing_token:
            await refuse(context, lease.Kind.STALE, "another token")
        if held.state not in (wire.RELEASED, wire.FAILED):
            pool.change(held.idempotency_key, "RELEASED", request.reason)
        await _lose(fault, context)
        return held

    async def _found(self, request: Any, context: Any) -> Any:
        key = getattr(request, "idempotency_key", "")
        for one in self._pool.leases.values():
            if one.lease_id == request.lease_id or (key and one.idempotency_key == key):
                return one
        return await refuse(context, lease.Kind.UNKNOWN_LEASE, "no such lease")

    def _node(self, context: Any) -> str | None:
        """The node in a ServiceAccount's token. Its signature is not this fake's business."""
        for key, value in context.invocation_metadata():
            if key == "authorization":
                body = value.removeprefix("Bearer ").split(".")[1]
                claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
                self._pool.audiences |= set(claims.get("aud", ()))
                name: str = claims["kubernetes.io"]["node"]["name"]
                return name
        return None


async def refuse(context: Any, kind: lease.Kind, message: str, holder: Any = None) -> Any:
    refusal = wire.Refusal(kind=kind.value, holder=holder)
    trailing = ((lease.REFUSAL_METADATA, refusal.SerializeToString()),)
    await context.abort(_CODES[kind], message, trailing)


async def _lose(fault: Fault | None, context: Any) -> None:
    if fault is not None:
        await context.abort(grpc.StatusCode[fault.code or "UNAVAILABLE"], "the answer is lost")


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
