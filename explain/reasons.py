"""What a reason rules out, with the cards that came closest.

The words are `api.reasons`; the sentences are in `funnel`, those on cards together in `explanation`.
"""

from dataclasses import dataclass

from allocation import amounts, devices
from api import names
from api.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A card that was ruled out. `lacks`, `free`, `need`: of one capacity, where that is the reason."""

    card: str
    pool: str
    node: str
    detail: str = ""
    lacks: amounts.Amount = 0
    free: amounts.Amount = 0
    need: amounts.Amount = 0

    @property
    def where(self) -> str:
        return f"{self.card} on {self.node}" if self.node else f"{self.card} of pool {self.pool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cards that one reason rules out. `examples`: the two that came closest, the closest first."""

    reason: Reason
    cards: int
    text: str
    examples: tuple[Example, ...] = ()


def shown(name: str, value: amounts.Amount) -> str:
    """An amount of a capacity, for people."""
    return f"{value}%" if bare(name) == names.CORES else amounts.text(value)


def bare(name: str) -> str:
    """A capacity's name without its domain."""
    return name.rpartition("/")[2]


def example(device: devices.Device, node: str, detail: str = "") -> Example:
    return Example(card=device.key[2], pool=device.key[1], node=node, detail=detail)
