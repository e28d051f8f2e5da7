"""Measures our driver beside a Go reference on upstream's helper and prints what was promised. `make bench`.

One real API server, a node and a kubelet stand-in for each side, the same claims, the same files, both synced, on one
file system; the sides take turns within one run. A bound that is not held is shown, it does not fail the command.
"""

import argparse
import functools
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hack.cluster import build
from hack.measure import (
    admission,
    apiserver,
    decisions,
    explaining,
    figures,
    growth,
    kubelet,
    lenders,
    listing,
    openb,
    picture,
    plugins,
    pods,
    rounds,
)
from tests.fakes import cards

RSS_MARKS = (200, 1000)
_CROWDS = 8
"""Also when it has to be quick: a round is one sample of each figure, and two of them say nothing."""
_BURST = 110
"""As many pods as a kubelet takes unless told otherwise."""


class Bench:
    """Both sides, ready to be asked."""

    def __init__(self, directory: Path, binaries: Path, *, lean: bool) -> None:
        programs = plugins.build_reference()
        root = directory / "driver-root"
        self.cards = cards.FakeCards(root / plugins.LIBRARIES, count=rounds.CALLS, driver=plugins.VERSION)
        plugins.lay_out_driver_root(root, rounds.CALLS, binaries if (binaries / "nvidia-ctk").exists() else None)
        with ExitStack() as stack:
            self.api = apiserver.APIServer(binaries, directory / "api")
            stack.callback(self.api.stop)
            self.api.wait_until_ready()
            stand_in, edits = programs / "kubelet", directory / "edits.json"
            command = plugins.ours(plugins.runtime(), self.api.kubeconfig, self.cards.library, root)
            self.ours = plugins.Side("ours", "gpu.elasticgpu.io", directory / "o", self.api, stand_in, command)
            stack.callback(self.ours.close)
            self.ours.samples["start"].append(self.ours.start())
            self._take_edits(edits)
            command = plugins.reference(programs / "kubeletplugin", self.api.kubeconfig, edits, lean=lean)
            self.reference = plugins.Side(
                "reference", "reference.elasticgpu.io", directory / "r", self.api, stand_in, command
            )
            stack.callback(self.reference.close)
            self.reference.samples["start"].append(self.reference.start())
            self.sides = (self.ours, self.reference)
            self.close = stack.pop_all().close

    def _take_edits(self, file: Path) -> None:
        """The spec that ours writes for a claim is what the reference writes too."""
        claims = [self.ours.claims(1)]
        self.ours.kubelet.prepare(claims).good()
        shutil.copy2(next(self.ours.cdi.glob("*.json")), file)
        self.ours.kubelet.unprepare(claims).good()

    def run(self, *, quick: bool) -> None:
        count = 2 if quick else 8
        held: dict[str, list[kubelet.Claim]] = {side.name: [] for side in self.sides}
        for side in self.sides:
            rounds.idle(side, 0)
            rounds.singles(side, 0)  # to warm up
        for level in rounds.LEVELS:
            say(f"one claim a call with {level} prepared")
            for side in self.sides:
                rounds.hold(side, held[side.name], level)
                rounds.idle(side, level)
            rounds.alternate(self.sides, count, functools.partial(rounds.singles, level=level))
            if level == rounds.LEVELS[0]:
                say("many claims at once")
                rounds.alternate(self.sides, _CROWDS, rounds.crowds)
                say("64 shares on 8 cards")
                rounds.alternate([self.ours], 2 if quick else 4, rounds.shares)
        for side in self.sides:
            side.kubelet.unprepare(kubelet.one_each(held[side.name])).good()
        say("starts and restarts")
        rounds.alternate(self.sides, 1, rounds.restart)
        rounds.alternate(self.sides, 1, lambda side: rounds.starts(side, 1 if quick else 3))
        say("a card that hangs")
        rounds.hanging(self.ours, lambda: self.cards.hang(0), lambda: self.cards.return_(0))
        marks = (50, 100) if quick else RSS_MARKS
        say(f"memory over {marks[-1]} claims")
        rounds.alternate(self.sides, 1, rounds.restart)
        rounds.alternate(self.sides, 1, lambda side: rounds.memory(side, marks))
        say("slices deleted by hand")
        rounds.wipes(self.ours, (0, 1) if quick else (0, 1, 5, 12))
        if not quick:
            rounds.wipes(self.reference, (0,))


