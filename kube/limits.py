"""What the API server would refuse about a device, found before it is sent.

One refused device would keep all of its pool from being published. So a wrong attribute is left out of its device,
a device that cannot be named or is tainted wrongly is left out of its pool, and each comes with its reason.
"""

import dataclasses
import re
from typing import Final

from api import resource

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_SUBDOMAIN: Final = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_TEXT: Final = 64
_NAMES: Final = 32
_TAINTS: Final = 16


def checked(pool: resource.Pool) -> tuple[resource.Pool, tuple[str, ...]]:
    """The pool as it can be published, and why something is missing from it."""
    kept: dict[str, resource.Device] = {}
    reasons: list[str] = []
    for device in pool.devices:
        wrong = _refusal(device, kept)
        if wrong:
            reasons.append(f"device {device.name!r} is left out of pool {pool.name!r}: {wrong}")
            continue
        bad = {name: why for name, value in device.attributes if (why := _attribute(name, value))}
        reasons += [f"device {device.name!r} comes without attribute {name!r}: {why}" for name, why in bad.items()]
        good = tuple(item for item in device.attributes if item[0] not in bad)
        kept[device.name] = dataclasses.replace(device, attributes=good) if bad else device
    return dataclasses.replace(pool, devices=tuple(kept.values())), tuple(reasons)


def _refusal(device: resource.Device, before: dict[str, resource.Device]) -> str:
    if not _LABEL.fullmatch(device.name):
        return "its name is not a DNS label of at most 63 characters"
    if device.name in before:
        return "another device of the pool has that name; names must be unique"
    if len(device.attributes) + len(device.capacity) > _NAMES:
        return f"it has more than {_NAMES} attributes and capacities"
    policies = dict(device.policies)
    for name, amount in device.capacity:
        if not _qualified(name) or amount < 0 or not _fits(policies.pop(name, None), amount):
            return f"capacity {name!r} has a bad name, is negative, or its request policy does not fit it"
    for taint in device.taints:
        if len(device.taints) > _TAINTS or not (
            _KEY.fullmatch(taint.key) and _VALUE.fullmatch(taint.value) and taint.effect
        ):
            return f"taint {taint.key!r} is one of more than {_TAINTS} or is malformed; without it the device would look well"
    return ""


def _fits(policy: resource.RequestPolicy | None, amount: int) -> bool:
    if policy is None:
        return True
    most = amount if policy.most is None else policy.most
    return 0 <= policy.least <= policy.default <= most <= amount


def _attribute(name: str, value: resource.Attribute) -> str:
    if not _qualified(name):
        return "its name is not an identifier of at most 32 characters, or its domain no DNS subdomain"
    match value:
        case resource.Version(text=text) if len(text) > _TEXT or not _SEMVER.fullmatch(text):
            return f"{text[:_TEXT]!r} is not a semantic version of at most {_TEXT} characters"
        case str() if len(value) > _TEXT:
            return f"its text is longer than {_TEXT} characters"
        case int() if not -(2**63) <= value < 2**63:
            return "its number does not fit into 64 bits"
    return ""


def _qualified(name: str) -> bool:
    domain, slash, identifier = name.rpartition("/")
    return bool(_IDENTIFIER.fullmatch(identifier)) and (not slash or bool(_SUBDOMAIN.fullmatch(domain)))
