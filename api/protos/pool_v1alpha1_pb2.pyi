from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeviceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEVICE_STATE_UNSPECIFIED: _ClassVar[DeviceState]
    OFFERED: _ClassVar[DeviceState]
    DRAINING: _ClassVar[DeviceState]
    UNWELL: _ClassVar[DeviceState]
    REMOVED: _ClassVar[DeviceState]

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    ATTACHING: _ClassVar[State]
    ATTACHED: _ClassVar[State]
    RELEASING: _ClassVar[State]
    RELEASED: _ClassVar[State]
    FAILED: _ClassVar[State]
    LOST: _ClassVar[State]
DEVICE_STATE_UNSPECIFIED: DeviceState
OFFERED: DeviceState
DRAINING: DeviceState
UNWELL: DeviceState
REMOVED: DeviceState
STATE_UNSPECIFIED: State
ATTACHING: State
ATTACHED: State
RELEASING: State
RELEASED: State
FAILED: State
LOST: State

class GetPoolInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PoolInfo(_message.Message):
    __slots__ = ("pool_id", "incarnation", "revision", "protocols", "default_ttl_ms", "longest_ttl_ms", "features", "version")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    incarnation: int
    revision: int
    protocols: _containers.RepeatedScalarFieldContainer[str]
    default_ttl_ms: int
    longest_ttl_ms: int
    features: _containers.RepeatedScalarFieldContainer[str]
    version: str
    def __init__(self, pool_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., revision: _Optional[int] = ..., protocols: _Optional[_Iterable[str]] = ..., default_ttl_ms: _Optional[int] = ..., longest_ttl_ms: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class DeviceList(_message.Message):
    __slots__ = ("revision", "devices", "next_page_token")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    revision: int
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    next_page_token: str
    def __init__(self, revision: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("device_id", "uuid", "product_name", "brand", "architecture", "compute_capability", "memory_bytes", "driver_version", "cuda_driver_version", "protocols", "state", "reason", "revision")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_NAME_FIELD_NUMBER: _ClassVar[int]
    BRAND_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CUDA_DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    uuid: str
    product_name: str
    brand: str
    architecture: str
    compute_capability: str
    memory_bytes: int
    driver_version: str
    cuda_driver_version: str
    protocols: _containers.RepeatedScalarFieldContainer[str]
    state: DeviceState
    reason: str
    revision: int
    def __init__(self, device_id: _Optional[str] = ..., uuid: _Optional[str] = ..., product_name: _Optional[str] = ..., brand: _Optional[str] = ..., architecture: _Optional[str] = ..., compute_capability: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., driver_version: _Optional[str] = ..., cuda_driver_version: _Optional[str] = ..., protocols: _Optional[_Iterable[str]] = ..., state: _Optional[_Union[DeviceState, str]] = ..., reason: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("after_revision",)
    AFTER_REVISION_FIELD_NUMBER: _ClassVar[int]
    after_revision: int
    def __init__(self, after_revision: _Optional[int] = ...) -> None: ...

class DeviceEvent(_message.Message):
    __slots__ = ("revision", "device")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    device: Device
    def __init__(self, revision: _Optional[int] = ..., device: _Optional[_Union[Device, _Mapping]] = ...) -> None: ...

class LeaseEvent(_message.Message):
    __slots__ = ("revision", "lease")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    lease: Lease
    def __init__(self, revision: _Optional[int] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("cluster_uid", "controller_epoch")
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    cluster_uid: str
    controller_epoch: int
    def __init__(self, cluster_uid: _Optional[str] = ..., controller_epoch: _Optional[int] = ...) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("namespace", "claim_name", "claim_uid", "share_id", "node_name", "node_uid", "pod_uids")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_NAME_FIELD_NUMBER: _ClassVar[int]
    CLAIM_UID_FIELD_NUMBER: _ClassVar[int]
    SHARE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_UID_FIELD_NUMBER: _ClassVar[int]
    POD_UIDS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    claim_name: str
    claim_uid: str
    share_id: str
    node_name: str
    node_uid: str
    pod_uids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., claim_name: _Optional[str] = ..., claim_uid: _Optional[str] = ..., share_id: _Optional[str] = ..., node_name: _Optional[str] = ..., node_uid: _Optional[str] = ..., pod_uids: _Optional[_Iterable[str]] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("idempotency_key", "device_id", "owner", "consumer", "ttl_ms", "attach_within_ms", "protocol")
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ATTACH_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    idempotency_key: str
    device_id: str
    owner: Owner
    consumer: Consumer
    ttl_ms: int
    attach_within_ms: int
    protocol: str
    def __init__(self, idempotency_key: _Optional[str] = ..., device_id: _Optional[str] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., consumer: _Optional[_Union[Consumer, _Mapping]] = ..., ttl_ms: _Optional[int] = ..., attach_within_ms: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("lease_id", "idempotency_key", "device_id", "fencing_token", "state", "endpoint", "expires_in_ms", "reason", "server_incarnation", "age_ms", "owner", "consumer", "revision", "created_revision")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SERVER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_REVISION_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    idempotency_key: str
    device_id: str
    fencing_token: int
    state: State
    endpoint: Endpoint
    expires_in_ms: int
    reason: str
    server_incarnation: int
    age_ms: int
    owner: Owner
    consumer: Consumer
    revision: int
    created_revision: int
    def __init__(self, lease_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., device_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., state: _Optional[_Union[State, str]] = ..., endpoint: _Optional[_Union[Endpoint, _Mapping]] = ..., expires_in_ms: _Optional[int] = ..., reason: _Optional[str] = ..., server_incarnation: _Optional[int] = ..., age_ms: _Optional[int] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., consumer: _Optional[_Union[Consumer, _Mapping]] = ..., revision: _Optional[int] = ..., created_revision: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("host", "port", "protocol", "server_spki_sha256", "auth_modes", "client_profile")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SERVER_SPKI_SHA256_FIELD_NUMBER: _ClassVar[int]
    AUTH_MODES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_PROFILE_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    protocol: str
    server_spki_sha256: str
    auth_modes: _containers.RepeatedScalarFieldContainer[str]
    client_profile: str
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., protocol: _Optional[str] = ..., server_spki_sha256: _Optional[str] = ..., auth_modes: _Optional[_Iterable[str]] = ..., client_profile: _Optional[str] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("lease_id", "fencing_token", "idempotency_key")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fencing_token: int
    idempotency_key: str
    def __init__(self, lease_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("with_ended",)
    WITH_ENDED_FIELD_NUMBER: _ClassVar[int]
    with_ended: bool
    def __init__(self, with_ended: _Optional[bool] = ...) -> None: ...

class LeaseList(_message.Message):
    __slots__ = ("revision", "leases")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, revision: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class RenewLeasesRequest(_message.Message):
    __slots__ = ("leases", "owner")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    owner: Owner
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ...) -> None: ...

class RenewLeasesResponse(_message.Message):
    __slots__ = ("renewals",)
    RENEWALS_FIELD_NUMBER: _ClassVar[int]
    renewals: _containers.RepeatedCompositeFieldContainer[Renewal]
    def __init__(self, renewals: _Optional[_Iterable[_Union[Renewal, _Mapping]]] = ...) -> None: ...

class Renewal(_message.Message):
    __slots__ = ("lease_id", "lease", "renewed", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    lease: Lease
    renewed: bool
    reason: str
    def __init__(self, lease_id: _Optional[str] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., renewed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class IssueCredentialRequest(_message.Message):
    __slots__ = ("lease_id", "fencing_token", "csr")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CSR_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fencing_token: int
    csr: bytes
    def __init__(self, lease_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., csr: _Optional[bytes] = ...) -> None: ...

class Credential(_message.Message):
    __slots__ = ("certificate", "authorities", "expires_in_ms", "endpoint")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authorities: bytes
    expires_in_ms: int
    endpoint: Endpoint
    def __init__(self, certificate: _Optional[bytes] = ..., authorities: _Optional[bytes] = ..., expires_in_ms: _Optional[int] = ..., endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class DetachRequest(_message.Message):
    __slots__ = ("lease_id", "fencing_token", "idempotency_key", "owner", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fencing_token: int
    idempotency_key: str
    owner: Owner
    reason: str
    def __init__(self, lease_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ("owner", "device", "node", "reason")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    owner: Owner
    device: DeviceFence
    node: NodeFence
    reason: str
    def __init__(self, owner: _Optional[_Union[Owner, _Mapping]] = ..., device: _Optional[_Union[DeviceFence, _Mapping]] = ..., node: _Optional[_Union[NodeFence, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class DeviceFence(_message.Message):
    __slots__ = ("device_id", "up_to_token")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    UP_TO_TOKEN_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    up_to_token: int
    def __init__(self, device_id: _Optional[str] = ..., up_to_token: _Optional[int] = ...) -> None: ...

class NodeFence(_message.Message):
    __slots__ = ("node_name", "node_uid", "up_to_revision")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_UID_FIELD_NUMBER: _ClassVar[int]
    UP_TO_REVISION_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    node_uid: str
    up_to_revision: int
    def __init__(self, node_name: _Optional[str] = ..., node_uid: _Optional[str] = ..., up_to_revision: _Optional[int] = ...) -> None: ...

class FenceResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("kind", "holder")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Refusal.Kind]
        HELD: _ClassVar[Refusal.Kind]
        DEPOSED: _ClassVar[Refusal.Kind]
        STALE: _ClassVar[Refusal.Kind]
        ENDED: _ClassVar[Refusal.Kind]
        REUSED: _ClassVar[Refusal.Kind]
        UNKNOWN_DEVICE: _ClassVar[Refusal.Kind]
        UNKNOWN_LEASE: _ClassVar[Refusal.Kind]
        WITHHELD: _ClassVar[Refusal.Kind]
        INVALID: _ClassVar[Refusal.Kind]
        FORBIDDEN: _ClassVar[Refusal.Kind]
        GONE: _ClassVar[Refusal.Kind]
    KIND_UNSPECIFIED: Refusal.Kind
    HELD: Refusal.Kind
    DEPOSED: Refusal.Kind
    STALE: Refusal.Kind
    ENDED: Refusal.Kind
    REUSED: Refusal.Kind
    UNKNOWN_DEVICE: Refusal.Kind
    UNKNOWN_LEASE: Refusal.Kind
    WITHHELD: Refusal.Kind
    INVALID: Refusal.Kind
    FORBIDDEN: Refusal.Kind
    GONE: Refusal.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    kind: Refusal.Kind
    holder: Lease
    def __init__(self, kind: _Optional[_Union[Refusal.Kind, str]] = ..., holder: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...
