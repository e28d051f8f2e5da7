"""The webhook's process: the only file that knows all its parts.

    settings --> API server --> Watcher   classes, namespaces
                            --> Keeper    the certificate
                            --> Admitter --> port with TLS: /mutate, /validate
                            --> port: /healthz, /readyz, /metrics

Each replica answers for itself; none leads. On SIGTERM it first says that it is not ready, and answers on until the API
server has been told; a second one ends it at once.
"""

import asyncio
import dataclasses
import datetime
import functools

import structlog

from kube import apiserver, program
from translate import asks
from webhook import admitter, keeper, metrics, settings, watcher, web

_LEAVING_S = 3.0
"""Endpoints are told within this time; until then questions still come."""
_clock = functools.partial(datetime.datetime.now, datetime.UTC)  # noqa: TID251  the one clock, handed on from here
_log = structlog.get_logger("webhook")


async def serve(api: apiserver.APIServer, given: settings.Settings, stop: asyncio.Event) -> None:
    """Answers until `stop` is set."""
    series = metrics.Metrics()
    watch = watcher.Watcher(api, asks.Units(card_memory_mib=given.card_memory_mib, gpushare_mib=given.gpushare_mib))
    keep = keeper.Keeper(
        api,
        given.namespace,
        given.service,
        given.secret,
        given.configuration,
        _clock,
        own=given.certificates == "own",
    )
    answers = admitter.Admitter(watch, series)
    ways = {"/mutate": answers.mutate, "/validate": answers.validate}

    def unready() -> str:
        return "stopping" if stop.is_set() else keep.missing() or watch.missing()

    async with (
        web.probes(given.port, series.registry, unready) as port,
        web.admission(given.webhook_port, keep.context, ways, stop.is_set) as tls_port,
        asyncio.TaskGroup() as group,
    ):
        _log.info(
            "started", version=program.version(), settings=dataclasses.asdict(given), port=port, webhook_port=tls_port
        )
        working = [group.create_task(watch.run(), name="watch"), group.create_task(keep.run(), name="keep")]
        await stop.wait()
        _log.info("stopping")
        await asyncio.sleep(_LEAVING_S)
        for task in working:
            task.cancel()


async def _work(given: settings.Settings, stop: asyncio.Event) -> None:
    async with apiserver.APIServer.connect(user_agent=f"elastic-gpu-webhook/{program.version()}") as api:
        await serve(api, given, stop)


def main() -> None:
    """The entry point `egpu-webhook`."""
    parser = program.parser(
        "egpu-webhook",
        "Gives pods that ask for cards by old names their claims, and checks claims and classes. Finds the "
        "API server by the pod's service account, else by KUBECONFIG. It is set by environment variables:",
        settings.manual(),
    )
    parser.parse_args()
    given = program.begin(parser, settings.load)
    program.run(functools.partial(_work, given))


if __name__ == "__main__":
    main()
