"""What cards a node has, as values: a Card each, the Inventory of one moment, the difference of two.

The gateway reads an Inventory, health and the offer are computed from it, and it is replaced whole. A card that could
not be read is a Fault in the same Inventory: it hides no other card, and carries the card's facts from the last time
it answered. A fact that could not be read is None; only the uuid and the minor number are needed to be a card.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import NewType

CardUUID = NewType("CardUUID", str)
"""As NVML tells it: `GPU-` and the rest in lower case."""

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
BRANDS = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps", 8: "NvidiaVPC",
    9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX", 13: "NvidiaRTX", 14: "Nvidia",
    15: "GeForceRTX", 16: "TitanRTX",
}  # fmt: skip
"""NVML's numbers in the words that NVIDIA's driver publishes, so that CEL texts carry over."""


class FaultKind(Enum):
    LOST = "lost"
    """Fallen off the bus: it needs a reset, or hands."""
    HUNG = "hung"
    """Calls do not come back."""
    UNREADABLE = "unreadable"
    """It answers, but not what it has to."""


class EventKind(Enum):
    XID = "xid"
    """The driver reported an error of the card, with its number."""
    LOST = "lost"
    """Some card is lost; the event does not know which, so without a uuid it means: look at all."""
    HUNG = "hung"
    UNREADABLE = "unreadable"
    VANISHED = "vanished"
    """The card is no longer listed: reset, drained or pulled out."""
    RETURNED = "returned"
    """The card is listed again."""
    RELOADED = "reloaded"
    """The driver was loaded anew; without a uuid: for every card."""
    ANSWERED = "answered"
    """A probe of the card succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: EventKind
    uuid: CardUUID | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    uuid: CardUUID
    minor: int
    pci_bus_id: str | None = None
    """Domain, bus, device and function in lower case, as in sysfs: 0000:0a:00.0."""
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    """The root complex as Kubernetes names it: pci0000:00."""
    mig_enabled: bool = False
    memory_limits: bool = False
    """Whether its driver can hold a control group to a part of its memory."""

    @property
    def name(self) -> str:
        return device_name(self.uuid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A card that could not be read. Without a uuid the card never answered since the start; `index` is its place."""

    kind: FaultKind
    why: str
    uuid: CardUUID | None = None
    index: int | None = None
    card: Card | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    cards: tuple[Card, ...] = ()
    """In the order of `ordered`: only cards that answered."""
    faults: tuple[Fault, ...] = ()

    def without(self, uuids: frozenset[CardUUID]) -> "Inventory":
        """As if these cards were not there."""
        return replace(
            self,
            cards=tuple(card for card in self.cards if card.uuid not in uuids),
            faults=tuple(fault for fault in self.faults if fault.uuid not in uuids),
        )

    @property
    def known(self) -> tuple[Card, ...]:
        """Every card that is listed, also those that do not answer now, in one stable order."""
        return ordered((*self.cards, *(fault.card for fault in self.faults if fault.card is not None)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`changed` holds the new facts. A card that stops answering is neither removed nor changed: it is a fault."""

    added: tuple[Card, ...] = ()
    removed: tuple[Card, ...] = ()
    changed: tuple[Card, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """`cores`: percent of the card's, where the card tells."""

    pid: int
    memory_bytes: int
    cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One card at one moment. `used_bytes` holds more than the processes' sum: what the driver itself needs."""

    used_bytes: int
    processes: tuple[Process, ...] = ()


def device_name(uuid: CardUUID) -> str:
    """The name in slices and claims: the same over reboots, reordering and lost neighbours (NV#427, NV#563)."""
    return "gpu-" + uuid.lower().removeprefix("gpu-")


def ordered(cards: tuple[Card, ...]) -> tuple[Card, ...]:
    return tuple(sorted(cards, key=lambda card: (card.pci_bus_id or "~", card.uuid)))


def difference(old: Inventory, new: Inventory) -> Difference:
    before = {card.uuid: card for card in old.known}
    after = {card.uuid: card for card in new.known}
    return Difference(
        added=tuple(card for card in new.known if card.uuid not in before),
        removed=tuple(card for card in old.known if card.uuid not in after),
        changed=tuple(card for card in new.known if before.get(card.uuid, card) != card),
    )


def semver(text: str | None) -> str | None:
    """A version as Kubernetes takes it: 570.158.01 is 570.158.1, 13.0 is 13.0.0. None for what is no such version."""
    if text is None or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,2}", text):
        return None
    numbers = [str(int(part)) for part in text.split(".")]
    return ".".join([*numbers, "0", "0"][:3])
