"""What a ledger remembers: the objects of a kind, who names whom, the cards.

All of it is there for each claim, pod and card of a large cluster, so what can be had from the objects is not kept beside them.
"""

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from view import cards, picture

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)
V = TypeVar("V")
_FEW = 16


class Kept(Generic[K, V]):
    """The objects of one kind."""

    def __init__(self, *key: str) -> None:
        self._key: Callable[[V], Any] = attrgetter(*key)
        self._items: Sequence[V] = ()
        self.now: dict[K, V] = {}

    def take(self, items: Sequence[V]) -> dict[K, tuple[V | None, V | None]]:
        """Key -> what it was and what it is, of those that differ.

        Who did not change mostly has the place that it had: pairs are compared without a look at the objects.
        """
        before, self._items = self._items, items
        aside = itertools.compress(items, map(operator.is_not, items, before))
        changed: dict[K, tuple[V | None, V | None]] = {}
        for item in itertools.chain(aside, items[len(before) :]):
            key = self._key(item)
            was = self.now.get(key)
            if was is not item:
                changed[key] = (was, item)
                self.now[key] = item
        if len(self.now) != len(items):
            for key in self.now.keys() - set(map(self._key, items)):
                changed[key] = (self.now.pop(key), None)
        return changed


class _Few(tuple[M, ...]):
    """Several members, and not many."""

    __slots__ = ()


_NOBODY: _Few[Any] = _Few()


class Index(Generic[K, M]):
    """Key -> the members that name it: one for most keys, which stands for itself, and few for most others."""

    def __init__(self) -> None:
        self._members: dict[K, M | _Few[M] | set[M]] = {}

    def put(self, member: M, before: Iterable[K], now: Iterable[K]) -> set[K]:
        """`before`: the keys that it named until now, which are not remembered here. Gives those that it names or named."""
        was, is_ = set(before), set(now)
        for key in was - is_:
            self._leave(key, member)
        for key in is_ - was:
            self._enter(key, member)
        return was | is_

    def of(self, *keys: K) -> set[M]:
        return set().union(*(self._named_by(key) for key in keys if key in self._members))

    def _named_by(self, key: K) -> _Few[M] | set[M]:
        found = self._members.get(key, _NOBODY)
        return found if isinstance(found, (_Few, set)) else _Few((found,))

    def _enter(self, key: K, member: M) -> None:
        others = self._named_by(key)
        if isinstance(others, set):
            others.add(member)
        elif others:
            self._members[key] = _Few((*others, member)) if len(others) < _FEW else {*others, member}
        else:
            self._members[key] = member

    def _leave(self, key: K, member: M) -> None:
        others = self._named_by(key)
        if isinstance(others, set):
            others.discard(member)
        else:
            others = _Few(one for one in others if one != member)
            self._members[key] = others if len(others) > 1 else next(iter(others), member)
        if not others:
            del self._members[key]


class Cards(Mapping[cards.Key, picture.Card]):
    """By pool and name. Pools are small: their tuples are looked through, where a key for each card would be as large as it."""

    def __init__(self) -> None:
        self.of: dict[str, tuple[picture.Card, ...]] = {}

    def __getitem__(self, key: cards.Key) -> picture.Card:
        for card in reversed(self.of.get(key[0], ())):  # a pool may name a device twice by mistake
            if card.name == key[1]:
                return card
        raise KeyError(key)

    def __iter__(self) -> Iterator[cards.Key]:
        return iter({(card.pool, card.name) for found in self.of.values() for card in found})

    def __len__(self) -> int:
        return len(set(self))
