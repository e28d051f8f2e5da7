"""The state of a card: what makes it unwell, what makes it well again, what the cluster is told."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import errors, names
from driver import health, inventory

KIND = inventory.EventKind
CARD = inventory.CardUUID("GPU-1")
OTHER = inventory.CardUUID("GPU-2")
T0 = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def xid(number: int) -> inventory.Event:
    return inventory.Event(kind=KIND.XID, uuid=CARD, xid=number)


def event(kind: inventory.EventKind) -> inventory.Event:
    return inventory.Event(kind=kind, uuid=CARD)


def run(*events: inventory.Event, start: health.State | None = None) -> health.State:
    """Each event a minute after the one before."""
    state = start or health.State()
    for minute, one in enumerate(events):
        state = health.after(state, one, at(60 * minute))
    return state


def tainted(state: health.State) -> list[tuple[str, str, str, str]]:
    return [(one.key, one.value, one.effect, one.added) for one in health.taints(state, lost_effect="NoSchedule")]


FATAL = st.integers(1, 200).filter(lambda number: number not in health.APPLICATION_XIDS)
TROUBLE = st.one_of(
    st.integers(1, 200).map(xid), st.sampled_from([event(KIND.LOST), event(KIND.HUNG), event(KIND.UNREADABLE)])
)
ANYTHING = st.one_of(TROUBLE, st.sampled_from([event(kind) for kind in KIND if kind is not KIND.XID]))
TIMED = st.lists(st.tuples(st.integers(0, 10_000), TROUBLE), max_size=12)


@given(TIMED, st.randoms())
def test_trouble_may_come_in_any_order_and_twice(timed: list[tuple[int, inventory.Event]], random: object) -> None:
    shuffled = [*timed, *timed[:3]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = health.State(), health.State()
    for seconds, happened in timed:
        one = health.after(one, happened, at(seconds))
    for seconds, happened in shuffled:
        other = health.after(other, happened, at(seconds))
    assert one == other
    assert health.taints(one, lost_effect="NoSchedule") == health.taints(other, lost_effect="NoSchedule")


@given(st.lists(TROUBLE, min_size=1, max_size=12))
def test_the_worst_wins(events: list[inventory.Event]) -> None:
    assert run(*events).severity == max(run(one).severity for one in events)


@given(FATAL, st.lists(ANYTHING.filter(lambda one: one.kind not in {KIND.RETURNED, KIND.RELOADED}), max_size=12))
def test_nothing_but_a_reset_and_a_probe_closes_a_fatal_xid(number: int, events: list[inventory.Event]) -> None:
    """PR NV#1243"""
    state = run(xid(number), *events)
    assert (names.XID_TAINT, str(number)) == tainted(state)[-1][:2]
    assert state.severity >= health.Severity.UNWELL


@given(st.lists(ANYTHING, max_size=20))
def test_every_state_can_be_cured_and_written_down(events: list[inventory.Event]) -> None:
    state = run(*events)
    kept = health.Health(states={CARD: state} if state != health.State() else {}, driver_version="1")
    assert health.decode(health.encode(kept, "boot"), "boot") == kept
    away = health.after(state, event(KIND.VANISHED), at(9000))
    back = health.after(away, event(KIND.RETURNED), at(9001))
    assert health.after(back, event(KIND.ANSWERED), at(9002)) == health.State()


@pytest.mark.parametrize("number", sorted(health.APPLICATION_XIDS))
def test_an_application_xid_is_noted_never_tainted_and_forgotten_after_a_while(number: int) -> None:
    state = run(xid(number))
    assert state.severity is health.Severity.NOTED
    assert tainted(state) == []
    assert health.report(state) == health.Report(
        verdict=health.Verdict.HEALTHY,
        message=f"XID {number} at 2026-05-01T12:00:00Z: an error of the program on the card",
    )
    assert health.after(state, event(KIND.ANSWERED), at(599)) == state
    assert health.after(state, event(KIND.ANSWERED), at(600)) == health.State()


def test_a_fatal_xid_is_tainted_with_its_number_and_its_time() -> None:
    state = run(xid(31), xid(79), xid(48), xid(79))
    assert tainted(state) == [("gpu.elasticgpu.io/xid", "79", "NoSchedule", "2026-05-01T12:01:00Z")]
    assert health.report(state).verdict is health.Verdict.UNHEALTHY
    assert health.report(state).message.startswith("XID 79 at 2026-05-01T12:01:00Z: an error of the card; XID 48")


@pytest.mark.parametrize(
    "cure", [(event(KIND.VANISHED), event(KIND.RETURNED)), (event(KIND.RELOADED),)], ids=["reset", "driver reload"]
)
def test_a_fatal_xid_closes_when_a_probe_follows_the_cure(cure: tuple[inventory.Event, ...]) -> None:
    state = run(xid(79), *cure)
    assert tainted(state)[-1][1] == "79"
    assert health.after(state, event(KIND.ANSWERED), at(999)) == health.State()


def test_an_xid_after_the_cure_needs_another() -> None:
    state = run(xid(79), event(KIND.RELOADED), xid(79), event(KIND.ANSWERED))
    assert tainted(state) == [("gpu.elasticgpu.io/xid", "79", "NoSchedule", "2026-05-01T12:00:00Z")]


def test_a_return_of_a_card_that_was_not_away_cures_nothing() -> None:
    assert run(xid(79), event(KIND.RETURNED), event(KIND.ANSWERED)).severity is health.Severity.UNWELL


