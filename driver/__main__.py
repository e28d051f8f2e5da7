"""The node driver: settings -> gateways -> node -> plugin. Only here everything is known to everything."""

import asyncio
import dataclasses
import datetime
import functools
import platform
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from api import names, resource
from driver import (
    backend,
    booking,
    cdi,
    cdidir,
    cgroups,
    checkpoint,
    containers,
    disk,
    driverfiles,
    hostroot,
    inventory,
    ledger,
    meter,
    metrics,
    mpscontrol,
    mpskeeper,
    node,
    nvml,
    offer,
    plan,
    preparer,
    records,
    repairer,
    resizer,
    rung,
    settings,
    watcher,
)
from driver.backends import driverlimits, hami, mps, share, whole
from kube import apiserver, informer, program
from kubeletplugin import contract, locks, plugin

_MPS_LIMIT_S = 3.0
_FENCED_S = 15.0
"""For what the controller had chosen when its cards were taken from it."""
_log = structlog.get_logger()


def main() -> None:
    """The entry point `egpu-node`."""
    parser = program.parser(
        "egpu-node",
        "DRA driver for the GPUs of one node. It is set by environment variables:",
        settings.described(),
    )
    parser.parse_args()
    chosen = program.begin(parser, settings.load)
    program.run(functools.partial(_serve, chosen))


async def _serve(chosen: settings.Settings, stop: asyncio.Event) -> None:
    options = contract.Options(
        driver_name=names.LOCAL_DRIVER,
        node_name=chosen.node_name,
        registry_dir=chosen.registry_dir,
        plugin_dir=chosen.plugin_dir,
        pod_uid=chosen.pod_uid,
        sweep_period_s=chosen.sweep_s,
    )
    gateway = nvml.NVML(
        libraries=_libraries(chosen), limit_s=chosen.nvml_limit_s, sysfs=chosen.sysfs, groups=chosen.cgroups
    )
    async with apiserver.APIServer.connect(user_agent=f"elastic-gpu-node/{program.version()}") as api:
        driver = await assembled(chosen, options.data_dir, gateway, disk.Disk(), functools.partial(_pods, api), None)
        await driver.start()
        _log.info(
            "starting",
            version=program.version(),
            python=platform.python_version(),
            settings=dataclasses.asdict(chosen),
        )
        served = plugin.Plugin(driver, options, api)
        async with (
            metrics.door(chosen.metrics_port, lambda: driver.held, lambda: served.unready, driver.meter),
            asyncio.TaskGroup() as group,
        ):
            background = group.create_task(driver.run(), name="node")
            follower = group.create_task(_follow(api, chosen.node_name, driver.give), name="follow the node")
            await served.run(stop)
            background.cancel()
            follower.cancel()
    await gateway.close()


async def assembled(
    chosen: settings.Settings,
    data_dir: Path,
    gateway: nvml.NVML,
    writer: disk.Disk,
    pods: node.Pods,
    given: offer.Given | None = offer.Given(),  # noqa: B008  a value that nobody can change
) -> node.Node:
    """The node with all its parts, not started. `given` is None where it has to be told by `give` before it offers."""
    kept = checkpoint.Checkpoint(data_dir, writer)
    specs = cdidir.CDIDir(chosen.cdi_dir, writer)
    guards = locks.Locks(data_dir / "cards.lock")
    book = ledger.Ledger(kept, guards.hold)
    held = book.held.values
    places = hostroot.Places(
        driver_root=chosen.driver_root,
        dev_root=chosen.dev_root,
        host_root=chosen.host_driver_root,
        sysfs=chosen.sysfs,
        toolkit=chosen.nvidia_ctk,
        hook=chosen.cdi_hook,
    )
    host = hostroot.HostRoot(places)
    groups = cgroups.Cgroups(chosen.cgroups, chosen.proc)
    limits = driverlimits.DriverLimits(gateway, groups, host.limits_hook, chosen.host_driver_root)
    by_mps = _mps(chosen, data_dir, gateway, writer, held)
    rungs = (limits, *((by_mps,) if by_mps else ()), *await _hami(chosen, data_dir, writer))
    shares = share.Share(rungs, chosen.shares_per_card)
    backends: dict[str, backend.Backend] = {"whole": whole.Whole(), "share": shares}
    hands = preparer.Preparer(kept, specs, backends)

    def cards() -> Iterable[inventory.Card]:
        return eyes.world.cards.values()

    def tell() -> None:
        eyes.tell()

    gauge = meter.Meter(
        reader=gateway,
        groups=groups,
        proof=shares,
        cards=cards,
        held=held,
        pods=pods,
        clock=_now,
        tell=tell,
        own_pod=chosen.pod_uid,
        terms=meter.Terms(
            period_s=chosen.measure_s,
            least_bytes=chosen.unbooked_mib * booking.MIB,
            taint_bytes=chosen.unbooked_taint_mib * booking.MIB,
            patience=datetime.timedelta(seconds=chosen.unbooked_s),
        ),
    )
    eyes = watcher.Watcher(
        world=plan.World(
            driver=names.LOCAL_DRIVER,
            pool=f"{names.POOL_PREFIX}{chosen.node_name}",
            boot_id=await kept.boot_id(),
            cards={},
            troubles={},
            host=cdi.HostEdits(),
            backends=backends,
            shares_per_card=chosen.shares_per_card,
            elastic=shares.elastic,
            unread="they have not been looked at yet",
        ),
        gateway=gateway,
        host=host,
        disk=kept,
        held=held,
        hold=guards.hold,
        clock=_now,
        period_s=chosen.poll_s,
        lost_effect="NoExecute" if chosen.lost_evicts else "NoSchedule",
        fill=chosen.fill,
        more_taints=gauge.taints,
        given=given,
    )
    mender = repairer.Repairer(book=book, disk=kept, specs=specs, hands=hands, eyes=eyes, period_s=chosen.repair_s)
    sizes = resizer.Resizer(book=book, hands=hands, eyes=eyes, gauge=gauge, shares=shares, clock=_now)
    also = (by_mps.run,) if by_mps else ()
    return node.Node(
        book=book,
        specs=specs,
        hands=hands,
        eyes=eyes,
        mender=mender,
        pods=pods,
        gauge=gauge,
        sizes=sizes,
        also=also,
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)  # noqa: TID251 the one clock, handed on from here


