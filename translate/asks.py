"""The old resource names: what a container's amounts of them mean.

    resources of a container --> read --> Ask (cards or shares, in whole percent and MiB), or Invalid with what to write

One function a system, each with that system's units and defaults. Whatever has no equal here is refused: a container that
silently got something else than before would be worse than one that did not start.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from api import errors, quantity

NVIDIA = "nvidia.com/gpu"
NVIDIA_MEMORY = "nvidia.com/gpumem"
NVIDIA_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"
NVIDIA_CORES = "nvidia.com/gpucores"
NVIDIA_PRIORITY = "nvidia.com/priority"
QGPU_CORES = "tke.cloud.tencent.com/qgpu-core"
QGPU_MEMORY = "tke.cloud.tencent.com/qgpu-memory"
QGPU_GREEDY = "tke.cloud.tencent.com/qgpu-core-greedy"
VCUDA_CORES = "tencent.com/vcuda-core"
VCUDA_MEMORY = "tencent.com/vcuda-memory"
GPUSHARE_MEMORY = "aliyun.com/gpu-mem"
ELASTIC_CORES = "elasticgpu.io/gpu-core"
ELASTIC_MEMORY = "elasticgpu.io/gpu-memory"

_GIB_MIB = 1024
_VCUDA_MIB = 256
_CARD = 100
_MOST_MIB = 4 * 2**20
"""4 TiB: more than any card has, so a unit was mistaken."""
_MOST_CARDS = 32
"""A claim cannot have more devices."""
_WIDEST_SPLIT = 200
"""qGPU splits a part of more than one card over two cards at most."""

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What an admin says about the old system. `card_memory_mib`: what a card has, for amounts in parts of a card; 0: unknown.

    gpushare_mib: MiB in one aliyun.com/gpu-mem.
    """

    card_memory_mib: int = 0
    gpushare_mib: int = _GIB_MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`count` whole cards, or shares of so many cards: `cores` in percent and `memory_mib` of each, None for all of it.

    `reading`: the amounts as they were understood, for people.
    """

    count: int = 1
    cores: int | None = None
    memory_mib: int | None = None
    reading: str = ""

    @property
    def whole(self) -> bool:
        return self.cores is None and self.memory_mib is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    title: str
    names: tuple[str, ...]
    meaning: Callable[[Amounts, Units], Ask]


def read(resources: Mapping[str, Any], units: Units, where: str) -> Ask | None:
    """What a container's resources ask by old names; None for nothing, or zeros. Raises Invalid, opening with `where`."""
    given = _given(resources, where)
    systems = [system for system in _SYSTEMS if any(name in given for name in system.names)]
    if len(systems) > 1:
        titles = " and ".join(system.title for system in systems)
        raise errors.Invalid(f"{where}: it asks for cards in the words of {titles}; keep those of one of them")
    if not systems or not any(given.values()):
        return None
    try:
        ask = systems[0].meaning(given, units)
        _bounded(ask)
    except errors.Invalid as error:
        raise errors.Invalid(f"{where}: {error}") from error
    texts = ", ".join(f"{name}: {_merged(resources)[name]}" for name in given)
    return Ask(count=ask.count, cores=ask.cores, memory_mib=ask.memory_mib, reading=texts)


