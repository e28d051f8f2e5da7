"""How well each card is: event x state -> state, and what a state means for taints and for reports.

A state is the set of causes that are open, each with the time it was first seen, so events may come in any order and any
number of times: the worst wins, and a harmless error after a fatal one makes nothing well (PR NV#1243). A cause closes
only on proof:

    application XID            a probe that succeeds, ten minutes later     noted, never tainted
    any other XID              the card came back after it was away, or the driver was reloaded, or the node
                               rebooted; and then a probe that succeeds     tainted
    lost, hung, unreadable     a probe that succeeds                        tainted

The text that keeps all this over restarts is versioned. A restart of ours changes nothing, whatever was seen before.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Any

from api import errors, names, resource
from driver import inventory

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program on the card, not of the card."""
NOTED_FOR = timedelta(minutes=10)

_VERSION = 1
_Kind = inventory.EventKind
_FAULTS = {
    inventory.FaultKind.LOST: _Kind.LOST,
    inventory.FaultKind.HUNG: _Kind.HUNG,
    inventory.FaultKind.UNREADABLE: _Kind.UNREADABLE,
}


class Severity(IntEnum):
    WELL = 0
    NOTED = 1
    UNWELL = 2
    LOST = 3


class Verdict(Enum):
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    kind: inventory.EventKind
    xid: int = 0
    since: datetime
    recovered: bool = False
    """What could have cured it has happened; a probe decides."""

    @property
    def severity(self) -> Severity:
        if self.kind is _Kind.LOST:
            return Severity.LOST
        return Severity.NOTED if self.kind is _Kind.XID and self.xid in APPLICATION_XIDS else Severity.UNWELL


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`causes` in the order of `_key`, one of each kind and number."""

    causes: tuple[Cause, ...] = ()
    away: bool = False

    @property
    def severity(self) -> Severity:
        return max((cause.severity for cause in self.causes), default=Severity.WELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All cards that are not simply well, and the driver they were seen with."""

    driver_version: str | None = None
    states: Mapping[inventory.CardUUID, State] = field(default_factory=dict)

    def of(self, uuid: inventory.CardUUID) -> State:
        return self.states.get(uuid, State())


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    verdict: Verdict
    message: str = ""


def after(state: State, event: inventory.Event, now: datetime) -> State:
    """The state of one card after one event. Times are kept in whole seconds, as the cluster keeps them."""
    now = now.replace(microsecond=0)
    match event.kind:
        case _Kind.XID:
            return _with(state, Cause(kind=_Kind.XID, xid=event.xid or 0, since=now))
        case _Kind.LOST | _Kind.HUNG | _Kind.UNREADABLE:
            return _with(state, Cause(kind=event.kind, since=now))
        case _Kind.VANISHED:
            return replace(_with(state, Cause(kind=_Kind.LOST, since=now)), away=True)
        case _Kind.RETURNED:
            return replace(_recovered(state), away=False) if state.away else state
        case _Kind.RELOADED:
            return _recovered(state)
        case _Kind.ANSWERED:
            return replace(state, causes=tuple(cause for cause in state.causes if not _closes(cause, now)))


def seen(health: Health, event: inventory.Event, now: datetime) -> Health:
    """All cards after one event. Without a uuid an event says something of every card only if the driver was reloaded."""
    if event.uuid is None:
        if event.kind is not _Kind.RELOADED:
            return health
        return _kept(health, {uuid: after(state, event, now) for uuid, state in health.states.items()})
    return _kept(health, {**health.states, event.uuid: after(health.of(event.uuid), event, now)})


def polled(health: Health, old: inventory.Inventory, new: inventory.Inventory, now: datetime) -> Health:
    """All cards after a look at them. At start `old` is empty."""
    told = inventory.difference(old, new)
    happened = [inventory.Event(kind=_FAULTS[one.kind], uuid=one.uuid) for one in new.faults if one.uuid is not None]
    happened += [inventory.Event(kind=_Kind.VANISHED, uuid=card.uuid) for card in told.removed]
    happened += [inventory.Event(kind=_Kind.RETURNED, uuid=card.uuid) for card in told.added]
    if health.driver_version not in {None, new.driver_version}:
        happened.insert(0, inventory.Event(kind=_Kind.RELOADED))
    for event in happened:
        health = seen(health, event, now)
    return replace(health, driver_version=new.driver_version)


