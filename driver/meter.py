"""Measures what the cards' processes use, whose it is, and whether limits are in force.

    nvml -> processes of a card -> cgroups -> pods and containers -> usage.joined -> series, taints
    share -> what holds it is asked -> the time when it was last seen to hold

It looks on its own time, apart from health: a card that does not answer costs its own figures. What must stay true: a
share has figures from the moment that it is booked, zero until its first process (HAMi#1794); a look that fails leaves
what was known; nothing here delays a Prepare.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Protocol

import structlog

from api import errors, names, resource
from driver import cgroups, containers, inventory, metrics, records, usage

_AGAIN = datetime.timedelta(seconds=30)
"""After this a limit that was seen in force is asked for again; one that was not, at each look."""
_TOLD = datetime.timedelta(minutes=30)
"""A claim's status says when its limit was last seen in force, and is not written for less than this."""
_log = structlog.get_logger()

Clock = Callable[[], datetime.datetime]
Cards = Callable[[], Iterable[inventory.Card]]
Held = Callable[[], Iterable[records.Record]]
Pods = Callable[[resource.Claim], Awaitable[tuple[containers.JSON, ...]]]


class Reader(Protocol):
    async def use(self, card: inventory.CardUUID) -> inventory.Reading: ...


class Proof(Protocol):
    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        """Whether its limits were seen in force now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """`least_bytes` of a card used and not booked, for `patience`, are told; more than `taint_bytes` keep new pods away."""

    period_s: float
    least_bytes: int
    taint_bytes: int
    patience: datetime.timedelta


class Meter:
    """`tell`: called when the taints of a card change. `own_pod`: its processes serve everybody, and are nobody's use."""

    def __init__(
        self,
        *,
        reader: Reader,
        groups: cgroups.Cgroups,
        proof: Proof,
        cards: Cards,
        held: Held,
        pods: Pods,
        clock: Clock,
        tell: Callable[[], None],
        own_pod: str,
        terms: Terms,
    ) -> None:
        self.use = usage.Usage()
        self.verified: dict[usage.Key, datetime.datetime] = {}
        self._said: dict[usage.Key, datetime.datetime] = {}
        self._reader = reader
        self._groups = groups
        self._proof = proof
        self._cards = cards
        self._held = held
        self._read_pods = pods
        self._clock = clock
        self._tell = tell
        self._own_pod = own_pod
        self._terms = terms
        self._excess: dict[inventory.CardUUID, usage.Excess] = {}
        self._claims: dict[str, resource.Claim] = {}
        self._containers: dict[str, frozenset[usage.Key]] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 whatever one look dies of, the next may not
                _log.exception("use of the cards could not be measured, trying again")
            await asyncio.sleep(self._terms.period_s)

    def seen(self, claim: resource.Claim) -> None:
        """The claim as the API server has it: other pods may have come to it since it was prepared."""
        self._claims[claim.uid] = claim

    def said(self, name: usage.Key) -> datetime.datetime | None:
        """When the limit was last seen in force, in the coarse steps of what is written to the API."""
        return self._said.get(name)

    def several(self, card: str, record: records.Record) -> bool:
        """Whether a pod of this claim has more than one share of the card."""
        held = tuple(self._held())
        pods = self._pods(held)
        return any(usage.several(card, pod, held, pods) for pod in pods.get(record.uid, ()))

    def taints(self, card: inventory.CardUUID) -> tuple[resource.Taint, ...]:
        found = self._excess.get(card)
        told = usage.taint(found, taint_bytes=self._terms.taint_bytes) if found is not None else None
        return (told,) if told is not None else ()

    async def look(self) -> None:
        """One look at all cards and limits."""
        held = tuple(self._held())
        pods = self._pods(held)
        cards = [card.uuid for card in self._cards()]
        readings = {
            card: reading
            for card, reading in zip(cards, await asyncio.gather(*map(self._read, cards)), strict=True)
            if reading is not None
        }
        owners = await self._owners(readings)
        readings = {card: self._without_ours(reading, owners) for card, reading in readings.items()}
        await self._tell_apart(readings, owners, held, pods)
        self.use = usage.joined(readings, owners, held, pods, self._containers)
        self._judge()
        await self._verify(held, pods)

    def _pods(self, held: Iterable[records.Record]) -> Mapping[str, frozenset[str]]:
        """Those of each claim, by what was seen of it last."""
        uids = {record.uid for record in held}
        self._claims = {uid: claim for uid, claim in self._claims.items() if uid in uids}
        return {
            record.uid: frozenset(uid for _, uid in self._claims[record.uid].reserved_for)
            if record.uid in self._claims
            else frozenset(record.pods)
            for record in held
        }

    async def _read(self, card: inventory.CardUUID) -> inventory.Reading | None:
        try:
            reading = await self._reader.use(card)
        except errors.ElasticGPUError as error:
            _log.debug("use of a card cannot be read", card=card, error=str(error))
            reading = None
        metrics.USE_READ.labels(card).set(0 if reading is None else 1)
        return reading

    async def _owners(self, readings: Mapping[inventory.CardUUID, inventory.Reading]) -> dict[int, usage.Owner]:
        pids = tuple(process.pid for reading in readings.values() for process in reading.processes)
        found = await self._groups.of_processes(pids) if pids else {}
        return {
            pid: usage.Owner(pod=cgroups.pod_of(group), container=cgroups.container_of(PurePath(group).name))
            for pid, group in found.items()
        }

    def _without_ours(self, reading: inventory.Reading, owners: Mapping[int, usage.Owner]) -> inventory.Reading:
        own = self._own_pod
        others = tuple(one for one in reading.processes if not own or owners.get(one.pid, usage.Owner()).pod != own)
        return replace(reading, processes=others)

    async def _tell_apart(
        self,
        readings: Mapping[inventory.CardUUID, inventory.Reading],
        owners: Mapping[int, usage.Owner],
        held: tuple[records.Record, ...],
        pods: Mapping[str, frozenset[str]],
    ) -> None:
        """Reads the pods, of which two containers have a share of the same card each; once a container."""
        running = {owner.container for owner in owners.values()}
        self._containers = {name: keys for name, keys in self._containers.items() if name in running}
        unknown = {
            owner.pod
            for card, reading in readings.items()
            for process in reading.processes
            if (owner := owners.get(process.pid)) and owner.container and owner.container not in self._containers
            if usage.several(card, owner.pod, held, pods)
        }
        for record in held:
            claim = self._claims.get(record.uid)
            if claim is not None and unknown & pods[record.uid]:
                await self._learn(record, claim)

    async def _learn(self, record: records.Record, claim: resource.Claim) -> None:
        try:
            found = await self._read_pods(claim)
            users = containers.users(claim, found, names.LOCAL_DRIVER)
        except errors.ElasticGPUError as error:
            _log.debug("containers cannot be told apart", claim=str(record), error=str(error))
            return
        for pod in found:
            for name, container in containers.ids(pod):
                uses = [user for user in users if (user.pod_uid, user.container) == (pod["metadata"]["uid"], name)]
                keys = frozenset(
                    usage.key(record, holding)
                    for holding in record.holdings
                    for user in uses
                    if user.uses(holding.request.partition("/")[0])
                )
                self._containers[container] = self._containers.get(container, frozenset()) | keys

    def _judge(self) -> None:
        theirs = {card: self.taints(card) for card in self._excess}
        self._excess = usage.judged(
            self._excess,
            self.use.cards,
            self._clock(),
            least_bytes=self._terms.least_bytes,
            patience=self._terms.patience,
        )
        if {card: self.taints(card) for card in self._excess} != theirs:
            self._tell()

    async def _verify(self, held: tuple[records.Record, ...], pods: Mapping[str, frozenset[str]]) -> None:
        now = self._clock()
        kept = {}
        for record in held:
            for holding in record.holdings:
                name = usage.key(record, holding)
                last = self.verified.get(name)
                if record.phase is not records.Phase.PREPARED or holding.backend == "whole":
                    continue
                if last is None or now - last >= _AGAIN:
                    last = now if await self._holds(record, holding, pods[record.uid]) else last
                if last is not None:
                    kept[name] = last
        self.verified = kept
        self._said = {
            name: self._said[name] if name in self._said and last - self._said[name] < _TOLD else last
            for name, last in kept.items()
        }

    async def _holds(self, record: records.Record, holding: records.Holding, pods: frozenset[str]) -> bool:
        try:
            return await self._proof.holds(holding, pods)
        except errors.ElasticGPUError as error:
            _log.debug("limit cannot be asked for", claim=str(record), error=str(error))
            return False
