"""What a node keeps of remote cards, byte by byte: an upgrade reads what its predecessor wrote, a downgrade what its successor did.

A field may be added with a default, and then a new golden file beside the old ones; the old ones are read for ever.
"""

from pathlib import Path

import pytest

from api import resource
from driver.remote import records, relays

GOLDEN = Path(__file__).parent / "golden"
RECORD = records.Record(
    uid="0b7c4d1e-7c2f-4f0e-9d3c-2f6f1a9f6f10",
    namespace="default",
    name="simulation",
    phase=records.Phase.PREPARED,
    allocated_at="2026-11-01T10:00:00Z",
    cdi='{"cdiVersion":"0.5.0"}',
    pods=("p",),
    relayed=("card",),
    holdings=(
        records.Holding(
            request="card",
            pool="lab",
            device="gpu-00000000-0000-4000-8000-000000000000",
            share_id="a5",
            key="k1",
            epoch="2026-11-01T10:00:00Z",
            by_node=True,
            protocol="ggml-rpc",
            lease_id="lease-1",
            token=7,
            host="10.0.0.7",
            port=7481,
            spki="c3BraQ==",
            profile="ggml-rpc",
            auth_modes=("mtls", "relay"),
        ),
    ),
)
RELAY = relays.Relay(
    pods=("p",),
    links=(relays.Link(port=40_001, host="10.0.0.7", front=7481, spki="c3BraQ==", credential="card/tls.pem"),),
)


def test_the_form_of_a_record_has_not_changed_unnoticed() -> None:
    text = (GOLDEN / "record-v1.json").read_bytes()
    assert records.encode(RECORD) + b"\n" == text
    assert records.decode(text, resource.ClaimUID(RECORD.uid)) == RECORD


def test_a_field_that_a_newer_driver_has_added_is_passed_over() -> None:
    newer = (
        records.encode(RECORD)
        .replace(b'"uid"', b'"mood":"good","uid"')
        .replace(b'"request"', b'"colour":"red","request"')
    )
    assert records.decode(newer, resource.ClaimUID(RECORD.uid)) == RECORD


def test_the_form_of_what_a_relay_is_told_has_not_changed_unnoticed() -> None:
    text = (GOLDEN / "relay-v1.json").read_bytes()
    assert relays.encode(RELAY) + b"\n" == text
    assert relays.decode(text) == RELAY


@pytest.mark.parametrize(
    "value", [RECORD, RECORD.holdings[0], RELAY, RELAY.links[0]], ids=lambda value: type(value).__name__
)
def test_every_field_is_in_the_golden_files(
    value: records.Record | records.Holding | relays.Relay | relays.Link,
) -> None:
    """A new field with a default would not show in them: it is to be set here, to something else."""
    names = type(value).__struct_fields__
    defaults = dict(
        zip(names[len(names) - len(type(value).__struct_defaults__) :], type(value).__struct_defaults__, strict=True)
    )
    assert [name for name, default in defaults.items() if name != "version" and getattr(value, name) == default] == []
