"""How an instance comes and goes.

`up` gives out a number, writes down what it is going to make, and then makes it; `down` needs nothing but what was
written down, so it also takes down what a crash left half made. Both hold the instance's directory while they work.
"""

import dataclasses
import shutil
from pathlib import Path

from hack.cluster import (
    addresses,
    cards,
    certificates,
    cgroups,
    controlplane,
    errors,
    network,
    nodes,
    paths,
    podimages,
    processes,
    progress,
    readiness,
    state,
)


def up(
    name: str, wanted: tuple[state.Node, ...], kubernetes: str, binaries: Path, feature_gates: str = ""
) -> state.Instance:
    """Bring an instance up, its directory being held; what is up already is completed, not made anew."""
    found = state.load(name)
    if found and found.ready and _has_namespaces(found):
        if (found.nodes, found.bin, found.feature_gates) != (wanted, binaries, feature_gates):
            raise errors.ClusterError(
                f"{name} is up with other nodes, cards, programs or gates: take it down first, or choose another name"
            )
        _start_programs(found)
        return found
    _down(name)
    instance = _reserve(name, wanted, kubernetes, binaries, feature_gates)
    try:
        _start(instance)
    except BaseException:
        _keep_logs(instance)
        _down(name)
        raise
    instance = dataclasses.replace(instance, ready=True)
    state.save(instance)
    return instance


def _reserve(
    name: str, wanted: tuple[state.Node, ...], kubernetes: str, binaries: Path, feature_gates: str
) -> state.Instance:
    """Choose a number and write the instance down, before anyone else chooses."""
    with state.locked(paths.clusters()):
        taken = (other.number for other in map(state.load, state.names()) if other)
        number = addresses.free_number(taken, network.routed())
        instance = state.Instance(
            name=name, number=number, kubernetes=kubernetes, bin=binaries, nodes=wanted, feature_gates=feature_gates
        )
        cgroups.check_free(_groups(instance))
        state.save(instance)
    return instance


def _groups(instance: state.Instance) -> tuple[str, ...]:
    return (*(nodes.group(instance, node) for node in instance.nodes), controlplane.group(instance))


def _start(instance: state.Instance) -> None:
    progress.say(
        f"{instance.name}: Kubernetes {instance.kubernetes}, {len(instance.nodes)} nodes in {instance.addresses.nodes}"
    )
    certificates.make(instance)
    control_plane = controlplane.start_keeper(instance)
    network.wire_control_plane(instance, control_plane)
    for program in controlplane.FIRST:
        controlplane.start(instance, program)
    archives = podimages.both()
    for node in instance.nodes:
        nodes.prepare(instance, node)
        cards.lay_out(instance, node)
        network.wire_node(instance, node, nodes.start_keeper(instance, node), control_plane)
        nodes.start(instance, node, nodes.CONTAINERD)
    for node in instance.nodes:
        readiness.wait_for_containerd(instance, node)
        for archive in archives:
            nodes.import_image(instance, node, archive)
    _start_programs(instance)


def _start_programs(instance: state.Instance) -> None:
    """Start what does not run yet, and wait until the whole is ready; repeatable."""
    for program in controlplane.FIRST:
        controlplane.start(instance, program)
    readiness.wait_for_api(instance)
    for program in controlplane.THEN:
        controlplane.start(instance, program)
    for node in instance.nodes:
        for program in nodes.PROGRAMS:
            nodes.start(instance, node, program)
    readiness.wait_for_nodes(instance)
    progress.say(f"{instance.name}: all nodes are ready")


def _has_namespaces(instance: state.Instance) -> bool:
    keepers = (controlplane.KEEPER, *(node.name for node in instance.nodes))
    return all(processes.running(instance.directory, keeper) for keeper in keepers)


def down(name: str) -> None:
    """Take an instance down, whatever is left of it; for one that does not exist there is nothing to do."""
    if name in state.names():
        with state.locked(paths.clusters() / name):
            _down(name)


def _down(name: str) -> None:
    instance = state.load(name)
    if instance is not None:
        progress.say(f"{name}: taking it down")
        groups = _groups(instance)
        # All at once and at once: everything that these programs look after goes as well.
        cgroups.kill(groups)
        network.unwire(instance)
        cgroups.remove(groups)
    state.forget(name)


def _keep_logs(instance: state.Instance) -> None:
    kept = paths.failed() / instance.name
    shutil.rmtree(kept, ignore_errors=True)
    if (instance.directory / "logs").is_dir():
        shutil.copytree(instance.directory / "logs", kept)
        progress.say(f"{instance.name} did not come up; its logs are in {kept}")
