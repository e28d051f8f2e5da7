"""The current objects of one collection, kept by list and watch.

    LIST in pages -> project each object -> objects; then WATCH from there: event -> project -> objects, version + 1
    consumer: `seen = informer.version`, read `objects`, `await informer.changed(seen)`, again
    who needs something else of the same objects: `informer.beside(project)`, a second projection of one list and watch

Level-based: a consumer that was busy sees the latest state once, and misses none. What must stay true: nothing older
than what is held replaces it (an own write is taken in before the watch brings it); a server that ends watches at
once, or answers 410 for ever, is asked ever more slowly; memory holds one page of raw objects, and what `project` keeps.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec
import structlog

from api import errors
from kube import apiserver, backoff, metrics, responses, transport

_log = structlog.get_logger(__name__)

T = TypeVar("T")
U = TypeVar("U")

_PAGE: Final = 500
_SERVER_ERROR: Final = 500
_HEALTHY_S: Final = 20.0
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 15.0
_UNREACHED_PAUSE_S: Final = 2.0
"""Where nobody listens a try costs nothing, and whoever comes back is to be seen soon."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Kept(Generic[T]):
    """What `project` keeps of each object; one that it cannot read is left out and logged.

    Keys are `namespace/name`, or `name` where there is no namespace. `quiet`: an event that changes nothing of what is kept,
    such as a heartbeat, wakes nobody and leaves the very same object there; only for projections that compare all of them.
    """

    def __init__(self, path: str, project: Callable[[dict[str, Any]], T], *, quiet: bool) -> None:
        self._path = path
        self._project = project
        self._quiet = quiet
        self._objects: dict[str, T] = {}
        self._news = asyncio.Event()
        self.objects: Mapping[str, T] = MappingProxyType(self._objects)
        self.synced = asyncio.Event()
        self.version = 0

    async def changed(self, since: int) -> int:
        """Waits until `version` is not `since`, and returns it."""
        while self.version == since:
            await self._news.wait()
        return self.version

    def put(self, key: str, data: dict[str, Any]) -> bool:
        """For the informer alone, as `drop` and `tell`. Whether somebody has to be told."""
        try:
            found = self._project(data)
            if self._quiet and key in self._objects and self._objects[key] == found:
                return False
            self._objects[key] = found
        except (errors.ElasticGPUError, KeyError, TypeError, ValueError, AttributeError) as error:
            _log.warning("object left out", path=self._path, key=key, reason=repr(error))
            self._objects.pop(key, None)
        return True

    def drop(self, key: str) -> bool:
        return self._objects.pop(key, None) is not None

    def tell(self) -> None:
        self.version += 1
        news, self._news = self._news, asyncio.Event()
        news.set()


