"""The controller's process: the only file that knows all its parts.

    settings --> API server --> Watcher (every replica watches)
                            --> Observer --> the picture of cards and holders
                            --> Election --> Reconciler, Recorder, Announcer, Allocator, Retainer, ... (one replica writes)
                            --> open port: /healthz, /readyz, /metrics
                            --> the page's port, where it is served

SIGTERM ends it in order: the reconciler stops, then the Lease is given back, so that another replica takes over at
once. A part that dies takes the process with it; the kubelet starts a fresh one.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import structlog

from controller import (
    allocator,
    announcer,
    answers,
    desk,
    metrics,
    observer,
    reconciler,
    recorder,
    remotewatcher,
    retainer,
    reviewer,
    settings,
    translator,
    watcher,
    web,
)
from kube import apiserver, election, program

_LEASE = "elastic-gpu-controller"
_COLLECT = (50_000, 20, 50)
"""After how many new objects cycles are looked for: ours are few, and to look through a large cluster takes a second."""
_clock = functools.partial(datetime.datetime.now, datetime.UTC)  # noqa: TID251  the one clock, handed on from here
_log = structlog.get_logger("controller")


async def serve(api: apiserver.APIServer, given: settings.Settings) -> None:
    """Works until it is cancelled."""
    series = metrics.Metrics()
    watch = watcher.Watcher(api, remote=given.remote)
    far = remotewatcher.RemoteWatcher(api, given.namespace, given.remote_drivers) if given.remote else None
    look = observer.Observer(api, watch, far)
    writer = reconciler.Reconciler(api, watch, series, _clock)
    record = recorder.Recorder(api, look, series, _clock)
    announce = announcer.Announcer(api, look, lambda: far.picture.genuine if far else (), series, _clock)
    allocate = allocator.Allocator(
        api, watch, look, announce.hear, series, _clock, datetime.timedelta(seconds=given.patience_s)
    )
    retain = retainer.Retainer(api, watch, look, series)
    writers = [writer.run, record.run, announce.run, allocate.run, retain.run]
    if given.translate:
        writers.append(translator.Translator(api, series, _clock).run)
    leader = election.Election(api, given.namespace, _LEASE, given.pod_name)
    if far is not None:
        from controller import remotes  # noqa: PLC0415  gRPC with it: a fifth of an idle controller's memory

        writers.append(lambda: remotes.Remotes(api, far, series, _clock, given, leader.epoch).run())
    front = desk.Desk(look, reviewer.Reviewer(api), _clock)
    open_port = web.operations(series.registry, series.named, series.nodes, watch.missing, front)
    async with (
        web.served(open_port, given.port, "EGPU_PORT") as port,
        _page(front, answers.Answers(api, _clock), given) as page_port,
        asyncio.TaskGroup() as group,
    ):
        told = dataclasses.asdict(given)
        _log.info("started", version=program.version(), settings=told, port=port, page=page_port)
        group.create_task(watch.run(series.show), name="watch")
        group.create_task(look.run(series.see), name="observe")
        if far is not None:
            group.create_task(far.run(), name="watch remote")
        group.create_task(leader.lead(lambda: _all(writers)), name="lead")


@contextlib.asynccontextmanager
async def _page(front: desk.Desk, room: answers.Answers, given: settings.Settings) -> AsyncIterator[int | None]:
    if given.page == "none":
        yield None
        return
    host = "127.0.0.1" if given.page == "local" else ""
    tls = "" if given.page == "plain" else given.page_tls
    async with web.served(web.page(front, room), given.page_port, "EGPU_PAGE_PORT", host=host, tls=tls) as port:
        yield port


async def _all(writers: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    async with asyncio.TaskGroup() as group:
        for write in writers:
            group.create_task(write(), name="write")


async def _work(given: settings.Settings, stop: asyncio.Event) -> None:
    async with apiserver.APIServer.connect(user_agent=f"elastic-gpu-controller/{program.version()}") as api:
        await program.until(stop, serve(api, given))


def main() -> None:
    """The entry point `egpu-controller`."""
    parser = program.parser(
        "egpu-controller",
        "Makes DeviceClasses from ElasticGPUClasses, keeps an ElasticGPU for each card, allocates claims of the classes\n"
        "that say so, asks pools for remote cards, keeps back released cards, serves the page, writes events.\n"
        "Finds the API server by the pod's service account, else by KUBECONFIG. It is set by environment variables:",
        settings.manual(),
    )
    parser.parse_args()
    gc.set_threshold(*_COLLECT)
    given = program.begin(parser, settings.load)
    program.run(functools.partial(_work, given))


if __name__ == "__main__":
    main()
