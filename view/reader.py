"""JSON of the API -> the values that the picture is made of.

    list of objects --> part --> Part (values, and what could not be read)

Tolerant: a field that newer servers add is ignored, an object that cannot be read costs itself and is named. Raw JSON
goes no further than here. What many objects name is one string for all of them: a large cluster's picture would be half
as large again without.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from api import errors, names
from view import objects, parts, wire

T = TypeVar("T")
B = TypeVar("B", bound=wire.Slice | wire.Claim)
JSON = Mapping[str, Any]
_METRICS_PORT = "metrics"
_one = sys.intern
_OURS = (names.LOCAL_DRIVER, names.REMOTE_DRIVER)


def part(
    items: Iterable[JSON], read: Callable[[JSON], T | None], *, namespace: str = "", partial: bool = False
) -> objects.Part[T]:
    """The values of a list. What `read` gives None for has nothing to do with us."""
    found: list[T] = []
    unreadable: list[str] = []
    for item in items:
        try:
            value = read(item)
        except (errors.ElasticGPUError, KeyError, TypeError, ValueError, AttributeError) as error:
            unreadable.append(f"{_named(item)}: {error!r}"[:300])
        else:
            if value is not None:
                found.append(value)
    return objects.Part(items=tuple(found), namespace=namespace, partial=partial, unreadable=tuple(unreadable))


def items(read: Callable[[Any], Any], text: bytes) -> Iterable[Any]:
    """What a list in JSON has for `read`. One item that is not of its form must not cost the others: then all are had
    as JSON, and `part` finds which it is.
    """
    if decoder := _LISTS.get(read):
        with contextlib.suppress(msgspec.ValidationError):
            found: wire.List[Any] = decoder.decode(text)
            return found.items or ()
    return msgspec.json.decode(text).get("items") or ()


def slice_(data: JSON | wire.Slice) -> objects.Slice | None:
    found = data if isinstance(data, wire.Slice) else _body(data, wire.Slice)
    meta, spec = found.metadata, found.spec
    if spec.driver not in _OURS:
        return None
    return objects.Slice(
        name=_one(meta.name),
        pool=_one(spec.pool.name),
        generation=spec.pool.generation,
        of=spec.pool.resource_slice_count,
        node=_one(spec.node_name or ""),
        created=_one(meta.creation_timestamp or ""),
        devices=tuple(map(parts.device, spec.devices or ())),
        remote=spec.driver == names.REMOTE_DRIVER,
    )


def taint_rule(data: JSON) -> objects.TaintRule | None:
    spec, meta = data["spec"], data["metadata"]
    selector = spec.get("deviceSelector") or {}
    if selector.get("driver", names.LOCAL_DRIVER) not in _OURS:
        return None
    return objects.TaintRule(
        name=meta["name"],
        pool=selector.get("pool") or "",
        device=selector.get("device") or "",
        taint=_taint(spec["taint"]),
        retained_for=tuple(filter(None, (meta.get("annotations") or {}).get(names.RETAINED_FOR, "").split(","))),
        version=meta.get("resourceVersion") or "",
        driver=selector.get("driver") or "",
    )


def claim(data: JSON | wire.Claim) -> objects.Claim:
    """Any claim; of other drivers' devices it only says that it is allocated."""
    found = data if isinstance(data, wire.Claim) else _body(data, wire.Claim)
    meta, status = found.metadata, found.status or wire.ClaimStatus()
    allocation = status.allocation or wire.Allocation()
    results = (allocation.devices or wire.Results()).results or ()
    told = {(one.pool, one.device, one.share_id or ""): one for one in status.devices or () if one.driver in _OURS}
    users = status.reserved_for or ()
    pods = [(_one(one.name), _one(one.uid)) for one in users if one.resource == "pods" and not one.api_group]
    return objects.Claim(
        namespace=_one(meta.namespace),
        name=_one(meta.name),
        uid=meta.uid,
        created=_one(meta.creation_timestamp or ""),
        classes=objects.alike(tuple(parts.classes(found.spec))),
        allocated=status.allocation is not None,
        since=_one(allocation.allocation_timestamp or ""),
        results=tuple([parts.result(one, told) for one in results if one.driver in _OURS]),
        reserved_for=tuple(pods),
        other_users=len(users) - len(pods),
        deleting=meta.deletion_timestamp is not None,
        node=parts.node(allocation.node_selector),
    )


def pod(data: JSON) -> objects.Pod | None:
    """A pod that names claims, in its spec or through an extended resource; others do not concern us."""
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    wanted, extended = spec.get("resourceClaims") or (), status.get("extendedResourceClaimStatus") or {}
    if not wanted and not extended:
        return None
    made = {item["name"]: item.get("resourceClaimName") or "" for item in status.get("resourceClaimStatuses") or ()}
    claims = {item["name"]: _one(item.get("resourceClaimName") or made.get(item["name"], "")) for item in wanted}
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    uses = [
        objects.Use(container=one["name"], word=use["name"], request=use.get("request") or "")
        for one in containers
        for use in (one.get("resources") or {}).get("claims") or ()
    ]
    if extended:
        claims[""] = _one(extended["resourceClaimName"])
        uses += [
            objects.Use(container=item["containerName"], word="", request=item["requestName"])
            for item in extended.get("requestMappings") or ()
        ]
    placed = _condition(status, "PodScheduled")
    refused = placed if placed and placed.status != "True" else None
    waits = [
        f"{waiting.get('reason', '')}: {waiting.get('message', '')}".rstrip(": ")
        for one in status.get("containerStatuses") or ()
        if (waiting := (one.get("state") or {}).get("waiting"))
    ]
    return objects.Pod(
        namespace=_one(meta["namespace"]),
        name=_one(meta["name"]),
        uid=_one(meta["uid"]),
        node=_one(spec.get("nodeName") or ""),
        phase=_one(status.get("phase") or "Unknown"),
        created=_one(meta.get("creationTimestamp", "")),
        workload_type=_one((meta.get("labels") or {}).get(names.WORKLOAD_LABEL, "")),
        words=objects.alike(tuple(claims)),
        claims=tuple(claims.values()),
        uses=objects.alike(tuple(uses)),
        templates=objects.alike(
            tuple(
                (item["name"], item["resourceClaimTemplateName"])
                for item in wanted
                if item.get("resourceClaimTemplateName")
            )
        ),
        scheduler_says=refused.message if refused else "",
        waits_since=_one(refused.since if refused else meta.get("creationTimestamp", "")),
        container_says=waits[0] if waits else "",
    )


