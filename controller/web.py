"""The controller's two ports.

    open:  /healthz, /readyz, /metrics without the names of namespaces; with a token that may, /metrics with them
    page:  /, the page's files; api/..., for a token that the API server knows, as much as it may see

Healthy is who answers. Ready is who has the whole cluster in view; a replica that waits for the lease is ready too,
else a rolling update would wait for ever. The page comes from this package alone, works below any path, and its token
travels in a header of its own: the API server's proxy takes Authorization out.
"""

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import prometheus_client
import structlog
from aiohttp import web

from api import errors
from controller import answers, desk
from view import pages

TOKEN = "X-Elastic-GPU-Token"  # noqa: S105  a header's name
_PAGE = Path(__file__).parent / "page"
_FILES = {"": "index.html", "page.js": "page.js", "draw.js": "draw.js", "page.css": "page.css"}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_PULSE_S = 10.0
_STREAM_S = 300.0
"""A stream ends after so long: whoever opens the next one shows the token again."""
_CERTIFICATE_S = 10.0
_BODY = 64 * 1024
"""A pod is a few KiB; reading YAML takes a core for as long as it is long."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Guarded = Callable[[web.Request, desk.Visitor], Awaitable[web.StreamResponse]]
_log = structlog.get_logger("web")


def operations(
    registry: prometheus_client.CollectorRegistry,
    named: prometheus_client.CollectorRegistry,
    nodes: Callable[[], bytes],
    unready: Callable[[], str],
    front: desk.Desk,
) -> web.Application:
    """The open port. `nodes`: series as text. `unready` says what is still missing, or nothing; `named` has the series with names."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = unready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def metrics(request: web.Request) -> web.Response:
        wanted = [prometheus_client.REGISTRY, registry]  # the process, the watches; ours
        if token := _token(request):
            if turned := await front.scraper(token):
                return web.Response(text=f"{turned.why}\n", status=turned.status)
            wanted.append(named)
        text = await asyncio.to_thread(lambda: b"".join([*map(prometheus_client.generate_latest, wanted), nodes()]))
        return web.Response(body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


def page(front: desk.Desk, room: answers.Answers) -> web.Application:
    """The page and the API behind it. Read only: there is no other method than GET, but to ask with a body."""

    async def overview(_: web.Request, who: desk.Visitor) -> web.Response:
        return _json(await front.overview(who))

    async def pods(request: web.Request, who: desk.Visitor) -> web.Response:
        return _json(await front.answer(who, functools.partial(pages.pods, words=request.query.get("q", ""))))

    async def pod(request: web.Request, who: desk.Visitor) -> web.Response:
        return _json(
            await front.answer(
                who,
                functools.partial(
                    pages.pod, namespace=request.match_info["namespace"], name=request.match_info["name"]
                ),
            )
        )

    async def problems(_: web.Request, who: desk.Visitor) -> web.Response:
        return _json(await front.answer(who, functools.partial(pages.problems, most=1000)))

    async def search(request: web.Request, who: desk.Visitor) -> web.Response:
        return _json(await front.answer(who, functools.partial(pages.search, words=request.query.get("q", ""))))

    async def news(request: web.Request, _: desk.Visitor) -> web.StreamResponse:
        """A line for each new picture, and every few seconds, so that silence is noticed."""
        stream = web.StreamResponse(headers=_HEADERS | {"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        number, until = 0, asyncio.get_running_loop().time() + _STREAM_S
        while asyncio.get_running_loop().time() < until:
            await stream.write(b"data: " + front.pulse() + b"\n\n")
            number = await front.newer(number, within_s=_PULSE_S)
        return stream

    app = web.Application(client_max_size=_BODY)
    guarded = {
        "overview": overview, **_named(front), "pods": pods,
        "pods/{namespace}/{name}": pod, "problems": problems, "search": search, "news": news, **_about_room(room),
    }  # fmt: skip
    app.add_routes([web.get(f"/api/{path}", _admitted(front, handler)) for path, handler in guarded.items()])
    app.add_routes([web.post("/api/fit", _admitted(front, _with_body(room)))])
    app.add_routes([web.get(f"/{path}", _file(name)) for path, name in _FILES.items()])
    return app


@contextlib.asynccontextmanager
async def served(app: web.Application, port: int, setting: str, host: str = "", tls: str = "") -> AsyncIterator[int]:
    """Serves until left; gives the port. `host` empty: on all addresses. `tls`: a directory with tls.crt and tls.key."""
    context = await asyncio.to_thread(_certified, tls) if tls else None
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port, reuse_address=True, ssl_context=context).start()
        except OSError as error:
            raise errors.Conflict(f"port {port} cannot be served: {error}; choose another by {setting}") from error
        async with _kept_certified(context, tls):
            yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _admitted(front: desk.Desk, handler: Guarded) -> Handler:
    async def guarded(request: web.Request) -> web.StreamResponse:
        namespaces = [one for one in request.query.get("namespace", "").split(",") if one]
        who = await front.admit(_token(request), namespaces)
        if isinstance(who, desk.Turned):
            return web.json_response({"error": who.why}, status=who.status, headers=_HEADERS)
        return await handler(request, who)

    return guarded


def _named(front: desk.Desk) -> dict[str, Guarded]:
    """What is asked for by one name."""

    def answering(make: Callable[..., pages.JSON | None]) -> Guarded:
        async def answer(request: web.Request, who: desk.Visitor) -> web.Response:
            return _json(await front.answer(who, functools.partial(make, name=request.match_info["name"])))

        return answer

    kinds = {"nodes": pages.node, "pools": pages.pool, "cards": pages.card}
    return {f"{kind}/{{name}}": answering(make) for kind, make in kinds.items()}


def _about_room(room: answers.Answers) -> dict[str, Guarded]:
    async def explain(request: web.Request, who: desk.Visitor) -> web.Response:
        kind, namespace, name = (request.match_info[part] for part in ("kind", "namespace", "name"))
        return await _answered(room.explain(who.scope, kind, namespace, name))

    async def fit(request: web.Request, who: desk.Visitor) -> web.Response:
        return await _answered(room.fit(who.scope, request.query))

    return {"explain/{kind}/{namespace}/{name}": explain, "fit": fit}


def _with_body(room: answers.Answers) -> Guarded:
    async def fit(request: web.Request, who: desk.Visitor) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            text = {"error": f"the body has more than {_BODY // 1024} KiB; send what asks for cards alone"}
            return web.json_response(text, status=413, headers=_HEADERS)
        return await _answered(room.fit_body(who.scope, body, request.query))

    return fit


async def _answered(asking: Awaitable[dict[str, Any] | None]) -> web.Response:
    try:
        found = await asking
    except errors.ElasticGPUError as error:
        status = 400 if isinstance(error, errors.Invalid) else 503
        return web.json_response({"error": str(error)}, status=status, headers=_HEADERS)
    return _json(None if found is None else msgspec.json.encode(found))


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return request.headers.get(TOKEN, "") or (token.strip() if scheme.lower() == "bearer" else "")


def _json(data: bytes | None) -> web.Response:
    if data is None:
        text = {"error": "there is no such thing, or it is in a namespace that you may not see"}
        return web.json_response(text, status=404, headers=_HEADERS)
    response = web.Response(body=data, content_type="application/json", headers=_HEADERS)
    response.enable_compression()
    return response


def _file(name: str) -> Handler:
    path = _PAGE / name

    async def send(_: web.Request) -> web.Response:
        text = await asyncio.to_thread(path.read_text, encoding="utf-8")
        response = web.Response(text=text, content_type=_TYPES[path.suffix], headers=_HEADERS)
        response.enable_compression()
        return response

    return send


def _certified(folder: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, folder)
    return context


def _load(context: ssl.SSLContext, folder: str) -> None:
    try:
        context.load_cert_chain(Path(folder, "tls.crt"), Path(folder, "tls.key"))
    except (OSError, ssl.SSLError) as error:
        raise errors.Invalid(f"EGPU_PAGE_TLS {folder}: no certificate with its key there: {error}") from error


@contextlib.asynccontextmanager
async def _kept_certified(context: ssl.SSLContext | None, folder: str) -> AsyncIterator[None]:
    """New connections get the certificate that lies there now: Secrets are renewed in place."""

    async def renew(context: ssl.SSLContext) -> None:
        while True:
            await asyncio.sleep(_CERTIFICATE_S)
            try:
                await asyncio.to_thread(_load, context, folder)
            except errors.Invalid as error:  # half written; the one in use goes on
                _log.warning("certificate not renewed", reason=str(error))

    task = asyncio.create_task(renew(context), name="certificate") if context else None
    try:
        yield
    finally:
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
