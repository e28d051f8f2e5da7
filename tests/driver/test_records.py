"""The text of a record: what is written can be read, and nothing else can."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import errors, resource
from driver import records

GOLDEN = Path(__file__).parent / "golden"
FIRST = (GOLDEN / "record-v1.json").read_bytes()
"""As the first release wrote it: without shares."""
RECORD = records.Record(
    uid=resource.ClaimUID("0b7c4d1e-7c2f-4f0e-9d3c-2f6f1a9f6f10"),
    namespace="default",
    name="training",
    phase=records.Phase.PREPARED,
    boot_id="e8677c90-42be-45d1-a0f1-8871f59a2f5a",
    holdings=(
        records.Holding(
            request="gpu/big",
            pool="egpu/node1",
            device="gpu-00000000-0000-4000-8000-000000000000",
            card="GPU-00000000-0000-4000-8000-000000000000",
            minor=3,
            model="NVIDIA H100 80GB HBM3",
            share_id="a5",
            admin_access=True,
            enforcement="whole",
        ),
    ),
    cdi='{"cdiVersion":"0.5.0"}',
    steps=(records.Step(kind="limit", device="gpu-00000000-0000-4000-8000-000000000000"),),
    done=1,
)


def _read(text: bytes) -> records.Record:
    return records.decode(text, RECORD.uid)


def test_records_of_the_first_release_are_read_for_ever() -> None:
    """NV PR#1326: an upgrade made every record corrupt."""
    assert _read(FIRST) == RECORD


def test_a_record_that_says_nothing_of_shares_is_of_a_whole_card() -> None:
    (holding,) = _read(FIRST).holdings
    assert (holding.backend, holding.cores) == ("whole", 100)


SHARE = replace(
    RECORD,
    holdings=(
        replace(
            RECORD.holdings[0],
            admin_access=False,
            backend="share",
            cores=30,
            memory_mib=8192,
            enforcement="driver",
            cores_enforcement="none",
        ),
    ),
    steps=(records.Step(kind="driver/limit", device="gpu-00000000-0000-4000-8000-000000000000", backend="share"),),
)


GROUPED = replace(
    SHARE, pods=("p",), holdings=tuple(replace(holding, group="p", limit_mib=4096) for holding in SHARE.holdings)
)


def test_the_form_on_disk_has_not_changed_unnoticed() -> None:
    assert records.encode(GROUPED) == (GOLDEN / "record-v1-pods.json").read_bytes()
    assert _read((GOLDEN / "record-v1-pods.json").read_bytes()) == GROUPED


def test_a_share_of_a_driver_that_knew_no_pods_is_read_as_it_was() -> None:
    assert _read((GOLDEN / "record-v1-share.json").read_bytes()) == SHARE


def test_a_field_that_a_newer_driver_has_added_is_passed_over() -> None:
    """A downgrade: the older driver still knows whose cards they are and how to undo what was done."""
    text = records.encode(GROUPED)
    newer = text.replace(b'"done":1', b'"done":1,"mood":"good"').replace(b'"minor":3', b'"minor":3,"colour":"red"')
    assert _read(_signed(newer)) == GROUPED


TEXT = st.text(max_size=30)


@given(
    st.builds(
        records.Record,
        uid=st.just(RECORD.uid),
        namespace=TEXT,
        name=TEXT,
        phase=st.sampled_from(records.Phase),
        boot_id=TEXT,
        holdings=st.lists(
            st.builds(
                records.Holding,
                request=TEXT,
                pool=TEXT,
                device=TEXT,
                card=TEXT,
                minor=st.integers(0, 255),
                model=TEXT,
                share_id=TEXT,
                admin_access=st.booleans(),
                enforcement=TEXT,
                backend=TEXT,
                cores=st.integers(0, 100),
                memory_mib=st.integers(0, 2**40),
                cores_enforcement=TEXT,
            ),
            max_size=3,
        ).map(tuple),
        cdi=TEXT,
        steps=st.lists(st.builds(records.Step, kind=TEXT, device=TEXT), max_size=3).map(tuple),
        done=st.integers(0, 3),
    )
)
def test_what_is_written_is_read(record: records.Record) -> None:
    assert _read(records.encode(record)) == record


@pytest.mark.parametrize("bit", range(8))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    """In the example driver a flipped bit inside a UID was never noticed."""
    text = records.encode(RECORD)
    for place in range(len(text)):
        harmed = text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]
        with pytest.raises(errors.Corrupt):
            _read(harmed)


def test_any_cut_is_noticed() -> None:
    text = records.encode(RECORD)
    for length in range(len(text)):
        with pytest.raises(errors.Corrupt):
            _read(text[:length])


@given(st.binary(max_size=200))
def test_anything_else_is_corrupt_and_nothing_worse(text: bytes) -> None:
    with pytest.raises(errors.Corrupt):
        _read(text)


def test_a_record_under_another_name_is_refused() -> None:
    with pytest.raises(errors.Corrupt, match=f"that of claim {RECORD.uid}, not of b"):
        records.decode(records.encode(RECORD), "b")


def test_a_whole_record_that_is_not_understood_says_where() -> None:
    with pytest.raises(errors.Corrupt, match=r"\$\.phase"):
        _read(_signed(records.encode(RECORD).replace(b'"Prepared"', b'"Prepaid"')))


def test_a_cut_text_still_tells_the_cards_that_stand_in_it_and_nothing_wrong() -> None:
    text = records.encode(RECORD)
    told = [records.salvaged(text[:length], RECORD.uid) for length in range(len(text) + 1)]
    assert told[0] is None
    first = next(place for place, record in enumerate(told) if record is not None)
    for record in told[first:]:
        assert record is not None
        assert (str(record), record.phase, record.holdings) == (str(RECORD), records.Phase.STUCK, RECORD.holdings)
        assert record.steps in {(), RECORD.steps}
        assert record.done == len(record.steps), "all that may have been made is undone"
    assert told[-1] is not None
    assert told[-1].steps == RECORD.steps


@given(st.binary(max_size=200), st.integers(0, 2000))
def test_whatever_a_text_has_become_telling_its_rest_never_fails(noise: bytes, place: int) -> None:
    text = records.encode(RECORD)
    records.salvaged(text[:place] + noise + text[place + len(noise) :], RECORD.uid)


def test_a_text_that_names_no_owner_or_no_card_tells_nothing() -> None:
    text = records.encode(RECORD)
    assert records.salvaged(text.replace(b'"namespace"', b'"namespacf"'), RECORD.uid) is None
    assert records.salvaged(text.replace(b'{"request"', b'{"requesu"'), RECORD.uid) is None


def _signed(text: bytes) -> bytes:
    import hashlib

    body = text[text.index(b'"record":') + 9 : -2]
    return b'{"version":"v1","sha256":"%b","record":%b}\n' % (hashlib.sha256(body).hexdigest().encode(), body)
