"""Values to the messages of the pool's API, and back. Times become durations here."""

from collections.abc import Mapping

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire
from pool import calls, devices


def of_lease(held: lease.Lease, now: int, endpoint: wire.Endpoint | None) -> wire.Lease:
    """`endpoint`: of the pool's door; it is told while the lease is attached."""
    message = wire.Lease(
        lease_id=held.id,
        idempotency_key=held.key,
        device_id=held.device,
        fencing_token=held.token,
        state=held.state.value,
        expires_in_ms=0 if held.state.ended else max(held.expires_ms - now, 0),
        reason=held.reason,
        server_incarnation=held.server_incarnation,
        age_ms=max(now - held.created_ms, 0),
        owner=wire.Owner(cluster_uid=held.cluster, controller_epoch=held.epoch),
        consumer=of_consumer(held.consumer),
        revision=held.revision,
        created_revision=held.created_revision,
    )
    if endpoint is not None and held.state is lease.State.ATTACHED:
        message.endpoint.CopyFrom(endpoint)
    return message


def of_consumer(who: lease.Consumer) -> wire.Consumer:
    return wire.Consumer(
        namespace=who.namespace,
        claim_name=who.claim_name,
        claim_uid=who.claim_uid,
        share_id=who.share_id,
        node_name=who.node_name,
        node_uid=who.node_uid,
        pod_uids=who.pods,
    )


def of_device(device: devices.Device, protocols: tuple[str, ...]) -> wire.Device:
    return wire.Device(
        device_id=device.id,
        uuid=device.uuid,
        product_name=device.product_name,
        brand=device.brand,
        architecture=device.architecture,
        compute_capability=device.compute_capability,
        memory_bytes=device.memory_bytes,
        driver_version=device.driver_version,
        cuda_driver_version=device.cuda_driver_version,
        protocols=protocols,
        state=device.state.value,
        reason=device.reason,
        revision=device.revision,
    )


def request(message: wire.AttachRequest, protocols: tuple[str, ...], ttl_ms: int, longest_ms: int) -> calls.Request:
    """An Attach. Raises Refused for what cannot be meant."""
    protocol = message.protocol or (protocols[0] if len(protocols) == 1 else "")
    if protocol not in protocols:
        text = f"protocol {message.protocol!r}: this pool offers {', '.join(protocols)}; one must be named"
        raise lease.Refused(lease.Kind.INVALID, text)
    if not 0 <= message.ttl_ms <= longest_ms or not 0 <= message.attach_within_ms <= longest_ms:
        raise lease.Refused(lease.Kind.INVALID, f"ttl_ms and attach_within_ms must be from 0 to {longest_ms}")
    who = message.consumer
    return calls.Request(
        key=message.idempotency_key,
        device=message.device_id,
        cluster=message.owner.cluster_uid,
        epoch=message.owner.controller_epoch,
        consumer=lease.Consumer(
            claim_uid=who.claim_uid,
            node_uid=who.node_uid,
            node_name=who.node_name,
            namespace=who.namespace,
            claim_name=who.claim_name,
            share_id=who.share_id,
            pods=tuple(who.pod_uids),
        ),
        protocol=protocol,
        ttl_ms=message.ttl_ms or ttl_ms,
        within_ms=message.attach_within_ms or ttl_ms,
    )


def ref(message: wire.LeaseRef | wire.DetachRequest | wire.IssueCredentialRequest) -> calls.Ref:
    key = "" if isinstance(message, wire.IssueCredentialRequest) else message.idempotency_key
    return calls.Ref(id=message.lease_id, token=message.fencing_token, key="" if message.lease_id else key)


def page(known: Mapping[str, devices.Device], size: int, after: str) -> tuple[tuple[devices.Device, ...], str]:
    """Devices by id after one of them, and where the next page begins; empty: nowhere."""
    rest = sorted(id_ for id_ in known if id_ > after)
    here = rest[:size] if size > 0 else rest
    return tuple(known[id_] for id_ in here), here[-1] if len(here) < len(rest) else ""