async def _hami(chosen: settings.Settings, data_dir: Path, writer: disk.Disk) -> tuple[rung.Rung, ...]:
    if chosen.hami_library is None:
        return ()
    core = hami.HAMi(chosen.hami_library, chosen.hami_sha256, data_dir, writer, chosen.hami_region)
    await core.look()
    return (core,)


def _mps(
    chosen: settings.Settings,
    data_dir: Path,
    gateway: nvml.NVML,
    writer: disk.Disk,
    held: Callable[[], Iterable[records.Record]],
) -> mps.MPS | None:
    """With the driver's own libraries, for its programs are not in our image."""
    if chosen.mps_dir is None:
        return None
    root = chosen.driver_root
    directories = [] if root == Path("/") else [root / path for path in driverfiles.LIBRARY_DIRS]
    control = mpscontrol.Control(
        chosen.mps_control or root / "usr/bin" / mpscontrol.PROGRAM,
        chosen.mps_dir,
        ":".join(map(str, directories)),
        _MPS_LIMIT_S,
    )
    keeper = mpskeeper.Keeper(
        control,
        library="libcuda.so.1",
        needed=lambda: any(mps.is_held(holding) for record in held() for holding in record.holdings),
        period_s=chosen.poll_s,
        proc=chosen.proc,
    )
    return mps.MPS(control=control, keeper=keeper, cards=gateway, held=held, data_dir=data_dir, writer=writer)


async def _follow(api: apiserver.APIServer, name: str, give: Callable[[offer.Given], None]) -> None:
    """Tells who allocates the node's cards, by the label of its Node, for ever.

    Taken back from the controller, they are kept from kube-scheduler a while longer: what the controller has chosen
    already is written by then.
    """
    kept = informer.Informer(api, "/api/v1/nodes", project=_allocator, field_selector=f"metadata.name={name}")
    fenced, seen = False, 0
    async with asyncio.TaskGroup() as group:
        group.create_task(kept.run(), name="watch the node")
        await kept.synced.wait()
        while True:
            by = kept.objects.get(name, names.BY_SCHEDULER)
            if by == names.BY_CONTROLLER:
                fenced = True
            elif fenced:
                give(offer.Given(by=by, fenced=True))
                await asyncio.sleep(_FENCED_S)
                fenced = kept.objects.get(name) == names.BY_CONTROLLER
                continue
            give(offer.Given(by=by, fenced=fenced))
            seen = await kept.changed(seen)


def _allocator(data: dict[str, object]) -> str:
    meta = data["metadata"]
    assert isinstance(meta, dict)
    said = (meta.get("labels") or {}).get(names.ALLOCATED_BY_LABEL)
    return names.BY_CONTROLLER if said == names.BY_CONTROLLER else names.BY_SCHEDULER


async def _pods(api: apiserver.APIServer, claim: resource.Claim) -> tuple[containers.JSON, ...]:
    """The pods that hold the claim; one that is gone, or another one of the same name, uses nothing."""
    found = [await api.get(f"/api/v1/namespaces/{claim.namespace}/pods/{name}") for name, _ in claim.reserved_for]
    uids = {uid for _, uid in claim.reserved_for}
    return tuple(pod for pod in found if pod is not None and pod["metadata"]["uid"] in uids)


def _libraries(chosen: settings.Settings) -> tuple[Path, ...]:
    """Where the library may be, whether or not it is there already: the driver may come after us."""
    if chosen.nvml_library is not None:
        return (chosen.nvml_library,)
    if chosen.driver_root == Path("/"):
        return ()
    return tuple(chosen.driver_root / directory / "libnvidia-ml.so.1" for directory in driverfiles.LIBRARY_DIRS)


if __name__ == "__main__":
    main()
