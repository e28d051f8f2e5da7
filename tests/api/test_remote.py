"""The kinds of the remote road."""

from typing import Any

import msgspec
import pytest

from api import errors, remote

CA = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
SPEC: dict[str, Any] = {"endpoint": "pool.example:7443", "caBundle": CA}


def test_a_pool_is_named_to_its_nodes_tokens_as_it_says_or_by_its_own_name() -> None:
    assert remote.pool_id("lab", remote.decode_pool({"spec": SPEC}, "w")) == "lab"
    assert remote.pool_id("lab", remote.decode_pool({"spec": SPEC | {"poolId": "lab-1"}}, "w")) == "lab-1"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"endpoint": "pool.example"}, "at $.spec.endpoint"),
        ({"endpoint": "https://pool.example:1"}, "at $.spec.endpoint"),
        ({"caBundle": "none"}, "at $.spec.caBundle"),
        ({"nodes": [{"key": "-"}]}, "at $.spec.nodes[0].key"),
        ({"token": "s"}, 'unknown field "token" at $.spec'),
    ],
)
def test_a_pool_that_cannot_be_read_is_refused_with_the_path(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        remote.decode_pool({"spec": SPEC | spec}, "w")
    assert text in str(caught.value)


def test_a_lease_object_goes_there_and_back() -> None:
    lease = remote.RemoteLease(
        spec=remote.LeaseSpec(
            pool="lab",
            device="gpu-1",
            key="ab" * 32,
            epoch="2026-01-01T00:00:00Z",
            claim=remote.LeaseClaim(namespace="n", name="c", uid="u"),
            node=remote.LeaseNode(name="node1", uid="nu"),
            attached_by=remote.AttachedBy.CONTROLLER,
        ),
        status=remote.LeaseStatus(phase=remote.Phase.ATTACHING, since="2026-01-01T00:00:00Z"),
    )
    data = remote.encode_lease(lease)
    assert data["metadata"] == {"name": f"lease-{'ab' * 16}", "finalizers": ["elasticgpu.io/lease"]}
    assert remote.decode_lease(msgspec.json.decode(msgspec.json.encode(data)), "w") == lease


@pytest.mark.parametrize(
    "since", ["2026-01-01T00:00:00z", "2026-01-01T00:00:00x5Z", "2026-01-01T00:00:00", "9999-12-31T23:59:59Z", ""]
)
def test_a_lease_object_whose_time_cannot_be_reckoned_with_is_refused_with_its_field(since: str) -> None:
    of = {"claim": {"namespace": "n", "name": "c", "uid": "u"}, "node": {"name": "node1", "uid": "nu"}}
    spec = {"pool": "lab", "device": "gpu-1", "key": "k", "epoch": "e", "attachedBy": "Node"} | of
    good = {"spec": spec, "status": {"phase": "Attached", "since": "2026-01-01T00:00:00.5+01:00"}}
    assert remote.decode_lease(good, "w").status.phase is remote.Phase.ATTACHED
    with pytest.raises(errors.Invalid, match=r"w: status\.since"):
        remote.decode_lease(good | {"status": {"phase": "Attached", "since": since}}, "w")
