"""How decisions grow: with the shares of a cluster, the cards of a node, and the claims that wait. `python -m hack.measure.growth`

Each at 100, 1,000 and 5,000, all else alike. What grows as it should takes 50 times as long for 50 times as many, or less; what is
quadratic takes 2,500 times as long.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator

from allocation import policies
from hack.measure import crowd, figures
from hack.measure.decisions import JSON, Ours

_SIZES = (100, 1000, 5000)
_AT_MOST = 1.5 * _SIZES[-1] / _SIZES[0]
_NODES = 700
_SLICE = 100
"""Devices in a slice: the API takes 128."""


def measured() -> Iterator[figures.Figure]:
    yield from _grown("a claim decided, {} shares are there", _with_shares)
    yield from _grown("a no explained, {} shares are there", lambda count: _with_shares(count, refused=True))
    yield from _grown("a claim decided, {} cards on one node", _with_cards)
    yield from _grown("a no explained, {} cards on one node", lambda count: _with_cards(count, refused=True))
    yield from _grown("{} claims decided, all together", _with_claims)


def _grown(name: str, took_ms: Callable[[int], float]) -> Iterator[figures.Figure]:
    seen = [took_ms(size) for size in _SIZES]
    for size, value in zip(_SIZES, seen, strict=True):
        yield figures.Figure(name=name.format(size), unit="ms CPU", ours=value)
    least, most = _SIZES[0], _SIZES[-1]
    text = f"{name.format(f'{most} / {least}')}, growth"
    yield figures.Figure(name=text, unit="x", ours=seen[-1] / seen[0], at_most=_AT_MOST)


def _with_shares(count: int, *, refused: bool = False) -> float:
    draw = random.Random(1)
    places = [(node, card) for node in range(_NODES) for card in range(crowd.CARDS)]
    held = [crowd.held(f"held-{number:08}", *place, 1) for number, place in enumerate(draw.sample(places, count))]
    return _each(Ours([crowd.node(n) for n in range(_NODES)], [crowd.slice_(n) for n in range(_NODES)], held), refused)


def _with_cards(count: int, *, refused: bool = False) -> float:
    """One node; all cards but seven have a share, and the refused claim wants nine whole ones."""
    held = [crowd.held(f"held-{number:08}", 0, number, 1) for number in range(7, count)]
    return _each(Ours([crowd.node(0)], _long(count), held), refused)


def _long(count: int) -> list[JSON]:
    """The slices of one node with so many cards."""
    device = crowd.slice_(0)["spec"]["devices"][0]
    found = []
    for start in range(0, count, _SLICE):
        one = crowd.slice_(0)
        one["metadata"]["name"] += f"-{start:05}"
        one["spec"]["pool"]["resourceSliceCount"] = -(-count // _SLICE)
        names = range(start, min(start + _SLICE, count))
        one["spec"]["devices"] = [device | {"name": f"gpu-{number}"} for number in names]
        found.append(one)
    return found


def _with_claims(count: int) -> float:
    """Of ten sizes, on a cluster that has room for all."""
    ours = Ours([crowd.node(n) for n in range(_NODES)], [crowd.slice_(n) for n in range(_NODES)], [])
    asked = [crowd.claim("x", cores=1 + number, memory_gib=1) for number in range(10)]
    began = time.thread_time()
    for number in range(count):
        assert ours.decide(asked[number % len(asked)], policies.Policy.LEAST_FRAGMENTATION, str(number))
    return 1000 * (time.thread_time() - began)


def _each(ours: Ours, refused: bool) -> float:  # noqa: FBT001  one caller each
    """The usual one of some rounds; what is refused is another question each time."""
    fitting, taken = crowd.claim("x", cores=1, memory_gib=1, model="Card Small"), []
    for number in range(8 if refused else 40):
        began = time.thread_time()
        if refused:
            ours.refuse(crowd.claim("x", cores=None, count=9 + number, model="Card Small"))
        else:
            assert ours.decide(fitting, policies.Policy.BIN_PACK, str(number))
        taken.append(1000 * (time.thread_time() - began))
    return statistics.median(taken[1:])  # the first one builds what later ones find


def main() -> None:
    print(figures.table(list(measured())))


if __name__ == "__main__":
    main()
