"""JSON of the API -> the values that the picture is made of.

    list of objects --> part --> Part (values, and what could not be read)

Tolerant: a field that newer servers add is ignored, an object that cannot be read costs itself and is named. Raw JSON
goes no further than here. What many objects name is one string for all of them: a large cluster's picture would be half
as large again without.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from api import errors, names, quantity
from view import objects

T = TypeVar("T")
JSON = Mapping[str, Any]
_METRICS_PORT = "metrics"
_OWN = f"{names.LOCAL_DRIVER}/"
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


def slice_(data: JSON) -> objects.Slice | None:
    meta, spec = data["metadata"], data["spec"]
    if spec["driver"] not in _OURS:
        return None
    pool = spec["pool"]
    return objects.Slice(
        name=meta["name"],
        pool=_one(pool["name"]),
        generation=pool.get("generation", 0),
        of=pool.get("resourceSliceCount", 1),
        node=_one(spec.get("nodeName") or ""),
        created=_one(meta.get("creationTimestamp", "")),
        devices=tuple(_device(item) for item in spec.get("devices") or ()),
        remote=spec["driver"] == names.REMOTE_DRIVER,
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


def claim(data: JSON) -> objects.Claim:
    """Any claim; of other drivers' devices it only says that it is allocated."""
    meta, status = data["metadata"], data.get("status") or {}
    allocation = status.get("allocation")
    results = (allocation or {}).get("devices", {}).get("results") or ()
    ours = [item for item in results if item["driver"] in _OURS]
    told = {
        (item["pool"], item["device"], item.get("shareID", "")): item
        for item in status.get("devices") or ()
        if item.get("driver") in _OURS
    }
    users = status.get("reservedFor") or ()
    pods = tuple(
        (_one(item["name"]), _one(item["uid"]))
        for item in users
        if item.get("resource") == "pods" and not item.get("apiGroup")
    )
    return objects.Claim(
        namespace=_one(meta["namespace"]),
        name=_one(meta["name"]),
        uid=meta["uid"],
        created=_one(meta.get("creationTimestamp", "")),
        classes=_alike(tuple(_classes(data.get("spec") or {}))),
        allocated=allocation is not None,
        since=_one((allocation or {}).get("allocationTimestamp") or ""),
        results=tuple(_result(item, told) for item in ours),
        reserved_for=pods,
        other_users=len(users) - len(pods),
        deleting="deletionTimestamp" in meta,
        node=_node((allocation or {}).get("nodeSelector")),
    )


