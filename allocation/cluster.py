"""What allocation knows of the cluster, brought up to date piece by piece, and the question what a node can give.

    slices, nodes, classes, allocated claims --put, drop--> Cluster --> Search on a node

An index by node and by pool, so that one event costs what it changes. Not for several threads at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allocation import bookings, devices, nodes, pools, requests, search, selectors

JSON = Mapping[str, Any]


class Cluster:
    def __init__(self) -> None:
        self.judge = selectors.Selectors()
        self.nodes: dict[str, nodes.Node] = {}
        self.classes: dict[str, requests.Class] = {}
        self.booked = bookings.Bookings()
        self._slices: dict[str, devices.Slice] = {}
        self._by_pool: dict[pools.ID, dict[str, devices.Slice]] = {}
        self._by_node: dict[str, dict[str, devices.Slice]] = {}
        self._gathered: dict[str, tuple[pools.Pool, ...]] = {}

    def put_node(self, node: nodes.Node) -> None:
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        if before is None or before.labels != node.labels:
            self._gathered.pop(node.name, None)

    def drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self._gathered.pop(name, None)

    def put_slice(self, one: devices.Slice) -> None:
        self.drop_slice(one.name)
        self._slices[one.name] = one
        self._by_pool.setdefault((one.driver, one.pool), {})[one.name] = one
        self._by_node.setdefault(one.place.node, {})[one.name] = one
        self._forget(one)

    def drop_slice(self, name: str) -> None:
        before = self._slices.pop(name, None)
        if before is not None:
            for index, key in ((self._by_pool, (before.driver, before.pool)), (self._by_node, before.place.node)):
                found = index[key]  # type: ignore[index]
                del found[name]
                if not found:
                    del index[key]  # type: ignore[arg-type]
            self._forget(before)

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

    def _all_of(self, id_: pools.ID) -> Iterable[devices.Slice]:
        return self._by_pool.get(id_, {}).values()

    def _forget(self, changed: devices.Slice) -> None:
        """A slice of one node in a pool of that node concerns nobody else."""
        fellows = self._by_pool.get((changed.driver, changed.pool), {}).values()
        places = {changed.place.node, *(one.place.node for one in fellows)}
        if "" in places:
            self._gathered.clear()
        for name in places:
            self._gathered.pop(name, None)
