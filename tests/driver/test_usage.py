"""What is used against what is booked: whose a process is, and when a card's excess is told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from api import resource
from driver import inventory, records, usage
from driver.inventory import Process, Reading
from driver.usage import CardUse, Excess, Owner, Use

MIB = 2**20
CARD = inventory.CardUUID("GPU-0")
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
PATIENCE = timedelta(seconds=60)


def a_record(uid: str, *amounts: int, whole: bool = False) -> records.Record:
    """A claim with shares of so many MiB of the card, or all of it."""
    holdings = tuple(
        records.Holding(
            request=f"r{number}",
            pool="egpu/n",
            device="gpu-0",
            card=CARD,
            minor=0,
            share_id=f"{uid}{number}",
            backend="whole" if whole else "share",
            memory_mib=amount,
        )
        for number, amount in enumerate(amounts)
    )
    return records.Record(
        uid=resource.ClaimUID(uid),
        namespace="ns",
        name=uid,
        phase=records.Phase.PREPARED,
        boot_id="b",
        holdings=holdings,
        cdi="",
    )


def measured(processes: dict[int, int], owners: dict[int, Owner], *held: records.Record, **more: object) -> usage.Usage:
    reading = Reading(used_bytes=0, processes=tuple(Process(pid=p, memory_bytes=m * MIB) for p, m in processes.items()))
    pods = {record.uid: frozenset({f"pod-{record.uid}"}) for record in held}
    return usage.joined({CARD: reading}, owners, held, pods, more.get("containers", {}))  # type: ignore[arg-type]


def test_a_process_counts_for_the_share_of_its_pod() -> None:
    a, b = a_record("a", 100), a_record("b", 100)
    found = measured({1: 30, 2: 40, 3: 50}, {1: Owner(pod="pod-a"), 2: Owner(pod="pod-b"), 3: Owner(pod="pod-b")}, a, b)
    assert found.shares == {
        ("a", "r0", "gpu-0", "a0"): Use(memory_bytes=30 * MIB, processes=1),
        ("b", "r0", "gpu-0", "b0"): Use(memory_bytes=90 * MIB, processes=2),
    }
    assert found.cards[CARD].unbooked_bytes == 0


def test_what_nobody_here_booked_is_told_apart() -> None:
    """HAMi#1069: processes outside Kubernetes fill a card."""
    found = measured({1: 130, 2: 40, 3: 7}, {1: Owner(pod="pod-a"), 2: Owner(pod="stranger")}, a_record("a", 100))
    assert found.cards[CARD].unbooked_bytes == (30 + 40 + 7) * MIB


def test_a_whole_card_is_booked_whole() -> None:
    """HAMi#931: whole cards have the same figures as shares."""
    found = measured({1: 99}, {1: Owner(pod="pod-a")}, a_record("a", 0, whole=True))
    assert found.shares["a", "r0", "gpu-0", "a0"].memory_bytes == 99 * MIB
    assert found.cards[CARD].unbooked_bytes == 0


def test_two_shares_of_one_pod_are_told_apart_by_the_container() -> None:
    two = a_record("a", 100, 100)
    second = usage.key(two, two.holdings[1])
    owners = {1: Owner(pod="pod-a", container="x"), 2: Owner(pod="pod-a", container="y")}
    found = measured({1: 10, 2: 20}, owners, two, containers={"y": frozenset({second})})
    assert {key[1]: use.memory_bytes // MIB for key, use in found.shares.items()} == {"r0": 10, "r1": 20}
    assert usage.several(CARD, "pod-a", [two], {"a": frozenset({"pod-a"})})
    assert not usage.several(CARD, "pod-a", [a_record("a", 100)], {"a": frozenset({"pod-a"})})


def test_who_only_watches_has_booked_nothing() -> None:
    record = a_record("a", 100)
    watching = replace(record, holdings=tuple(replace(holding, admin_access=True) for holding in record.holdings))
    found = measured({1: 10}, {1: Owner(pod="pod-a")}, watching)
    assert (found.shares, found.cards[CARD].unbooked_bytes) == ({}, 10 * MIB)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 200)), max_size=12), st.lists(st.integers(1, 100), max_size=3)
)
def test_no_byte_is_lost_or_counted_twice(processes: list[tuple[int, int]], booked: list[int]) -> None:
    held = [a_record(str(number), amount) for number, amount in enumerate(booked)]
    owners = {pid: Owner(pod=f"pod-{pod}") for pid, (pod, _) in enumerate(processes)}
    found = measured({pid: memory for pid, (_, memory) in enumerate(processes)}, owners, *held)
    within = sum(
        min(
            found.shares.get(usage.key(record, record.holdings[0]), Use()).memory_bytes,
            record.holdings[0].memory_mib * MIB,
        )
        for record in held
    )
    assert within + found.cards[CARD].unbooked_bytes == sum(memory for _, memory in processes) * MIB


def after(state: dict[inventory.CardUUID, Excess], seconds: int, mib: int | None) -> dict[inventory.CardUUID, Excess]:
    seen = {} if mib is None else {CARD: CardUse(used_bytes=0, unbooked_bytes=mib * MIB)}
    now = NOON + timedelta(seconds=seconds)
    return usage.judged(state, seen, now, least_bytes=512 * MIB, patience=PATIENCE)


def told(state: dict[inventory.CardUUID, Excess], taint_mib: int = 0) -> tuple[str, str] | None:
    found = usage.taint(state[CARD], taint_bytes=taint_mib * MIB) if CARD in state else None
    return None if found is None else (found.value, found.effect)


def test_excess_is_told_when_it_has_lasted_and_taken_back_when_its_end_has() -> None:
    state: dict[inventory.CardUUID, Excess] = {}
    story = [
        (0, 512, None),
        (10, 3000, None),
        (60, 5000, None),
        (70, 3000, ("4Gi", "None")),
        (80, None, ("4Gi", "None")),
        (90, 0, ("4Gi", "None")),
        (100, 9000, ("8Gi", "None")),
        (110, 100, ("8Gi", "None")),
        (169, 100, ("8Gi", "None")),
        (170, 100, None),
    ]
    for seconds, mib, expected in story:
        state = after(state, seconds, mib)
        assert told(state) == expected, seconds
    assert state == {}


def test_beyond_the_setting_new_pods_are_kept_away() -> None:
    state = after(after({}, 0, 3000), 60, 3000)
    assert told(state, 2000) == ("2Gi", "NoSchedule")
    assert told(state, 4000) == ("2Gi", "None")
    (found,) = state.values()
    taint = usage.taint(found, taint_bytes=0)
    assert taint is not None
    assert (taint.key, taint.added) == ("gpu.elasticgpu.io/used-beyond-booking", "2026-11-29T12:01:00Z")


@given(st.lists(st.tuples(st.integers(1, 100), st.one_of(st.none(), st.integers(0, 2000))), max_size=20))
def test_a_card_is_told_of_only_after_its_patience_and_never_flickers(steps: list[tuple[int, int | None]]) -> None:
    state: dict[inventory.CardUUID, Excess] = {}
    seconds, changes = 0, [-1000]
    for wait, mib in steps:
        seconds += wait
        before = told(state) is not None
        state = after(state, seconds, mib)
        if (told(state) is not None) != before:
            assert seconds - changes[-1] >= PATIENCE.total_seconds()
            changes.append(seconds)
