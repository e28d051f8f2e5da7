"""Why a card does not do for a request, and why a pod does not get its cards: one list of words for all who show them. The
sentences are in `funnel`.

In the order of the funnel: a card is ruled out by the first that applies, so what comes later came closer.
"""

import enum
from dataclasses import dataclass

from allocation import amounts, devices
from api import names


class Reason(enum.StrEnum):
    POOL = "PoolNotUsable"
    CLASS = "NotOfTheClass"
    SELECTOR = "NotSelected"
    UNJUDGED = "SelectorFails"
    NODE = "NodeExcluded"
    TAINT = "Tainted"
    SHAPE = "NoSuchShare"
    SIZE = "TooSmall"
    HELD = "Held"
    CAPACITY = "NotEnoughLeft"
    COUNTERS = "CountersUsedUp"
    TOGETHER = "NotTogether"


class Missing(enum.StrEnum):
    """The first link of the chain that is not there."""

    NO_CLAIM = "NoClaim"
    UNTRANSLATED = "UntranslatedRequest"
    TEMPLATE = "TemplateMissing"
    CLAIM = "ClaimMissing"
    CLASS = "ClassMissing"


class Verdict(enum.StrEnum):
    NO = "DoesNotFit"
    NOW = "FitsNow"
    """Waiting for the scheduler's next attempt."""
    DISAGREES = "SchedulerDisagrees"
    """It should fit, and the scheduler has had the time to try."""
    UNKNOWN = "CannotTell"
    SETTLED = "HasItsCards"


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
