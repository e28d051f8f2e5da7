"""Which card of a node, and which node, is better: the policies that kube-scheduler does not have.

BinPack fills cards and nodes that are in use. Spread takes the emptiest. LeastFragmentation takes what spoils least of
what is free for the requests that are usual here (`fragmentation`), and of equals the fullest.

A card's use is that of its most used capacity: one whose memory is gone is full.
"""

import enum
from collections.abc import Callable, Sequence

from allocation import bookings, devices, requests, search

_COUNTED = ("cores", "memory")
"""Capacities that say how full a card is; where it has none of them, all do."""


class Policy(enum.StrEnum):
    BIN_PACK = "BinPack"
    SPREAD = "Spread"
    LEAST_FRAGMENTATION = "LeastFragmentation"


def use(device: devices.Device, booked: bookings.Booked) -> float:
    """0 for an empty card, 1 for a full one."""
    if booked.whole:
        return 1.0
    if not booked.shares:
        return 0.0
    by_name = device.look.sizes.by_name
    counted = [name for name in _COUNTED if name in by_name] or list(by_name)
    return max(
        (float(booked.of(name)) / float(by_name[name].value) for name in counted if by_name[name].value), default=1.0
    )


def part(pick: search.Pick) -> float:
    """How much of its card a pick takes, from 0 to 1."""
    if not pick.share:
        return 1.0
    return use(pick.device, bookings.Booked(shares=1, taken=pick.taken))


def asked(device: devices.Device, option: requests.Option) -> float:
    """How much of the card the option would take."""
    if not device.look.shareable:
        return 1.0
    needs = device.look.sizes.needs(option.asked) or ()
    return use(device, bookings.Booked(shares=1, taken=tuple((name, need) for name, need, _ in needs)))


def order(policy: Policy, booked: bookings.Bookings) -> search.Order:
    """The order in which a node's cards are tried."""
    fullest = policy is not Policy.SPREAD

    def ordered(_: requests.Option, listed: Sequence[devices.Device]) -> Sequence[devices.Device]:
        return sorted(listed, key=lambda device: use(device, booked.of(device.key)), reverse=fullest)

    return ordered


def free(listed: Sequence[devices.Device], of: Callable[[devices.Key], bookings.Booked]) -> float:
    """Cards' worth that is left."""
    return sum(1.0 - use(device, of(device.key)) for device in listed)
