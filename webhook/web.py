"""The two ports: admission over TLS, and probes and metrics in the clear.

POST /mutate, /validate   bytes in, bytes out, by whoever answers
GET /healthz, /readyz, /metrics
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import prometheus_client
from aiohttp import web

from api import errors

_LARGEST = 8 * 2**20
"""The API server sends at most 3 MiB of an object, twice."""
Answering = Callable[[bytes], Awaitable[bytes]]


@contextlib.asynccontextmanager
async def admission(
    port: int, context: ssl.SSLContext, ways: Mapping[str, Answering], leaving: Callable[[], bool]
) -> AsyncIterator[int]:
    """Serves `ways` by path until left; gives the port. Invalid is answered 400, other errors 503.

    While `leaving` no connection outlives its answer, so that the API server opens its next one elsewhere.
    """
    app = web.Application(client_max_size=_LARGEST)
    app.add_routes([web.post(path, _handler(way, leaving)) for path, way in ways.items()])
    async with _listening(app, port, "EGPU_WEBHOOK_PORT", context) as bound:
        yield bound


@contextlib.asynccontextmanager
async def probes(
    port: int, registry: prometheus_client.CollectorRegistry, unready: Callable[[], str]
) -> AsyncIterator[int]:
    """Serves until left; gives the port. `unready` says what is still missing, or nothing."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = unready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def metrics(_: web.Request) -> web.Response:
        text = prometheus_client.generate_latest(prometheus_client.REGISTRY) + prometheus_client.generate_latest(
            registry
        )
        return web.Response(body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    async with _listening(app, port, "EGPU_PORT") as bound:
        yield bound


def _handler(way: Answering, leaving: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        response = await answered(await request.read())
        if leaving():
            response.force_close()
        return response

    async def answered(body: bytes) -> web.Response:
        try:
            return web.Response(body=await way(body), content_type="application/json")
        except errors.Invalid as error:
            return web.Response(text=f"{error}\n", status=400)
        except errors.ElasticGPUError as error:  # the failure policy decides
            return web.Response(text=f"{error}\n", status=503)

    return handle


@contextlib.asynccontextmanager
async def _listening(
    app: web.Application, port: int, variable: str, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port, reuse_address=True, ssl_context=context).start()
        except OSError as error:
            raise errors.Conflict(f"port {port} cannot be served: {error}; choose another by {variable}") from error
        yield min(runner.addresses, key=len)[
            1
        ]  # with port 0 each family has a port of its own: IPv4's, where there is one
    finally:
        await runner.cleanup()
