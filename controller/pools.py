"""A pool's cards, and what is known about their leases -> the devices that are offered, each with its taints.

    devices as the pool lists them + intents + freshness -> resource.Pool -> publisher -> slices

What must stay true: a device that a claim holds is never taken out, only tainted; a pool that does not answer keeps its
devices, tainted; a server that stores no taints gets no device that would need one, but those that are held anyway.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from api import names, quantity, resource, v1alpha1
from api import remote as kinds
from api.reasons import Remote
from controller import remote

_DOMAIN = f"{names.LOCAL_DRIVER}/"
_VERSIONS = {names.COMPUTE_CAPABILITY, names.DRIVER_VERSION, names.CUDA_DRIVER_VERSION}
_ALIKE: tuple[tuple[str, resource.Attribute], ...] = (
    (f"{_DOMAIN}{names.TYPE}", "gpu"),
    (f"{_DOMAIN}{names.BACKEND}", "remote"),
)
_NAMES = {
    name: f"{_DOMAIN}{name}" for name in (*_VERSIONS, names.UUID, names.PRODUCT_NAME, names.BRAND, names.ARCHITECTURE)
}
_MEMORY = f"{_DOMAIN}{names.MEMORY}"
_CONDITIONS, _FAILURES = (names.ATTACHED,), (names.ATTACH_FAILED,)
_STATE_TAINTS = {
    "DRAINING": resource.Taint(key=names.DRAINING_TAINT, effect="NoSchedule"),
    "UNWELL": resource.Taint(key=names.REMOTE_LOST_TAINT, effect="NoSchedule"),
    "REMOVED": resource.Taint(key=names.REMOTE_LOST_TAINT, effect="NoSchedule"),
}
_PHASE_TAINTS = {
    kinds.Phase.LOST: resource.Taint(key=names.REMOTE_LOST_TAINT, effect="NoExecute"),
    kinds.Phase.RELEASING: resource.Taint(key=names.RELEASING_TAINT, effect="NoSchedule"),
    kinds.Phase.FAILED: resource.Taint(key=names.BACK_OFF_TAINT, effect="NoSchedule"),
}
_UNREACHABLE = resource.Taint(key=names.UNREACHABLE_TAINT, effect="NoSchedule")
_NUMBERS = re.compile(r"\d+")


def wanted(
    pool: remote.Pool,
    labels: tuple[tuple[str, str], ...],
    devices: Iterable[resource.Device],
    states: Mapping[str, str] | None,
    intents: Iterable[remote.Intent],
    held: Collection[str],
    *,
    fresh: bool,
    taints_stored: bool,
) -> resource.Pool:
    """The pool as it shall be published. `states` by device as the pool has them (None: not listed yet), `held`: devices that claims hold."""
    own = tuple((label.key, label.value) for label in (pool.spec.nodes if pool.spec else ()))
    taints: dict[str, set[resource.Taint]] = {}
    for intent in intents:
        if taint := _PHASE_TAINTS.get(intent.status.phase):
            taints.setdefault(intent.spec.device, set()).add(taint)
    offered = []
    for device in devices:
        state = "OFFERED" if states is None else states.get(device.name, "REMOVED")
        if state == "REMOVED" and device.name not in held and not taints.get(device.name):
            continue
        found = set(taints.get(device.name, ()))
        found |= {_STATE_TAINTS[state]} if state in _STATE_TAINTS else set()
        found |= set() if fresh else {_UNREACHABLE}
        if found and not taints_stored:
            if device.name not in held:
                continue
            found = set()
        told = tuple(sorted(found, key=lambda taint: (taint.key, taint.effect)))
        offered.append(
            device if device.taints == told else replace(device, taints=told)
        )  # thousands, and mostly without
    owner = resource.Owner(api_version=names.API_VERSION, kind=kinds.POOL_KIND, name=pool.name, uid=pool.uid)
    labels = tuple(sorted({*labels, *own}))
    return resource.Pool(name=pool.name, devices=tuple(offered), labels=labels, owner=owner)


def report(
    pool: remote.Pool, *, devices: int, leases: int, pool_id: str, trouble: str, at: str, version: str = ""
) -> kinds.PoolStatus:
    """The status of a RemotePool."""
    reach = ("False", Remote.NO_ANSWER.value, trouble) if trouble else ("True", Remote.ANSWERS.value, "")
    if pool.problem:
        reach = ("Unknown", Remote.INVALID.value, pool.problem)
    before = {condition.type: condition for condition in pool.status.conditions}
    old = before.get(names.REACHABLE)
    condition = v1alpha1.Condition(
        type=names.REACHABLE,
        status=reach[0],
        reason=reach[1],
        message=reach[2][:1024],
        last_transition_time=old.last_transition_time if old and old.status == reach[0] else at,
        observed_generation=pool.generation,
    )
    return kinds.PoolStatus(
        devices=devices, leases=leases, pool_id=pool_id, version=version[:128], conditions=(condition,)
    )


def device(found: remote.Device) -> resource.Device:
    """A card as the pool lists it, under the attributes that local cards have too."""
    attributes = [*_ALIKE]
    for name, text in found.attributes:
        if pair := (_NAMES[name], text) if name == names.UUID else _attribute(name, text):
            attributes.append(pair)
    return resource.Device(
        name=found.name,
        attributes=tuple(attributes),
        capacity=((_MEMORY, found.memory),) if found.memory else (),
        conditions=_CONDITIONS,
        failures=_FAILURES,
    )


def published(data: remote.JSON) -> resource.Device:
    """A device as it stands in a slice of ours: what is offered of a pool that has not answered since our start."""
    attributes = tuple((name, _value(value)) for name, value in (data.get("attributes") or {}).items())
    capacity = tuple((name, int(quantity.parse(item["value"]))) for name, item in (data.get("capacity") or {}).items())
    return resource.Device(
        name=data["name"],
        attributes=attributes,
        capacity=capacity,
        conditions=_CONDITIONS,
        failures=_FAILURES,
    )


def _value(value: Mapping[str, Any]) -> resource.Attribute:
    if "version" in value:
        return resource.Version(value["version"])
    return next(iter(value.values()))  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=1024)
def _attribute(name: str, text: str) -> tuple[str, resource.Attribute] | None:
    """One object for all cards that have it: most cards of a pool are alike."""
    value: resource.Attribute | None = _version(text) if name in _VERSIONS else text
    return (_NAMES[name], value) if text and value is not None else None


@functools.lru_cache(maxsize=256)
def _version(text: str) -> resource.Version | None:
    """A semantic version of the numbers in it: 9.0 is 9.0.0, 535.104.05 is 535.104.5."""
    numbers = [str(int(number)) for number in _NUMBERS.findall(text)][:3]
    return resource.Version(".".join([*numbers, "0", "0"][:3])) if numbers else None
