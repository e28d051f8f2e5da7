"""An instance of a real Kubernetes on this machine, as the demo, the tests and the benchmarks hold it in their hands."""

import contextlib
import signal
from collections.abc import Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import (
    addresses,
    build,
    commands,
    controlplane,
    guests,
    lifecycle,
    nodes,
    paths,
    processes,
    readiness,
    requirements,
    state,
)

_CUT, _OUTWARD = "egpu-cut", ("output", "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One instance; all methods wait until what they say is done."""

    instance: state.Instance

    @classmethod
    def up(
        cls,
        name: str,
        nodes: int = 2,
        cards: Iterable[int] = (4, 0),
        kubernetes: str = build.KUBERNETES,
        feature_gates: str = "",
    ) -> "Cluster":
        """Bring an instance up; one that is up already with the same nodes and cards is returned as it is."""
        addresses.check_name(name)
        counts = addresses.card_counts(cards, nodes)
        wanted = tuple(
            state.Node(name=node, index=index, cards=count)
            for index, (node, count) in enumerate(zip(addresses.node_names(nodes), counts, strict=True), start=1)
        )
        requirements.check()
        kubernetes = build.named(kubernetes)
        binaries = build.build(kubernetes)
        with state.locked(paths.clusters() / name):
            return cls(instance=lifecycle.up(name, wanted, kubernetes, binaries, feature_gates))

    @classmethod
    def find(cls, name: str) -> "Cluster | None":
        """The instance of this name, if it has come up."""
        instance = state.load(name)
        return cls(instance=instance) if instance and instance.ready else None

    @property
    def name(self) -> str:
        return self.instance.name

    @property
    def kubeconfig(self) -> Path:
        return self.instance.kubeconfig

    @property
    def bin(self) -> Path:
        """The directory with kubectl, ctr and the other programs."""
        return self.instance.bin

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.instance.nodes)

    @property
    def logs(self) -> Path:
        """The directory with a log file for each program."""
        return self.instance.directory / "logs"

    def down(self) -> None:
        lifecycle.down(self.name)

    def load_image(self, archive: Path) -> None:
        """Import an image archive (OCI layout or docker-archive) on every node."""
        with futures.ThreadPoolExecutor() as pool:
            done = [pool.submit(nodes.import_image, self.instance, node, archive) for node in self.instance.nodes]
        for one in done:
            one.result()

    def host_path(self, node: str, path: str) -> Path:
        """Where this machine sees a node's file below /run, /var/run, /var/lib or /var/log."""
        return nodes.host_path(self.instance, self.instance.node(node), str(path))

    def guest(self) -> guests.Guest:
        """A host beside the nodes that is no part of the cluster; it goes with the instance."""
        with state.locked(self.instance.directory):
            return guests.up(self.instance)

    def stop_kubelet(self, node: str) -> None:
        self._stop(node, nodes.KUBELET)

    def start_kubelet(self, node: str) -> None:
        nodes.start(self.instance, self.instance.node(node), nodes.KUBELET)

    def restart_kubelet(self, node: str) -> None:
        self.stop_kubelet(node)
        self.start_kubelet(node)

    def restart_containerd(self, node: str) -> None:
        """Containers go on running meanwhile, as after an upgrade of containerd."""
        self._stop(node, nodes.CONTAINERD)
        nodes.start(self.instance, self.instance.node(node), nodes.CONTAINERD)
        readiness.wait_for_containerd(self.instance, self.instance.node(node))

    def stop_apiserver(self) -> None:
        """It would wait for its watches to end; nothing is lost when it does not."""
        processes.stop(self.instance.directory, controlplane.APISERVER, patience_s=1.0)

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        controlplane.start(self.instance, controlplane.APISERVER)
        readiness.wait_for_api(self.instance)

    def restart_scheduler(self) -> None:
        """Killed, with all that it has in memory, and started."""
        processes.stop(self.instance.directory, controlplane.SCHEDULER, by=signal.SIGKILL)
        controlplane.start(self.instance, controlplane.SCHEDULER)

    @contextlib.contextmanager
    def without_apiserver(self, node: str) -> Iterator[None]:
        """What the node and its pods send to the control plane is swallowed; all their other ways stay open."""
        inside = processes.entering(nodes.keeper(self.instance, self.instance.node(node)), mounts=False)
        there = self.instance.addresses.control_plane
        chains = (f"chain {hook} {{ type filter hook {hook} priority 0; ip daddr {there} drop; }}" for hook in _OUTWARD)
        commands.run(*inside, "nft", "-f", "-", text="\n".join((f"table inet {_CUT} {{", *chains, "}\n")))
        try:
            yield
        finally:
            commands.run(*inside, "nft", "delete", "table", "inet", _CUT)

    def _stop(self, node: str, program: str) -> None:
        processes.stop(self.instance.directory, nodes.program_name(self.instance.node(node), program))
