"""The controller's HTTP port: /healthz, /readyz, /metrics.

Healthy is who answers. Ready is who has the whole cluster in view; a replica that waits for the lease is ready too,
else a rolling update would wait for ever.
"""

import contextlib
from collections.abc import AsyncIterator, Callable

import prometheus_client
from aiohttp import web

from api import errors


@contextlib.asynccontextmanager
async def served(
    port: int, registry: prometheus_client.CollectorRegistry, unready: Callable[[], str]
) -> AsyncIterator[int]:
    """Serves until left; gives the port. `unready` says what is still missing, or nothing."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = unready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def metrics(_: web.Request) -> web.Response:
        text = prometheus_client.generate_latest(prometheus_client.REGISTRY)  # the process, the watches
        text += prometheus_client.generate_latest(registry)
        return web.Response(body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port, reuse_address=True).start()
        except OSError as error:
            raise errors.Conflict(f"port {port} cannot be served: {error}; choose another by EGPU_PORT") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