def measured(bench: Bench, *, quick: bool) -> Iterator[figures.Figure]:
    """Each promise with what was seen."""
    ours, reference = bench.ours, bench.reference
    low, _, high = rounds.LEVELS
    for level in rounds.LEVELS:
        bound = 1.2 if level == low else 1.0
        yield ratio(
            f"Prepare, {level} prepared, p50",
            "ms",
            ours.p50(f"prepare {level}"),
            reference.p50(f"prepare {level}"),
            at_most=bound,
        )
    for level in rounds.LEVELS:
        bound = 1.5 if level == low else 1.0
        name = f"prepare cpu {level}"
        yield ratio(f"CPU a Prepare, {level} prepared", "ms", ours.mean(name), reference.mean(name), at_most=bound)
    rest = [side.p50(f"idle cpu {high}") for side in bench.sides]
    yield figures.Figure(name=f"CPU while idle, {high} prepared", unit="ms/s", ours=rest[0], reference=rest[1])
    flat = [side.mean(f"prepare cpu {high}") / side.mean(f"prepare cpu {low}") for side in bench.sides]
    yield figures.Figure(
        name=f"CPU with {high} prepared / with {low}", unit="x", ours=flat[0], reference=flat[1], at_most=1.2
    )
    flat = [side.p50(f"prepare {high}") / side.p50(f"prepare {low}") for side in bench.sides]
    yield figures.Figure(
        name=f"Prepare with {high} prepared / with {low}", unit="x", ours=flat[0], reference=flat[1], at_most=1.2
    )
    for name in ("repeat", "unprepare"):
        title = {"repeat": "repeated Prepare", "unprepare": "Unprepare"}[name]
        yield ratio(f"{title}, p50", "ms", ours.p50(f"{name} {low}"), reference.p50(f"{name} {low}"), at_most=1.2)
    for name, whole, bound in (("prepare", f"prepare {rounds.LEVELS[1]}", 1.0), ("unprepare", f"unprepare {low}", 1.2)):
        title = f"{name.capitalize()} of a share, 64 on 8 cards, p50"
        yield ratio(title, "ms", ours.p50(f"{name} share"), reference.p50(whole), at_most=bound)
    rate = [rounds.CALLS * 1000 / side.p50("sixteen in flight") for side in bench.sides]
    yield figures.Figure(
        name="16 calls in flight", unit="1/s", ours=rate[0], reference=rate[1], at_least=0.7, relative=True
    )
    for name in ("sixteen", "eight"):
        gain = [side.p50(f"{name} in flight") / side.p50(f"{name} in a row") for side in bench.sides]
        yield figures.Figure(name=f"{name} at once / in a row", unit="x", ours=gain[0], reference=gain[1], at_most=1.0)
    name = "sixteen in one call"
    yield ratio("one call with 16 claims", "ms", ours.p50(name), reference.p50(name), at_most=0.6)
    slowest = [max(side.samples[f"prepare {low}"]) for side in bench.sides]
    yield figures.Figure(name="slowest Prepare of all", unit="ms", ours=slowest[0], reference=slowest[1])
    yield figures.Figure(
        name="start to published slice, p50",
        unit="s",
        ours=ours.p50("start"),
        reference=reference.p50("start"),
        at_most=1.2,
    )
    back = max(reference.samples["wiped"]) if reference.samples["wiped"] else None
    yield figures.Figure(
        name="deleted slice back, worst", unit="s", ours=max(ours.samples["wiped"]), reference=back, at_most=2.0
    )
    changed = [sum(side.samples["slices changed"]) for side in bench.sides]
    yield figures.Figure(name="slices changed by restarts", unit="", ours=changed[0], reference=changed[1], at_most=0)
    beside = ours.p50("beside a hanging card") / ours.p50("beside a card")
    yield figures.Figure(name="Prepare beside a hanging card / a good one", unit="x", ours=beside, at_most=1.5)
    marks = (50, 100) if quick else RSS_MARKS
    rss = [[side.p50(f"rss {mark}") for mark in marks] for side in bench.sides]
    yield figures.Figure(
        name=f"RSS after {marks[1]} claims", unit="MiB", ours=rss[0][1], reference=rss[1][1], at_most=75
    )
    growth = [seen[1] - seen[0] for seen in rss]
    yield figures.Figure(
        name=f"RSS growth from claim {marks[0]} to {marks[1]}",
        unit="MiB",
        ours=growth[0],
        reference=growth[1],
        at_most=1,
    )


