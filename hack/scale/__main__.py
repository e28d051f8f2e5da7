"""The controller beside a cluster of five thousand nodes. `python -m hack.scale [--nodes 5000] [--state DIRECTORY]`, as root.

    etcd, kube-apiserver, kube-scheduler, no kubelets; 8 cards and 6 claims with their pods a node, 90 % of all cards held
        -> the controller's first picture, its memory
        -> a thousand claim events a second for half a minute
        -> pods that ask for a quarter of a card: allocated by kube-scheduler
        -> all nodes given to the controller: the same pods, allocated by it

`--state` keeps the cluster, so that the next run with the same number of nodes begins with it. A bound that is not held is
shown, it does not fail the command. The load of the machine stands beside each phase: on a busy one look at the ratios.
"""

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from hack import bench
from hack.cluster import build
from hack.measure import apiserver, figures
from hack.scale import crowd, load, objects, stage, storm
from hack.scale import pending as waiting

_DONE = "complete"


def loaded(binaries: Path, directory: Path, state: Path, nodes: int) -> Path:
    """etcd's directory with the cluster: a copy of the state, which is made where it is missing."""
    kept, data = state / f"{nodes}-nodes", directory / "etcd-data"
    if not (kept / _DONE).exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        api = apiserver.APIServer(binaries, directory / "loading", data=kept / "etcd")
        try:
            api.wait_until_ready()
            stage.prepare(api.client)
            pattern = load.pattern(api.client)
            api.stop_server()
            load.fill(api.etcd_port, pattern, nodes, bench.say)
        finally:
            api.stop()
        (kept / _DONE).touch()
    shutil.copytree(kept / "etcd", data)
    return data


def measured(
    binaries: Path, directory: Path, data: Path, nodes: int, *, pods: int, seconds: int, pending: int
) -> Iterator[figures.Figure]:
    with ExitStack() as stack:
        api = apiserver.APIServer(binaries, directory / "api", data=data)
        stack.callback(api.stop)
        api.wait_until_ready(300)
        load.check(api.client, nodes - 1)
        _say("the controller starts")
        controller = stage.Controller(api, directory)
        stack.callback(controller.program.stop)
        size = f"{nodes} nodes, {nodes * objects.CLAIMS_A_NODE} claims"
        yield from _first(controller, size, nodes)
        _say(f"claim events, {seconds} s")
        yield from storm.measured(api, controller, nodes, seconds=seconds)
        _say("kube-scheduler starts")
        stack.enter_context(stage.scheduler(binaries, api, directory))
        crowd.wave(api, "warm", objects.BY_SCHEDULER, 1, limit_s=600)  # bound once it has read all
        theirs = crowd.wave(api, "theirs", objects.BY_SCHEDULER, pods // 8, limit_s=120)
        _say(f"kube-scheduler allocated {theirs.bound} of {pods // 8}; all nodes are given to the controller")
        crowd.give_all(api.client, nodes)
        controller.rest()  # a taint has to be ten seconds old too
        ours = crowd.wave(api, "ours", objects.BY_CONTROLLER, pods, limit_s=240)
        _say(f"{ours.allocated} of {pods} allocated by the controller, {ours.bound} bound")
        yield figures.Figure(name="pods a second, creation to bound", unit="1/s", ours=ours.bound_rate,
                             reference=theirs.bound_rate, at_least=10, relative=True)  # fmt: skip
        yield figures.Figure(name="claims a second, creation to allocated", unit="1/s", ours=ours.allocated_rate,
                             reference=theirs.allocated_rate, at_least=10, relative=True)  # fmt: skip
        yield figures.Figure(name="RSS with both", unit="MiB", ours=controller.program.rss_mib())
        if pending:
            _say(f"{pending} claims that never fit")
            yield from waiting.measured(api, controller, pending)


def _first(controller: stage.Controller, size: str, nodes: int) -> Iterator[figures.Figure]:
    took = controller.wait_for("Free", sum(number % 5 > 0 and number % 2 == 0 for number in range(nodes)))
    cpu = controller.program.cpu_ms() / 1000
    yield figures.Figure(name=f"first picture of {size}", unit="s", ours=took, at_most=15)
    yield figures.Figure(name="the same, CPU", unit="s", ours=cpu, at_most=15)
    controller.rest()
    yield figures.Figure(name="RSS after it", unit="MiB", ours=controller.program.rss_mib(), at_most=130)


def _say(text: str) -> None:
    bench.say(f"{text} ({bench.load()})")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000, help="at least 10; each has 8 cards and 6 claims")
    parser.add_argument("--pods", type=int, default=400, help="that ask the controller; kube-scheduler gets an eighth")
    parser.add_argument("--seconds", type=int, default=30, help="of claim events")
    parser.add_argument(
        "--pending", type=int, default=0, help="claims that never fit, at the end; 100000 is the worst case"
    )
    parser.add_argument("--state", type=Path, help="a directory to keep the cluster in")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    binaries = build.build()
    with bench.workplace() as directory:
        bench.say(f"a cluster of {arguments.nodes} nodes is made in etcd")
        data = loaded(binaries, directory, arguments.state or directory / "state", arguments.nodes)
        seen = []
        for figure in measured(
            binaries,
            directory,
            data,
            arguments.nodes,
            pods=arguments.pods,
            seconds=arguments.seconds,
            pending=arguments.pending,
        ):
            bench.say(f"{figure.name}: {figure.ours:.1f} {figure.unit}")
            seen.append(figure)
    print(f"{figures.table(seen)}\n\nmachine at the end: {bench.load()}")


if __name__ == "__main__":
    main()
