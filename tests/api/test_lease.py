"""Keys and the meaning of a pool's no."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire

PARTS = ("cluster_uid", "claim_uid", "driver", "pool", "device", "share_id", "node_uid", "epoch")
TEXTS = st.fixed_dictionaries({part: st.text(max_size=4) for part in PARTS})


@given(TEXTS, TEXTS)
def test_two_allocations_have_one_key_only_if_they_are_the_same(one: dict[str, str], other: dict[str, str]) -> None:
    assert (lease.key(**one) == lease.key(**other)) == (one == other)


def test_states_and_refusals_have_the_names_of_the_wire() -> None:
    assert {state.value for state in lease.State} == set(wire.State.keys()) - {"STATE_UNSPECIFIED"}
    assert {kind.value for kind in lease.Kind} == set(wire.Refusal.Kind.keys()) - {"KIND_UNSPECIFIED"}


def test_every_refusal_has_a_status() -> None:
    assert set(lease.STATUS) == set(lease.Kind)


@pytest.mark.parametrize(
    ("status", "kind", "meaning"),
    [
        ("UNAVAILABLE", None, lease.Meaning.AGAIN),
        ("DEADLINE_EXCEEDED", None, lease.Meaning.AGAIN),
        ("INTERNAL", None, lease.Meaning.AGAIN),
        ("FAILED_PRECONDITION", None, lease.Meaning.AGAIN),
        ("FAILED_PRECONDITION", lease.Kind.HELD, lease.Meaning.HELD),
        ("FAILED_PRECONDITION", lease.Kind.DEPOSED, lease.Meaning.DEPOSED),
        ("FAILED_PRECONDITION", lease.Kind.STALE, lease.Meaning.ENDED),
        ("ABORTED", lease.Kind.ENDED, lease.Meaning.ENDED),
        ("NOT_FOUND", lease.Kind.UNKNOWN_DEVICE, lease.Meaning.FINAL),
        ("RESOURCE_EXHAUSTED", lease.Kind.WITHHELD, lease.Meaning.FINAL),
        ("INVALID_ARGUMENT", None, lease.Meaning.FINAL),
        ("UNIMPLEMENTED", None, lease.Meaning.FINAL),
    ],
)
def test_what_a_failed_call_means(status: str, kind: lease.Kind | None, meaning: lease.Meaning) -> None:
    assert lease.meaning(status, kind) is meaning