def test_a_lost_card_is_tainted_until_it_answers() -> None:
    state = run(event(KIND.LOST), event(KIND.LOST))
    assert tainted(state) == [("gpu.elasticgpu.io/lost", "", "NoSchedule", "2026-05-01T12:00:00Z")]
    assert health.taints(state, lost_effect="NoExecute")[0].effect == "NoExecute"
    assert health.report(state) == health.Report(
        verdict=health.Verdict.UNHEALTHY, message="lost since 2026-05-01T12:00:00Z"
    )
    assert health.after(state, event(KIND.ANSWERED), at(1)) == health.State()


def test_only_a_lost_card_can_be_evicted_from() -> None:
    state = run(xid(79), event(KIND.HUNG), event(KIND.LOST))
    effects = {one.key: one.effect for one in health.taints(state, lost_effect="NoExecute")}
    assert effects == {
        names.XID_TAINT: "NoSchedule",
        names.UNREADABLE_TAINT: "NoSchedule",
        names.LOST_TAINT: "NoExecute",
    }


def test_of_a_card_that_does_not_answer_nothing_is_known() -> None:
    state = run(event(KIND.HUNG))
    assert tainted(state) == [("gpu.elasticgpu.io/unreadable", "hung", "NoSchedule", "2026-05-01T12:00:00Z")]
    assert health.report(state).verdict is health.Verdict.UNKNOWN


def an_inventory(*uuids: str, driver: str = "580", lost: str | None = None) -> inventory.Inventory:
    cards = tuple(inventory.Card(uuid=inventory.CardUUID(uuid), minor=at) for at, uuid in enumerate(uuids))
    faults = tuple(
        inventory.Fault(kind=inventory.FaultKind.LOST, why="GPU is lost", uuid=card.uuid, card=card)
        for card in cards
        if card.uuid == lost
    )
    return inventory.Inventory(
        driver_version=driver, cards=tuple(card for card in cards if card.uuid != lost), faults=faults
    )


def test_a_look_at_all_cards_blames_only_the_lost_one() -> None:
    both = an_inventory(CARD, OTHER)
    seen = health.polled(health.Health(), both, an_inventory(CARD, OTHER, lost=CARD), T0)
    assert {uuid: state.severity for uuid, state in seen.states.items()} == {CARD: health.Severity.LOST}


def test_a_reset_is_seen_by_two_looks_and_proven_by_a_probe() -> None:
    """NV#904"""
    both, one = an_inventory(CARD, OTHER), an_inventory(OTHER)
    state = health.seen(health.Health(driver_version="580"), xid(79), T0)
    state = health.polled(state, both, one, at(10))
    assert health.report(state.of(CARD)).message.startswith("not listed since")
    state = health.polled(state, one, both, at(20))
    assert [taint.key for taint in health.taints(state.of(CARD), lost_effect="NoSchedule")] == [
        names.LOST_TAINT,
        names.XID_TAINT,
    ]
    assert health.seen(state, event(KIND.ANSWERED), at(30)).states == {}


def test_a_driver_that_changed_while_we_were_away_is_a_reload() -> None:
    state = health.decode(health.encode(health.seen(health.Health(driver_version="580"), xid(79), T0), "boot"), "boot")
    same = health.polled(state, inventory.Inventory(), an_inventory(CARD), at(10))
    assert tainted(health.seen(same, event(KIND.ANSWERED), at(11)).of(CARD)) != []
    other = health.polled(state, inventory.Inventory(), an_inventory(CARD, driver="590"), at(10))
    assert health.seen(other, event(KIND.ANSWERED), at(11)).states == {}
    assert other.driver_version == "590"


def test_an_event_that_names_no_card_blames_none() -> None:
    assert health.seen(health.Health(), inventory.Event(kind=KIND.LOST), T0) == health.Health()


def test_a_restart_keeps_the_state_and_a_reboot_leaves_it_to_the_next_probe() -> None:
    """NV#1455"""
    text = health.encode(health.seen(health.Health(), xid(79), T0), "boot one")
    again, rebooted = health.decode(text, "boot one"), health.decode(text, "boot two")
    assert tainted(health.after(again.of(CARD), event(KIND.ANSWERED), at(9))) != []
    assert tainted(rebooted.of(CARD)) == tainted(again.of(CARD))
    assert health.seen(rebooted, event(KIND.ANSWERED), at(9)).states == {}


def mutilated() -> list[str]:
    text = health.encode(health.seen(health.Health(), xid(79), T0), "boot")
    data = json.loads(text)
    return [
        "", "[]", "null", "{}", text[:-2], text.replace('"xid"', '"kind"', 1), json.dumps(data | {"cards": [1]}),
        json.dumps(data | {"version": 2}), text.replace("2026", "yesterday"), text.replace("00Z", "00"), text.replace('"causes"', '"reasons"'),
    ]  # fmt: skip


@pytest.mark.parametrize("text", mutilated(), ids=itertools.count())
def test_a_text_that_is_not_ours_is_corrupt(text: str) -> None:
    with pytest.raises(errors.Corrupt, match="it is set aside"):
        health.decode(text, "boot")


def test_the_form_on_disk_has_not_changed_unnoticed() -> None:
    """What a node keeps of its cards' health: read as written, by the next version and by the one before."""
    text = (Path(__file__).parent / "golden" / "health-v1.json").read_text()
    kept = health.Health(driver_version="580.95.5")
    for minute, one in enumerate((xid(79), xid(31), event(KIND.RELOADED), event(KIND.VANISHED))):
        kept = health.seen(kept, one, at(60 * minute))
    assert health.encode(kept, "boot") + "\n" == text
    assert health.decode(text, "boot") == kept
