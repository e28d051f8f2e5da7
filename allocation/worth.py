"""What the free part of a card is worth to parts that are usual here: the cards that it saves them.

    how many ask for which part of a card --> prices of the parts --> worth of each free part, in cards

The prices are those of the cutting-stock problem: of all parts together as few cards as can be, and a part costs what one
more of it would add. A half costs half a card; 0.81 of a card costs a whole one where few ask for what fits beside it. A
free part is worth the most that a set of parts which fits into it costs. Found by the simplex method over fillings of a
card, each found as it is needed. What must stay true: no filling of a card costs more than the card, also when the search
for prices was cut short.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

GRAIN = 1000
"""A card in the units that parts are told apart by; a part is rounded up."""
_MOST = 24
"""Parts that have prices: those that take most in all."""
_TURNS = 200
_ALMOST = 1e-9
_ROUNDING = 1e-6

Row = list[float]


def worths(asked: Mapping[float, float]) -> tuple[float, ...]:
    """Of free parts from 0 to `GRAIN`. `asked`: part of a card, above 0, up to 1 -> how many."""
    number: defaultdict[int, float] = defaultdict(float)
    for part, many in asked.items():
        number[min(max(math.ceil(part * GRAIN - _ROUNDING), 1), GRAIN)] += many
    kept = sorted(number, key=lambda size: (-size * number[size], size))[:_MOST]
    sizes = sorted(size for size in kept if number[size] > 0)
    best = _best(sizes, _prices(sizes, [number[size] for size in sizes]))
    return tuple(worth / max(best[GRAIN], 1.0) for worth in best)


def _prices(sizes: Sequence[int], asked: Sequence[float]) -> Row:
    """Revised simplex. It begins with fillings of one size each; a part may be in more fillings than are asked for."""
    every = range(len(sizes))
    inverse = [[float(i == j) / (GRAIN // sizes[i]) for j in every] for i in every]
    level = [many * inverse[i][i] for i, many in enumerate(asked)]
    costs = [1.0] * len(sizes)
    prices: Row = []
    for _ in range(_TURNS):
        prices = [sum(costs[i] * inverse[i][j] for i in every) for j in every]
        cheapest = min(every, key=prices.__getitem__, default=0)
        if prices and prices[cheapest] < -_ALMOST:
            column, cost = [-float(i == cheapest) for i in every], 0.0
        else:
            best = _best(sizes, prices)
            if best[GRAIN] <= 1.0 + _ALMOST:
                break
            column, cost = _filling(sizes, prices, best), 1.0
        change = [sum(inverse[i][j] * column[j] for j in every) for i in every]
        row = min((i for i in every if change[i] > _ALMOST), key=lambda i: level[i] / change[i], default=-1)
        if row < 0:
            break
        _pivot(inverse, level, change, row)
        costs[row] = cost
    return [max(price, 0.0) for price in prices]


def _pivot(inverse: list[Row], level: Row, change: Sequence[float], row: int) -> None:
    inverse[row] = [value / change[row] for value in inverse[row]]
    level[row] /= change[row]
    for i, by in enumerate(change):
        if i != row and by:
            inverse[i] = [value - by * pivot for value, pivot in zip(inverse[i], inverse[row], strict=True)]
            level[i] = max(level[i] - by * level[row], 0.0)


def _best(sizes: Sequence[int], prices: Sequence[float]) -> Row:
    """The most that a set of parts which fits into 0, 1, ... `GRAIN` costs."""
    best = [0.0] * (GRAIN + 1)
    for size, price in zip(sizes, prices, strict=True):
        if price > _ALMOST:
            for room in range(size, GRAIN + 1):
                if (with_it := best[room - size] + price) > best[room]:
                    best[room] = with_it
    return best


def _filling(sizes: Sequence[int], prices: Sequence[float], best: Sequence[float]) -> Row:
    """How many of each size are in a filling of a card that costs the most."""
    found, room = [0.0] * len(sizes), GRAIN
    while best[room] > _ALMOST:
        for i, (size, price) in enumerate(zip(sizes, prices, strict=True)):
            if price > _ALMOST and size <= room and best[room] - best[room - size] - price <= _ALMOST:
                found[i] += 1
                room -= size
                break
        else:
            break
    return found
