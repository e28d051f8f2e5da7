"""Names and addresses of an instance, all following from its name and its number.

A number is given to one instance at a time, so two instances never share an address, a device or a route. Inside the
network namespaces names repeat; only what the machine itself sees carries the number (devices, 15 characters at most)
or the name (cgroups).
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hack.cluster import errors

NUMBERS = range(128)
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
MOST_NODES = 32

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """What an instance with this number owns."""

    number: int

    @property
    def nodes(self) -> Network:
        return Network(f"10.97.{self.number}.0/24")

    @property
    def pods(self) -> Network:
        return Network(f"10.{128 + self.number}.0.0/16")

    @property
    def control_plane(self) -> str:
        return f"10.97.{self.number}.1"

    @property
    def guest(self) -> str:
        return f"10.97.{self.number}.100"

    @property
    def host(self) -> str:
        return f"10.97.{self.number}.254"

    @property
    def host_device(self) -> str:
        return f"egpu-h{self.number}"

    @property
    def api_url(self) -> str:
        return f"https://{self.control_plane}:6443"

    def node(self, index: int) -> str:
        """The address of the node with this index, the first being 1."""
        return f"10.97.{self.number}.{10 + index}"

    def node_pods(self, index: int) -> Network:
        return Network(f"10.{128 + self.number}.{index}.0/24")


def free_number(taken: Iterable[int], routes: Iterable[Network]) -> int:
    """The smallest number that no instance has and whose networks this machine does not route already."""
    taken, routes = set(taken), tuple(routes)
    for number in NUMBERS:
        mine = Addresses(number=number)
        if number not in taken and not any(route.overlaps(mine.nodes) or route.overlaps(mine.pods) for route in routes):
            return number
    raise errors.ClusterError(
        "no free network in 10.97.0.0/16 and 10.128.0.0/9: take an instance down (python3 -m hack.cluster status)"
    )


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", name):
        raise errors.ClusterError(f"{name!r} cannot name an instance: up to 20 of a-z, 0-9 and inner hyphens")


def node_names(count: int) -> tuple[str, ...]:
    if not 1 <= count <= MOST_NODES:
        raise errors.ClusterError(f"{count} nodes: an instance has 1 to {MOST_NODES}")
    return tuple(f"node{index}" for index in range(1, count + 1))


def card_counts(cards: Iterable[int], nodes: int) -> tuple[int, ...]:
    """How many cards each node has; nodes that are not mentioned have none."""
    counts = tuple(cards)
    if len(counts) > nodes or any(not 0 <= count <= 16 for count in counts):
        raise errors.ClusterError(
            f"cards {','.join(map(str, counts))}: one number from 0 to 16 for each of the {nodes} nodes"
        )
    return counts + (0,) * (nodes - len(counts))
