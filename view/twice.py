"""Cards that are listed more than once, and which listing counts.

    a remote card of several pools (two RemotePools may be one agent) --> one listing counts in sums, the others are spare
    a card of two places, such as one that was moved                  --> one listing stands for it where its name is the key

What must stay true: of a remote card that listing counts where it is held, else where a claim may get it, else the first by
the pool's name. It hangs on the listings alone, so that everybody counts the same one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from view import picture

_RANKS = {
    state: rank
    for rank, state in enumerate(
        (picture.State.HELD, picture.State.PARTLY, picture.State.FREE, picture.State.UNKNOWN, picture.State.BLOCKED)
    )
}


def once(cards: Sequence[picture.Card]) -> tuple[picture.Card, ...]:
    """Without those that are spare."""
    best = _best(cards)
    return tuple(card for at, card in enumerate(cards) if not card.remote or best[card.name] == at)


def spare(cards: Sequence[picture.Card]) -> tuple[picture.Card, ...]:
    """Of remote cards the listings that do not count."""
    best = _best(cards)
    return tuple(card for at, card in enumerate(cards) if card.remote and best[card.name] != at)


def sharing(of: Mapping[str, Sequence[picture.Card]]) -> frozenset[str]:
    """The pools with a remote card that is listed once more, there or elsewhere."""
    listed = Counter(card.name for cards in of.values() for card in cards if card.remote)
    return frozenset(pool for pool, cards in of.items() if any(card.remote and listed[card.name] > 1 for card in cards))


def pairs(of: Mapping[str, Sequence[picture.Card]]) -> Mapping[tuple[str, str], int]:
    """(pool, the first other one) -> how many of its remote cards that one has too."""
    first: dict[str, str] = {}
    found: defaultdict[tuple[str, str], int] = defaultdict(int)
    for name in sorted(of):
        for card in {card.name for card in of[name] if card.remote}:
            if (other := first.setdefault(card, name)) != name:
                found[name, other] += 1
    return found


def by_name(found: Iterable[picture.Card]) -> dict[str, picture.Card]:
    """A card that was moved may be listed by two nodes for a while: the one where it is held, else the later, stands for it."""
    kept: dict[str, picture.Card] = {}
    for card in found:
        other = kept.get(card.name)
        if other is None or _goes_before(card, other):
            kept[card.name] = card
    return kept


def _goes_before(card: picture.Card, other: picture.Card) -> bool:
    if card.remote and other.remote:
        return _order(card) < _order(other)
    return bool(card.holders) or not other.holders


def _best(cards: Sequence[picture.Card]) -> Mapping[str, int]:
    """Remote card -> at which place the listing is that counts."""
    best: dict[str, int] = {}
    for at, card in enumerate(cards):
        if card.remote and (card.name not in best or _order(card) < _order(cards[best[card.name]])):
            best[card.name] = at
    return best


def _order(card: picture.Card) -> tuple[int, str]:
    return _RANKS[card.state], card.pool
