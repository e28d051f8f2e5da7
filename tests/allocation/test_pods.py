"""What a pod asks of a node beside cards, by kube-scheduler's rules."""

from typing import Any

import pytest

from allocation import nodes, pods

GIB = 1024**3


def a_node(**more: Any) -> nodes.Node:
    return pods.node({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}, "status": {}} | more)


def a_pod(**spec: Any) -> pods.Pod:
    found = pods.pod({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], **spec}})
    assert found is not None
    return found


def asks(cpu: str, memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


@pytest.mark.parametrize(
    ("spec", "room"),
    [
        ({"containers": [asks("1500m", "1Gi"), asks("1")]}, (2500, GIB)),
        ({"containers": [asks("1")], "initContainers": [asks("3")]}, (3000, 0)),
        ({"containers": [asks("1")], "initContainers": [asks("2", restartPolicy="Always"), asks("3")]}, (5000, 0)),
        ({"containers": [asks("1")], "overhead": {"cpu": "100m"}}, (1100, 0)),
    ],
)
def test_the_room_of_a_pod_is_its_largest_moment(spec: dict[str, Any], room: tuple[int, int]) -> None:
    found = a_pod(**spec).room
    assert (found.cpu, found.memory, found.pods) == (*room, 1)


@pytest.mark.parametrize(
    ("spec", "node", "why"),
    [
        ({}, {}, ""),
        ({"nodeSelector": {"zone": "b"}}, {}, "the pod's node selector"),
        ({}, {"spec": {"unschedulable": True}}, "the node's taint node.kubernetes.io/unschedulable"),
        ({}, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, "the node's taint k"),
        (
            {"tolerations": [{"key": "k", "operator": "Exists"}]},
            {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
            "",
        ),
        ({}, {"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}, ""),
        ({"containers": [asks("5")]}, {}, "too little cpu on the node"),
        ({"containers": [asks("1", "2Gi")]}, {}, "too little memory on the node"),
    ],
)
def test_where_a_pod_may_not_go_is_told_with_the_reason(spec: dict[str, Any], node: dict[str, Any], why: str) -> None:
    assert a_pod(**spec).goes_to(a_node(**node), pods.Room(cpu=4000, memory=GIB, pods=10)) == why


def test_required_affinity_needs_one_of_its_terms() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    room = pods.Room(cpu=1, memory=1, pods=1)
    assert a_pod(affinity={"nodeAffinity": rule}).goes_to(a_node(), room) == "the pod's node affinity"
    term["matchExpressions"][0]["operator"] = "NotIn"
    assert a_pod(affinity={"nodeAffinity": rule}).goes_to(a_node(), room) == ""


def test_a_pod_that_is_done_takes_nothing() -> None:
    assert pods.pod({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"phase": "Succeeded"}}) is None
