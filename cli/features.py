"""What this Kubernetes has beyond whole cards, found out by showing it objects and looking at what it would keep.

    trials -> POST with dryRun=All -> answers -> findings

Nothing is stored, and no version is asked: an older server takes an object without the fields that it does not know, or
has switched off, and says no word. What is not there is Absent, with what is done instead; that is nobody's mistake.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api import names
from cli import checks

JSON = dict[str, Any]
_V1 = "/apis/resource.k8s.io/v1"
_DRY = "?dryRun=All&fieldValidation=Ignore"
_CHECK = "features"
_DEVICE: JSON = {
    "name": "trial",
    "allowMultipleAllocations": True,
    "taints": [{"key": f"{names.GROUP}/trial", "effect": "NoSchedule"}],
    "bindsToNode": True,
    "bindingConditions": [f"{names.GROUP}/trial"],
    "bindingFailureConditions": [f"{names.GROUP}/trial-failed"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Feature:
    """`trial`: the resource whose trial shows it; `field`: what is then in its spec, or in the spec's only device."""

    what: str
    gate: str
    since: str
    trial: str
    field: str
    without: str


_FEATURES = (
    _Feature(
        what="shares of cards", gate="DRAConsumableCapacity", since="1.36", trial="resourceslices",
        field="allowMultipleAllocations", without="cards are given out as wholes only",
    ),
    _Feature(
        what="taints of cards", gate="DRADeviceTaints", since="1.36", trial="resourceslices", field="taints",
        without="a card that is not well is not offered at all, and none can be given to the controller",
    ),
    _Feature(
        what="binding conditions", gate="DRADeviceBindingConditions", since="1.36", trial="resourceslices",
        field="bindingConditions", without="a remote card is attached when its pod starts, not before its node is settled",
    ),
    _Feature(
        what="resource names of classes", gate="DRAExtendedResource", since="1.36", trial="deviceclasses",
        field="extendedResourceName", without="pods ask for cards by claims, or by old names through the webhook",
    ),
)  # fmt: skip
_RULES = _Feature(
    what="DeviceTaintRules", gate="DRADeviceTaintRules", since="1.37", trial="", field="",
    without="no cordon, and no reclaimPolicy: Retain",
)  # fmt: skip


def trials() -> tuple[tuple[str, JSON], ...]:
    """What is shown to the server: paths and bodies, in the order in which `found` wants the answers."""
    pool = {"name": "trial", "generation": 1, "resourceSliceCount": 1}
    slice_ = {"driver": "trial.elasticgpu.io", "nodeName": "trial", "pool": pool, "devices": [_DEVICE]}
    class_ = {"extendedResourceName": f"{names.GROUP}/trial"}
    return tuple(
        (f"{_V1}/{resource}{_DRY}", _object(kind, spec))
        for resource, kind, spec in (
            ("resourceslices", "ResourceSlice", slice_),
            ("deviceclasses", "DeviceClass", class_),
        )
    )


def found(answers: Sequence[Any], served: Mapping[str, Any] | None) -> Iterator[checks.Finding]:
    """`answers`: those to `trials`. `served`: the list of kinds that the server has, None where it gave none."""
    kept: dict[str, Mapping[str, Any]] = {}
    for resource, answer in zip(("resourceslices", "deviceclasses"), answers, strict=True):
        if answer.reason:
            yield _unknown(f"what it keeps of {resource} could not be tried: {answer.words}")
        else:
            spec = answer.data["spec"]
            kept[resource] = (spec.get("devices") or [{}])[0] if resource == "resourceslices" else spec
    has = {each: each.field in kept[each.trial] for each in _FEATURES if each.trial in kept}
    if served is not None:
        has[_RULES] = any(kind["name"] == "devicetaintrules" for kind in served.get("resources") or ())
    if there := [each.what for each, yes in has.items() if yes]:
        yield checks.Finding(check=_CHECK, verdict=checks.Verdict.OK, text=f"this Kubernetes has {', '.join(there)}")
    for each, yes in has.items():
        if not yes:
            yield checks.Finding(
                check=_CHECK,
                verdict=checks.Verdict.ABSENT,
                text=f"this Kubernetes has no {each.what}: {each.without}",
                remedy=f"they come with Kubernetes {each.since}, or the feature gate {each.gate} before it",
            )


def _object(kind: str, spec: JSON) -> JSON:
    # generated names: an object of a fixed name that is there already would be no trial
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"generateName": "elastic-gpu-trial-"},
        "spec": spec,
    }


def _unknown(text: str) -> checks.Finding:
    return checks.Finding(check=_CHECK, verdict=checks.Verdict.UNKNOWN, text=text)
