"""Allocates claims of classes that say `by: Controller`, while this replica leads.

    watches --> Mirror --> wants, in order --> Turn.decide --> granter --> API server --> the watches

The watches are the picture's own, and nothing is kept of them here while no class asks for it. What must stay true: what
was chosen is booked before the next choice, and an own write is taken in before the watch brings it; an
allocation carries its time, else kube-scheduler would want to add it and be refused. Where a write is refused the
booking is undone and all is chosen anew; where its outcome is unknown the booking stays until the server, or the
watch, has told, and it cannot come true later. Who is refused now, and why, is handed on after each turn, for the
announcer to say.
"""

import asyncio
import contextlib
import datetime
import functools
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from allocation import bookings, choice, pods
from api import errors, resource
from api.reasons import Reason
from controller import allotment, gangs, granter, metrics, mirror, observer, offers, snapshot, watcher
from kube import apiserver, backoff, informer

_AT_ONCE = 32
"""Writes under way."""
_MOST = 256
"""Allocations by one picture; after these there is a newer one."""
_PACE_S = 0.05
_REST = 2
"""So many times as long as the choices of a turn took, none is made: a busy large cluster costs a third of a core for them.
The writes are not counted: they mostly wait for the API server."""
_LONGEST_REST_S = 2.0
_LOOK_AGAIN_S = 30.0
_BREATH_S = 0.05
_FIRST = 16
"""Of those that are refused alike, by namespace, so many are told."""
_AVOID_S = 120.0
"""How long a node is left alone by a want whose allocation there was given back."""
_FORGIVEN_S = 600.0
"""How long it is remembered that a PodGroup's pod was given back once."""
_USUAL_S = 300.0
"""How often it is looked at what is usually asked: tables of choices begin anew with it."""
_ASK_AGAIN_S = 1.0
_ASK_FOR_GROUPS_S = 60.0
"""How often it is asked whether there are PodGroups by now, where there were none."""
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0

T = TypeVar("T")
Tell = Callable[[Sequence[allotment.Refused]], None]
_log = structlog.get_logger("allocator")


class Allocator:
    """The only writer of allocations on nodes that are given to the controller."""

    def __init__(
        self,
        api: apiserver.APIServer,
        watch: watcher.Watcher,
        look: observer.Observer,
        tell: Tell,
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
        patience: datetime.timedelta,
    ) -> None:
        self._watch = watch
        self._tell = tell
        self._begun = functools.partial(_Work, api, watch, look, tell, series, clock, patience)

    async def run(self) -> None:
        """Works until it is cancelled. Begins as soon as the classes are known: then one list of the rest serves all."""
        classes = self._watch.classes
        while True:
            seen = classes.version
            if _asked(classes.objects.values()):
                try:
                    await self._begun().run()
                finally:
                    self._tell(())
            await classes.changed(seen)


