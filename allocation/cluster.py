"""What allocation knows of the cluster, brought up to date piece by piece, and the question what a node can give.

    slices, nodes, classes, claims, pods --put, book, drop--> Cluster --> Search on a node
                                                                     --> states: which nodes are alike

Indexes by node and by pool, so that one event costs what it changes. Not for several threads at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from allocation import bookings, devices, nodes, pods, pools, requests, search, selectors

JSON = Mapping[str, Any]


class Cluster:
    """`changed`: nodes of which something is different since somebody last emptied it. `revision`: of the classes."""

    def __init__(self) -> None:
        self.judge = selectors.Selectors()
        self.nodes: dict[str, nodes.Node] = {}
        self.classes: dict[str, requests.Class] = {}
        self.booked = bookings.Bookings()
        self.changed: set[str] = set()
        self.revision = 0
        self._slices: dict[str, devices.Slice] = {}
        self._by_pool: dict[pools.ID, dict[str, devices.Slice]] = {}
        self._by_node: dict[str, dict[str, devices.Slice]] = {}
        self._gathered: dict[str, tuple[pools.Pool, ...]] = {}
        self._free: dict[str, pods.Room] = {}
        self._guests: dict[str, str] = {}
        """Pod -> its node; what it takes there is in `_taken`."""
        self._taken: dict[str, pods.Room] = {}

    # What is there

    def put_node(self, node: nodes.Node) -> None:
        before = self.nodes.get(node.name)
        if before == node:
            return
        self.nodes[node.name] = node
        if before is None or before.labels != node.labels:
            self._gathered.pop(node.name, None)
        if before is None or before.room != node.room:
            used = pods.total(self._taken[pod] for pod, where in self._guests.items() if where == node.name)
            self._free[node.name] = pods.room(node).without(used)
        self.changed.add(node.name)

    def drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self._gathered.pop(name, None)
        self._free.pop(name, None)
        self.changed.add(name)

    def put_slice(self, one: devices.Slice) -> None:
        self.drop_slice(one.name)
        self._slices[one.name] = one
        self._by_pool.setdefault((one.driver, one.pool), {})[one.name] = one
        self._by_node.setdefault(one.place.node, {})[one.name] = one
        self._forget(one)

    def drop_slice(self, name: str) -> None:
        before = self._slices.pop(name, None)
        if before is not None:
            self._forget(before)
            fellows = self._by_pool[before.driver, before.pool]
            del fellows[name]
            if not fellows:
                del self._by_pool[before.driver, before.pool]
            neighbours = self._by_node[before.place.node]
            del neighbours[name]
            if not neighbours:
                del self._by_node[before.place.node]

    def put_class(self, one: requests.Class) -> None:
        self.classes[one.name] = one
        self.revision += 1

    def drop_class(self, name: str) -> None:
        self.classes.pop(name, None)
        self.revision += 1

    # What is taken

    def book(self, claim: str, pieces: tuple[bookings.Piece, ...]) -> None:
        """The claim, by its uid, holds these and nothing else."""
        for key in self.booked.put(claim, pieces):
            self._touch(key)

    def guest(self, pod: str, node: str, room: pods.Room) -> None:
        """The pod, by its uid, takes so much of the node; no node: of none."""
        where, taken = self._guests.pop(pod, ""), self._taken.pop(pod, pods.Room())
        if where in self._free:
            self._free[where] = self._free[where].without(
                pods.Room(cpu=-taken.cpu, memory=-taken.memory, pods=-taken.pods)
            )
            self.changed.add(where)
        if node:
            self._guests[pod], self._taken[pod] = node, room
            if node in self._free:
                self._free[node] = self._free[node].without(room)
                self.changed.add(node)

    # What can be had

    def published(self) -> Iterator[devices.Device]:
        """All that are published, of whatever generation."""
        for one in self._slices.values():
            yield from one.devices

    def free(self, node: str) -> pods.Room:
        return self._free.get(node, pods.Room())

    def pools_of(self, node: nodes.Node) -> tuple[pools.Pool, ...]:
        """The pools that the node can use, in the order of trying."""
        found = self._gathered.get(node.name)
        if found is None:
            here = (*self._by_node.get(node.name, {}).values(), *self._by_node.get("", {}).values())
            found = self._gathered[node.name] = pools.gather(node, here, self._all_of)
        return found

    def search(
        self, node: nodes.Node, wishes: Sequence[requests.Wish], order: search.Order | None = None
    ) -> tuple[tuple[search.Pick, ...], ...] | None:
        """The devices for each wish on this node, or None. Raises as `Search.run` does."""
        return search.Search(
            node=node,
            usable=self.pools_of(node),
            booked=self.booked,
            classes=self.classes,
            judge=self.judge,
            order=order,
        ).run(wishes)

    def alone(self, node: nodes.Node) -> bool:
        """Whether what the node can use depends on more than the node's own cards: shared pools, counters."""
        return bool(self._by_node.get("")) or any(pool.counters for pool in self.pools_of(node))

    def _all_of(self, id_: pools.ID) -> Iterable[devices.Slice]:
        return self._by_pool.get(id_, {}).values()

    def _touch(self, key: devices.Key) -> None:
        for one in self._by_pool.get(key[:2], {}).values():
            self.changed |= {one.place.node} if one.place.node else self.nodes.keys()

    def _forget(self, changed: devices.Slice) -> None:
        """A slice of one node in a pool of that node concerns nobody else."""
        fellows = self._by_pool.get((changed.driver, changed.pool), {}).values()
        places = {changed.place.node, *(one.place.node for one in fellows)}
        if "" in places:
            self._gathered.clear()
            self.changed |= self.nodes.keys()
        for name in places - {""}:
            self._gathered.pop(name, None)
            self.changed.add(name)
