"""Cards of a slice that are given to the controller, and what DeviceTaintRules add to them.

ResourceSlice's JSON --slice_--> Slice: its devices that are ours to give, without the taint that is for kube-scheduler
"""

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocation import devices
from api import names, resource
from view import objects

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """A slice with the devices that are given to the controller, and since when. None: it has none."""

    given: devices.Slice | None
    since: datetime.datetime | None = None


def slice_(data: JSON) -> Slice:
    """With the taint that is for kube-scheduler taken off; a card without it is not ours to give."""
    spec = data["spec"]
    kept, since = [], []
    for device in spec.get("devices") or ():
        taints = device.get("taints") or ()
        ours = [one for one in taints if one["key"] == names.ALLOCATED_BY_TAINT]
        attributes = device.get("attributes") or {}
        said = attributes.get(names.ALLOCATED_BY) or attributes.get(f"{names.LOCAL_DRIVER}/{names.ALLOCATED_BY}") or {}
        if ours and ours[0]["effect"] == "NoSchedule" and said.get("string") == names.BY_CONTROLLER:
            kept.append({**device, "taints": [one for one in taints if one["key"] != names.ALLOCATED_BY_TAINT]})
            since.append(ours[0].get("timeAdded") or "")
    if not kept:
        return Slice(given=None)
    given = devices.slice_({**data, "spec": {**spec, "devices": kept}})
    times = [datetime.datetime.fromisoformat(text) for text in since if text]
    return Slice(given=given, since=max(times) if len(times) == len(since) else None)


def ruled(given: devices.Slice, rules: tuple[objects.TaintRule, ...]) -> devices.Slice:
    """The slice with what DeviceTaintRules add, as kube-scheduler sees it."""
    rules = tuple(rule for rule in rules if rule.pool in ("", given.pool))
    if not rules:
        return given
    return dataclasses.replace(given, devices=tuple(_tainted(device, rules) for device in given.devices))


def _tainted(device: devices.Device, rules: tuple[objects.TaintRule, ...]) -> devices.Device:
    more = tuple(
        resource.Taint(key=rule.taint.key, value=rule.taint.value, effect=rule.taint.effect)
        for rule in rules
        if rule.device in ("", device.key[2])
    )
    if not more:
        return device
    return dataclasses.replace(device, look=dataclasses.replace(device.look, taints=(*device.look.taints, *more)))
