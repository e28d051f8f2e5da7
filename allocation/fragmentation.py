"""How much of what is free on a node is of no use to the requests that are usual here.

    what was asked lately --> Mix of Kinds        a node's cards and room + Mix --> waste, in cards' worth

Three parts. Unmatched: what the free part of each card is less worth than it is big (`worth`): which parts go together on a
card, looked at for all that is usual at once. It comes first, so it weighs many times the others. Scattered: for each kind,
where the node cannot take it at all, everything that is free; else the free parts of cards that are too small for it; weighted
by the cards that the kind asks for in all. Stranded: what is free beyond that which the node's CPU and memory can serve, at so
much a card as is usual here. A pod goes where their sum grows least: fragmentation gradient descent, with a price for CPU and
for the parts of a card. Equal growths are many: of these the fullest node.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from allocation import pods, worth

_ALMOST = 1e-9
_ROUNDING = 1e-6
_COVERED = 0.95
_UNMATCHED = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A request as the mix knows it: `part` of each of `count` cards, and the pod's room. No cards: any pod."""

    part: float
    count: int
    cpu: int = 0
    memory: int = 0


class Mix:
    """Kinds with their shares of the cards that were asked. The rarest, a twentieth of all together, are left out."""

    def __init__(self, asked: Counter[Kind]) -> None:
        cards = {kind: number * kind.part * kind.count for kind, number in asked.items()}
        total, sum_ = sum(cards.values()), 0.0
        kept: list[tuple[Kind, float]] = []
        for kind in sorted(cards, key=lambda kind: -cards[kind]):
            if sum_ >= _COVERED * total:
                break
            kept.append((kind, cards[kind] / total))
            sum_ += cards[kind]
        self.kinds = tuple(kept)
        self._cpu = sum(number * kind.cpu for kind, number in asked.items()) / total if total else 0.0
        self._memory = sum(number * kind.memory for kind, number in asked.items()) / total if total else 0.0
        """What goes with each card's worth that is asked, pods without cards included."""
        parts: Counter[float] = Counter()
        for kind, number in asked.items():
            if kind.part:
                parts[kind.part] += number * kind.count
        worths = worth.worths(parts) if parts else ()
        self._unmatched = tuple(_UNMATCHED * (at / worth.GRAIN - of) for at, of in enumerate(worths))

    def waste(self, free: Sequence[float], room: pods.Room) -> float:
        """`free`: what is left of each card, from 0 to 1."""
        everything = sum(free)
        served = min(room.cpu / self._cpu if self._cpu else everything, everything)
        served = min(room.memory / self._memory if self._memory else everything, served)
        found = everything - max(served, 0.0)
        if self._unmatched:
            found += sum(self._unmatched[int(left * worth.GRAIN + _ROUNDING)] for left in free)
        for kind, weight in self.kinds:
            part = kind.part - _ALMOST
            if kind.cpu > room.cpu or kind.memory > room.memory:
                found += weight * everything
                continue
            fits = useful = 0.0
            for left in free:
                if left >= part:
                    fits += 1
                    useful += left
            found += weight * (everything - useful if fits >= kind.count else everything)
        return found
