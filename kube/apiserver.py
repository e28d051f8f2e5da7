"""The API server as verbs on paths: plain dicts in and out, with deadlines, safe repeats and errors that say what to do.

    caller -> get, list_page, each, create, patch, update, delete, watch -> transport -> API server

What must stay true: every call ends within its deadline, also on a network that swallows packets; a call is repeated
only where a repeat cannot act twice; there is no limit of our own on the rate, the server's 429 is the only one.
"""

import asyncio
import contextlib
import enum
import random
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import tenacity

from api import errors
from kube import responses, transport

JSON = dict[str, Any]

_DEADLINE_S: Final = 10.0
_LIST_DEADLINE_S: Final = 60.0
_OK: Final = range(200, 300)
_NOT_FOUND: Final = 404


class Patch(enum.StrEnum):
    """The kinds of patch, by their content type. JSON is the only one that is not repeatable."""

    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"
    JSON = "application/json-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list. `following` is the token of the next one, empty at the end; `items` are still encoded."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str
    following: str

    @property
    def objects(self) -> tuple[JSON, ...]:
        """The items decoded, for lists known to be small."""
        return tuple(msgspec.json.decode(item) for item in self.items)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class APIServer:
    """An open way to one API server. Made by `connect`."""

    def __init__(self, way: transport.Transport) -> None:
        self._way = way

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls, kubeconfig: Path | None = None, user_agent: str = "elastic-gpu"
    ) -> AsyncIterator["APIServer"]:
        """Credentials: the kubeconfig given, else the mounted service account, else $KUBECONFIG or ~/.kube/config.

        Makes no call. Raises Invalid where no credentials can be found.
        """
        async with transport.opened(kubeconfig, user_agent) as way:
            yield cls(way)

    async def get(self, path: str, **params: object) -> JSON | None:
        """One object; None where there is none."""
        return _decoded(await self._call("GET", path, params, repeatable=True))

    async def list_page(self, path: str, *, limit: int = 500, following: str = "", **params: object) -> Page:
        """One page of a collection. Raises responses.Expired where `following` has become too old."""
        query = params | {"limit": limit} | ({"continue": following} if following else {})
        data = await self._call("LIST", path, query, repeatable=True, deadline_s=_LIST_DEADLINE_S)
        if data is None:
            raise errors.NotReady(f"LIST {path}: this API server does not serve that kind; install it (CRD, API group)")
        page = msgspec.json.decode(data, type=_List)
        meta = page.metadata
        return Page(items=tuple(page.items or ()), resource_version=meta.resource_version, following=meta.continue_)

    async def each(self, path: str, **params: Any) -> AsyncGenerator[JSON, None]:
        """The objects of a whole collection, a page in memory at a time. Raises what `list_page` does."""
        following = ""
        while True:
            page = await self.list_page(path, following=following, **params)
            for found in page.objects:
                yield found
            following = page.following
            if not following:
                return

    async def create(self, path: str, body: JSON, **params: object) -> JSON:
        """The object as stored. Raises Conflict where the name is taken."""
        made = _decoded(await self._call("POST", path, params, body))
        if made is None:
            raise errors.NotReady(f"POST {path}: the namespace or the kind does not exist there (yet); repeat it later")
        return made

    async def patch(self, path: str, body: Any, *, kind: Patch = Patch.MERGE, **params: object) -> JSON | None:
        """The object as stored; None where there is none. APPLY needs `fieldManager`, and mostly `force=True`."""
        repeatable = kind is not Patch.JSON
        return _decoded(await self._call("PATCH", path, params, body, content=kind.value, repeatable=repeatable))

    async def update(self, path: str, body: JSON, **params: object) -> JSON | None:
        """Replaces the object; None where there is none. Only for kinds that are wholly ours, with resourceVersion.

        A repeat after a lost answer shows as Conflict.
        """
        return _decoded(await self._call("PUT", path, params, body, repeatable=True))

    async def delete(self, path: str, *, uid: str, resource_version: str = "") -> bool:
        """Deletes this very object. False where it is gone already, Conflict where it is not the one expected."""
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        return await self._call("DELETE", path, {}, {"preconditions": preconditions}, repeatable=True) is not None

    async def watch(self, path: str, **params: object) -> AsyncGenerator[bytes, None]:
        """The events of one watch, a JSON line each, until the server ends it; first an empty line once it is open.

        Close it (`contextlib.aclosing`).

        Raises Unavailable where the way is cut, or silent for longer than bookmarks take.
        """
        rest = b""
        async with contextlib.aclosing(self._way.stream(_target(path, params | {"watch": True}))) as parts:
            async for part in parts:
                if part.status not in _OK:
                    raise responses.failure("WATCH", path, part.status, part.data)
                if not part.data:
                    yield b""
                *lines, rest = (rest + part.data).split(b"\n")
                for line in lines:
                    yield line

    async def _call(
        self,
        verb: str,
        path: str,
        params: dict[str, object],
        body: Any = None,
        *,
        content: str = "application/json",
        repeatable: bool = False,
        deadline_s: float = _DEADLINE_S,
    ) -> bytes | None:
        """The answer's body; None for 404. Within the deadline it repeats what may be repeated."""
        method, target = ("GET" if verb == "LIST" else verb), _target(path, params)
        data = None if body is None else msgspec.json.encode(body)

        before = ""

        async def attempt() -> bytes | None:
            nonlocal before
            try:
                answer = await self._way.send(method, target, data, content)
                if answer.status in _OK:
                    return answer.data
                if answer.status == _NOT_FOUND:
                    return None
                raise responses.failure(verb, path, answer.status, answer.data, retry_after=answer.retry_after)
            except errors.ElasticGPUError as error:
                before = f"; the try before: {error}"
                raise

        try:
            async with asyncio.timeout(deadline_s):
                return await _persistent(attempt, repeatable=repeatable, deadline_s=deadline_s)
        except TimeoutError as error:
            raise errors.Unavailable(
                f"{verb} {path}: the API server did not answer within {deadline_s:g} s; "
                f"whether it was done is unknown; check the network to it{before}"
            ) from error


