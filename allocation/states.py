"""Nodes that are alike: the same kinds of cards, held alike. What is decided for one of them holds for all.

    Cluster.changed --> refresh --> node -> State; states that were not there before are listed, in order

In a cluster of thousands of nodes there are few states, and an event makes one or two new ones: a choice costs what is
new since the last one like it.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocation import amounts, bookings, cluster, devices, policies

_FORGET = 100_000
_Key = tuple[int, int, int, tuple[tuple[str, amounts.Amount], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A kind of card held in one way, with a card that is; one object for all of them. `used`: from 0 to 1, how full."""

    number: int
    example: devices.Device
    taken: bookings.Booked
    used: float


NUMBER = operator.attrgetter("number")


@dataclass(slots=True, eq=False)
class State:
    """`nodes`: those that are in it, in the order in which they came; none left: nobody will come again.

    `cards`: how each is held, by their numbers. `alone`: there is more to it than its cards.
    """

    number: int
    cards: tuple[Held, ...]
    alone: bool
    nodes: dict[str, None] = field(default_factory=dict)


class States:
    def __init__(self, known: cluster.Cluster) -> None:
        self._known = known
        self._by_key: dict[Any, State] = {}
        self._of: dict[str, tuple[Any, State]] = {}
        self._made: list[State] = []
        self._number = 0
        self._held: dict[_Key, Held] = {}
        self._ways = 0
        self.epoch = 0
        """Another one: whoever counted in `since` has to begin anew."""

    def __len__(self) -> int:
        return len(self._by_key)

    def since(self, number: int) -> Sequence[State]:
        """The states made after the first `number` ones that still have nodes, and those alone."""
        return [state for state in self._made[number:] if state.nodes]

    @property
    def made(self) -> int:
        return len(self._made)

    def refresh(self, changed: Iterable[str]) -> None:
        for name in sorted(changed):
            self._move(name, self._key(name))
        if len(self._made) > max(_FORGET, 4 * len(self._by_key)):
            self._made = [state for state in self._made if state.nodes]
            known = {card for state in self._made for card in state.cards}
            self._held = {key: card for key, card in self._held.items() if card in known}
            self.epoch += 1

    def held(self, device: devices.Device) -> Held:
        """How it is held now. The same object for all cards of one kind that are held alike."""
        booked = self._known.booked.of(device.key)
        key = (id(device.look), booked.whole, booked.shares, booked.taken)
        found = self._held.get(key)
        if found is None:
            self._ways += 1
            found = self._held[key] = Held(self._ways, device, booked, policies.use(device, booked))
        return found

    def _move(self, name: str, key: Any) -> None:
        before = self._of.get(name)
        if before is not None:
            if before[0] == key:
                return
            old, state = before
            del state.nodes[name], self._of[name]
            if not state.nodes:
                del self._by_key[old]
        if key is None:
            return
        found = self._by_key.get(key)
        if found is None:
            self._number += 1
            found = self._by_key[key] = State(number=self._number, cards=key[0], alone=bool(key[2]))
            self._made.append(found)
        found.nodes[name] = None
        self._of[name] = (key, found)

    def _key(self, name: str) -> Any:
        """None for a node that is not there, or has no device."""
        known = self._known
        node = known.nodes.get(name)
        if node is None:
            return None
        usable = known.pools_of(node)
        listed = [device for pool in usable for device in pool.here]
        if not listed and all(pool.usable for pool in usable):
            return None
        cards = sorted(map(self.held, listed), key=NUMBER)
        room = known.free(name)
        only = name if known.alone(node) or any(not pool.usable for pool in usable) else ""
        return (tuple(cards), room, only)