def gpu_class(data: JSON) -> objects.GPUClass:
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    return objects.GPUClass(
        name=meta["name"],
        created=meta.get("creationTimestamp", ""),
        backend=spec.get("backend", ""),
        workload_types=tuple(spec.get("workloadTypes") or ()),
        matching=status.get("matchingCards"),
        conditions=_conditions(status),
    )


def device_class(data: JSON) -> objects.DeviceClass:
    selectors = (data.get("spec") or {}).get("selectors") or ()
    texts = [(selector.get("cel") or {}).get("expression") or "" for selector in selectors]
    ours = not texts or any(f'"{driver}"' in text for text in texts for driver in _OURS)
    return objects.DeviceClass(name=data["metadata"]["name"], ours=ours)


def node(data: JSON) -> objects.Node:
    found = _condition(data.get("status") or {}, "Ready")
    return objects.Node(
        name=_one(data["metadata"]["name"]),
        ready=found is not None and found.status == "True",
        since=_one(found.since) if found else "",
    )


def driver_pod(data: JSON) -> objects.DriverPod | None:
    meta, where = data["metadata"], data["spec"].get("nodeName")
    labels = meta.get("labels") or {}
    ours = all(labels.get(key) == value for key, value in names.DRIVER_PODS.items())
    if not ours or not where or "deletionTimestamp" in meta:
        return None
    found = _condition(data.get("status") or {}, "Ready")
    return objects.DriverPod(
        node=_one(where),
        name=_one(meta["name"]),
        namespace=_one(meta["namespace"]),
        ready=found is not None and found.status == "True",
        since=_one(found.since if found else meta.get("creationTimestamp", "")),
        port=next((port["containerPort"] for port in _ports(data) if port.get("name") == _METRICS_PORT), 0),
        version=_one(labels.get("app.kubernetes.io/version", "")),
        account=_one(data["spec"].get("serviceAccountName") or ""),
    )


def _ports(pod: JSON) -> Iterable[JSON]:
    return (port for one in pod["spec"].get("containers") or () for port in one.get("ports") or ())


def _taint(data: JSON) -> objects.Taint:
    return objects.Taint(
        key=data["key"], value=data.get("value") or "", effect=data["effect"], since=data.get("timeAdded") or ""
    )


def remote_pool(data: JSON) -> objects.RemotePool:
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    found = _condition(status, names.REACHABLE)
    why = found.message or found.reason if found else "the controller has not asked it yet"
    return objects.RemotePool(
        name=meta["name"],
        created=meta.get("creationTimestamp", ""),
        endpoint=spec.get("endpoint") or "",
        reachable={"True": True, "False": False}.get(found.status) if found else None,
        reason="" if found and found.status == "True" else why,
        since=found.since if found else "",
        version=status.get("version") or "",
        cards=status.get("devices") or 0,
        leases=status.get("leases") or 0,
    )


def lease(data: JSON) -> objects.Lease:
    meta, spec, status = data["metadata"], data["spec"], data["status"]
    return objects.Lease(
        name=meta["name"],
        pool=spec["pool"],
        device=spec["device"],
        namespace=spec["claim"]["namespace"],
        claim=spec["claim"]["name"],
        uid=spec["claim"]["uid"],
        node=spec["node"]["name"],
        phase=status["phase"],
        since=status.get("since") or "",
        created=meta.get("creationTimestamp", ""),
        reason=status.get("reason") or "",
        by=spec.get("attachedBy") or "",
        deleting="deletionTimestamp" in meta,
    )


def _conditions(status: JSON) -> tuple[objects.Condition, ...]:
    return tuple(map(_told, status.get("conditions") or ()))


def _condition(status: JSON, of: str) -> objects.Condition | None:
    """The first of that type."""
    return next((_told(item) for item in status.get("conditions") or () if item["type"] == of), None)


def _told(data: JSON) -> objects.Condition:
    return objects.Condition(
        type=data["type"],
        status=data["status"],
        reason=data.get("reason") or "",
        message=data.get("message") or "",
        since=data.get("lastTransitionTime") or "",
    )


def _body(data: JSON, kind: type[B]) -> B:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise errors.Invalid(str(error)) from error


_LISTS: Mapping[Callable[[Any], Any], msgspec.json.Decoder[Any]] = {
    slice_: msgspec.json.Decoder(wire.List[wire.Slice]),
    claim: msgspec.json.Decoder(wire.List[wire.Claim]),
}


def _named(item: Any) -> str:
    if isinstance(item, wire.Slice | wire.Claim):
        return "/".join(filter(None, (item.metadata.namespace, item.metadata.name)))
    try:
        meta = item["metadata"]
        return "/".join(filter(None, (meta.get("namespace"), meta["name"])))
    except (KeyError, TypeError, AttributeError):
        return "an object without a name"
