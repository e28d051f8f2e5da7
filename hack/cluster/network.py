"""Network namespaces of an instance and the wires between them.

A namespace has no name: it is that of a process that only sleeps, and it goes away, wires included, with the last
process in it. In the control plane's namespace a bridge joins everybody:

    machine egpu-h<number> --- host0 |                       | n1 --- eth0 node1
                        10.97.x.254  | br0 10.97.x.1 (API)   | n2 --- eth0 node2

Pod networks are routed, the machine's own routes included, so that tests reach pods too. Nothing leads further out.
"""

import ipaddress
import json
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

from hack.cluster import commands, errors, processes, state


def routed() -> tuple[IPv4Network, ...]:
    """Every IPv4 network that this machine has a route to, apart from the default one."""
    listed = commands.run("ip", "-j", "-4", "route", "show", "table", "all")
    targets = {route["dst"] for route in json.loads(listed or "[]")} - {"default"}
    return tuple(ipaddress.ip_network(target, strict=False) for target in targets)  # type: ignore[misc]


def wire_control_plane(instance: state.Instance, control_plane: int) -> None:
    """Make the bridge and the wire to the machine, `control_plane` being the process that keeps the namespace."""
    place = instance.addresses
    _ip(None, (f"link add {place.host_device} type veth peer name host0 netns {control_plane}",))
    _ip(control_plane, (
        "link set lo up",
        "link add br0 type bridge",
        f"addr add {place.control_plane}/24 dev br0",
        "link set br0 up",
        "link set host0 master br0 up",
        *(f"route add {place.node_pods(node.index)} via {place.node(node.index)} onlink dev br0" for node in instance.nodes),
    ))  # fmt: skip
    _forward(control_plane)
    _ip(None, (
        f"addr add {place.host}/24 dev {place.host_device}",
        f"link set {place.host_device} up",
        f"route add {place.pods} via {place.control_plane} dev {place.host_device}",
    ))  # fmt: skip


def wire_node(instance: state.Instance, node: state.Node, keeper: int, control_plane: int) -> None:
    place = instance.addresses
    _ip(None, (f"link add eth0 netns {keeper} type veth peer name n{node.index} netns {control_plane}",))
    _ip(control_plane, (f"link set n{node.index} master br0 up",))
    others = (other for other in instance.nodes if other != node)
    _ip(keeper, (
        "link set lo up",
        f"addr add {place.node(node.index)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {place.control_plane}",
        *(f"route add {place.node_pods(other.index)} via {place.node(other.index)}" for other in others),
    ))  # fmt: skip
    _forward(keeper)


def wire_guest(instance: state.Instance, keeper: int, control_plane: int) -> None:
    """A host that is no node: it reaches pods through the control plane's namespace, which routes."""
    place = instance.addresses
    _ip(None, (f"link add eth0 netns {keeper} type veth peer name guest netns {control_plane}",))
    _ip(control_plane, ("link set guest master br0 up",))
    _ip(keeper, (
        "link set lo up",
        f"addr add {place.guest}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {place.control_plane}",
    ))  # fmt: skip


def unwire(instance: state.Instance) -> None:
    """Take the machine's end away at once, unless the kernel, that ends the namespaces, does so first."""
    device = instance.addresses.host_device
    try:
        commands.run("ip", "link", "del", device)
    except errors.ClusterError:
        if Path("/sys/class/net", device).exists():
            raise


def _ip(inside: int | None, lines: Iterable[str]) -> None:
    """Carry out several lines of `ip` in a namespace, stopping at the first that fails."""
    commands.run(
        *(processes.entering(inside, mounts=False) if inside else ()), "ip", "-batch", "-", text="\n".join(lines) + "\n"
    )


def _forward(inside: int) -> None:
    commands.run(*processes.entering(inside, mounts=False), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
