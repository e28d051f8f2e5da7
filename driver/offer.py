"""What a node offers: its cards as the pool `egpu/<node>`.

    cards + taints + what claims hold + backends -> Pool

The same cards give the same bytes, also after a restart: names by uuid, attributes in a fixed order. A card that does not
tell some fact is offered without it, and a version that Kubernetes would refuse is left out (AMD#7, AMD#68).

The order of the cards is that of the bus, as far as the fill allows: kube-scheduler takes the first card that has room, so
the order is the policy. A full card stays where it is, since nobody will take it; so whole cards that come and go never
change the slice, and shares only where they leave a hole (BinPack) or by nature (Spread).
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api import names, resource
from driver import backend, booking, inventory, records

_LONGEST = 64
"""Characters in a string or a version attribute; the API server refuses the whole slice for one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Who allocates the node's cards. `fenced`: kube-scheduler is kept away by a taint."""

    by: str = names.BY_SCHEDULER
    fenced: bool = False


Taints = Mapping[inventory.CardUUID, tuple[resource.Taint, ...]]


class Fill(enum.StrEnum):
    """Which card the next share shall go to: one that others are on already, or the emptiest."""

    BIN_PACK = "BinPack"
    SPREAD = "Spread"


def pool(
    name: str,
    seen: inventory.Inventory,
    lost: tuple[inventory.Card, ...],
    taints: Taints,
    workers: Iterable[backend.Backend],
    held: Iterable[records.Record] = (),
    fill: Fill = Fill.BIN_PACK,
    given: Given = Given(),  # noqa: B008  a value that nobody can change
) -> resource.Pool:
    """`lost`: cards that are not listed and shall be offered all the same, with their taints."""
    versions = (
        (names.DRIVER_VERSION, _version(seen.driver_version)),
        (names.CUDA_DRIVER_VERSION, _version(seen.cuda_driver_version)),
    )
    cards = _tried(inventory.ordered((*seen.known, *lost)), booking.by_device(held), fill)
    workers = tuple(workers)
    return resource.Pool(
        name=name,
        devices=tuple(_device(card, versions, taints.get(card.uuid, ()), workers, given) for card in cards),
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


def _tried(
    cards: tuple[inventory.Card, ...], taken: Mapping[str, booking.Amount], fill: Fill
) -> tuple[inventory.Card, ...]:
    """The cards in the order in which they shall be tried."""
    full = {card.name: booking.fullness(taken.get(card.name, booking.Amount()), card) for card in cards}
    free = [card for card in cards if full[card.name] < 1]
    match fill:
        case Fill.BIN_PACK:
            free.sort(key=lambda card: card.name not in taken or not taken[card.name].shares)
        case Fill.SPREAD:
            free.sort(key=lambda card: full[card.name])
    rest = iter(free)
    return tuple(next(rest) if full[card.name] < 1 else card for card in cards)


def _device(
    card: inventory.Card,
    versions: tuple[tuple[str, resource.Version | None], ...],
    taints: tuple[resource.Taint, ...],
    workers: tuple[backend.Backend, ...],
    given: Given,
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
    ]
    offers = [worker.offer(card) for worker in workers]
    backends = {name: value for offer in offers for name, value in offer.attributes}
    amounts = [amount for offer in offers for amount in offer.amounts]
    if names.ALLOCATED_BY in backends:
        backends[names.ALLOCATED_BY] = given.by
    memory = booking.memory_mib(card) * booking.MIB
    if given.fenced:
        taints = (*taints, resource.Taint(key=names.ALLOCATED_BY_TAINT, value=names.BY_CONTROLLER, effect="NoSchedule"))
    if card.mig_enabled:  # no program can use it as a whole: a pod that gets it would wait for ever
        taints = (*taints, resource.Taint(key=names.MIG_TAINT, effect="NoSchedule"))
    return resource.Device(
        name=card.name,
        attributes=tuple(
            (name, value) for name, value in (*told, *backends.items()) if value is not None and _fits(value)
        ),
        capacity=tuple((name, amount) for name, amount, _ in amounts) or (((names.MEMORY, memory),) if memory else ()),
        taints=taints,
        shareable=bool(amounts),
        policies=tuple((name, policy) for name, _, policy in amounts),
    )


def _version(text: str | None) -> resource.Version | None:
    normal = inventory.semver(text)
    return None if normal is None else resource.Version(normal)


def _fits(value: resource.Attribute) -> bool:
    return not isinstance(value, str) or 0 < len(value) <= _LONGEST
