"""The cards of a pool as it offers them: what each is, and why one is not to be had.

    inventory or file -> seen -> merge with what was known -> devices, each with the revision that it changed with

What must stay true: a device that was listed once stays listed, as REMOVED when it is gone: somebody may hold it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from driver import inventory


class State(Enum):
    """Under the names that the pool's API has."""

    OFFERED = "OFFERED"
    DRAINING = "DRAINING"
    UNWELL = "UNWELL"
    REMOVED = "REMOVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    id: str
    uuid: str
    product_name: str = ""
    brand: str = ""
    architecture: str = ""
    compute_capability: str = ""
    memory_bytes: int = 0
    driver_version: str = ""
    cuda_driver_version: str = ""
    state: State = State.OFFERED
    reason: str = ""
    revision: int = 0

    @property
    def withheld(self) -> str:
        """Why no lease may begin; empty where one may."""
        return "" if self.state is State.OFFERED else f"{self.state.value.lower()}, {self.reason}".rstrip(", ")


def seen(found: inventory.Inventory, draining: frozenset[str]) -> tuple[Device, ...]:
    """`draining`: uuids that begin no new lease."""
    faults = {fault.uuid: fault for fault in found.faults if fault.card is not None}
    made = []
    for card in found.known:
        device = Device(
            id=card.name,
            uuid=card.uuid,
            product_name=card.product_name or "",
            brand=card.brand or "",
            architecture=card.architecture or "",
            compute_capability=card.compute_capability or "",
            memory_bytes=card.memory_bytes or 0,
            driver_version=found.driver_version or "",
            cuda_driver_version=found.cuda_driver_version or "",
        )
        if (fault := faults.get(card.uuid)) is not None:
            device = replace(device, state=State.UNWELL, reason=f"the card is {fault.kind.value}: {fault.why}")
        elif card.mig_enabled:
            device = replace(device, state=State.UNWELL, reason="the card is in MIG mode, which is not lent")
        elif card.uuid in draining:
            device = replace(device, state=State.DRAINING, reason="its admin takes it out")
        made.append(device)
    return tuple(made)


def merged(known: Mapping[str, Device], now: tuple[Device, ...], revision: int) -> dict[str, Device]:
    """What is known after a look; what changed gets numbers from `revision` + 1 on."""
    result = dict(known)
    here = {device.id: device for device in now}
    gone = {
        id_: replace(device, state=State.REMOVED, reason="it is no longer listed")
        for id_, device in known.items()
        if id_ not in here
    }
    for id_, device in (here | gone).items():
        before = known.get(id_)
        if before is None or replace(before, revision=0) != replace(device, revision=0):
            revision += 1
            result[id_] = replace(device, revision=revision)
    return result