def without(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources with no old name left in them."""
    rest: dict[str, Any] = dict(resources)
    for key in ("limits", "requests"):
        amounts = rest.get(key) or {}
        kept = {name: amount for name, amount in amounts.items() if name not in NAMES}
        if len(kept) < len(amounts):
            rest[key] = kept
            if not kept:
                del rest[key]
    return rest


def _merged(resources: Mapping[str, Any]) -> dict[str, Any]:
    found = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: found[name] for name in NAMES if name in found}


def _given(resources: Mapping[str, Any], where: str) -> dict[str, int]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    given = {}
    for name, text in _merged(resources).items():
        amount = _amount(name, text, where)
        if name in limits and name in requests and _amount(name, requests[name], where) != amount:
            raise errors.Invalid(
                f"{where}: {name} is {limits[name]} in limits and {requests[name]} in requests; they must be the same"
            )
        given[name] = amount
    return given


def _amount(name: str, text: Any, where: str) -> int:
    try:
        amount = quantity.parse(text)
    except errors.Invalid as error:
        raise errors.Invalid(f"{where}: {name}: {error}") from error
    if amount < 0 or amount.denominator != 1:
        raise errors.Invalid(f"{where}: {name} is {text}; it must be a whole number, 0 or more")
    return int(amount)


def _bounded(ask: Ask) -> None:
    if ask.count > _MOST_CARDS:
        raise errors.Invalid(f"it asks for {ask.count} cards; a container can have {_MOST_CARDS}")
    if ask.cores is not None and ask.cores > _CARD:
        raise errors.Invalid(f"it asks for {ask.cores} % of a card; the most is 100")
    if ask.memory_mib is not None and ask.memory_mib > _MOST_MIB:
        raise errors.Invalid(
            f"it asks for {ask.memory_mib} MiB of a card, which no card has; the old name counts in a unit of its own, "
            "so write a number without Mi or Gi"
        )


def _nvidia(given: Amounts, units: Units) -> Ask:
    """NVIDIA's device plugin, and HAMi's: cores that are not named are not limited, memory is all of the card's."""
    if NVIDIA_PRIORITY in given:
        raise errors.Invalid(f"{NVIDIA_PRIORITY} has no equal here: shares are held, not ranked; leave it out")
    count = given.get(NVIDIA, 1)
    if not count:
        raise errors.Invalid(f"{NVIDIA} is 0, yet a part of a card is asked for; make it 1 or leave the rest out")
    cores, memory, percent = (given.get(name, 0) for name in (NVIDIA_CORES, NVIDIA_MEMORY, NVIDIA_MEMORY_PERCENT))
    if memory and percent:
        raise errors.Invalid(f"{NVIDIA_MEMORY} and {NVIDIA_MEMORY_PERCENT} both say how much memory; keep one")
    if percent > _CARD:
        raise errors.Invalid(f"{NVIDIA_MEMORY_PERCENT} is {percent}; the most is 100")
    if percent and percent < _CARD:
        memory = _part_of_a_card(percent, units, f"{NVIDIA_MEMORY_PERCENT} is {percent}", f"{NVIDIA_MEMORY} in MiB")
    if not memory and cores in (0, _CARD):
        return Ask(count=count)
    return Ask(count=count, cores=cores, memory_mib=memory or None)


def _qgpu(given: Amounts, _: Units) -> Ask:
    """qGPU: percent and GiB. Whole cards by hundreds, their memory with them; a part of two cards is halved."""
    if QGPU_GREEDY in given:
        raise errors.Invalid(f"{QGPU_GREEDY} has no equal here: nothing is pre-empted; ask by {QGPU_CORES}")
    cores, memory = given.get(QGPU_CORES, 0), given.get(QGPU_MEMORY, 0) * _GIB_MIB
    if cores and cores % _CARD == 0:
        return Ask(count=cores // _CARD)
    if not memory:
        raise errors.Invalid(f"{QGPU_CORES} is {cores}, a part of a card, without memory; add {QGPU_MEMORY} in GiB")
    if cores > _WIDEST_SPLIT:
        raise errors.Invalid(f"{QGPU_CORES} is {cores}, neither whole cards nor a part of two; use a multiple of 100")
    count = 2 if cores > _CARD else 1
    return Ask(count=count, cores=cores // count, memory_mib=memory // count)


def _vcuda(given: Amounts, _: Units) -> Ask:
    """vCUDA: percent, and memory in pieces of 256 MiB. A part of a card has both."""
    cores, memory = given.get(VCUDA_CORES, 0), given.get(VCUDA_MEMORY, 0) * _VCUDA_MIB
    if cores and cores % _CARD == 0:
        return Ask(count=cores // _CARD)
    if cores > _CARD:
        raise errors.Invalid(
            f"{VCUDA_CORES} is {cores}, neither a part of a card nor whole cards; use a multiple of 100"
        )
    if not (cores and memory):
        raise errors.Invalid(f"a part of a card has both {VCUDA_CORES} in percent and {VCUDA_MEMORY} in 256 MiB")
    return Ask(cores=cores, memory_mib=memory)


def _gpushare(given: Amounts, units: Units) -> Ask:
    """gpushare: memory of one card in GiB; its cores were never divided."""
    return Ask(cores=0, memory_mib=given[GPUSHARE_MEMORY] * units.gpushare_mib)


def _elastic(given: Amounts, units: Units) -> Ask:
    """The first Elastic GPU: percent and MiB. Where memory is not named it was not counted: here it follows the cores."""
    cores, memory = given.get(ELASTIC_CORES, 0), given.get(ELASTIC_MEMORY, 0)
    if cores and cores % _CARD == 0:
        return Ask(count=cores // _CARD)
    if cores > _CARD:
        raise errors.Invalid(
            f"{ELASTIC_CORES} is {cores}, neither a part of a card nor whole cards; use a multiple of 100"
        )
    if not memory:
        memory = _part_of_a_card(cores, units, f"{ELASTIC_CORES} is {cores}", f"{ELASTIC_MEMORY} in MiB beside it")
    return Ask(cores=cores, memory_mib=memory)


def _part_of_a_card(percent: int, units: Units, what: str, instead: str) -> int:
    if not units.card_memory_mib:
        raise errors.Invalid(
            f"{what}, a part of a card's memory, and it is not set what memory a card has; write {instead}, "
            "or have an admin set the card's memory for translation"
        )
    return max(1, int(Fraction(percent, _CARD) * units.card_memory_mib))


_SYSTEMS = (
    _System(
        title="nvidia.com",
        names=(NVIDIA, NVIDIA_MEMORY, NVIDIA_MEMORY_PERCENT, NVIDIA_CORES, NVIDIA_PRIORITY),
        meaning=_nvidia,
    ),
    _System(title="qGPU", names=(QGPU_CORES, QGPU_MEMORY, QGPU_GREEDY), meaning=_qgpu),
    _System(title="vCUDA", names=(VCUDA_CORES, VCUDA_MEMORY), meaning=_vcuda),
    _System(title="gpushare", names=(GPUSHARE_MEMORY,), meaning=_gpushare),
    _System(title="elasticgpu.io", names=(ELASTIC_CORES, ELASTIC_MEMORY), meaning=_elastic),
)
NAMES = tuple(name for system in _SYSTEMS for name in system.names)
"""Every old name that is read. The webhook's conditions list the same ones."""
