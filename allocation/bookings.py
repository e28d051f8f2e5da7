"""What claims hold of devices, kept claim by claim: a booking comes and goes in the time that it is large.

As kube-scheduler counts it: admin access takes nothing; a result without a share takes the device; a share takes the
capacity that is written with it, and one with none written takes nothing but a place among the device's shares.
"""

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from allocation import amounts, devices

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One allocated device of a claim. `share`: a part of it, of this size."""

    key: devices.Key
    share: bool = False
    taken: tuple[tuple[str, amounts.Amount], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """All that is held of a device. `whole`: claims that have it for themselves."""

    whole: int = 0
    shares: int = 0
    taken: tuple[tuple[str, amounts.Amount], ...] = ()

    def of(self, name: str) -> amounts.Amount:
        for known, value in self.taken:
            if known == name:
                return value
        return 0


NOTHING = Booked()
_EMPTY: Mapping[str, Booked] = {}


class Bookings:
    """Changed by `put` and `drop` alone; both tell which devices are held differently now."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[Piece, ...]] = {}
        self._pools: dict[tuple[str, str], dict[str, Booked]] = {}

    def of(self, key: devices.Key) -> Booked:
        return self._pools.get(key[:2], _EMPTY).get(key[2], NOTHING)

    def of_pool(self, pool: tuple[str, str]) -> Mapping[str, Booked]:
        """By device, of those that somebody holds; for who asks of very many."""
        return self._pools.get(pool, _EMPTY)

    def pieces(self, claim: str) -> tuple[Piece, ...]:
        return self._claims.get(claim, ())

    def put(self, claim: str, pieces: tuple[Piece, ...]) -> tuple[devices.Key, ...]:
        """The claim, by its uid, holds these and nothing else."""
        before = self._claims.get(claim, ())
        if before == pieces:
            return ()
        self.drop(claim)
        if pieces:
            self._claims[claim] = pieces
        for piece in pieces:
            self._change(piece, 1)
        return tuple({piece.key for piece in (*before, *pieces)})

    def drop(self, claim: str) -> tuple[devices.Key, ...]:
        pieces = self._claims.pop(claim, ())
        for piece in pieces:
            self._change(piece, -1)
        return tuple({piece.key for piece in pieces})

    def _change(self, piece: Piece, by: int) -> None:
        before = self.of(piece.key)
        taken = amounts.total(((name, by * value) for name, value in piece.taken), dict(before.taken))
        whole, shares = before.whole + by * (not piece.share), before.shares + by * piece.share
        now = _made(whole, shares, tuple(sorted((name, value) for name, value in taken.items() if value)))
        fellows = self._pools.setdefault(piece.key[:2], {})
        if now is not NOTHING:
            fellows[piece.key[2]] = now
            return
        fellows.pop(piece.key[2], None)
        if not fellows:
            del self._pools[piece.key[:2]]


@functools.lru_cache(maxsize=8192)
def _made(whole: int, shares: int, taken: tuple[tuple[str, amounts.Amount], ...]) -> Booked:
    """Thousands of cards are held alike: mostly one object for all of them."""
    return NOTHING if not (whole or shares or taken) else Booked(whole=whole, shares=shares, taken=taken)


def booked(piece: Piece) -> Booked:
    """What the piece alone takes of its device."""
    return Booked(whole=int(not piece.share), shares=int(piece.share), taken=piece.taken)


def pieces(results: Iterable[JSON]) -> tuple[Piece, ...]:
    """The results of an allocation, of all drivers."""
    return tuple(
        Piece(
            key=(sys.intern(one["driver"]), sys.intern(one["pool"]), sys.intern(one["device"])),
            share=bool(one.get("shareID")),
            taken=_taken(one) if one.get("shareID") else (),
        )
        for one in results
        if not one.get("adminAccess")
    )


def _taken(result: JSON) -> tuple[tuple[str, amounts.Amount], ...]:
    consumed = result.get("consumedCapacity") or {}
    return _alike(tuple(sorted((name, amounts.amount(value)) for name, value in consumed.items())))


@functools.lru_cache(maxsize=4096, typed=True)
def _alike(taken: tuple[tuple[str, amounts.Amount], ...]) -> tuple[tuple[str, amounts.Amount], ...]:
    """One for all shares of a size."""
    return taken
