"""How much of a capacity a request takes, by the rules of kube-scheduler 1.37.

    text --> amount        Capacity + what is asked --> taken --> fits beside what others took, or not

Amounts are whole numbers wherever they can be, else exact fractions: no rounding that upstream does not do. What raises
Invalid here stops the whole claim, on every node: upstream does not try another device either.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from api import errors, quantity

Amount = int | Fraction
JSON = Mapping[str, Any]
_MOST = 2**63 - 1
_NANO = 10**9


@functools.lru_cache(maxsize=4096)
def amount(text: str | int) -> Amount:
    """A quantity's amount; what is finer than a billionth is rounded up, as the API server does."""
    exact = quantity.parse(text)
    return _plain(exact if _NANO % exact.denominator == 0 else Fraction(math.ceil(exact * _NANO), _NANO))


def text(value: Amount) -> str:
    """A quantity's text of an amount that `amount` could have given."""
    if isinstance(value, int):
        return quantity.text(value)
    for suffix, parts in (("m", 1000), ("u", 10**6), ("n", _NANO)):
        if parts % value.denominator == 0:
            return f"{value * parts}{suffix}"
    raise errors.Invalid(f"{value} cannot be written as a quantity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a capacity may be shared out. `fine`: counted in thousandths, since all its numbers can be."""

    default: Amount | None = None
    least: Amount | None = None
    most: Amount | None = None
    step: Amount | None = None
    values: tuple[Amount, ...] = ()
    fine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    value: Amount
    policy: Policy | None = None

    def taken(self, asked: Amount | None) -> Amount:
        """What a request takes that asks so much, or does not say. Raises Invalid for what cannot be counted."""
        policy = self.policy
        if asked is None:
            found = policy.default if policy is not None and policy.default is not None else self.value
        elif policy is None:
            found = asked
        elif policy.least is not None:
            found = _rounded(asked, policy, policy.least)
        else:
            found = next((value for value in policy.values if asked <= value), asked)
        if found < 0:
            raise errors.Invalid(f"a capacity of {found} is below nothing")
        return found

    def permits(self, taken: Amount) -> bool:
        """Whether the policy has such a share."""
        policy = self.policy
        if policy is None or taken == policy.default:
            return True
        if policy.least is not None or policy.most is not None or policy.step is not None:
            return _in_range(taken, policy)
        return not policy.values or taken in policy.values


class Sizes:
    """The capacities that devices of one make have. Compared by identity: equal ones are the same object."""

    __slots__ = ("by_name", "known")

    def __init__(self, by_name: Mapping[str, Capacity]) -> None:
        self.by_name = by_name
        self.known: dict[tuple[tuple[str, Amount], ...], tuple[tuple[str, Amount, Amount], ...] | None] = {}

    def needs(self, asked: tuple[tuple[str, Amount], ...]) -> tuple[tuple[str, Amount, Amount], ...] | None:
        """What a request takes of each capacity, and how much there is of it; None where no such share exists."""
        try:
            return self.known[asked]
        except KeyError:
            if len(self.known) > 256:  # noqa: PLR2004  a bound on what claims of all shapes may leave behind
                self.known.clear()
            found = self.known[asked] = self._needs(dict(asked))
            return found

    def _needs(self, asked: Mapping[str, Amount]) -> tuple[tuple[str, Amount, Amount], ...] | None:
        if not asked.keys() <= self.by_name.keys():
            return None
        takes = {name: one.taken(asked.get(name)) for name, one in self.by_name.items()}
        if not all(one.permits(takes[name]) for name, one in self.by_name.items()):
            return None
        return tuple((name, takes[name], one.value) for name, one in self.by_name.items())


def sizes(data: JSON) -> Sizes:
    """The capacities of a device as a slice lists them."""
    return _sizes(tuple(sorted((name, _capacity(one)) for name, one in data.items())))


@functools.lru_cache(maxsize=4096)
def _sizes(items: tuple[tuple[str, "Capacity"], ...]) -> Sizes:
    return Sizes(dict(items))


def _capacity(data: JSON) -> Capacity:
    policy = data.get("requestPolicy")
    return _made(
        amount(data["value"]),
        policy and _given(policy, "default"),
        policy and _range(policy),
        policy and _values(policy),
    )


@functools.lru_cache(maxsize=4096)
def _made(
    value: Amount,
    default: Amount | None,
    within: tuple[Amount | None, ...] | None,
    values: tuple[Amount, ...] | None,
) -> Capacity:
    if within is None:
        return Capacity(value=value)
    least, most, step = within
    given = [number for number in within if number is not None]
    fine = all(_thousandths(number) is not None for number in given) and (step is None or 1000 * step >= 1)
    policy = Policy(default=default, least=least, most=most, step=step, values=values or (), fine=fine)
    return Capacity(value=value, policy=policy)


def _range(policy: JSON) -> tuple[Amount | None, ...]:
    within = policy.get("validRange") or {}
    return _given(within, "min"), _given(within, "max"), _given(within, "step")


def _values(policy: JSON) -> tuple[Amount, ...]:
    return tuple(map(amount, policy.get("validValues") or ()))


def _given(data: JSON, name: str) -> Amount | None:
    return amount(data[name]) if data.get(name) is not None else None


def _rounded(asked: Amount, policy: Policy, least: Amount) -> Amount:
    if asked < least:
        return least
    if policy.step is None:
        return asked
    unit = Fraction(1, 1000 if policy.fine else 1)
    counted = _thousandths(asked) if policy.fine else math.ceil(asked)
    if counted is None or counted > _MOST:
        raise errors.Invalid(f"an amount of {asked} cannot be counted in the steps of the device's capacity")
    start, step = math.ceil(least / unit), math.ceil(policy.step / unit)
    found = start - (start - counted) // step * step
    if found > _MOST:
        raise errors.Invalid(f"an amount of {asked}, rounded up to the next step, is beyond what can be counted")
    return _plain(found * unit)


def _in_range(taken: Amount, policy: Policy) -> bool:
    if policy.most is not None and taken > policy.most:
        return False
    if policy.step is None:
        return True
    unit = Fraction(1, 1000 if policy.fine else 1)
    counted = _thousandths(taken) if policy.fine else math.ceil(taken)
    start = math.ceil((policy.least or 0) / unit)
    return counted is not None and (counted - start) % math.ceil(policy.step / unit) == 0


def _thousandths(value: Amount) -> int | None:
    """None where the value is no whole number of them, or too many."""
    found = value * 1000
    return int(found) if found.denominator == 1 and -_MOST <= found <= _MOST else None


def _plain(value: Amount) -> Amount:
    return value.numerator if value.denominator == 1 else value


def total(amounts: Iterable[tuple[str, Amount]], onto: Mapping[str, Amount]) -> dict[str, Amount]:
    """`onto` with each amount added."""
    found = dict(onto)
    for name, value in amounts:
        found[name] = found.get(name, 0) + value
    return found
