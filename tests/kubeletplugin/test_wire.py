"""The wire is Kubernetes': what is written here was compared with the descriptors of k8s.io/kubelet v0.37.2."""

from typing import Any

import pytest

from api.protos import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    registration_v1_pb2,
)
from hack import generate

PREPARE = """
Claim: 1 namespace 9, 2 uid 9, 3 name 9
Device: 1 request_names 9*, 2 pool_name 9, 3 device_name 9, 4 cdi_device_ids 9*{share}
NodePrepareResourceResponse: 1 devices Device*, 2 error 9
NodePrepareResourcesRequest: 1 claims Claim*
NodePrepareResourcesResponse: 1 claims ClaimsEntry*
NodeUnprepareResourceResponse: 1 error 9
NodeUnprepareResourcesRequest: 1 claims Claim*
NodeUnprepareResourcesResponse: 1 claims ClaimsEntry*
DRAPlugin.NodePrepareResources NodePrepareResourcesRequest -> NodePrepareResourcesResponse
DRAPlugin.NodeUnprepareResources NodeUnprepareResourcesRequest -> NodeUnprepareResourcesResponse
"""
HEALTH = """
DeviceHealth: 1 device DeviceIdentifier, 2 health HealthStatus, 3 last_updated_time 3, 4 health_check_timeout_seconds 3, 5 message 9
DeviceIdentifier: 1 pool_name 9, 2 device_name 9
NodeWatchResourcesRequest:
NodeWatchResourcesResponse: 1 devices DeviceHealth*
HealthStatus UNKNOWN=0 HEALTHY=1 UNHEALTHY=2
DRAResourceHealth.NodeWatchResources NodeWatchResourcesRequest -> stream NodeWatchResourcesResponse
"""
REGISTRATION = """
InfoRequest:
PluginInfo: 1 type 9, 2 name 9, 3 endpoint 9, 4 supported_versions 9*
RegistrationStatus: 1 plugin_registered 8, 2 error 9
RegistrationStatusResponse:
Registration.GetInfo InfoRequest -> PluginInfo
Registration.NotifyRegistrationStatus RegistrationStatus -> RegistrationStatusResponse
"""


def _field(field: Any) -> str:
    kind = (field.message_type or field.enum_type).name if field.message_type or field.enum_type else field.type
    optional = "?" if field.has_presence and not field.message_type else ""
    return f"{field.number} {field.name} {kind}{'*' if field.is_repeated else optional}"


def _described(module: Any) -> str:
    file = module.DESCRIPTOR
    lines = [
        f"{name}: {', '.join(map(_field, message.fields))}".strip()
        for name, message in sorted(file.message_types_by_name.items())
    ]
    lines += [
        " ".join([name, *(f"{value.name}={value.number}" for value in enum.values)])
        for name, enum in file.enum_types_by_name.items()
    ]
    lines += [
        f"{name}.{m.name} {m.input_type.name} -> {'stream ' if m.server_streaming else ''}{m.output_type.name}"
        for name, service in file.services_by_name.items()
        for m in service.methods
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("module", "package", "text"),
    [
        (dra_v1_pb2, "k8s.io.kubelet.pkg.apis.dra.v1", PREPARE.format(share=", 5 share_id 9?")),
        (dra_v1beta1_pb2, "k8s.io.kubelet.pkg.apis.dra.v1beta1", PREPARE.format(share="")),
        (dra_health_v1_pb2, "v1", HEALTH),
        (dra_health_v1alpha1_pb2, "v1alpha1", HEALTH),
        (registration_v1_pb2, "pluginregistration", REGISTRATION),
    ],
)
def test_our_protos_are_those_of_kubernetes(module: Any, package: str, text: str) -> None:
    assert module.DESCRIPTOR.package == package
    assert _described(module) == text.strip()


def test_a_v1_answer_without_a_share_has_the_bytes_of_v1beta1() -> None:
    device = {"request_names": ["gpu"], "pool_name": "p", "device_name": "d", "cdi_device_ids": ["v/c=n"]}
    assert dra_v1_pb2.Device(**device).SerializeToString() == dra_v1beta1_pb2.Device(**device).SerializeToString()


def test_generated_files_are_fresh() -> None:
    assert [name for name in generate.stale() if name.startswith("api/protos")] == []
