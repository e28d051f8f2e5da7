"""What can be wrong with remote cards: raw slices and the picture in, findings out. Nothing where there are none.

remote pools: do they answer, are their agents as new as the controller
leases:       is one kept that nobody needs, or not given back
slices:       did the server drop what attaching before binding needs
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from api import names, reasons
from cli import checks, tables
from view import join

JSON = Mapping[str, Any]
_OF_POOLS = (
    reasons.Problem.UNREACHABLE,
    reasons.Problem.POOL_GONE,
    reasons.Problem.DRAINING,
    reasons.Problem.CARDS_LOST,
    reasons.Problem.TWICE,
)
_OF_LEASES = (reasons.Problem.LEASE_LOST, reasons.Problem.UNCLAIMED, reasons.Problem.RELEASING)
_SOON_S = 60
"""Giving a card back takes seconds; until then it is nothing wrong."""
_NUMBERS = re.compile(r"\d+")


def look(
    view: join.View, slices: Sequence[JSON], controllers: Iterable[str], now: datetime.datetime
) -> Iterator[checks.Finding]:
    """`controllers`: their versions."""
    if not view.remote_pools:
        return
    yield from checks.of_problems("pools", view, _OF_POOLS, "every remote pool answers", ("remote_pools",))
    young = {one for one in view.problems if one.kind == reasons.Problem.RELEASING and _young(one.since, now)}
    text = "no lease is kept for a claim that is gone, and none is long in being given back"
    yield from checks.of_problems("leases", view, _OF_LEASES, text, ("leases", "claims"), passing=young)
    yield from fields(slices)
    yield from agents(view, max(controllers, key=_order, default=""))


def fields(slices: Sequence[JSON]) -> Iterator[checks.Finding]:
    """The controller writes the conditions of every remote device: where there are none, the server dropped them."""
    of = [item for item in slices if item["spec"]["driver"] == names.REMOTE_DRIVER]
    devices = [device for item in of for device in item["spec"].get("devices") or ()]
    if any(not device.get("bindingConditions") for device in devices):
        text = "the API server drops binding conditions: remote cards are attached when their pod starts, not before it is bound"
        remedy = "Kubernetes 1.36, or the feature gates DRADeviceBindingConditions and DRAResourceClaimDeviceStatus"
        yield checks.wrong("fields", text, remedy)
    elif devices:
        yield checks.ok("fields", "the API server stores what attaching before binding needs")


def agents(view: join.View, controller: str) -> Iterator[checks.Finding]:
    """Both ways are understood; what the older one does not know yet is not there."""
    told = [pool for pool in view.remote_pools if _order(pool.version) > (0,)]
    if _order(controller) <= (0,) or not told:
        return
    other = [pool for pool in told if _order(pool.version) != _order(controller)]
    for pool in other:
        older = _order(pool.version) < _order(controller)
        text = f"the agent of pool {pool.name} is {pool.version}, {'older' if older else 'newer'} than the controller ({controller})"
        yield checks.wrong(
            "versions", text, "upgrade egpu-pool on its hosts" if older else "helm upgrade: the chart is older"
        )
    if not other:
        yield checks.ok(
            "versions", f"the agents of {tables.listed([pool.name for pool in told], 3)} are as new as the controller"
        )


def _order(version: str) -> tuple[int, ...]:
    """A run from the tree calls itself 0."""
    return tuple(int(number) for number in _NUMBERS.findall(version)[:3])


def _young(since: str, now: datetime.datetime) -> bool:
    try:
        return (now - datetime.datetime.fromisoformat(since)).total_seconds() < _SOON_S
    except ValueError:
        return False
