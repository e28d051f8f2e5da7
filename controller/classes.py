"""ElasticGPUClass -> the DeviceClass that kube-scheduler sees, and the conditions that tell the admin.

    Snapshot --> turn --> writes     a class that can be honoured: its DeviceClass as wanted, then its status
                                     one that asks for what is not built, or for a workload type that is taken:
                                     no DeviceClass, and a condition that says why
                                     one that cannot be read, that the API server refuses, or whose CEL fails on
                                     some card: nothing is touched, and a condition says why

The DeviceClass has the class's name and is owned by it, so that it goes with it. One of that name that somebody else
made is never touched. Every write carries uid and resourceVersion of what it was decided by. Nothing is written where
nothing changed; a class's status waits until the watch has shown its DeviceClass as wanted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api import names, reasons, remote, v1alpha1
from controller import matching, selection, snapshot

CLASSES = f"/apis/{names.API_VERSION}/{v1alpha1.CLASS_PLURAL}"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
JSON = Mapping[str, Any]
_UNREADABLE = ("Unknown", reasons.Class.INVALID.value, "the class cannot be read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The API server's words about a DeviceClass `spec`: no use in asking again with the same."""

    spec: JSON
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A DeviceClass made for the class `of`."""

    of: str
    spec: JSON
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The DeviceClass of the class `of` brought to what is wanted: a merge patch with preconditions."""

    of: str
    spec: JSON
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """The DeviceClass of a class that is no longer honoured."""

    of: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The status of the class `of`: a merge patch with preconditions. `news`: more is different than numbers and texts."""

    of: str
    body: dict[str, Any]
    news: bool

    @property
    def version(self) -> str:
        """Of what it was decided by."""
        return str(self.body["metadata"]["resourceVersion"])


Write = Create | Change | Delete | Report


def turn(now: snapshot.Snapshot, refusals: Mapping[str, Refusal], at: str) -> tuple[Write, ...]:
    """What to write, by the cluster as it is `now`. `refusals` by class name, `at` the time as the API writes it."""
    holders = _holders(now.classes)
    return tuple(write for item in now.classes for write in _writes(item, now, holders, refusals.get(item.name), at))


def device_class(item: snapshot.GPUClass, spec: v1alpha1.ClassSpec) -> dict[str, Any]:
    """The DeviceClass that is wanted for a class. Its config tells the node driver, with an admin's word, what is given."""
    owner = {"apiVersion": names.API_VERSION, "kind": v1alpha1.CLASS_KIND, "name": item.name, "uid": item.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {
            "name": item.name,
            "labels": {names.CLASS_LABEL: item.name, "app.kubernetes.io/managed-by": names.FIELD_MANAGER},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {
            "selectors": selection.selectors(
                spec.cards, selection.share(spec), driver=selection.driver(spec), given=selection.given(spec)
            ),
            "config": [{"opaque": {"driver": selection.driver(spec), "parameters": _parameters(spec)}}],
        }
        | ({"extendedResourceName": spec.extended_resource_name} if spec.extended_resource_name else {}),
    }


def _parameters(spec: v1alpha1.ClassSpec) -> dict[str, Any]:
    share = selection.share(spec)
    if spec.backend is v1alpha1.Backend.REMOTE:
        return v1alpha1.encode_config(remote.RemoteConfig())
    if share is None:
        return v1alpha1.encode_config(v1alpha1.CardConfig())
    fallback = share.fallback if share.fallback is not v1alpha1.Fallback.NOTHING else None
    config = v1alpha1.ShareConfig(memory=share.memory, cores=share.cores, accept=share.accept, fallback=fallback)
    return v1alpha1.encode_config(config)


def _writes(
    item: snapshot.GPUClass, now: snapshot.Snapshot, holders: Mapping[str, str], refusal: Refusal | None, at: str
) -> Iterator[Write]:
    found = now.device_classes.get(item.name)
    if found is not None and not _ours(found):
        reason, message = (
            reasons.Class.NAME_TAKEN,
            (
                f"DeviceClass {item.name} exists and was not made from this class; delete it, or name the class otherwise"
            ),
        )
    else:
        reason, message = _judged(item, holders, refusal, now)
    if reason is reasons.Class.ACCEPTED and item.spec is not None:
        wanted = device_class(item, item.spec)
        if found is None:
            yield Create(of=item.name, spec=wanted["spec"], body=wanted)
            return
        if not _as_wanted(found, wanted, item):
            yield Change(of=item.name, spec=wanted["spec"], body=_change(found, wanted))
            return
    elif found is not None and reason in (reasons.Class.NOT_IMPLEMENTED, reasons.Class.WORKLOAD_TYPE_TAKEN):
        yield Delete(of=item.name, uid=found.uid, resource_version=found.resource_version)
        found = None
    status = _status(item, now, reason, message, found if reason is not reasons.Class.NAME_TAKEN else None, at)
    if status != item.status:
        meta = {"uid": item.uid, "resourceVersion": item.resource_version}
        body = {"metadata": meta, "status": msgspec.to_builtins(status)}
        yield Report(of=item.name, body=body, news=_gist(status) != _gist(item.status))


def _holders(classes: tuple[snapshot.GPUClass, ...]) -> Mapping[str, str]:
    """Workload type -> the class that holds it.

    The oldest, whether it can be honoured or not, so that no other class loses a type on the day when this one can be.
    """
    holders: dict[str, str] = {}
    for item in classes:
        for workload_type in item.spec.workload_types if item.spec else ():
            holders.setdefault(workload_type, item.name)
    return holders


def _judged(
    item: snapshot.GPUClass, holders: Mapping[str, str], refusal: Refusal | None, now: snapshot.Snapshot
) -> tuple[reasons.Class, str]:
    if item.spec is None:
        return reasons.Class.INVALID, item.problem
    if unbuilt := _unbuilt(item.spec, now):
        return reasons.Class.NOT_IMPLEMENTED, unbuilt
    for workload_type in item.spec.workload_types:
        if (holder := holders[workload_type]) != item.name:
            return reasons.Class.WORKLOAD_TYPE_TAKEN, (
                f"workload type {workload_type} belongs to class {holder}, which is older; "
                "take it out of workloadTypes of one of the two"
            )
    if refusal is not None and refusal.spec == device_class(item, item.spec)["spec"]:
        return reasons.Class.REFUSED, refusal.message
    if fails := matching.failing(item.spec, now):
        return reasons.Class.EXPRESSION_FAILS, fails
    return reasons.Class.ACCEPTED, ""


def _unbuilt(spec: v1alpha1.ClassSpec, now: snapshot.Snapshot) -> str:
    """What this release cannot do yet must not be taken for something that it can do."""
    if spec.backend is v1alpha1.Backend.REMOTE and not now.remote_cards:
        return "remote cards are switched off here; the chart's remote.enabled switches them on"
    if spec.backend is v1alpha1.Backend.REMOTE and selection.given(spec):
        return "remote cards are allocated by kube-scheduler alone; use allocation.by: Scheduler"
    if spec.reclaim_policy is v1alpha1.ReclaimPolicy.RETAIN and spec.backend is v1alpha1.Backend.REMOTE:
        return "remote cards cannot be kept back, their server ends with the lease; use reclaimPolicy: Delete"
    if spec.reclaim_policy is v1alpha1.ReclaimPolicy.RETAIN and not now.taint_rules:
        return "reclaimPolicy Retain needs DeviceTaintRules, which this API server does not have (Kubernetes 1.37 has)"
    return ""


def _ours(found: snapshot.DeviceClass) -> bool:
    return found.made_from == found.name and bool(found.owner_uid)


def _as_wanted(found: snapshot.DeviceClass, wanted: JSON, item: snapshot.GPUClass) -> bool:
    return found.spec == wanted["spec"] and found.owner_uid == item.uid


def _change(found: snapshot.DeviceClass, wanted: JSON) -> dict[str, Any]:
    meta = {"uid": found.uid, "resourceVersion": found.resource_version} | wanted["metadata"]
    strangers = dict.fromkeys(found.spec.keys() - wanted["spec"].keys())
    return {"metadata": meta, "spec": strangers | wanted["spec"]}


def _status(
    item: snapshot.GPUClass,
    now: snapshot.Snapshot,
    reason: reasons.Class,
    message: str,
    found: snapshot.DeviceClass | None,
    at: str,
) -> v1alpha1.ClassStatus:
    accepted = "True" if reason is reasons.Class.ACCEPTED else "False"
    ready = reasons.Class.IN_PLACE.value if reason is reasons.Class.ACCEPTED else reason.value
    count, verdict = matching.verdict(item.spec, now) if item.spec else (0, _UNREADABLE)
    states = (
        (names.ACCEPTED, accepted, reason.value, message),
        (names.MATCHING, *verdict),
        (names.READY, accepted, ready, message or f"claims can name deviceClassName: {item.name}"),
    )
    before = {condition.type: condition for condition in item.status.conditions}
    return v1alpha1.ClassStatus(
        observed_generation=item.generation,
        device_class=found.name if found else "",
        matching_cards=count,
        conditions=tuple(_condition(before.get(state[0]), *state, item.generation, at) for state in states),
    )


def _gist(status: v1alpha1.ClassStatus) -> object:
    conditions = [(one.type, one.status, one.reason) for one in status.conditions]
    return status.observed_generation, status.device_class, conditions


def _condition(
    before: v1alpha1.Condition | None, type_: str, status: str, reason: str, message: str, generation: int, at: str
) -> v1alpha1.Condition:
    return v1alpha1.Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=before.last_transition_time if before and before.status == status else at,
        observed_generation=generation,
    )
