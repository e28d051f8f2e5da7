"""What the page's server answers: who asks, what they may see of the newest picture, and the answer as JSON.

    token --> reviewer --> Visitor --> view.pages, in a thread --> JSON with the number of the picture

Knows no HTTP but its numbers for a refusal. The first screen of a picture is made once for all who see the same of it.
"""

import asyncio
import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api import errors, resource
from controller import observer, reviewer
from view import join, pages, scope

_INVENTORY = "list resourceslices of resource.k8s.io (ClusterRoles elastic-gpu-inventory and view have it)"
_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Somebody who may look, and at what."""

    name: str
    scope: scope.Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """Somebody who may not; `status` as HTTP has it."""

    status: int
    why: str


class Desk:
    """Answers for the newest picture."""

    def __init__(
        self, look: observer.Observer, people: reviewer.Reviewer, clock: Callable[[], datetime.datetime]
    ) -> None:
        self._look = look
        self._people = people
        self._clock = clock
        self._overviews: dict[tuple[int, scope.Scope], bytes] = {}

    async def admit(self, token: str, namespaces: Sequence[str] = ()) -> Visitor | Turned:
        person = await self._known(token)
        if isinstance(person, Turned):
            return person
        try:
            seen = await self._people.scope(person, namespaces)
        except errors.ElasticGPUError as error:
            return _unasked(error)
        if seen is None:
            return Turned(status=403, why=f"{person.name} may not {_INVENTORY}")
        return Visitor(name=person.name, scope=seen)

    async def scraper(self, token: str) -> Turned | None:
        """None for who may read series that name namespaces."""
        person = await self._known(token)
        if isinstance(person, Turned):
            return person
        try:
            may = await self._people.scrapes(person)
        except errors.ElasticGPUError as error:
            return _unasked(error)
        return None if may else Turned(status=403, why=f"{person.name} may not get the non-resource URL /metrics")

    async def answer(
        self, visitor: Visitor, make: Callable[[join.View, scope.Scope], pages.JSON | None]
    ) -> bytes | None:
        """None where there is no such thing, or it may not be seen: which of the two is nobody's business."""
        now = self._look.latest
        found = await asyncio.to_thread(make, now.view, visitor.scope)
        return None if found is None else self._signed(visitor, now, found)

    async def overview(self, visitor: Visitor) -> bytes:
        now = self._look.latest
        key = (now.number, visitor.scope)
        if key not in self._overviews:
            made = await asyncio.to_thread(lambda: msgspec.json.encode(pages.overview(now.view, visitor.scope)))
            if len(self._overviews) >= _KEPT:
                self._overviews.clear()
            self._overviews[key] = made
        return self._signed(visitor, now, msgspec.Raw(self._overviews[key]))

    def pulse(self) -> bytes:
        """Which picture is the newest, and whether it is still fed."""
        return msgspec.json.encode(self._moment(self._look.latest))

    async def newer(self, than: int, *, within_s: float) -> int:
        return (await self._look.newer(than, within_s=within_s)).number

    def _signed(self, visitor: Visitor, of: observer.Scene, found: Any) -> bytes:
        spaces = visitor.scope.namespaces
        about = {"you": visitor.name, "namespaces": None if spaces is None else sorted(spaces)}
        return msgspec.json.encode({"as": self._moment(of) | about, "data": found})

    def _moment(self, of: observer.Scene) -> dict[str, Any]:
        now, silent_s = self._clock(), self._look.silent_s()
        since = None if silent_s is None else resource.timestamp(now - datetime.timedelta(seconds=silent_s))
        return {"number": of.number, "now": resource.timestamp(now), "silentSince": since}

    async def _known(self, token: str) -> reviewer.Person | Turned:
        if not token:
            return Turned(status=401, why="a token is needed, such as kubectl create token makes")
        try:
            person = await self._people.person(token)
        except errors.ElasticGPUError as error:
            return _unasked(error)
        return person or Turned(status=401, why="the API server does not know this token; it may have run out")


def _unasked(error: errors.ElasticGPUError) -> Turned:
    return Turned(status=503, why=f"the API server could not be asked who you are: {error}")
