"""What slices and claims are made of: devices, results, and what a claim asks.

wire --> values; equal ones are one object, for a large cluster has tens of thousands of each
"""

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping

from api import names, quantity
from view import objects, wire

_OWN = f"{names.LOCAL_DRIVER}/"
_one = sys.intern
_NOTHING = wire.Attribute()


def device(found: wire.Device) -> objects.Device:
    its = found.attributes or wire.Attributes()
    return objects.Device(
        name=_one(found.name),
        uuid=(its.uuid or its.own_uuid or _NOTHING).string,
        model=objects.alike((its.product_name or its.own_product_name or _NOTHING).string),
        bus_id=objects.alike((its.bus_id or _NOTHING).string),
        driver_version=objects.alike((its.driver_version or its.own_driver_version or _NOTHING).version),
        capacity=_amounts(tuple([(name, amount.value) for name, amount in (found.capacity or {}).items()])),
        shared=bool(found.allow_multiple_allocations),
        taints=tuple(_taints(found.taints)) if found.taints else (),
    )


def _taints(found: Iterable[wire.Taint]) -> Iterator[objects.Taint]:
    for one in found:
        if one.key != names.ALLOCATED_BY_TAINT:
            yield objects.Taint(key=one.key, value=one.value or "", effect=one.effect, since=one.time_added or "")


def result(found: wire.Result, told: Mapping[tuple[str, str, str], wire.Said]) -> objects.Result:
    said = told.get((found.pool, found.device, found.share_id or ""))
    held = said.data.get("enforcement", "") if said and said.data else ""
    if isinstance(held, dict):
        held = ", ".join(f"{name}: {rung}" for name, rung in sorted(held.items()))
    return objects.Result(
        request=_one(found.request),
        pool=_one(found.pool),
        device=_one(found.device),
        admin=bool(found.admin_access),
        share_id=found.share_id or "",
        consumed=_amounts(tuple((found.consumed_capacity or {}).items())),
        enforcement=objects.alike(str(held)),
        remote=found.driver == names.REMOTE_DRIVER,
        awaited=_awaited(found, said) if found.binding_conditions else "",
    )


def _awaited(result: wire.Result, said: wire.Said | None) -> str:
    """A card with binding conditions is the pod's when they are true."""
    if names.ATTACHED not in (result.binding_conditions or ()):
        return ""
    told = {one.type: one for one in (said and said.conditions) or () if one.status == "True"}
    if failed := told.get(names.ATTACH_FAILED):
        return f"could not be attached: {failed.message or failed.reason or ''}"
    return "" if names.ATTACHED in told else "is being attached"


def node(selector: wire.NodeSelector | None) -> str:
    """The name in a selector of the form that one node has; else nothing."""
    match selector and selector.node_selector_terms:
        case [wire.Term(match_fields=[wire.Requirement(key="metadata.name", operator="In", values=[name])])]:
            return _one(name)
        case _:
            return ""


def classes(spec: wire.ClaimSpec | None) -> Iterable[tuple[str, str]]:
    for one in (spec and spec.devices and spec.devices.requests) or ():
        if one.exactly:
            yield one.name, one.exactly.device_class_name
        for sub in one.first_available or ():
            yield f"{one.name}/{sub.name}", sub.device_class_name


@functools.lru_cache(maxsize=4096)
def _amounts(given: tuple[tuple[str, str | int], ...]) -> tuple[tuple[str, int], ...]:
    """One tuple for all cards and claims that are alike, in the order of its names."""
    found: tuple[tuple[str, int], ...] = objects.alike(
        tuple(sorted((name.removeprefix(_OWN), int(quantity.parse(text))) for name, text in given))
    )
    return found
