"""Rules that need no search: what a taint stops, what a constraint allows, what counters have left."""

from collections.abc import Sequence

from allocation import amounts, bookings, devices, pools, requests
from api import resource

_STOPPING = frozenset({"NoSchedule", "NoExecute"})


def meets(constraint: requests.Constraint, value: devices.Attribute, held: Sequence[devices.Attribute]) -> bool:
    """Whether a device with this value may join those with the others."""
    if not held:
        return True
    if constraint.distinct:
        return not isinstance(value, devices.Strange) and not any(devices.same(value, other) for other in held)
    return devices.same(value, held[0])


def counters_left(pool: pools.Pool, booked: bookings.Bookings) -> dict[tuple[str, str], amounts.Amount]:
    left = {(set_, name): value for set_, values in pool.counters.items() for name, value in values.items()}
    for device in (*pool.here, *pool.elsewhere):
        if device.counters and booked.of(device.key) != bookings.NOTHING:
            for set_, name, value in device.counters:
                left[set_, name] -= value
    return left


def tolerated(taints: Sequence[resource.Taint], tolerations: Sequence[requests.Toleration]) -> bool:
    """Whether no taint stops a request that tolerates these."""
    return all(taint.effect not in _STOPPING or any(_tolerates(one, taint) for one in tolerations) for taint in taints)


def _tolerates(toleration: requests.Toleration, taint: resource.Taint) -> bool:
    if (toleration.effect and toleration.effect != taint.effect) or (toleration.key and toleration.key != taint.key):
        return False
    return toleration.operator == "Exists" or (toleration.operator == "Equal" and toleration.value == taint.value)
