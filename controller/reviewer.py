"""Who asks, and what they may see: the API server's own answers, kept for a short while.

    token --> TokenReview --> Person --> SubjectAccessReviews --> scope.Scope

What must stay true: nobody is let in whom the API server has not named; a token that it refuses is refused at once, and
one that it let in is asked about again after a minute. While the API server is away, what it said last holds for a
quarter of an hour: this is when people look at the page.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from api import errors
from kube import apiserver
from view import scope

_FRESH_S = 60.0
_STALE_S = 900.0
_MOST = 2000
"""Answers that are kept: beyond them all are asked for anew."""
_AT_ONCE = 16
_NAMESPACES = 20
_ACCOUNT = "system:serviceaccount:"
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Whom a token is for, as the API server has it."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def home(self) -> str:
        """The namespace of a service account."""
        return self.name.removeprefix(_ACCOUNT).partition(":")[0] if self.name.startswith(_ACCOUNT) else ""


class Reviewer:
    """Asks the API server about people."""

    def __init__(self, api: apiserver.APIServer) -> None:
        self._api = api
        self._kept: dict[Any, tuple[float, Any]] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def person(self, token: str) -> Person | None:
        """None for a token that the API server does not know. Raises Unavailable where it cannot be asked."""
        key = hashlib.sha256(token.encode()).digest()
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = await self._asked(key, _TOKENS, body)
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        extra = tuple((name, tuple(values)) for name, values in sorted((user.get("extra") or {}).items()))
        return Person(
            name=user.get("username", ""),
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            extra=extra,
        )

    async def scope(self, person: Person, namespaces: Iterable[str]) -> scope.Scope | None:
        """What of the picture they see; None where they may not see the inventory at all.

        `namespaces` are those that they ask about, should they not have all of them.
        """
        if not await self._lists(person, "resource.k8s.io", "resourceslices", ""):
            return None
        if await self._names(person, ""):
            return scope.Scope(namespaces=None)
        wanted = sorted({one for one in (*namespaces, person.home) if one})[:_NAMESPACES]
        may = await asyncio.gather(*(self._names(person, one) for one in wanted))
        return scope.Scope(namespaces=frozenset(one for one, yes in zip(wanted, may, strict=True) if yes))

    async def scrapes(self, person: Person) -> bool:
        """Whether they may read the series that name namespaces."""
        return await self._may(person, {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}})

    async def _names(self, person: Person, namespace: str) -> bool:
        """Who may list claims and pods there reads their names anyway. The empty namespace is all of them."""
        return await self._lists(person, "resource.k8s.io", "resourceclaims", namespace) and await self._lists(
            person, "", "pods", namespace
        )

    async def _lists(self, person: Person, group: str, resource: str, namespace: str) -> bool:
        asked = {"verb": "list", "group": group, "resource": resource, "namespace": namespace}
        return await self._may(person, {"resourceAttributes": asked})

    async def _may(self, person: Person, what: dict[str, Any]) -> bool:
        spec = {"user": person.name, "uid": person.uid, "groups": list(person.groups)} | what
        if person.extra:
            spec["extra"] = {name: list(values) for name, values in person.extra}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool((await self._asked((person, str(what)), _ACCESS, body)).get("allowed"))

    async def _asked(self, key: Any, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The status of a review."""
        now = asyncio.get_running_loop().time()
        at, status = self._kept.get(key, (0.0, None))
        if status is not None and now - at < _FRESH_S:
            return dict(status)
        try:
            async with self._room:
                status = (await self._api.create(path, body)).get("status") or {}
        except errors.Unavailable:
            if status is None or now - at > _STALE_S:
                raise
            return dict(status)
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[key] = (now, status)
        return dict(status)
