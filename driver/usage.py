"""What is really used of the cards, against what claims have booked of them.

    processes of a card + the pods that they are of + who holds the card -> joined -> Use per share, and what nobody booked
    what nobody booked, over time -> judged -> Excess -> a taint

A process belongs to a share by its control group: that of a pod which the share's claim is kept for, and of the right
container where a pod has several shares of one card. What no holder's pod does, and what a holder does beyond its share,
is used and not booked (HAMi#1069). It is told when it has lasted, and taken back when its end has: a pod that came to a
claim a moment ago is nobody yet. The effect None only tells; an API server that has device taints without that effect
(Kubernetes before 1.35, with the feature switched on by hand) would refuse the slice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from api import names, quantity, resource
from driver import booking, inventory, records

Key = tuple[str, str, str, str]
"""Claim uid, request, device, share id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The pod and the container (by the runtime's id) that a process is of; nothing where it is of none."""

    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    memory_bytes: int = 0
    cores: int = 0
    processes: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(
            memory_bytes=self.memory_bytes + other.memory_bytes,
            cores=self.cores + other.cores,
            processes=self.processes + other.processes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    used_bytes: int
    unbooked_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`cards`: those that could be read."""

    shares: Mapping[Key, Use] = field(default_factory=dict)
    cards: Mapping[inventory.CardUUID, CardUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Whether a card is used beyond what is booked: since when the last look's answer is the same, and what was told.

    `worst`: the most that was seen since it is `told`.
    """

    over: bool
    since: datetime
    told: bool = False
    told_at: datetime | None = None
    worst: int = 0


def key(record: records.Record, holding: records.Holding) -> Key:
    return (record.uid, holding.request, holding.device, holding.share_id)


def joined(
    readings: Mapping[inventory.CardUUID, inventory.Reading],
    owners: Mapping[int, Owner],
    held: Iterable[records.Record],
    pods: Mapping[str, frozenset[str]],
    containers: Mapping[str, frozenset[Key]],
) -> Usage:
    """`pods`: of each claim. `containers`: which shares they use, asked only where a pod has several of one card."""
    at: dict[str, list[tuple[Key, records.Holding]]] = {}
    for record in held:
        for holding in record.holdings:
            if not holding.admin_access:
                at.setdefault(holding.card, []).append((key(record, holding), holding))
    shares: dict[Key, Use] = {}
    cards = {}
    for card, reading in readings.items():
        beyond = 0
        for process in reading.processes:
            owner = owners.get(process.pid, Owner())
            use = Use(memory_bytes=process.memory_bytes, cores=process.cores, processes=1)
            mine = [name for name, _ in at.get(card, ()) if owner.pod and owner.pod in pods.get(name[0], ())]
            mine = [name for name in mine if name in containers.get(owner.container, ())] or mine
            if mine:
                shares[mine[0]] = shares.get(mine[0], Use()) + use
            else:
                beyond += use.memory_bytes
        for name, holding in at.get(card, ()):
            if holding.backend != "whole":
                booked = holding.memory_mib * booking.MIB
                beyond += max(0, shares.get(name, Use()).memory_bytes - booked)
        cards[card] = CardUse(used_bytes=reading.used_bytes, unbooked_bytes=beyond)
    return Usage(shares=shares, cards=cards)


def several(card: str, pod: str, held: Iterable[records.Record], pods: Mapping[str, frozenset[str]]) -> bool:
    """Whether this pod has more than one share of the card, so that its containers have to be told apart."""
    found = [
        holding
        for record in held
        if pod in pods.get(record.uid, ())
        for holding in record.holdings
        if holding.card == card and not holding.admin_access
    ]
    return len(found) > 1


def judged(
    before: Mapping[inventory.CardUUID, Excess],
    seen: Mapping[inventory.CardUUID, CardUse],
    now: datetime,
    *,
    least_bytes: int,
    patience: timedelta,
) -> dict[inventory.CardUUID, Excess]:
    """Cards with something to tell or to wait for. A card that could not be read stays as it was."""
    after = {}
    for card in {*before, *seen}:
        old = before.get(card, Excess(over=False, since=now))
        if card not in seen:
            after[card] = old
            continue
        amount = seen[card].unbooked_bytes
        over = amount > least_bytes
        since = old.since if old.over == over else now
        told = over if now - since >= patience else old.told
        told_at = (old.told_at or now) if told else None
        worst = max(old.worst, amount) if over or told else 0
        if over or told:
            after[card] = Excess(over=over, since=since, told=told, told_at=told_at, worst=worst)
    return after


def taint(excess: Excess, *, taint_bytes: int) -> resource.Taint | None:
    """What the slice says; `taint_bytes` 0: new pods are never kept away. The amount in powers of two, so that it is calm."""
    if not excess.told or excess.told_at is None:
        return None
    steps = max(excess.worst // booking.MIB, 1).bit_length() - 1
    return resource.Taint(
        key=names.UNBOOKED_TAINT,
        value=quantity.text(booking.MIB << steps),
        effect="NoSchedule" if taint_bytes and excess.worst > taint_bytes else "None",
        added=resource.timestamp(excess.told_at),
    )
