"""A Kubernetes API server on loopback, as far as we use one: real HTTP, real watches, faults on demand.

async with FakeAPIServer() as server:
    server.put("/apis/resource.k8s.io/v1/resourceslices/a", {...})     # as it shall be stored, status and all
    async with APIServer.connect(server.kubeconfig(tmp_path)) as api: ...
    server.fault(method="PUT", path="resourceslices", status=409, times=2)
    await server.until(lambda: server.list("resourceslices"))
    assert server.count("POST", "resourceslices") == 1
"""

import asyncio
import base64
import contextlib
import copy
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web

from tests.fakes import objects
from tests.fakes.objects import JSON, Place, Refused

_PATH = re.compile(
    r"/(?P<prefix>api/[^/]+|apis/[^/]+/[^/]+)(?:/namespaces/(?P<ns>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """One call as it came in."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    agent: str = ""

    @property
    def watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` calls (or watches) that match. `times=-1`: until `heal`."""

    method: str = ""
    path: str = ""
    watch: bool | None = None
    times: int = 1
    status: int = 0
    reason: str = ""
    message: str = "injected"
    retry_after: str = ""
    delay_s: float = 0.0
    black_hole: bool = False
    cut: bool = False
    lose_answer: bool = False
    """The call is carried out, its answer is not sent."""
    late: bool = False
    """Its connection is cut, and it is carried out when `carry_out` is called."""

    def hits(self, request: Request) -> bool:
        wanted = self.watch is None or self.watch == request.watch
        return self.times != 0 and wanted and self.method in {"", request.method} and self.path in request.path


@dataclass(slots=True)
class FakeAPIServer:
    store: objects.Store = field(default_factory=objects.Store)
    requests: list[Request] = field(default_factory=list)
    late: list[tuple[Request, str]] = field(default_factory=list)
    page_tokens_expire: bool = False
    watches_end_at_once: bool = False
    token: str = ""
    """Where set, only this bearer token is let in."""
    people: dict[str, str] = field(default_factory=dict)
    """Bearer token -> user name, for TokenReviews."""
    rights: set[tuple[str, str, str]] = field(default_factory=set)
    """(user, "list pods" or "get /metrics", namespace or empty for all), for SubjectAccessReviews."""
    tokens_node: str = "node1"
    """The node that tokens of ServiceAccounts name."""
    said: dict[str, Any] = field(default_factory=dict)
    """Path -> what it answers: text as text, the rest as JSON."""
    certificate: Path | None = None
    """Where set, it speaks TLS with this certificate, whose key is beside it. Read at each `start`."""
    _faults: list[Fault] = field(default_factory=list)
    _pulse: asyncio.Event = field(default_factory=asyncio.Event)
    _streams: set[asyncio.Task[Any]] = field(default_factory=set)
    _runner: web.AppRunner | None = None
    _port: int = 0
    _bookmarks: int = 0
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, on the same port again after a `stop`."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._released = asyncio.Event()
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True, ssl_context=self._tls())
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """As if the process had died: streams are cut, connections refused. What is stored stays."""
        self._released.set()
        self.cut_streams()
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def _tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.certificate.with_suffix(".key"))
        return context

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self._port}"

    def kubeconfig(self, folder: Path, *, token: str = "t") -> Path:
        path = folder / "kubeconfig"
        named = {"name": "fake"}
        trust = {"certificate-authority": str(self.certificate)} if self.certificate else {}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "clusters": [named | {"cluster": {"server": self.url} | trust}],
                    "users": [named | {"user": {"token": token}}],
                    "contexts": [named | {"context": {"cluster": "fake", "user": "fake"}}],
                }
            )
        )
        return path

    # what a test does and asks

    def put(self, path: str, body: JSON) -> JSON:
        """Stores an object as given, at the path of the object itself."""
        place, _ = _place(path)
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        meta.setdefault("name", place.name)
        if place.namespace:
            meta.setdefault("namespace", place.namespace)
        held = self.store.objects.get(place)
        if held:
            meta.setdefault("uid", held["metadata"]["uid"])
        stored = self.store.write(place, body)
        self._tell()
        return stored

    def get(self, path: str) -> JSON | None:
        return copy.deepcopy(self.store.objects.get(_place(path)[0]))

    def remove(self, path: str) -> None:
        self.store.remove(_place(path)[0])
        self._tell()

    def list(self, resource: str) -> "list[JSON]":
        """All objects of a resource name, by name."""
        found = [(p, o) for p, o in self.store.objects.items() if p.collection.endswith("/" + resource)]
        return [copy.deepcopy(o) for _, o in sorted(found, key=lambda pair: (pair[0].namespace, pair[0].name))]

    def fault(self, **what: Any) -> Fault:
        fault = Fault(**what)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        self._faults.clear()
        self._released.set()
        self._released = asyncio.Event()

    def carry_out(self) -> None:
        """What was on its way when its caller gave up arrives; what does not fit any more is refused, and nobody hears of it."""
        late, self.late = self.late, []
        for request, content in late:
            with contextlib.suppress(Refused):
                self._answer(request, content)
        self._tell()

    def drops(self, *paths: str) -> None:
        """Fields of a spec that this server does not know: `devices.taints`, or `deviceclasses:...` of one kind; `status....`."""
        self.store.drops = paths

    def compact(self) -> None:
        """Forgets history: versions from before are answered by 410."""
        self.store.oldest = self.store.revision
        self.store.history.clear()

    def bookmark(self) -> None:
        self.store.revision += 1
        self._bookmarks += 1
        self._tell()

    def cut_streams(self) -> None:
        for stream in tuple(self._streams):
            stream.cancel()

    @property
    def watching(self) -> int:
        return len(self._streams)

    def count(self, method: str = "", path: str = "", *, watch: bool | None = None) -> int:
        match = Fault(method=method, path=path, watch=watch)
        return sum(match.hits(request) for request in self.requests)

    async def until(self, condition: Callable[[], Any], *, within_s: float = 25) -> None:
        """Returns once the condition holds; it is looked at after every call and change, and now and then for what follows
        from an answer. In less than any look that would find again what no event told (30 s)."""
        async with asyncio.timeout(within_s):
            while not condition():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._pulse.wait()

    # how it answers

    def _tell(self) -> None:
        """Wakes everybody who waits for a change."""
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    async def _handle(self, raw: web.Request) -> web.StreamResponse:
        text = await raw.text()
        agent = raw.headers.get("User-Agent", "")
        request = Request(raw.method, raw.path, dict(raw.query), json.loads(text) if text else None, agent)
        self.requests.append(request)
        self._tell()
        try:
            lost = await self._suffer(raw, request)
            if request.watch:
                return await self._watch(raw, request)
            if request.path in self.said:
                said = self.said[request.path]
                return web.Response(text=said) if isinstance(said, str) else web.json_response(said)
            review = request.path.endswith("reviews")
            answer = self._reviewed(request.body) if review else self._answer(request, raw.content_type)
            self._tell()
        except Refused as no:
            status = {"kind": "Status", "reason": no.reason, "message": no.message, "code": no.code}
            headers = {"Retry-After": no.retry_after} if no.retry_after else {}
            return web.json_response(status, status=no.code, headers=headers)
        if lost:
            _sever(raw)
        return web.json_response(answer, status=201 if raw.method == "POST" else 200)

    async def _suffer(self, raw: web.Request, request: Request) -> bool:
        scheme, _, token = raw.headers.get("Authorization", "").partition(" ")
        if self.token and (scheme.lower(), token) != ("bearer", self.token):
            raise Refused(401, "Unauthorized", "Unauthorized")
        fault = next((fault for fault in self._faults if fault.hits(request)), None)
        if fault is None:
            return False
        fault.times -= 1
        await asyncio.sleep(fault.delay_s)
        if fault.black_hole:
            await self._released.wait()
        if fault.late:
            self.late.append((request, raw.content_type))
        if fault.cut or fault.late or fault.black_hole:
            _sever(raw)
        if fault.status:
            raise Refused(fault.status, fault.reason, fault.message, fault.retry_after)
        return fault.lose_answer

    def _answer(self, request: Request, content: str) -> JSON:  # noqa: PLR0911  one a verb
        place, subresource = _place(request.path)
        body, dry = request.body, "dryRun" in request.query
        if not place.name:
            created = request.method == "POST"
            return self._create(place, body, dry_run=dry) if created else self._list(place, request.query)
        apply = content == "application/apply-patch+yaml"
        if place not in self.store.objects and not (apply and not subresource):
            raise Refused(404, "NotFound", f'{place.collection.rpartition("/")[2]} "{place.name}" not found')
        match request.method:
            case "POST" if subresource == "token":
                return self._token(body["spec"])
            case "GET":
                return copy.deepcopy(self.store.objects[place])
            case "PUT":
                return self.store.replace(place, body, subresource, dry_run=dry)
            case "DELETE":
                held = self.store.objects[place]["metadata"]
                for key, value in ((body or {}).get("preconditions") or {}).items():
                    if held[key] != value:
                        raise Refused(409, "Conflict", f"precondition failed: {key} is {held[key]}, not {value}")
                return self.store.remove(place)
            case "PATCH" if apply:
                return self.store.apply(place, request.query["fieldManager"], body, subresource)
        if content not in {"application/merge-patch+json", "application/strategic-merge-patch+json"}:
            raise Refused(415, "UnsupportedMediaType", f"{request.method} {content}")
        patched = objects.merge(self.store.objects[place], body)
        return self.store.replace(place, patched, subresource, dry_run=dry)

    def _reviewed(self, body: JSON) -> JSON:
        spec = body.get("spec") or {}
        if body["kind"] == "SelfSubjectReview":
            return body | {"metadata": {"creationTimestamp": self.said.get("now")}}
        if "token" in spec:
            user = self.people.get(spec["token"])
            known = (
                {"authenticated": True, "user": {"username": user, "uid": "u"}} if user else {"authenticated": False}
            )
            return body | {"status": known}
        asked = spec.get("resourceAttributes") or {}
        path = spec.get("nonResourceAttributes") or {}
        what = f"{asked['verb']} {asked['resource']}" if asked else f"{path['verb']} {path['path']}"
        spaces = {"", asked.get("namespace", "")}
        return body | {"status": {"allowed": any((spec["user"], what, space) in self.rights for space in spaces)}}

    def _token(self, spec: JSON) -> JSON:
        """A pod-bound token for a ServiceAccount, signed by nobody."""
        node = {"name": self.tokens_node, "uid": f"uid-{self.tokens_node}"}
        claims = {"aud": spec["audiences"], "kubernetes.io": {"node": node, "pod": spec["boundObjectRef"]}}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
        return {"status": {"token": ".".join([*parts, "signature"])}}

    def _create(self, place: Place, body: JSON, *, dry_run: bool) -> JSON:
        meta = body["metadata"]
        name = meta.get("name") or f"{meta['generateName']}{self.store.revision:05x}"
        place = Place(place.collection, place.namespace, name)
        if place in self.store.objects:
            raise Refused(409, "AlreadyExists", f'"{name}" already exists')
        space = {"namespace": place.namespace} if place.namespace else {}
        whole = place.collection in objects.WITHOUT_SUBRESOURCE
        kept = {key: value for key, value in body.items() if key != "status" or whole}  # else a creation sets no status
        return self.store.write(place, kept | {"metadata": meta | {"name": name} | space}, dry_run=dry_run)

    def _list(self, place: Place, query: dict[str, str]) -> JSON:
        selectors = query.get("labelSelector", ""), query.get("fieldSelector", "")
        found = [o for _, o in self.store.select(place.collection, place.namespace, *selectors)]
        version, start = self.store.revision, 0
        if token := query.get("continue"):
            version, start = (int(part) for part in token.split("."))
            if self.page_tokens_expire or version < self.store.oldest:
                self.page_tokens_expire = False
                raise Refused(410, "Expired", "The provided continue parameter is too old")
        end = start + int(query.get("limit", 0) or len(found) or 1)
        meta = {"resourceVersion": str(version)} | ({"continue": f"{version}.{end}"} if end < len(found) else {})
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": copy.deepcopy(found[start:end])}

    async def _watch(self, raw: web.Request, request: Request) -> web.StreamResponse:
        place, _ = _place(request.path)
        since = int(request.query.get("resourceVersion") or self.store.revision)
        if since < self.store.oldest:
            raise Refused(410, "Expired", f"too old resource version: {since} ({self.store.oldest})")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(raw)
        if self.watches_end_at_once:
            return response
        task = asyncio.current_task()
        assert task
        self._streams.add(task)
        self._tell()
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", 3600))):
                async for kind, item in self._events(place, request.query, since):
                    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
        except TimeoutError:
            pass
        finally:
            self._streams.discard(task)
        return response

    async def _events(self, place: Place, query: dict[str, str], since: int) -> AsyncIterator[tuple[str, JSON]]:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        bookmarks = self._bookmarks
        while True:
            if since < self.store.oldest:
                yield (
                    "ERROR",
                    {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"},
                )
                return
            for revision, kind, where, item in [entry for entry in self.store.history if entry[0] > since]:
                since = revision
                mine = where.collection == place.collection and place.namespace in {"", where.namespace}
                if mine and place.name in {"", where.name} and objects.selected(item, labels, fields):
                    yield kind, item
            if bookmarks != self._bookmarks and "allowWatchBookmarks" in query:
                bookmarks, since = self._bookmarks, self.store.revision
                yield "BOOKMARK", {"metadata": {"resourceVersion": str(since)}}
            now = self.store.revision, self._bookmarks
            while now == (self.store.revision, self._bookmarks):
                await self._pulse.wait()


def _place(path: str) -> tuple[Place, str]:
    match = _PATH.fullmatch(path)
    if match is None:
        raise Refused(404, "NotFound", f"the server could not find {path}")
    return Place(f"{match['prefix']}/{match['resource']}", match["ns"] or "", match["name"] or ""), match["sub"] or ""


def _sever(raw: web.Request) -> None:
    with contextlib.suppress(AttributeError):
        raw.transport.abort()  # type: ignore[union-attr]
    raise asyncio.CancelledError
