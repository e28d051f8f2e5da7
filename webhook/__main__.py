"""The webhook's process: the only file that knows all its parts.

    settings --> API server --> Watcher   classes, namespaces
                            --> Keeper    the certificate
                            --> Admitter --> port with TLS: /mutate, /validate
                            --> port: /healthz, /readyz, /metrics

Each replica answers for itself; none leads. On SIGTERM it first says that it is not ready, and answers on until the API
server has been told; a second one ends it at once.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import functools
import signal
import sys

import structlog

from api import errors
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


async def _until_told_to_stop(given: settings.Settings) -> None:
    work, stop = asyncio.current_task(), asyncio.Event()
    assert work is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: work.cancel() if stop.is_set() else stop.set())
    with contextlib.suppress(asyncio.CancelledError):
        async with apiserver.APIServer.connect(user_agent=f"elastic-gpu-webhook/{program.version()}") as api:
            await serve(api, given, stop)
    _log.info("stopped")


def main() -> None:
    """The entry point `egpu-webhook`. Ends with 0 when told to, with 2 where a setting is wrong, with 1 where it cannot go on."""
    parser = argparse.ArgumentParser(
        prog="egpu-webhook",
        description="Gives pods that ask for cards by old names their claims, and checks claims and classes. Finds the "
        "API server by the pod's service account, else by KUBECONFIG. It is set by environment variables:",
        epilog=settings.manual(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=program.version())
    parser.parse_args()
    try:
        given = settings.load()
        program.log_from(given.log_level)
    except errors.Invalid as error:
        parser.exit(2, f"egpu-webhook: {error}\n")
    try:
        asyncio.run(_until_told_to_stop(given))
    except errors.ElasticGPUError as error:
        _log.error("stopped", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
