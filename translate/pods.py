"""A pod that asks for cards by old names -> the same pod with claims, and the shapes of the templates that it names.

    pod + setting --> asks of each container --> a class for each --> claims, by the rules below --> Translation

Rules for containers:
- Each container and each sidecar has a claim of its own, as each had devices of its own.
- An init container is gone when the containers start. It uses the claim of a container that has the same class and as
  many whole cards; those that find none share one claim, as large as the largest of them.
- An init container with a share has a claim of its own: a limit is held for one container.
- Zero asks for nothing.

What must stay true: translating twice changes nothing more, and nothing else in the pod is touched but a scheduler of
the old system's own.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from api import errors, names
from translate import asks, shape

JSON = Mapping[str, Any]
OLD_SCHEDULERS = ("hami-scheduler",)
"""Schedulers that an old system's own webhook names; with that system they are gone."""
_CHOICES = ("use-gpuuuid", "nouse-gpuuuid", "use-gputype", "nouse-gputype", "vgpu-mode")
_CLAIM = "translated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """A class of cards as far as translation knows it. `whole`: it gives whole cards, of this machine or another."""

    name: str
    whole: bool
    workload_types: tuple[str, ...]


READY_MADE = (
    Class(name="training.elasticgpu.io", whole=True, workload_types=("training",)),
    Class(name="inference.elasticgpu.io", whole=False, workload_types=("inference",)),
    Class(name="simulation.elasticgpu.io", whole=True, workload_types=("simulation",)),
)
"""Those of the chart, for who translates without a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a pod is translated. `workload_type`: the default that its namespace has.

    whole_type, share_type: The workload types of pods that have none, by what they ask for.
    """

    classes: tuple[Class, ...] = READY_MADE
    workload_type: str = ""
    whole_type: str = "training"
    share_type: str = "inference"
    units: asks.Units = field(default_factory=asks.Units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """`notes`: one line for each container, with what was read and what it gets. No shapes: nothing was to be done."""

    pod: dict[str, Any]
    shapes: tuple[shape.Shape, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What one container is to have. `at`: its list and its place there."""

    at: tuple[str, int]
    name: str
    shape: shape.Shape
    reading: str
    passing: bool
    """An init container that ends before the containers start."""


def translated(pod: JSON, setting: Setting) -> Translation:
    """The pod with claims. Raises Invalid where it asks for what has no equal, with what to write instead."""
    changed: dict[str, Any] = copy.deepcopy(dict(pod))
    wishes = tuple(_wishes(pod, setting))
    for _, _, container in _containers(changed):
        if container.get("resources"):
            container["resources"] = asks.without(container["resources"])
    if not wishes:
        return Translation(pod=changed)
    _refuse_what_has_no_equal(pod)
    claims = _claims(wishes)
    _name_claims(changed, claims)
    if changed["spec"].get("schedulerName") in OLD_SCHEDULERS:
        del changed["spec"]["schedulerName"]
    meta = changed.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), names.TRANSLATED_LABEL: "true"}
    notes = tuple(f"container {wish.name}: {wish.reading} -> {claims[wish.at][0]}" for wish in wishes)
    return Translation(pod=changed, shapes=tuple(dict.fromkeys(of for of, _ in claims.values())), notes=notes)


def _wishes(pod: JSON, setting: Setting) -> Iterator[_Wish]:
    labelled = (pod.get("metadata", {}).get("labels") or {}).get(names.WORKLOAD_LABEL, "")
    for key, index, container in _containers(pod):
        where = f"container {container.get('name', index)}"
        ask = asks.read(container.get("resources") or {}, setting.units, where)
        if ask is None:
            continue
        of = _class(ask, labelled, setting, where)
        yield _Wish(
            at=(key, index),
            name=str(container.get("name", index)),
            shape=shape.Shape(device_class=of.name, count=ask.count, cores=ask.cores, memory_mib=ask.memory_mib),
            reading=ask.reading,
            passing=key == "initContainers" and container.get("restartPolicy") != "Always",
        )


