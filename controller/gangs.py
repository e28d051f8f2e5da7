"""Pods that are of no use alone: which ones belong together, and how many of them have to get their cards at once.

    pod --of--> Gang: named by our annotations, or a PodGroup of Kubernetes that kube-scheduler places together, too
    PodGroup's JSON --least--> its minCount; NONE where its pods are scheduled one by one

A pod of a PodGroup whose annotations name a gang belongs to the PodGroup: kube-scheduler goes by that, and two gangs that
overlap would wait for each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocation import pods

PATH = "/apis/scheduling.k8s.io/v1beta1"
KIND = "podgroups"
NONE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """`group`: a PodGroup."""

    namespace: str
    name: str
    group: bool

    def __str__(self) -> str:
        return f"PodGroup {self.name}" if self.group else f"gang {self.name}"


def of(pod: pods.Pod | None) -> Gang | None:
    if pod is None or not (pod.group or pod.gang):
        return None
    return Gang(namespace=pod.namespace, name=pod.group or pod.gang, group=bool(pod.group))


def least(data: Mapping[str, Any]) -> int:
    gang = (data["spec"].get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minCount") or NONE)


def needed(pod: pods.Pod, groups: Mapping[str, int]) -> int | None:
    """How many have to be allocated together; None while the PodGroup is not known."""
    return groups.get(f"{pod.namespace}/{pod.group}") if pod.group else pod.gang_size
