"""Sums that are kept up to date: a card is taken out as it was and put in as it is.

They give what `totals` gives of all cards at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from api import names
from view import picture

T = TypeVar("T")

_STATES = {state: state.value.lower() for state in picture.State}
_OPEN = (picture.State.FREE, picture.State.PARTLY)


class Tallies:
    """Cards by model and state, the remote ones apart."""

    def __init__(self) -> None:
        self._models: defaultdict[tuple[str, bool], Counter[str]] = defaultdict(Counter)

    def put(self, cards: Iterable[picture.Card], sign: int) -> None:
        for card in cards:
            key = (card.model or "", card.remote)
            model = self._models[key]
            model["total"] += sign
            model[_STATES[card.state]] += sign
            model["memory"] += sign * card.capacity.get(names.MEMORY, 0)
            if card.free is None:
                model["unknown_free"] += sign
            elif card.state in _OPEN:
                model["memory_free"] += sign * card.free.get(names.MEMORY, 0)
            if not model["total"]:
                del self._models[key]

    def models(self) -> tuple[picture.Model, ...]:
        return tuple(
            picture.Model(name=name, tally=_tally(found), remote=remote)
            for (name, remote), found in sorted(self._models.items(), key=lambda item: item[0])
        )

    def total(self) -> picture.Tally:
        summed: Counter[str] = Counter()
        for found in self._models.values():
            summed.update(found)
        return _tally(summed)


class Book:
    """What holders have, by names that each has."""

    def __init__(self, keys: Callable[[picture.Holder], Iterable[str]], *, lasting: bool) -> None:
        """`lasting`: the keys of a holder never change. Else they are remembered, at a price for each holder."""
        self._keys = keys
        self._lasting = lasting
        self._given: dict[tuple[str, str], tuple[tuple[str, picture.Holder], ...]] = {}
        """What was put in for a card: a holder's key may be another one by now."""
        self._cards: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._claims: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._pods: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._memory: Counter[str] = Counter()

    def put(self, cards: Iterable[picture.Card], sign: int) -> None:
        """Out with all cards of a pool that were put in, before its cards are put in again."""
        for card in cards:
            place = (card.pool, card.name)
            if sign < 0 and not self._lasting:
                given = self._given.pop(place, ())
            else:
                given = tuple((key, holder) for holder in card.holders for key in self._keys(holder))
            if sign > 0 and given and not self._lasting:
                self._given[place] = self._given.get(place, ()) + given
            for key, holder in given:
                self._count(key, place, holder, sign)

    def _count(self, key: str, place: tuple[str, str], holder: picture.Holder, sign: int) -> None:
        _count(self._cards[key], place, sign)
        _count(self._claims[key], holder.uid, sign)
        for pod in holder.pods:
            _count(self._pods[key], pod.uid, sign)
        self._memory[key] += sign * holder.amounts.get(names.MEMORY, 0)
        if not self._cards[key]:
            for kept in (self._cards, self._claims, self._pods, self._memory):
                kept.pop(key, None)

    def booked(self) -> tuple[picture.Booked, ...]:
        return tuple(
            picture.Booked(
                name=key,
                cards=len(self._cards[key]),
                claims=len(self._claims[key]),
                pods=len(self._pods.get(key, ())),
                memory=self._memory[key],
            )
            for key in sorted(self._cards)
        )


def _count(counted: Counter[T], key: T, sign: int) -> None:
    counted[key] += sign
    if not counted[key]:
        del counted[key]


def _tally(found: Counter[str]) -> picture.Tally:
    free = None if found["unknown_free"] else found["memory_free"]
    counts = {name: found[name] for name in ("total", "memory", *_STATES.values())}
    return picture.Tally(memory_free=free, **counts)