def _class(ask: asks.Ask, labelled: str, setting: Setting, where: str) -> Class:
    """By the pod's workload type, else by its namespace's where that fits, else by what is asked for."""
    by_type = {kind: of for of in setting.classes for kind in of.workload_types}
    wanted = "whole cards" if ask.whole else "shares of cards"
    if labelled:
        if labelled not in by_type:
            raise errors.Invalid(
                f"{where}: no class is made for the pod's {names.WORKLOAD_LABEL}, {labelled}; there are: "
                f"{', '.join(sorted(by_type)) or 'none'}"
            )
        if by_type[labelled].whole is not ask.whole:
            raise errors.Invalid(
                f"{where}: it asks for {wanted}, but class {by_type[labelled].name} of workload type {labelled} gives "
                f"{'shares' if ask.whole else 'whole cards'}; change the label {names.WORKLOAD_LABEL} or the amounts"
            )
        return by_type[labelled]
    default = by_type.get(setting.workload_type)
    if default is not None and default.whole is ask.whole:
        return default
    found = by_type.get(kind := setting.whole_type if ask.whole else setting.share_type)
    if found is None or found.whole is not ask.whole:
        raise errors.Invalid(
            f"{where}: no class gives {wanted} to workload type {kind}; "
            f"name another by the label {names.WORKLOAD_LABEL} on the pod or its namespace"
        )
    return found


def _claims(wishes: tuple[_Wish, ...]) -> dict[tuple[str, int], tuple[shape.Shape, str]]:
    """Place of a container -> what it gets, and the pod's word for the claim."""
    found: dict[tuple[str, int], tuple[shape.Shape, str]] = {}
    for wish in wishes:
        if not (wish.passing and wish.shape.whole):
            found[wish.at] = (wish.shape, f"{_CLAIM}-{len(found)}")
    kept = [found[wish.at] for wish in wishes if wish.at[0] == "containers"]
    steps = [wish for wish in wishes if wish.passing and wish.shape.whole]
    alone: dict[str, list[_Wish]] = {}
    for wish in steps:
        enough = [claim for claim in kept if _covers(claim[0], wish.shape)]
        if enough:
            found[wish.at] = min(enough, key=lambda claim: claim[0].count)
        else:
            alone.setdefault(wish.shape.device_class, []).append(wish)
    for number, group in enumerate(alone.values(), len(wishes)):
        claim = (max((wish.shape for wish in group), key=lambda of: of.count), f"{_CLAIM}-{number}")
        found |= dict.fromkeys((wish.at for wish in group), claim)
    return found


def _covers(has: shape.Shape, wanted: shape.Shape) -> bool:
    return has.whole and has.device_class == wanted.device_class and has.count >= wanted.count


def _name_claims(pod: dict[str, Any], claims: Mapping[tuple[str, int], tuple[shape.Shape, str]]) -> None:
    spec = pod["spec"]
    listed = list(spec.get("resourceClaims") or ())
    taken = {item["name"] for item in listed}
    words: dict[str, str] = {}
    for of, word in dict.fromkeys(claims.values()):
        words[word] = free = next(
            name for number in range(len(taken) + 1) if (name := _numbered(word, number)) not in taken
        )
        taken.add(free)
        listed.append({"name": free, "resourceClaimTemplateName": shape.name(of)})
    spec["resourceClaims"] = listed
    for (key, index), (_, word) in claims.items():
        resources = spec[key][index].setdefault("resources", {})
        resources["claims"] = [*(resources.get("claims") or ()), {"name": words[word]}]


def _numbered(word: str, number: int) -> str:
    return f"{word}-{number}" if number else word


def _refuse_what_has_no_equal(pod: JSON) -> None:
    spec = pod["spec"]
    if node := spec.get("nodeName"):
        raise errors.Invalid(
            f"the pod names node {node} itself, so that no scheduler would allocate its cards; take nodeName out and "
            f"write nodeSelector {{kubernetes.io/hostname: {node}}} instead"
        )
    for key in pod.get("metadata", {}).get("annotations") or {}:
        prefix, _, choice = key.rpartition("/")
        if prefix == "nvidia.com" and choice in _CHOICES:
            raise errors.Invalid(
                f"annotation {key} chooses cards, which translation cannot carry over; choose by cards.productNames of "
                "an ElasticGPUClass, or write the claim by hand with a CEL selector"
            )


def _containers(pod: JSON) -> Iterator[tuple[str, int, Any]]:
    for key in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(key) or ()):
            yield key, index, container