def on_a_cluster(pods_each: int) -> Iterator[figures.Figure]:
    """What claims cost pods where everything is real."""
    with pods.installed() as kubectl:
        plain, claimed = map(statistics.median, pods.latencies_ms(kubectl, pods_each))
        name = f"Running later with a claim, p50 of {pods_each}"
        yield figures.Figure(name=name, unit="ms", ours=claimed - plain, at_most=60)
        say(f"{_BURST} pods with shares at once")
        seen = pods.burst(kubectl, _BURST)
    yield figures.Figure(
        name=f"of {_BURST} pods with shares at once Running", unit="", ours=seen.running, at_least=_BURST
    )
    yield figures.Figure(name="until all of them run", unit="s", ours=seen.all_running_s)
    yield figures.Figure(name="Prepare in that burst, p99 at most", unit="s", ours=seen.p99_s, at_most=2)


def alone(trace: Path | None, *, quick: bool) -> Iterator[figures.Figure]:
    """What needs no API server: the controller's decisions and its picture."""
    for nodes in decisions.NODES:
        say(f"decisions over {nodes} nodes, beside upstream's allocator")
        yield from decisions.measured(nodes, quick=quick)
    say("how decisions grow")
    yield from growth.measured()
    say("explanations over clusters of up to 5,000 nodes")
    yield from explaining.measured()
    say("the picture of 40,000 cards")
    yield from picture.measured()
    say("kubectl egpu beside 40,000 cards")
    yield from listing.measured()
    say("a controller with 20 pools of remote cards")
    yield from lenders.measured()
    if trace is not None:
        say("the public trace replayed")
        yield from openb.measured(trace, seeds=2 if quick else 10)


def ratio(name: str, unit: str, ours: float, reference: float, *, at_most: float) -> figures.Figure:
    return figures.Figure(name=name, unit=unit, ours=ours, reference=reference, at_most=at_most, relative=True)


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory on a real disk, short enough for sockets, gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="egpu-", dir="/var/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def load() -> str:
    return f"{os.cpu_count()} cores, load " + " ".join(f"{value:.1f}" for value in os.getloadavg())


def say(text: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:5.0f} s] {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer rounds, about three minutes; the slow half of the reference is left out",
    )
    parser.add_argument("--cluster", action="store_true", help="also what a claim costs a pod, on a cluster of its own")
    parser.add_argument(
        "--lean-reference", action="store_true", help="a reference that does no more than upstream's example driver"
    )
    parser.add_argument("--openb", type=Path, help="the directory with the files of the public trace, to be replayed")
    parser.add_argument("--bin", type=Path, help="etcd and kube-apiserver (and nvidia-ctk), built elsewhere")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() != 0 or not shutil.which("go") or not shutil.which("openssl"):
        sys.exit("bench needs root (for device nodes), Go and openssl")
    before = load()
    with workplace() as directory:
        say("starting etcd, kube-apiserver and both plugins")
        bench = Bench(directory, arguments.bin or build.build(), lean=arguments.lean_reference)
        try:
            bench.run(quick=arguments.quick)
            say("admission")
            admitted = list(admission.measured(bench.api, directory, quick=arguments.quick))
        except RuntimeError:
            print("\n".join(f"{side.name}:\n{side.program.tail()}" for side in bench.sides), file=sys.stderr)
            raise
        finally:
            bench.close()
    seen = [*measured(bench, quick=arguments.quick), *admitted]
    seen.extend(alone(arguments.openb, quick=arguments.quick))
    if arguments.cluster:
        say("pods with and without a claim on the real cluster")
        seen.extend(on_a_cluster(5 if arguments.quick else 20))
    machine = {"before": before, "after": load(), "quick": arguments.quick}
    if arguments.output == "json":
        print(json.dumps({"machine": machine, "figures": [figure.json() for figure in seen]}, indent=1))
    else:
        print(f"{figures.table(seen)}\n\nmachine: {machine['before']} before, {machine['after']} after")


_BEGAN = time.monotonic()

if __name__ == "__main__":
    main()