async def _persistent(
    attempt: Callable[[], Awaitable[bytes | None]], *, repeatable: bool, deadline_s: float
) -> bytes | None:
    """Repeats what the server has not seen, or refused for its load; the unknown only where that is harmless."""

    def may_repeat(error: BaseException) -> bool:
        unseen = isinstance(error, (responses.Throttled, transport.Unsent))
        return unseen or (repeatable and isinstance(error, errors.Unavailable))

    try:
        return await attempt()
    except (responses.Throttled, errors.Unavailable) as error:
        pause_s = _pause_s(error, 0)
        if not may_repeat(error) or pause_s > deadline_s:
            raise
    await asyncio.sleep(pause_s)
    return await tenacity.AsyncRetrying(  # entered late: it costs more than a good call can spare
        wait=lambda state: _pause_s(state.outcome and state.outcome.exception(), state.attempt_number),  # type: ignore[arg-type]
        stop=tenacity.stop_before_delay(deadline_s - pause_s),
        retry=tenacity.retry_if_exception(may_repeat),
        reraise=True,
    )(attempt)


def _pause_s(error: BaseException | None, turn: int) -> float:
    if isinstance(error, responses.Throttled):
        return error.retry_after_s
    return random.uniform(0.05, 0.1) * min(2.0**turn, 20.0)  # noqa: S311


def _target(path: str, params: dict[str, object]) -> str:
    if not params:
        return path
    plain = {key: str(value).lower() if isinstance(value, bool) else value for key, value in params.items()}
    return f"{path}?{urllib.parse.urlencode(plain)}"


def _decoded(data: bytes | None) -> JSON | None:
    return None if data is None else msgspec.json.decode(data, type=JSON)