class Informer(Kept[T]):
    """Lists and watches for itself, and for those beside it."""

    def __init__(
        self,
        api: apiserver.APIServer,
        path: str,
        *,
        project: Callable[[dict[str, Any]], T],
        label_selector: str = "",
        field_selector: str = "",
        quiet: bool = False,
        shape: Any = dict[str, Any],
    ) -> None:
        """`shape`: what is decoded of an object, for `project` and those beside it; see `shapes`."""
        super().__init__(path, project, quiet=quiet)
        self._api = api
        self._decode: Callable[[msgspec.Raw], dict[str, Any]] = msgspec.json.Decoder(shape).decode
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {key: value for key, value in selectors.items() if value}
        self._all: tuple[Kept[Any], ...] = (self,)
        self._ahead: dict[str, int] = {}
        """The versions of those that were adopted, and that the watch has not told of yet."""
        self._reached = 0
        """The version up to which the watch has told everything."""
        self._listed = False
        self._watching: asyncio.Timeout | None = None
        self._backoff = backoff.Backoff(_FIRST_PAUSE_S, _MOST_PAUSE_S)
        self._restarts = metrics.watch_restarts.labels(path.rpartition("/")[2])
        self.tried = asyncio.Event()
        """Set when the first list has ended, well or not."""
        self.connections = 0
        """How often a watch was opened, also a change to wait for; behind a new one there may be another server."""
        self.cut_at: float | None = None
        """Since when, by the monotonic clock, the server cannot be heard; None while it can."""

    async def run(self) -> NoReturn:
        """Keeps `objects` current until cancelled. Failures are logged and retried."""
        while True:
            unreached_s = _MOST_PAUSE_S
            try:
                while not self._listed or self._unfilled():
                    await self._list()
                await self._watch()
                if self._unfilled():
                    continue
            except responses.Expired as error:
                self._listed = False
                _log.info("listing again", path=self._path, reason=str(error))
            except errors.ElasticGPUError as error:
                if isinstance(error, transport.Unsent):
                    unreached_s = random.uniform(0.5, 1.0) * _UNREACHED_PAUSE_S  # noqa: S311
                if isinstance(error, errors.Unavailable):
                    self.cut_at = self.cut_at or time.monotonic()
                _log.warning("watch failed", path=self._path, reason=str(error), failures=self._backoff.failures)
            except msgspec.MsgspecError as error:
                self._listed = False
                _log.warning("not an answer of an API server", path=self._path, reason=str(error))
            self.tried.set()
            self._restarts.inc()
            pause_s = self._backoff.next_s()  # after a clean end too: some ends come at once
            await asyncio.sleep(min(pause_s, unreached_s))

    def beside(self, project: Callable[[dict[str, Any]], U], *, quiet: bool = False) -> Kept[U]:
        """Keeps something else of the same objects, until `leave`. All is listed once more for it, if that has begun."""
        more = Kept(self._path, project, quiet=quiet)
        self._all += (more,)
        if self._watching is not None:
            self._watching.reschedule(0)
            self._watching = None
        return more

    def leave(self, one: Kept[Any]) -> None:
        self._all = tuple(kept for kept in self._all if kept is not one)

    def adopt(self, data: dict[str, Any]) -> None:
        """Takes in what a write of our own returned, unless the watch has told of it, or of its end, already."""
        key, version = _identity(data)
        if version > self._reached and version > self._ahead.get(key, 0):
            self._ahead[key] = version
            self._keep(key, data)

    def discard(self, key: str) -> None:
        """Takes out what an own call deleted; the watch confirms it later."""
        self._forget(key)

    def _unfilled(self) -> tuple[Kept[Any], ...]:
        return tuple(kept for kept in self._all if not kept.synced.is_set())

    async def _list(self) -> None:
        """Ends early when somebody has come in between: then all begins anew, for both.

        Where the watch was lost, all is taken in, whatever its version: a server set back to a copy goes on from any number.
        A list that ends halfway leaves some newer than what the watch would go on from, so that counts as a loss too.
        """
        following, found, new = "", set[str](), self._unfilled()
        known = self._reached if self._listed else 0
        if not self._listed:
            self._ahead = {}
        self._listed = False
        while True:
            page = await self._api.list_page(self._path, limit=_PAGE, following=following, **self._selectors)
            version = int(page.resource_version or 0)
            found |= self._fill(page, known, new)
            following = page.following
            if not following:
                break
            await asyncio.sleep(0)  # a page of projections is work: others get their turn
            if self._unfilled() != new:
                return
        self._ahead = {key: ahead for key, ahead in self._ahead.items() if ahead > version}
        for key in set[str]().union(*(kept.objects for kept in self._all)) - found - self._ahead.keys():
            self._forget(key)
        if new:
            self._ahead = dict.fromkeys(self._ahead, 0)  # the watch tells who is new of these too
        self._reached, self._listed = version, True
        for kept in new:
            kept.synced.set()
        self.tried.set()
        for kept in self._all:
            kept.tell()

    def _fill(self, page: apiserver.Page, known: int, new: tuple[Kept[Any], ...]) -> set[str]:
        """Takes in what is newer than what is known, and all for those who are new. Gives the keys."""
        keys = set()
        for item in page.items:
            data = self._decode(item)
            key, item_version = _identity(data)
            keys.add(key)
            older = item_version < self._ahead.get(key, 0)
            for kept in self._all if item_version > known else new:
                if not (older and key in kept.objects):
                    kept.put(key, data)
        return keys

    async def _watch(self) -> None:
        query = self._selectors | {
            "resourceVersion": str(self._reached),
            "allowWatchBookmarks": True,
            "timeoutSeconds": random.randint(300, 600),  # noqa: S311
        }
        opened = time.monotonic()
        self.connections += 1
        self.tell()
        self._watching = until_somebody_comes = asyncio.timeout(None)
        try:
            async with until_somebody_comes, contextlib.aclosing(self._api.watch(self._path, **query)) as lines:
                async for line in lines:
                    self.cut_at = None
                    if line:
                        self._take(msgspec.json.decode(line, type=_Event))
        except TimeoutError:
            if not until_somebody_comes.expired():
                raise
        finally:
            self._watching = None
            if time.monotonic() - opened >= _HEALTHY_S:
                self._backoff.reset()

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            said = msgspec.json.decode(event.object, type=responses.Status)
            raise responses.failure("WATCH", self._path, said.code or _SERVER_ERROR, bytes(event.object))
        data = self._decode(event.object)
        key, version = _identity(data)
        self._reached = max(self._reached, version)
        if event.type == "BOOKMARK" or version < self._ahead.get(key, 0):
            return
        told = self._ahead.pop(key, 0)
        if event.type == "DELETED":
            self._forget(key)
        elif version != told:
            self._keep(key, data)

    def _keep(self, key: str, data: dict[str, Any]) -> None:
        for kept in self._all:
            if kept.put(key, data):
                kept.tell()

    def _forget(self, key: str) -> None:
        self._ahead.pop(key, None)
        for kept in self._all:
            if kept.drop(key):
                kept.tell()


def _identity(data: dict[str, Any]) -> tuple[str, int]:
    """Key and version. Versions of one kind can be compared: they are numbers that grow (KEP-5504)."""
    meta = data["metadata"]
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    return f"{namespace}/{name}" if namespace else sys.intern(name), int(meta.get("resourceVersion") or 0)
