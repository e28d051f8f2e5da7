"""What a node offers: its cards as the pool `egpu/<node>`.

    cards + taints + backend -> Pool

The same cards give the same bytes, also after a restart: order by bus, names by uuid, attributes in a fixed order. A card
that does not tell some fact is offered without it, and a version that Kubernetes would refuse is left out (AMD#7, AMD#68).
"""

from collections.abc import Iterable, Mapping

from api import names, resource
from driver import backend, inventory, records

_MIB = 1024 * 1024
_LONGEST = 64
"""Characters in a string or a version attribute; the API server refuses the whole slice for one more."""

Taints = Mapping[inventory.CardUUID, tuple[resource.Taint, ...]]


def pool(
    name: str, seen: inventory.Inventory, lost: tuple[inventory.Card, ...], taints: Taints, worker: backend.Backend
) -> resource.Pool:
    """`lost`: cards that are not listed and shall be offered all the same, with their taints."""
    versions = (
        (names.DRIVER_VERSION, _version(seen.driver_version)),
        (names.CUDA_DRIVER_VERSION, _version(seen.cuda_driver_version)),
    )
    cards = inventory.ordered((*seen.known, *lost))
    return resource.Pool(
        name=name,
        devices=tuple(_device(card, versions, taints.get(card.uuid, ()), worker) for card in cards),
    )


def withheld(known: Iterable[inventory.Card], held: Iterable[records.Record]) -> tuple[inventory.Card, ...]:
    """The cards that claims hold and nobody lists any more: they stay published until their claims are gone."""
    listed = {card.uuid for card in known}
    missing = {
        holding.card: inventory.Card(
            uuid=inventory.CardUUID(holding.card), minor=holding.minor, product_name=holding.model or None
        )
        for record in held
        for holding in record.holdings
        if holding.card not in listed
    }
    return tuple(missing[uuid] for uuid in sorted(missing))


def _device(
    card: inventory.Card,
    versions: tuple[tuple[str, resource.Version | None], ...],
    taints: tuple[resource.Taint, ...],
    worker: backend.Backend,
) -> resource.Device:
    told: list[tuple[str, resource.Attribute | None]] = [
        (names.TYPE, "gpu"),
        (names.UUID, card.uuid),
        (names.PRODUCT_NAME, card.product_name),
        (names.BRAND, card.brand),
        (names.ARCHITECTURE, card.architecture),
        (names.COMPUTE_CAPABILITY, _version(card.compute_capability)),
        *versions,
        (names.PCI_BUS_ID, card.pci_bus_id),
        (names.PCIE_ROOT, card.pcie_root),
        (names.NUMA_NODE, card.numa_node),
        *worker.offer(card).attributes,
    ]
    whole_mib = (card.memory_bytes or 0) // _MIB * _MIB
    if card.mig_enabled:  # no program can use it as a whole: a pod that gets it would wait for ever
        taints = (*taints, resource.Taint(key=names.MIG_TAINT, effect="NoSchedule"))
    return resource.Device(
        name=card.name,
        attributes=tuple((name, value) for name, value in told if value is not None and _fits(value)),
        capacity=((names.MEMORY, whole_mib),) if whole_mib else (),
        taints=taints,
    )


def _version(text: str | None) -> resource.Version | None:
    normal = inventory.semver(text)
    return None if normal is None else resource.Version(normal)


def _fits(value: resource.Attribute) -> bool:
    return not isinstance(value, str) or 0 < len(value) <= _LONGEST
