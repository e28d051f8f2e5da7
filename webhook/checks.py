"""What is wrong with an object of the resource API or of ours, told before it is stored.

    ResourceClaim, ResourceClaimTemplate --> the configs for our driver, strictly read; amounts of shares
    DeviceClass                          --> the configs for our driver
    ElasticGPUClass                      --> strictly read, its CEL text too; a workload type that another class has: a warning

Each of these is found again where it matters, by the node driver and the controller: admission only tells it sooner,
to the one who can mend it. So an outage of it costs nothing but that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cel
from api import errors, names, v1alpha1
from webhook import known

JSON = Mapping[str, Any]
_DRIVERS = frozenset({names.LOCAL_DRIVER, names.REMOTE_DRIVER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`refusal` is empty where the object is taken."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()


def finding(kind: str, data: JSON, classes: Mapping[str, known.GPUClass]) -> Finding:
    """Of one object, as the newest version has it. Kinds that are not checked are taken."""
    try:
        match kind:
            case "ResourceClaim":
                _check_claim(data["spec"], f"claim {_name(data)}", classes)
            case "ResourceClaimTemplate":
                _check_claim(data["spec"]["spec"], f"template {_name(data)}", classes)
            case "DeviceClass":
                _check_configs(data["spec"].get("config") or (), f"class {_name(data)}")
            case v1alpha1.CLASS_KIND:
                return Finding(warnings=tuple(_class_warnings(data, classes)))
    except errors.Invalid as error:
        return Finding(refusal=str(error))
    except (KeyError, TypeError, AttributeError) as error:
        return Finding(refusal=f"{kind} {_name(data)} has an unexpected shape: {error!r}")
    return Finding()


def _check_claim(spec: JSON, where: str, classes: Mapping[str, known.GPUClass]) -> None:
    devices = spec.get("devices") or {}
    _check_configs(devices.get("config") or (), where)
    for request in devices.get("requests") or ():
        named = [("", request["exactly"])] if request.get("exactly") else []
        named += [(f"/{sub['name']}", sub) for sub in request.get("firstAvailable") or ()]
        for suffix, wanted in named:
            found = classes.get(wanted.get("deviceClassName", ""))
            if found is not None and found.shares and not _amounts(wanted):
                raise errors.Invalid(
                    f"{where}: request {request['name']}{suffix} is of class {found.name}, which gives shares of cards, "
                    "but names neither cores nor memory, so it would take a whole card; add for example "
                    'capacity: {requests: {cores: "50", memory: 8Gi}}'
                )


def _amounts(request: JSON) -> bool:
    amounts = (request.get("capacity") or {}).get("requests") or {}
    return any(name in amounts or f"{names.LOCAL_DRIVER}/{name}" in amounts for name in (names.CORES, names.MEMORY))


def _check_configs(configs: Any, where: str) -> None:
    for item in configs:
        opaque = item.get("opaque") or {}
        if opaque.get("driver") in _DRIVERS:
            requests = ", ".join(item.get("requests") or ())
            of = f" for request {requests}" if requests else ""
            v1alpha1.decode_config(opaque.get("parameters"), f"config{of} of {where}")


def _class_warnings(data: JSON, classes: Mapping[str, known.GPUClass]) -> Iterator[str]:
    name = _name(data)
    spec = v1alpha1.decode_class(data, f"class {name}")
    if spec.cards.expression.strip():
        try:
            cel.compile(spec.cards.expression)
        except errors.Invalid as error:
            raise errors.Invalid(f"class {name}: cards.expression: {error}") from error
    held = known.holders(item for item in classes.values() if item.name != name)
    own = classes.get(name)
    for kind in spec.workload_types:
        holder = held.get(kind)
        older = own is None or (holder is not None and (holder.created, holder.name) < (own.created, own.name))
        if holder is not None and older:
            yield f"workload type {kind} belongs to class {holder.name}, which is older; this class will not be accepted"


def _name(data: JSON) -> str:
    meta = data.get("metadata") or {}
    return "/".join(filter(None, (meta.get("namespace"), meta.get("name") or meta.get("generateName"))))
