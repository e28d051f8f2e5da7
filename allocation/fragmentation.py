"""How much of what is free on a node is of no use to the requests that are usual here.

    what was asked lately --> Mix of Kinds        a node's cards and room + Mix --> waste, in cards' worth

For each kind: where the node cannot take it at all, everything that is free is waste; else the free parts of cards that
are too small for it. Weighted by how often the kind is asked for. The idea is fragmentation gradient descent: place where
this grows least. Equal growths are many, and what decides between them matters more than the growth: the fullest node.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from allocation import pods

_ALMOST = 1e-9
_COVERED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A request as the mix knows it: `part` of each of `count` cards, and the pod's room. No cards: any pod."""

    part: float
    count: int
    cpu: int = 0
    memory: int = 0


class Mix:
    """Kinds with their shares of all that was asked. The rarest kinds, a twentieth of all together, are left out."""

    def __init__(self, asked: Counter[Kind]) -> None:
        total, sum_ = asked.total(), 0
        kept: list[tuple[Kind, int]] = []
        for kind, number in asked.most_common():
            if sum_ >= _COVERED * total:
                break
            kept.append((kind, number))
            sum_ += number
        self.kinds = tuple((kind, number / total) for kind, number in kept)

    def waste(self, free: Sequence[float], room: pods.Room) -> float:
        """`free`: what is left of each card, from 0 to 1."""
        everything = sum(free)
        found = 0.0
        for kind, weight in self.kinds:
            part = kind.part - _ALMOST
            if not kind.count or kind.cpu > room.cpu or kind.memory > room.memory:
                found += weight * everything
                continue
            fits = useful = 0.0
            for left in free:
                if left >= part:
                    fits += 1
                    useful += left
            found += weight * (everything - useful if fits >= kind.count else everything)
        return found
