"""The driver of remote cards on one node: settings -> gateways -> node -> plugin."""

import asyncio
import dataclasses
import datetime
import functools
import uuid

import structlog

from api import names, resource
from driver import cdidir, disk, metrics
from driver import settings as shared
from driver.remote import credentials, node, remoteleases, settings, store
from kube import apiserver, program
from kubeletplugin import contract, plugin

_log = structlog.get_logger()
_clock = functools.partial(datetime.datetime.now, datetime.UTC)  # noqa: TID251  the one clock, handed on from here


def main() -> None:
    """The entry point `egpu-remote`."""
    parser = program.parser(
        "egpu-remote",
        "DRA driver for the remote cards of one node. It is set by environment variables:",
        shared.described(settings.Settings),
    )
    parser.parse_args()
    chosen = program.begin(parser, settings.load)
    program.run(functools.partial(_serve, chosen))


async def _serve(chosen: settings.Settings, stop: asyncio.Event) -> None:
    options = contract.Options(
        driver_name=names.REMOTE_DRIVER,
        node_name=chosen.node_name,
        registry_dir=chosen.registry_dir,
        plugin_dir=chosen.plugin_dir,
        pod_uid=chosen.pod_uid,
        sweep_period_s=chosen.sweep_s,
    )
    async with apiserver.APIServer.connect(user_agent=f"elastic-gpu-remote/{program.version()}") as api:
        driver = assembled(chosen, options, api, disk.Disk())
        await driver.start()
        _log.info("starting", version=program.version(), settings=dataclasses.asdict(chosen))
        served = plugin.Plugin(driver, options, api)
        async with (
            metrics.door(chosen.metrics_port, lambda: (), lambda: served.unready),
            asyncio.TaskGroup() as group,
        ):
            background = group.create_task(driver.run(), name="node")
            await served.run(stop)
            background.cancel()
        await driver.close()


def assembled(
    chosen: settings.Settings, options: contract.Options, api: apiserver.APIServer, writer: disk.Disk
) -> node.Node:
    """The node with all its parts, not started."""
    account = remoteleases.Account(
        namespace=chosen.namespace,
        service_account=chosen.service_account,
        pod_name=chosen.pod_name,
        pod_uid=chosen.pod_uid,
    )
    return node.Node(
        kept=store.Store(options.data_dir, writer),
        specs=cdidir.CDIDir(chosen.cdi_dir, writer, names.REMOTE_CDI_VENDOR),
        keys=credentials.Credentials(chosen.credentials_dir, writer),
        objects=remoteleases.RemoteLeases(api, chosen.node_name, account, lambda: resource.timestamp(_clock())),
        mint=lambda: uuid.uuid4().hex,
        relay=chosen.relay,
    )


if __name__ == "__main__":
    main()