def taints(state: State, *, lost_effect: str) -> tuple[resource.Taint, ...]:
    """One taint a key, with the value and the time of the cause that was first."""
    keys = {_Kind.XID: names.XID_TAINT, _Kind.LOST: names.LOST_TAINT}
    first: dict[str, resource.Taint] = {}
    for cause in sorted(state.causes, key=lambda cause: (cause.since, _key(cause))):
        if cause.severity > Severity.NOTED:
            key = keys.get(cause.kind, names.UNREADABLE_TAINT)
            value = {_Kind.XID: str(cause.xid), _Kind.LOST: ""}.get(cause.kind, cause.kind.value)
            effect = lost_effect if cause.kind is _Kind.LOST else "NoSchedule"
            first.setdefault(key, resource.Taint(key=key, value=value, effect=effect, added=_text(cause.since)))
    return tuple(first[key] for key in sorted(first))


def report(state: State) -> Report:
    """For the health of a pod's devices: a card that does not answer may be well, so that is unknown."""
    known = [
        cause for cause in state.causes if cause.kind in {_Kind.XID, _Kind.LOST} and cause.severity > Severity.NOTED
    ]
    message = "; ".join(_said(cause, away=state.away) for cause in sorted(state.causes, key=_worst_first))
    if known:
        return Report(verdict=Verdict.UNHEALTHY, message=message)
    verdict = Verdict.UNKNOWN if state.severity > Severity.NOTED else Verdict.HEALTHY
    return Report(verdict=verdict, message=message)


def encode(health: Health, boot_id: str) -> str:
    cards = {
        uuid: {
            "away": state.away,
            "causes": [
                {"kind": cause.kind.value, "xid": cause.xid, "since": _text(cause.since), "recovered": cause.recovered}
                for cause in state.causes
            ],
        }
        for uuid, state in sorted(health.states.items())
    }
    return json.dumps({"version": _VERSION, "bootID": boot_id, "driverVersion": health.driver_version, "cards": cards})


def decode(text: str, boot_id: str) -> Health:
    """Raises Corrupt for what `encode` did not write. Another boot id: whatever a reset cures is left to the next probe."""
    try:
        data = json.loads(text)
        if data["version"] != _VERSION:
            raise errors.Corrupt(f"health: version {data['version']!r} is not {_VERSION}; it is set aside")
        states = {inventory.CardUUID(uuid): _state(one) for uuid, one in data["cards"].items()}
        health = Health(driver_version=data["driverVersion"], states=states)
        if data["bootID"] == boot_id:
            return health
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.Corrupt(f"health: unreadable, {type(error).__name__}: {error}; it is set aside") from error
    return replace(health, states={uuid: replace(_recovered(state), away=False) for uuid, state in states.items()})


def _with(state: State, cause: Cause) -> State:
    others = [one for one in state.causes if _key(one) != _key(cause)]
    before = [one.since for one in state.causes if _key(one) == _key(cause)]
    new = replace(cause, since=min([cause.since, *before]))
    return replace(state, causes=tuple(sorted([*others, new], key=_key)))


def _recovered(state: State) -> State:
    return replace(state, causes=tuple(replace(cause, recovered=True) for cause in state.causes))


def _closes(cause: Cause, now: datetime) -> bool:
    if cause.severity is Severity.NOTED:
        return now - cause.since >= NOTED_FOR
    return cause.recovered or cause.kind is not _Kind.XID


def _kept(health: Health, states: dict[inventory.CardUUID, State]) -> Health:
    return replace(health, states={uuid: state for uuid, state in states.items() if state != State()})


def _key(cause: Cause) -> tuple[str, int]:
    return cause.kind.value, cause.xid


def _worst_first(cause: Cause) -> tuple[int, datetime, tuple[str, int]]:
    return -cause.severity, cause.since, _key(cause)


def _said(cause: Cause, *, away: bool) -> str:
    if cause.kind is _Kind.XID:
        kind = "of the program on the card" if cause.severity is Severity.NOTED else "of the card"
        waits = ", waiting for a probe" if cause.recovered else ""
        return f"XID {cause.xid} at {_text(cause.since)}: an error {kind}{waits}"
    said = {_Kind.LOST: "not listed" if away else "lost", _Kind.HUNG: "does not answer"}
    return f"{said.get(cause.kind, 'cannot be read')} since {_text(cause.since)}"


def _text(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return when


def _state(data: dict[str, Any]) -> State:
    causes = tuple(
        Cause(
            kind=_Kind(one["kind"]),
            xid=int(one["xid"]),
            since=_time(one["since"]),
            recovered=bool(one["recovered"]),
        )
        for one in data["causes"]
    )
    return State(causes=tuple(sorted(causes, key=_key)), away=bool(data["away"]))
