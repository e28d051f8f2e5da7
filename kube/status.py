"""One patch for our own entries of a claim's `status.devices`.

Entries are a map keyed by driver, pool, device and share; server-side apply with a field manager of one's own leaves
those of other drivers alone. What a manager sent before and leaves out now is removed: always send all entries of the
claim, and use the driver's name as the manager, since two drivers on one claim must not own each other's entries.

    path, body = status.path(claim), status.patch(claim, driver, entries)
    await api.patch(path, body, kind=Patch.APPLY, fieldManager=driver, force=True)

A claim whose opaque configs have their keys in another order than Go writes them takes no apply: the server writes them
anew, finds `status.allocation` changed, and refuses (1.37.2). `merged` is the way there: all entries, those of others as
they were read, and the resourceVersion that keeps the whole from overwriting anything. A config that was stored with
spaces between its tokens takes no change of its claim's status from any JSON client; nothing helps there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api import errors, resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`since` is RFC 3339; it changes only when `status` does."""

    type: str
    status: bool
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """What a driver says about one allocated device; `data` is a JSON object of its own."""

    pool: str
    device: str
    share_id: str = ""
    data: Mapping[str, Any] | None = None
    conditions: tuple[Condition, ...] = ()


def path(claim: resource.Claim) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}/status"


def patch(claim: resource.Claim, driver: str, entries: tuple[DeviceStatus, ...]) -> dict[str, Any]:
    """The body of the apply. It names uid and resourceVersion: a claim that was replaced or has changed is a Conflict.

    Raises Invalid for an entry of a device that the claim does not hold: the server would refuse all of them.
    """
    held = {result.place for result in claim.of_driver(driver)}
    for entry in entries:
        if (entry.pool, entry.device, entry.share_id) not in held:
            raise errors.Invalid(
                f"claim {claim} holds no device {entry.pool}/{entry.device} of {driver}; nothing to report"
            )
    meta = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid}
    if claim.resource_version:
        meta["resourceVersion"] = claim.resource_version
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "status": {"devices": [_entry(driver, entry) for entry in entries]},
    }


def merged(
    claim: resource.Claim, driver: str, entries: tuple[DeviceStatus, ...], stored: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The same as the body of a merge patch, which replaces the whole list: `stored` is what it holds now."""
    body = patch(claim, driver, entries)
    body["status"]["devices"] = [
        *(dict(entry) for entry in stored if entry.get("driver") != driver),
        *body["status"]["devices"],
    ]
    return body


def merged_entries(
    claim: resource.Claim, driver: str, entries: tuple[DeviceStatus, ...], stored: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Like `merged`, where others write entries of the same driver too: only those of the devices named are replaced."""
    body = patch(claim, driver, entries)
    named = {(entry.pool, entry.device, entry.share_id) for entry in entries}
    kept = [
        dict(entry)
        for entry in stored
        if entry.get("driver") != driver
        or (entry.get("pool"), entry.get("device"), entry.get("shareID") or "") not in named
    ]
    body["status"]["devices"] = [*kept, *body["status"]["devices"]]
    return body


def _entry(driver: str, entry: DeviceStatus) -> dict[str, Any]:
    out: dict[str, Any] = {"driver": driver, "pool": entry.pool, "device": entry.device}
    if entry.share_id:
        out["shareID"] = entry.share_id
    if entry.data:
        out["data"] = dict(entry.data)
    if entry.conditions:
        out["conditions"] = [
            {
                "type": condition.type,
                "status": "True" if condition.status else "False",
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": condition.since,
            }
            for condition in entry.conditions
        ]
    return out
