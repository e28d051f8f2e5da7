"""Pods as far as they decide where claims may be allocated, and what nodes have left for them.

    Pod's and Node's JSON --> pod, node --> Pod.goes_to(node, room)

The rules of kube-scheduler for node selector, required node affinity, taints, CPU, memory and the number of pods. What
else it looks at (other resources, ports, volumes, affinity between pods, spread) is not known here: where that forbids
the node, kube-scheduler takes the allocation back, and the controller tries another one.
"""

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from allocation import amounts, nodes
from api import names

JSON = Mapping[str, Any]
T = TypeVar("T")
_STOPPING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """CPU in thousandths, memory in bytes, and pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0

    def without(self, other: "Room") -> "Room":
        return Room(cpu=self.cpu - other.cpu, memory=self.memory - other.memory, pods=self.pods - other.pods)

    def holds(self, other: "Room") -> bool:
        return other.cpu <= self.cpu and other.memory <= self.memory and other.pods <= self.pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """`claims`: the claim objects that it names, empty where one is not made yet.

    gang: with whom it is allocated, all or none; gang_size: how many they are; group: its PodGroup, if it has one.
    """

    namespace: str
    name: str
    uid: str
    created: str
    node: str
    waiting: bool
    room: Room
    claims: tuple[str, ...]
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[nodes.Term, ...] | None = None
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    priority: int = 0
    gang: str = ""
    gang_size: int = 0
    group: str = ""

    def goes_to(self, node: nodes.Node, free: Room) -> str:
        """Why it cannot go to the node; empty where it can."""
        if any(node.labels.get(key) != value for key, value in self.selector):
            return "the pod's node selector"
        if self.terms is not None and not any(term.matches(node) for term in self.terms):
            return "the pod's node affinity"
        for taint in node.taints:
            if not any(_tolerates(one, taint) for one in self.tolerations):
                return f"the node's taint {taint[0]}"
        if not free.holds(self.room):
            short = [name for name in ("cpu", "memory", "pods") if getattr(self.room, name) > getattr(free, name)]
            return f"too little {' and '.join(short)} on the node"
        return ""


def pod(data: JSON) -> Pod | None:
    """None for a pod that is done."""
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    made = {one["name"]: one.get("resourceClaimName") or "" for one in status.get("resourceClaimStatuses") or ()}
    named, notes = spec.get("resourceClaims") or (), meta.get("annotations") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    node = spec.get("nodeName") or ""
    return Pod(
        namespace=sys.intern(meta.get("namespace", "")),
        name=sys.intern(meta["name"]),
        uid=sys.intern(meta.get("uid", "")),
        created=sys.intern(meta.get("creationTimestamp", "")),
        node=sys.intern(node),
        waiting=not node and "deletionTimestamp" not in meta and not spec.get("schedulingGates"),
        room=_alike(_asked(spec)),
        claims=tuple(sys.intern(one.get("resourceClaimName") or made.get(one["name"], "")) for one in named),
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        terms=nodes.terms(affinity) if affinity else None,
        tolerations=_alike(tuple(map(_toleration, spec.get("tolerations") or ()))),
        priority=spec.get("priority") or 0,
        gang=notes.get(names.GANG_ANNOTATION) or "",
        gang_size=_number(notes.get(names.GANG_SIZE_ANNOTATION)),
        group=(spec.get("schedulingGroup") or {}).get("podGroupName") or "",
    )


def node(data: JSON) -> nodes.Node:
    """With taints that keep pods away, and what it has for pods."""
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    taints = [
        (one["key"], one.get("value") or "", one["effect"])
        for one in spec.get("taints") or ()
        if one["effect"] in _STOPPING
    ]
    if spec.get("unschedulable") and not any(one[0] == _UNSCHEDULABLE for one in taints):
        taints.append((_UNSCHEDULABLE, "", "NoSchedule"))
    has = status.get("allocatable") or {}
    return nodes.Node(
        name=sys.intern(meta["name"]),
        labels={sys.intern(key): sys.intern(value) for key, value in (meta.get("labels") or {}).items()},
        taints=tuple(taints),
        room=(_milli(has.get("cpu")), int(amounts.amount(has.get("memory") or 0)), int(has.get("pods") or 0)),
    )


def room(of: nodes.Node) -> Room:
    cpu, memory, count = of.room
    return Room(cpu=cpu, memory=memory, pods=count)


def _asked(spec: JSON) -> Room:
    """The sum of the containers, or the largest moment of the start, by the rules for sidecars; and the overhead."""
    sums, side, most = [0, 0], [0, 0], [0, 0]
    for one in spec.get("initContainers") or ():
        asked = _requests(one)
        moment = [running + asking for running, asking in zip(side, asked, strict=True)]
        if one.get("restartPolicy") == "Always":
            side = moment
        most = [max(pair) for pair in zip(most, moment, strict=True)]
    for one in spec.get("containers") or ():
        sums = [sum(pair) for pair in zip(sums, _requests(one), strict=True)]
    running = [sum(pair) for pair in zip(sums, side, strict=True)]
    overhead = spec.get("overhead") or {}
    extra = (_milli(overhead.get("cpu")), int(amounts.amount(overhead.get("memory") or 0)))
    cpu, memory = (max(pair) + more for pair, more in zip(zip(running, most, strict=True), extra, strict=True))
    return Room(cpu=cpu, memory=memory, pods=1)


def _requests(container: JSON) -> tuple[int, int]:
    asked = (container.get("resources") or {}).get("requests") or {}
    return _milli(asked.get("cpu")), int(amounts.amount(asked.get("memory") or 0))


def _milli(value: Any) -> int:
    return int(amounts.amount(value or 0) * 1000)


@functools.lru_cache(maxsize=4096)
def _alike(value: T) -> T:
    """The same object for equal values: most pods of a cluster have these in common."""
    return value


def _number(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


def _toleration(data: JSON) -> tuple[str, str, str, str]:
    return (data.get("key") or "", data.get("operator") or "Equal", data.get("value") or "", data.get("effect") or "")


def _tolerates(toleration: tuple[str, str, str, str], taint: tuple[str, str, str]) -> bool:
    key, operator, value, effect = toleration
    if (effect and effect != taint[2]) or (key and key != taint[0]):
        return False
    return operator == "Exists" or (operator == "Equal" and value == taint[1])


def total(rooms: Iterable[Room]) -> Room:
    found = Room()
    for one in rooms:
        found = Room(cpu=found.cpu + one.cpu, memory=found.memory + one.memory, pods=found.pods + one.pods)
    return found
