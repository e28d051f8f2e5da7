"""Sums that are kept up to date: a card is taken out as it was and put in as it is.

They give what `totals` gives of all cards at once.
"""

import enum
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from api import names
from view import objects, picture

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


class Kind(enum.IntEnum):
    """By what holders are summed up."""

    NAMESPACE = 0
    CLASS = 1
    TYPE = 2


Key = tuple[Kind, str]
Hits = tuple[tuple[Key, int], ...]


class Holdings:
    """What holders have: by namespace, class and workload type."""

    def __init__(self, types: Callable[[picture.Holder], tuple[str, ...]]) -> None:
        self._types = types
        self._typed: dict[str, tuple[tuple[str, ...], ...]] = {}
        """By pool, the types of its holders as they were put in: by now they may be others."""
        self._near: Counter[Key] = Counter()
        self._memory: Counter[Key] = Counter()
        self._far = _Distinct()
        """Remote cards: two pools may list the same one."""
        self._claims, self._pods = _Distinct(), _Distinct()

    def change(self, pool: str, before: Iterable[picture.Card], now: Iterable[picture.Card]) -> None:
        """The cards of a pool, all of them, as they were put in last and as they are."""
        self._put(before, self._typed.pop(pool, ()), -1)
        typed = tuple(self._types(holder) for card in now for holder in card.holders)
        if typed:
            self._typed[pool] = objects.alike(typed)  # most nodes are used alike
        self._put(now, typed, 1)

    def _put(self, cards: Iterable[picture.Card], typed: Iterable[tuple[str, ...]], sign: int) -> None:
        types = iter(typed)
        near: set[tuple[Key, str]] = set()
        touched: set[Key] = set()
        for card in cards:
            for holder in card.holders:
                keys = [(Kind.NAMESPACE, holder.namespace), (Kind.CLASS, holder.class_name)]
                keys += [(Kind.TYPE, name) for name in next(types)]
                touched.update(keys)
                for key in keys:
                    if card.remote:
                        self._far.count(card.name, key, sign)
                    else:
                        near.add((key, card.name))  # a pool may name a device twice by mistake
                    self._claims.count(holder.uid, key, sign)
                    for pod in holder.pods:
                        self._pods.count(pod.uid, key, sign)
                    self._memory[key] += sign * holder.amounts.get(names.MEMORY, 0)
        for key, _ in near:
            self._near[key] += sign
        for key in touched:
            if not self._claims.number[key]:
                for counted in (self._near, self._far.number, self._memory, self._claims.number, self._pods.number):
                    counted.pop(key, None)

    def booked(self, kind: Kind) -> tuple[picture.Booked, ...]:
        return tuple(
            picture.Booked(
                name=key[1],
                cards=self._near[key] + self._far.number[key],
                claims=self._claims.number[key],
                pods=self._pods.number[key],
                memory=self._memory[key],
            )
            for key in sorted((one for one in self._claims.number if one[0] is kind), key=lambda one: one[1])
        )


class _Distinct:
    """How many different ones there are by key, where each may be met several times."""

    def __init__(self) -> None:
        self.number: Counter[Key] = Counter()
        self._hits: dict[str, Hits] = {}
        """Most have the same: one value for all of those."""

    def count(self, uid: str, key: Key, sign: int) -> None:
        before = self._hits.get(uid, ())
        now = _moved(before, key, sign)
        if now:
            self._hits[uid] = now
        else:
            del self._hits[uid]
        self.number[key] += len(now) - len(before)


@functools.lru_cache(maxsize=4096)
def _moved(hits: Hits, key: Key, sign: int) -> Hits:
    found = dict(hits)
    found[key] = found.get(key, 0) + sign
    return tuple((one, number) for one, number in found.items() if number)


def _tally(found: Counter[str]) -> picture.Tally:
    free = None if found["unknown_free"] else found["memory_free"]
    counts = {name: found[name] for name in ("total", "memory", *_STATES.values())}
    return picture.Tally(memory_free=free, **counts)
