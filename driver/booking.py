"""The books of a card: what one result takes of it, what is taken already, and whether both go together.

    consumedCapacity -> consumed -> Amount      holdings -> booked -> Amount      refuse_overbooked   the two against the card

Whole MiB and whole percent from end to end, nothing is rounded here: an amount that is not whole was never published by
this driver (KAI#416). The scheduler has done this sum before; it is done again since two claims can be allocated the same
room while an older one's containers still stop, or by an allocator that errs (KK#136269, KK#139034).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from api import errors, names, quantity, resource
from driver import inventory, records

MIB = 1024 * 1024
CORES = 100
_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Of one card: percent of its cores, MiB of its memory, and how many shares that is."""

    cores: int = 0
    memory_mib: int = 0
    shares: int = 0

    def __str__(self) -> str:
        return f"{self.cores} % of the cores and {self.memory_mib} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Who else is on the card: `holder` in words for people."""

    holder: str
    holding: records.Holding


def memory_mib(card: inventory.Card) -> int:
    """What the card is published with; 0 while it does not tell."""
    return (card.memory_bytes or 0) // MIB


def consumed(result: resource.Result) -> Amount | None:
    """What the allocator has counted for this result; None where it counts nothing. Raises Invalid for odd amounts."""
    told = dict(result.consumed_capacity)
    if not told:
        return None
    cores, memory = (_whole(result, told, name, unit) for name, unit in ((names.CORES, 1), (names.MEMORY, MIB)))
    if cores > CORES:
        raise errors.Invalid(f"{_place(result)}: {cores} cores are consumed, a card has {CORES}")
    return Amount(cores=cores, memory_mib=memory, shares=_whole(result, {names.SHARES: "1"} | told, names.SHARES, 1))


def is_all(amount: Amount, card: inventory.Card) -> bool:
    """Whether nothing is left of the card beside it; a card that does not tell its memory is judged by its cores."""
    return amount.cores >= CORES and amount.memory_mib >= memory_mib(card)


def booked(holdings: Iterable[records.Holding]) -> Amount:
    """The sum; what only watches counts nothing."""
    counted = [holding for holding in holdings if not holding.admin_access]
    return Amount(
        cores=sum(holding.cores for holding in counted),
        memory_mib=sum(holding.memory_mib for holding in counted),
        shares=len(counted),
    )


def by_device(held: Iterable[records.Record]) -> dict[str, Amount]:
    """What all claims together have of each device."""
    holdings: dict[str, list[records.Holding]] = {}
    for record in held:
        for holding in record.holdings:
            holdings.setdefault(holding.device, []).append(holding)
    return {device: booked(items) for device, items in holdings.items()}


def fullness(amount: Amount, card: inventory.Card) -> Fraction:
    """How much of the card is taken, by whichever of its parts is the scarcer: 0 to 1."""
    total = memory_mib(card)
    return max(Fraction(amount.cores, CORES), Fraction(amount.memory_mib, total) if total else Fraction(0))


def refuse_overbooked(
    holding: records.Holding, card: inventory.Card, beside: tuple[Neighbour, ...], most_shares: int
) -> None:
    """Raises Conflict, with those who are there, where `holding` has no room on the card beside them."""
    if holding.admin_access:
        return
    for other in beside:
        if _is_whole(holding) or _is_whole(other.holding):
            raise errors.Conflict(
                f"device {holding.device} is still held by {other.holder}; "
                "it is free when that claim's pods have stopped on this node, and this is tried again"
            )
    if _is_whole(holding):
        return
    total = memory_mib(card)
    if not total:
        raise errors.NotReady(f"device {holding.device} does not tell its memory now; no share of it can be counted")
    taken = booked(other.holding for other in beside)
    wanted = booked((*(other.holding for other in beside), holding))
    if wanted.cores > CORES or wanted.memory_mib > total or wanted.shares > most_shares:
        left = Amount(cores=max(CORES - taken.cores, 0), memory_mib=max(total - taken.memory_mib, 0))
        raise errors.Conflict(
            f"device {holding.device} has no room for request {holding.request}: {booked([holding])} are asked, {left} "
            f"are left, and {taken.shares} of {most_shares} shares are taken by {_listed(beside)}; "
            "there is room when their pods have stopped on this node, and this is tried again"
        )


def refuse_mixed(holding: records.Holding, beside: tuple[Neighbour, ...]) -> None:
    """Raises Conflict where shares by MPS and others would meet: the card lets in the programs of MPS alone."""
    for other in beside:
        if _by_mps(holding) != _by_mps(other.holding) and not (holding.admin_access or _is_whole(other.holding)):
            one, two = ("by MPS", "without MPS") if _by_mps(other.holding) else ("without MPS", "by MPS")
            raise errors.Conflict(
                f"device {holding.device} has shares held {one}, as {other.holder}, and request {holding.request} would be "
                f"held {two}: a card is given in one way at a time. It is tried again, and goes when those pods have stopped "
                "on this node; or let both classes accept the same rungs"
            )


def _by_mps(holding: records.Holding) -> bool:
    return "mps" in (holding.enforcement, holding.cores_enforcement)


def _is_whole(holding: records.Holding) -> bool:
    return holding.backend == "whole"


def _whole(result: resource.Result, told: dict[str, str], name: str, unit: int) -> int:
    """The amount in units; the scheduler rounds a claim's request up to them (8G is 7630Mi)."""
    if name not in told:
        raise errors.Invalid(f"{_place(result)}: its consumedCapacity has no {name}; it was allocated by other rules")
    units = quantity.parse(told[name]) / unit
    if units < 0 or units.denominator != 1:
        what = "whole MiB" if unit == MIB else "whole percent"
        raise errors.Invalid(f"{_place(result)}: {name} {told[name]} is consumed, which is not in {what}")
    return int(units)


def _place(result: resource.Result) -> str:
    return f"request {result.request}, device {result.device}"


def _listed(beside: tuple[Neighbour, ...]) -> str:
    shown = [other.holder for other in beside[:_LISTED]]
    more = f" and {len(beside) - _LISTED} more" if len(beside) > _LISTED else ""
    return (", ".join(shown) or "nobody") + more