def pod(data: JSON) -> objects.Pod | None:
    """A pod that names claims, in its spec or through an extended resource; others do not concern us."""
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    wanted, extended = spec.get("resourceClaims") or (), status.get("extendedResourceClaimStatus") or {}
    if not wanted and not extended:
        return None
    made = {item["name"]: item.get("resourceClaimName") or "" for item in status.get("resourceClaimStatuses") or ()}
    claims = {_one(item["name"]): _one(item.get("resourceClaimName") or made.get(item["name"], "")) for item in wanted}
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    uses = [
        objects.Use(
            container=_one(one["name"]), claim=claims.get(use["name"], ""), request=_one(use.get("request") or "")
        )
        for one in containers
        for use in (one.get("resources") or {}).get("claims") or ()
    ]
    if extended:
        name = claims[""] = extended["resourceClaimName"]
        uses += [
            objects.Use(container=item["containerName"], claim=name, request=item["requestName"])
            for item in extended.get("requestMappings") or ()
        ]
    refused = next((one for one in _conditions(status) if one.type == "PodScheduled" and one.status != "True"), None)
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
        workload_type=(meta.get("labels") or {}).get(names.WORKLOAD_LABEL, ""),
        claims=tuple(claims.items()),
        uses=tuple(uses),
        templates=tuple(
            (item["name"], item["resourceClaimTemplateName"])
            for item in wanted
            if item.get("resourceClaimTemplateName")
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
    found = next((one for one in _conditions(data.get("status") or {}) if one.type == "Ready"), None)
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
    found = next((one for one in _conditions(data.get("status") or {}) if one.type == "Ready"), None)
    return objects.DriverPod(
        node=_one(where),
        name=meta["name"],
        namespace=_one(meta["namespace"]),
        ready=found is not None and found.status == "True",
        since=_one(found.since if found else meta.get("creationTimestamp", "")),
        port=next((port["containerPort"] for port in _ports(data) if port.get("name") == _METRICS_PORT), 0),
        version=_one(labels.get("app.kubernetes.io/version", "")),
        account=_one(data["spec"].get("serviceAccountName") or ""),
    )


def _ports(pod: JSON) -> Iterable[JSON]:
    return (port for one in pod["spec"].get("containers") or () for port in one.get("ports") or ())


def _device(data: JSON) -> objects.Device:
    attributes, capacity = data.get("attributes") or {}, data.get("capacity") or {}
    return objects.Device(
        name=_one(data["name"]),
        uuid=_own(attributes, names.UUID).get("string"),
        model=_alike(_own(attributes, names.PRODUCT_NAME).get("string")),
        bus_id=_alike((attributes.get(names.PCI_BUS_ID) or {}).get("string")),
        driver_version=_alike(_own(attributes, names.DRIVER_VERSION).get("version")),
        capacity=_amounts(tuple((key, value["value"]) for key, value in capacity.items())),
        shared=bool(data.get("allowMultipleAllocations")),
        taints=tuple(_taint(item) for item in data.get("taints") or () if item["key"] != names.ALLOCATED_BY_TAINT),
    )


def _taint(data: JSON) -> objects.Taint:
    return objects.Taint(
        key=data["key"], value=data.get("value") or "", effect=data["effect"], since=data.get("timeAdded") or ""
    )


def remote_pool(data: JSON) -> objects.RemotePool:
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    found = next((one for one in _conditions(status) if one.type == names.REACHABLE), None)
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


def _result(data: JSON, told: Mapping[tuple[str, str, str], JSON]) -> objects.Result:
    consumed = data.get("consumedCapacity") or {}
    said = told.get((data["pool"], data["device"], data.get("shareID", ""))) or {}
    held = (said.get("data") or {}).get("enforcement", "")
    if isinstance(held, dict):
        held = ", ".join(f"{name}: {rung}" for name, rung in sorted(held.items()))
    return objects.Result(
        request=_one(data["request"]),
        pool=_one(data["pool"]),
        device=_one(data["device"]),
        admin=bool(data.get("adminAccess")),
        share_id=data.get("shareID") or "",
        consumed=_amounts(tuple(consumed.items())),
        enforcement=_alike(str(held)),
        remote=data["driver"] == names.REMOTE_DRIVER,
        awaited=_awaited(data, said),
    )


def _awaited(result: JSON, said: JSON) -> str:
    """A card with binding conditions is the pod's when they are true."""
    if names.ATTACHED not in (result.get("bindingConditions") or ()):
        return ""
    told = {one.type: one for one in _conditions(said) if one.status == "True"}
    if failed := told.get(names.ATTACH_FAILED):
        return f"could not be attached: {failed.message or failed.reason}"
    return "" if names.ATTACHED in told else "is being attached"


def _node(selector: JSON | None) -> str:
    """The name in a selector of the form that one node has; else nothing."""
    match (selector or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str() as name]}]}]:
            return name
        case _:
            return ""


def _classes(spec: JSON) -> Iterable[tuple[str, str]]:
    for item in (spec.get("devices") or {}).get("requests") or ():
        if exactly := item.get("exactly"):
            yield item["name"], exactly["deviceClassName"]
        for sub in item.get("firstAvailable") or ():
            yield f"{item['name']}/{sub['name']}", sub["deviceClassName"]


def _conditions(status: JSON) -> tuple[objects.Condition, ...]:
    return tuple(
        objects.Condition(
            type=item["type"],
            status=item["status"],
            reason=item.get("reason") or "",
            message=item.get("message") or "",
            since=item.get("lastTransitionTime") or "",
        )
        for item in status.get("conditions") or ()
    )


def _own(entries: JSON, name: str) -> JSON:
    found: JSON = entries.get(name) or entries.get(_OWN + name) or {}
    return found


@functools.lru_cache(maxsize=4096)
def _amounts(given: tuple[tuple[str, str | int], ...]) -> tuple[tuple[str, int], ...]:
    """One tuple for all cards and claims that are alike, in the order of its names."""
    found: tuple[tuple[str, int], ...] = _alike(
        tuple(sorted((name.removeprefix(_OWN), int(quantity.parse(text))) for name, text in given))
    )
    return found


def _one(word: str) -> str:
    return sys.intern(word)


@functools.lru_cache(maxsize=4096)
def _alike(value: T) -> T:
    """The same object for equal values, of those that few differ in."""
    return value


def _named(item: Any) -> str:
    try:
        meta = item["metadata"]
        return "/".join(filter(None, (meta.get("namespace"), meta["name"])))
    except (KeyError, TypeError, AttributeError):
        return "an object without a name"