class _Work:
    """The work while there are such classes: watches, mirror, and what was refused or given back."""

    def __init__(
        self,
        api: apiserver.APIServer,
        watch: watcher.Watcher,
        look: observer.Observer,
        tell: Tell,
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
        patience: datetime.timedelta,
    ) -> None:
        self._api = api
        self._watch = watch
        self._seen = look
        self._tell = tell
        self._series = series
        self._clock = clock
        self._patience = patience
        self._claims = look.claims.beside(mirror.claim)
        self._pods = look.pods.beside(pods.pod, quiet=True)
        self._nodes = look.nodes.beside(pods.node, quiet=True)
        self._slices = watch.slices.beside(offers.slice_)
        self._granter = granter.Granter(api, look.claims, self._nodes.objects, clock)
        self._groups = informer.Informer(api, f"{gangs.PATH}/{gangs.KIND}", project=gangs.least, quiet=True)
        self._kept: tuple[tuple[informer.Informer[Any], informer.Kept[Any]], ...] = (
            (look.claims, self._claims),
            (look.pods, self._pods),
            (look.nodes, self._nodes),
            (watch.slices, self._slices),
        )
        self._stale = asyncio.Event()
        self._mirror = mirror.Mirror()
        self._chooser = choice.Chooser(self._mirror.cluster)
        self._given: dict[str, tuple[str, str, bool]] = {}
        """Claim uid -> (key of its want, node, of a PodGroup), of allocations that stand, to see when one is given back."""
        self._forgiven: dict[str, float] = {}
        self._avoid: dict[str, dict[str, float]] = {}
        self._usual_again = 0.0
        self._aside: dict[str, tuple[float, int]] = {}
        """Wants that failed: until when others go first, and how often."""
        self._answers = allotment.Answers()
        self._refused: dict[Hashable, allotment.Refusal] = {}
        """By line; also of those to whom the last turn did not come."""
        self._unknown: dict[str, tuple[mirror.Claim, tuple[bookings.Piece, ...]]] = {}
        """By uid, the claims whose allocation may be stored though the watch has not told of it, and what it holds."""

    async def run(self) -> None:
        try:
            await self._work()
        finally:
            for watched, kept in self._kept:
                watched.leave(kept)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._note(kept), name="note changes") for _, kept in self._kept]
            tasks.append(group.create_task(self._note_classes(), name="note classes"))
            tasks.append(group.create_task(self._follow_groups(), name="watch podgroups"))
            tasks.append(group.create_task(self._note(self._groups), name="note changes"))
            for _, kept in self._kept:
                await kept.synced.wait()
            await self._groups.tried.wait()
            while _asked(self._watch.classes.objects.values()):
                now = await self._watch.newer(0, within_s=0)
                self._stale.clear()
                await self._settle()
                started = asyncio.get_running_loop().time()
                turn, chosen = await self._choose(now)
                took_s = asyncio.get_running_loop().time() - started
                await _side_by_side(functools.partial(self._perform, turn), chosen)
                self._report(chosen)
                await asyncio.sleep(min(max(_PACE_S, _REST * took_s), _LONGEST_REST_S))
                await self._until_something()
            for task in tasks:
                task.cancel()

    async def _until_something(self) -> None:
        moment = asyncio.get_running_loop().time()
        wait_s = min([_LOOK_AGAIN_S, *(until - moment for until, _ in self._aside.values() if until > moment)])
        if self._mirror.unsettled is not None:
            wait_s = min(wait_s, (self._mirror.unsettled - self._clock()).total_seconds())
        if self._unknown:
            wait_s = min(wait_s, _ASK_AGAIN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(wait_s, _PACE_S)):
                await self._stale.wait()

    async def _choose(self, now: snapshot.Snapshot) -> tuple[allotment.Turn, list[allotment.Allotment]]:
        self._look(now)
        self._forget(asyncio.get_running_loop().time())
        turn = allotment.Turn(
            known=self._mirror,
            chooser=self._chooser,
            share_id=lambda: str(uuid.uuid4()),
            avoided=self._avoided(),
            before=resource.timestamp(self._clock() - self._patience),
            answers=self._answers,
            groups=self._groups.objects,
        )
        chosen: list[allotment.Allotment] = []
        moment = breath = asyncio.get_running_loop().time()
        lines, passed = self._mirror.lines, set[Hashable]()
        self._refused = {line: kept for line, kept in self._refused.items() if line in lines}
        for line, wants in lines.march(passed):
            if any(self._aside.get(want.key, (0.0, 0))[0] > moment for want in wants):
                continue
            if any(claim.uid in self._unknown for want in wants for claim in want.claims):
                continue
            given, refusal = turn.decide_all(wants) if wants[0].together else turn.decide_one(wants[0])
            chosen += given
            if refusal is not None:
                self._refused[line] = refusal
                if wants[0].key not in turn.avoided:  # where one may not go says nothing of those behind it
                    passed.add(line)
            else:
                self._refused.pop(line, None)
            if asyncio.get_running_loop().time() > breath + _BREATH_S:
                await asyncio.sleep(0)  # why not, told of many shapes of a large cluster, outlasts a probe
                breath = asyncio.get_running_loop().time()
            if len(chosen) >= _MOST:
                self._stale.set()
                break
        return turn, chosen

    def _report(self, chosen: Sequence[allotment.Allotment]) -> None:
        """Who is refused after this turn, and why."""
        lines, given = self._mirror.lines, {one.want.key for one in chosen}
        told = tuple(
            allotment.Refused(
                refusal=kept,
                wants=tuple(one for one in lines.first(line, _FIRST + len(given)) if one.key not in given)[:_FIRST],
                keys=tuple(key for key in lines.keys(line) if key not in given),
            )
            for line, kept in self._refused.items()
        )
        self._tell(told)
        counted: Counter[Reason | None] = Counter()
        for one in told:
            counted[one.refusal.reason] += len(one.keys)
        self._series.waiting(counted)

    async def _settle(self) -> None:
        """Reads the claims whose outcome is unknown. `_look` takes them in."""
        await _side_by_side(self._find_out, [claim for claim, _ in self._unknown.values()])

    async def _find_out(self, claim: mirror.Claim) -> None:
        """One that cannot be read, or fenced, stays booked, and keeps no other so."""
        try:
            await self._granter.find_out(claim)
        except (errors.ElasticGPUError, msgspec.MsgspecError) as error:
            _log.warning("outcome still unknown", claim=str(claim), error=str(error))
            return
        self._mirror.restore(claim)
        del self._unknown[claim.uid]

    def _look(self, now: snapshot.Snapshot) -> None:
        moment = asyncio.get_running_loop().time()
        self._mirror.classes(now)
        self._mirror.take(
            slices=self._slices.objects,
            nodes=self._nodes.objects,
            claims=self._claims.objects,
            pods=self._pods.objects,
            rules=self._seen.rules,
            at=self._clock(),
        )
        for uid, (one, pieces) in tuple(self._unknown.items()):
            known = self._mirror.claims.get(str(one))
            if known is None or known.uid != uid or known.allocated:
                del self._unknown[uid]
            else:  # the watch may have told of the finalizer alone
                self._mirror.cluster.book(uid, pieces)
        if moment >= self._usual_again:
            self._chooser.usual(self._mirror.usual())
            self._usual_again = moment + _USUAL_S
        by_uid = {one.uid: one for one in self._mirror.claims.values()} if self._given else {}
        for uid, (key, node, grouped) in list(self._given.items()):
            claim = by_uid.get(uid)
            if claim is None or not claim.allocated:
                del self._given[uid]
                if claim is not None and not claim.deleting:
                    _log.info("an allocation was given back", claim=str(claim), node=node)
                    # Of a PodGroup it gives back what it sees between the first allocation and the last; a second time it
                    # has another reason.
                    if grouped and key not in self._forgiven:
                        self._forgiven[key] = moment
                    else:
                        self._avoid.setdefault(key, {})[node] = moment + _AVOID_S

    def _forget(self, moment: float) -> None:
        """What waits no more is not remembered."""
        self._aside = {key: kept for key, kept in self._aside.items() if kept[0] > moment - _LONGEST_PAUSE_S}
        self._forgiven = {key: at for key, at in self._forgiven.items() if at > moment - _FORGIVEN_S}

    def _avoided(self) -> dict[str, frozenset[str]]:
        moment = asyncio.get_running_loop().time()
        self._avoid = {
            key: kept
            for key, found in self._avoid.items()
            if (kept := {node: until for node, until in found.items() if until > moment})
        }
        return {key: frozenset(found) for key, found in self._avoid.items()}

    async def _perform(self, turn: allotment.Turn, chosen: allotment.Allotment) -> None:
        """Claim after claim: what is written binds the rest to the node. What fails lets others go first for a while."""
        for index, (claim, allocation) in enumerate(zip(chosen.want.claims, chosen.allocations, strict=True)):
            try:
                await self._granter.write(claim, allocation, chosen)
                outcome = "done"
                self._given[claim.uid] = (chosen.want.key, chosen.node, chosen.want.grouped)
                _log.info("allocated", claim=str(claim), node=chosen.node)
            except errors.ElasticGPUError as error:
                outcome = "conflict" if isinstance(error, errors.Conflict) else "failed"
                _log.warning("not allocated", claim=str(claim), outcome=outcome, error=str(error))
                # A conflict too: a repeat after a lost answer meets what the first try has stored.
                unknown = isinstance(error, (errors.Unavailable, errors.Conflict))
                if unknown:
                    self._unknown[claim.uid] = claim, bookings.pieces(allocation["devices"]["results"])
                turn.take_back(chosen.want, chosen.want.claims[index + unknown :])
            self._series.wrote("Allocation", outcome)
            if outcome != "done":
                self._stale.set()
                if outcome == "failed":
                    failures = self._aside.get(chosen.want.key, (0.0, 0))[1] + 1
                    pause_s = backoff.pause_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures)
                    self._aside[chosen.want.key] = (asyncio.get_running_loop().time() + pause_s, failures)
                return
        self._aside.pop(chosen.want.key, None)

    async def _note(self, kept: informer.Kept[Any]) -> None:
        seen = 0
        while True:
            seen = await kept.changed(seen)
            self._stale.set()

    async def _follow_groups(self) -> None:
        """An API server has PodGroups where the gate GenericWorkload is on and that version of them is."""
        while True:
            try:
                served = await self._api.get(gangs.PATH)
                if any(kind["name"] == gangs.KIND for kind in (served or {}).get("resources") or ()):
                    await self._groups.run()
            except errors.ElasticGPUError as error:
                _log.warning("kinds not listed", path=gangs.PATH, reason=str(error))
            self._groups.tried.set()
            await asyncio.sleep(_ASK_FOR_GROUPS_S)

    async def _note_classes(self) -> None:
        seen = 0
        while True:
            seen = (await self._watch.newer(seen, within_s=_LOOK_AGAIN_S)).number
            self._stale.set()


async def _side_by_side(work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """In their order, `_AT_ONCE` at a time: a slow one holds up no more than its own place."""
    rest = iter(items)

    async def some() -> None:
        for item in rest:
            await work(item)

    await asyncio.gather(*(some() for _ in range(min(_AT_ONCE, len(items)))))


def _asked(classes: Iterable[snapshot.GPUClass]) -> bool:
    """Whether one wants to be allocated here."""
    return any(item.spec is not None and item.spec.allocation.by.value == "Controller" for item in classes)
