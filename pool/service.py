"""The pool's API: who calls, what he asks, one answer a call.

    call -> caller (the door's certificate, else the token) -> values -> rule -> agent -> message, or a status

What must stay true: nothing that a caller writes about himself is believed; a refusal says which, why and what to do,
and whose lease is in the way only to its own cluster; a defect tells the caller nothing but that it was one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
import structlog

from api import errors, lease
from api.protos import pool_v1alpha1_pb2 as wire
from pool import agent, calls, credentials, devices, front, identity, messages, metrics

NAME = "elasticgpu.pool.v1alpha1.Pool"
Q = TypeVar("Q")
A = TypeVar("A")
_MOST_REFS = 10_000
_LONGEST_LIFE_S = 600.0
_log = structlog.get_logger("pool")


class Service:
    """`endpoint`: the door, as controllers and nodes reach it; the protocol is filled in lease by lease."""

    def __init__(
        self,
        *,
        worker: agent.Agent,
        door: front.Front,
        nodes: identity.Identity,
        authority: credentials.Authority,
        endpoint: wire.Endpoint,
        pool_id: str,
        version: str,
        series: metrics.Metrics,
    ) -> None:
        self._agent = worker
        self._door = door
        self._nodes = nodes
        self._authority = authority
        self._endpoint = endpoint
        self._pool_id = pool_id
        self._version = version
        self._series = series

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        methods = {
            "GetPoolInfo": self._unary(self._info, wire.GetPoolInfoRequest),
            "ListDevices": self._unary(self._list_devices, wire.ListDevicesRequest),
            "WatchDevices": self._stream(self._watch_devices, wire.WatchRequest),
            "Attach": self._unary(self._attach, wire.AttachRequest),
            "GetLease": self._unary(self._get, wire.LeaseRef),
            "ListLeases": self._unary(self._list, wire.ListLeasesRequest),
            "WatchLeases": self._stream(self._watch, wire.WatchRequest),
            "RenewLeases": self._unary(self._renew, wire.RenewLeasesRequest),
            "IssueCredential": self._unary(self._issue, wire.IssueCredentialRequest),
            "Detach": self._unary(self._detach, wire.DetachRequest),
            "Fence": self._unary(self._fence, wire.FenceRequest),
        }
        return (grpc.method_handlers_generic_handler(NAME, methods),)

    def _unary(
        self, work: Callable[[lease.Caller, Any], Awaitable[Any]], kind: Any
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        async def call(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
            try:
                answer = await work(await self._caller(context), request)
            except Exception as error:  # noqa: BLE001  every error becomes a status
                await self._refuse(work.__name__, error, context)
            self._series.calls.labels(work.__name__.strip("_"), "OK").inc()
            return answer

        return grpc.unary_unary_rpc_method_handler(call, kind.FromString, lambda message: message.SerializeToString())

    def _stream(
        self, work: Callable[[lease.Caller, Any], AsyncIterator[Any]], kind: Any
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        async def call(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[Any]:
            try:
                async for event in work(await self._caller(context), request):
                    yield event
            except Exception as error:  # noqa: BLE001  every error becomes a status
                await self._refuse(work.__name__, error, context)

        return grpc.unary_stream_rpc_method_handler(call, kind.FromString, lambda message: message.SerializeToString())

    async def _caller(self, context: "grpc.aio.ServicerContext[Any, Any]") -> lease.Caller:
        cluster = self._door.cluster(context.peer())
        if cluster is None:
            raise identity.Unknown("the API is served through the pool's door only")
        if cluster:
            return lease.Caller(cluster=cluster)
        held = dict(context.invocation_metadata() or ()).get("authorization", "")
        kind, _, token = str(held).partition(" ")
        caller = await self._nodes.node(token.strip() if kind.lower() == "bearer" else "")
        self._door.known(context.peer(), caller.node_uid)
        return caller

    async def _refuse(self, method: str, error: Exception, context: "grpc.aio.ServicerContext[Any, Any]") -> NoReturn:
        refusal: tuple[tuple[str, bytes], ...] = ()
        match error:
            case lease.Refused():
                status = grpc.StatusCode[lease.STATUS[error.kind]]
                told = wire.Refusal(kind=error.kind.value)
                cluster = self._door.cluster(context.peer())
                if error.holder is not None and cluster and error.holder.cluster == cluster:
                    told.holder.CopyFrom(self._lease(error.holder))
                refusal = ((lease.REFUSAL_METADATA, told.SerializeToString()),)
            case identity.Unknown():
                status = grpc.StatusCode.UNAUTHENTICATED
            case errors.Unavailable() | errors.NotReady():
                status = grpc.StatusCode.UNAVAILABLE
            case errors.ElasticGPUError():
                status = grpc.StatusCode.INVALID_ARGUMENT
            case _:
                status, text = grpc.StatusCode.INTERNAL, "the pool failed unexpectedly; its log has the stack"
                _log.exception("call failed", method=method)
        text = text if status is grpc.StatusCode.INTERNAL else str(error)
        self._series.calls.labels(method.strip("_"), status.name).inc()
        _log.info("call refused", method=method, status=status.name, reason=text)
        await context.abort(status, text, refusal)
        raise AssertionError

    def _lease(self, held: lease.Lease) -> wire.Lease:
        return messages.of_lease(held, self._agent.now_ms(), self._reached(held))

    def _reached(self, held: lease.Lease) -> wire.Endpoint:
        profile = self._agent.offered.get(held.protocol)
        name = held.protocol if profile is None else profile.client_profile or profile.protocol
        endpoint = wire.Endpoint(protocol=held.protocol, client_profile=name, auth_modes=("mtls",))
        endpoint.MergeFrom(self._endpoint)
        return endpoint

    async def _info(self, caller: lease.Caller, request: wire.GetPoolInfoRequest) -> wire.PoolInfo:
        del caller, request
        table, limits = self._agent.table, self._agent.limits
        return wire.PoolInfo(
            pool_id=self._pool_id,
            incarnation=table.incarnation,
            revision=table.revision,
            protocols=tuple(self._agent.offered),
            default_ttl_ms=limits.ttl_ms,
            longest_ttl_ms=limits.longest_ttl_ms,
            version=self._version,
        )

    async def _list_devices(self, caller: lease.Caller, request: wire.ListDevicesRequest) -> wire.DeviceList:
        del caller
        known = self._listed()
        page, following = messages.page(known, request.page_size, request.page_token)
        protocols = tuple(self._agent.offered)
        return wire.DeviceList(
            revision=max((device.revision for device in known.values()), default=0),
            devices=[messages.of_device(device, protocols) for device in page],
            next_page_token=following,
        )

    def _listed(self) -> Mapping[str, devices.Device]:
        """That a card is unknown means something only after they were listed."""
        if self._agent.missing and not self._agent.devices:
            raise errors.NotReady(self._agent.missing)
        return self._agent.devices

    async def _watch_devices(self, caller: lease.Caller, request: wire.WatchRequest) -> AsyncIterator[wire.DeviceEvent]:
        del caller
        after, protocols = request.after_revision, tuple(self._agent.offered)
        newest = max((device.revision for device in self._agent.devices.values()), default=0)
        _known(after, newest)
        while True:
            for device in sorted(self._agent.devices.values(), key=lambda device: device.revision):
                if device.revision > after:
                    after = device.revision
                    yield wire.DeviceEvent(revision=after, device=messages.of_device(device, protocols))
                    break
            else:
                await self._agent.news()

    async def _attach(self, caller: lease.Caller, request: wire.AttachRequest) -> wire.Lease:
        limits = self._agent.limits
        self._listed()
        asked = messages.request(request, tuple(self._agent.offered), limits.ttl_ms, limits.longest_ttl_ms)
        made = await self._agent.change(
            lambda table, now: calls.attach(table, caller, asked, self._agent.withheld, now)
        )
        return self._lease(made)

    async def _get(self, caller: lease.Caller, request: wire.LeaseRef) -> wire.Lease:
        ref = messages.ref(request)
        id_ = ref.id or lease.lease_id(caller.cluster, ref.key)
        found = self._agent.table.leases.get(id_)
        if found is None:
            raise lease.Refused(lease.Kind.UNKNOWN_LEASE, f"this pool has no lease {id_}")
        if not calls.owns(caller, found):
            raise lease.Refused(lease.Kind.FORBIDDEN, f"lease {found.id} is not of {caller}")
        return self._lease(found)

    async def _list(self, caller: lease.Caller, request: wire.ListLeasesRequest) -> wire.LeaseList:
        table = self._agent.table
        found = [
            self._lease(held)
            for held in table.leases.values()
            if calls.owns(caller, held) and (request.with_ended or not held.state.ended)
        ]
        return wire.LeaseList(revision=table.revision, leases=found)

    async def _watch(self, caller: lease.Caller, request: wire.WatchRequest) -> AsyncIterator[wire.LeaseEvent]:
        after = request.after_revision
        _known(after, self._agent.table.revision)
        while True:
            table = self._agent.table
            fresh = [held for held in table.leases.values() if held.revision > after and calls.owns(caller, held)]
            for held in sorted(fresh, key=lambda held: held.revision):
                after = held.revision
                yield wire.LeaseEvent(revision=after, lease=self._lease(held))
            if table is self._agent.table:
                await self._agent.news()

    async def _renew(self, caller: lease.Caller, request: wire.RenewLeasesRequest) -> wire.RenewLeasesResponse:
        if len(request.leases) > _MOST_REFS:
            raise lease.Refused(lease.Kind.INVALID, f"more than {_MOST_REFS} leases in a call")
        refs = tuple(map(messages.ref, request.leases))
        epoch = request.owner.controller_epoch
        answers = await self._agent.change(
            lambda table, now: calls.renew(calls.admit(table, caller, epoch), caller, refs, now)
        )
        renewals = []
        for answer in answers:
            self._series.renewals.labels(str(answer.renewed).lower()).inc()
            held = None if answer.lease is None else self._lease(answer.lease)
            renewals.append(wire.Renewal(lease_id=answer.id, lease=held, renewed=answer.renewed, reason=answer.reason))
        return wire.RenewLeasesResponse(renewals=renewals)

    async def _issue(self, caller: lease.Caller, request: wire.IssueCredentialRequest) -> wire.Credential:
        held = calls.credential(self._agent.table, caller, messages.ref(request))
        life_s = min(held.ttl_ms / 1000, _LONGEST_LIFE_S)
        made = self._authority.for_lease(request.csr, held, life_s)
        return wire.Credential(
            certificate=made,
            authorities=self._authority.pem,
            expires_in_ms=int(life_s * 1000),
            endpoint=self._reached(held),
        )

    async def _detach(self, caller: lease.Caller, request: wire.DetachRequest) -> wire.Lease:
        ref, epoch = messages.ref(request), request.owner.controller_epoch
        reason = request.reason[:200]
        held = await self._agent.change(
            lambda table, now: calls.detach(calls.admit(table, caller, epoch), caller, ref, reason, now)
        )
        if held is None:
            id_ = ref.id or lease.lease_id(caller.cluster, ref.key)
            return wire.Lease(lease_id=id_, idempotency_key=ref.key, state=wire.State.RELEASED, reason="no such lease")
        return self._lease(held)

    async def _fence(self, caller: lease.Caller, request: wire.FenceRequest) -> wire.FenceResponse:
        epoch, reason = request.owner.controller_epoch, request.reason[:200]
        device, node = request.device, request.node
        if request.WhichOneof("target") == "device":
            ended = await self._agent.change(
                lambda table, _: calls.fence_device(
                    calls.admit(table, caller, epoch), caller, device.device_id, device.up_to_token, reason
                )
            )
        else:
            ended = await self._agent.change(
                lambda table, _: calls.fence_node(
                    calls.admit(table, caller, epoch), caller, node.node_uid, node.up_to_revision, reason
                )
            )
        return wire.FenceResponse(leases=[self._lease(self._agent.table.leases[id_]) for id_ in ended])


def _known(after: int, newest: int) -> None:
    if after > newest:
        raise lease.Refused(lease.Kind.GONE, f"revision {after} is not of this pool's time; list again")
