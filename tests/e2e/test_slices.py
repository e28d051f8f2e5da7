"""What the driver publishes, and how soon it is back when somebody takes it away."""

import json
import time

import pytest

from hack import release
from tests.e2e.manifests import a_pod, a_template
from tests.e2e.stage import LIMIT_S, Object, Stage, until
from tests.e2e.test_faults import devices

pytestmark = pytest.mark.e2e


def identities(stage: Stage) -> dict[str, tuple[str, str]]:
    return {
        found["metadata"]["name"]: (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
        for found in stage.slices()
    }


def at_rest(stage: Stage) -> dict[str, tuple[str, str]]:
    """The slices once three seconds have changed nothing: what a test before this one did is written behind it."""

    def unchanged() -> dict[str, tuple[str, str]] | None:
        before = identities(stage)
        time.sleep(3)
        return before if len(before) == 2 and identities(stage) == before else None

    found = until("nobody writes a slice", unchanged)
    assert found
    return found


def published(stage: Stage, node: str = "node1") -> Object:
    """The slice of a node, which is there or comes soon."""
    found = until(f"slice of {node}", lambda: stage.slice_of(node))
    assert found
    return found


def back(stage: Stage, node: str, uid: str, limit_s: float = LIMIT_S) -> Object:
    """The node's slice once it is another object than `uid`. How soon that is, the benchmark tells."""

    def another() -> Object | None:
        found = stage.slice_of(node)
        return found if found and found["metadata"]["uid"] != uid else None

    found = until(f"slice of {node} back", another, limit_s)
    assert found
    return found


def test_the_slice_of_a_node_with_cards(stage: Stage) -> None:
    found = published(stage)
    spec = found["spec"]
    (owner,) = found["metadata"]["ownerReferences"]
    node = stage.kubectl.objects("node", "node1")[0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "node1", node["metadata"]["uid"])
    assert owner["controller"] is True
    assert not owner.get("blockOwnerDeletion")
    assert spec["pool"] == {"name": "egpu/node1", "generation": spec["pool"]["generation"], "resourceSliceCount": 1}
    assert len(spec["devices"]) == 4
    for device in spec["devices"]:
        attributes = device["attributes"]
        assert device["name"] == attributes["uuid"]["string"].lower().replace("gpu-", "gpu-", 1)
        assert attributes["productName"] == {"string": "NVIDIA H100 80GB HBM3"}
        assert attributes["driverVersion"] == {"version": "580.95.5"}
        assert attributes["resource.kubernetes.io/pciBusID"]["string"].startswith("0000:")
        assert device["capacity"]["memory"]["value"] == "81559Mi"
        assert not device.get("taints")


def test_a_node_without_cards_says_that_its_driver_is_up(stage: Stage) -> None:
    found = published(stage, "node2")
    assert found["spec"]["pool"]["name"] == "egpu/node2"
    assert not found["spec"].get("devices")


def test_nothing_is_written_while_nothing_changes(stage: Stage) -> None:
    before = at_rest(stage)
    time.sleep(20)
    assert identities(stage) == before


def test_pods_that_come_and_go_change_no_slice(stage: Stage) -> None:
    before = at_rest(stage)
    stage.start(a_template(), a_pod(template="template"))
    stage.delete("pod", "pod")
    assert identities(stage) == before


def test_a_slice_that_is_deleted_by_hand_is_back(stage: Stage) -> None:
    """Three times in a row: the second deletion falls into the time after our own write."""
    for _ in range(3):
        before = published(stage)
        stage.kubectl("delete", "resourceslice", before["metadata"]["name"], "--wait=false")
        found = back(stage, "node1", before["metadata"]["uid"], 9)  # all is looked at every ten
        assert found["spec"]["devices"] == before["spec"]["devices"]


def test_a_slice_that_is_changed_by_hand_is_put_right(stage: Stage) -> None:
    at_rest(stage)  # else the driver's own write may come between reading and replacing
    before = published(stage)
    changed = {**before, "spec": {**before["spec"], "devices": before["spec"]["devices"][:1]}}
    stage.kubectl("replace", "-f", "-", text=json.dumps(changed))
    until("four cards again", lambda: len(devices(stage)) == 4)


def test_a_restart_of_the_kubelet_keeps_pods_and_brings_the_slice_back(stage: Stage) -> None:
    stage.start(a_template(), a_pod(template="template"))
    cards, before = stage.cards("pod"), published(stage)
    stage.cluster.restart_kubelet("node1")
    found = back(stage, "node1", before["metadata"]["uid"])
    assert found["spec"]["devices"] == before["spec"]["devices"]
    until("kubelet answers", lambda: stage.cards("pod") == cards if _answers(stage) else False)
    assert stage.get("pod", "pod")["status"]["containerStatuses"][0]["restartCount"] == 0
    # it may be bound before the kubelet knows the driver again
    stage.create(a_pod("after", template="template"))
    stage.ready_after_failures("after")
    assert stage.cards("after").keys().isdisjoint(cards)


def test_the_slices_of_a_driver_that_leaves_go_and_come_back_with_it(stage: Stage) -> None:
    """Half a minute after the driver left, the kubelet removes them."""
    stage.patch_driver({"spec": {"nodeSelector": {"elasticgpu.io/test": "nowhere"}}})
    try:
        until("node1's driver gone", lambda: not stage.driver_pods("node1"))
        assert stage.slice_of("node1")
        until("node2's driver gone", lambda: not stage.driver_pods("node2"))
        until("slices gone", lambda: not stage.slices())
    finally:
        stage.patch_driver({"spec": {"nodeSelector": {"elasticgpu.io/test": None}}})
        stage.rollout()
    until("four cards again", lambda: len(devices(stage)) == 4)
    stage.start(a_template(), a_pod(template="template"))


def test_a_rolling_update_keeps_the_very_same_slices_and_pods_start_meanwhile(stage: Stage) -> None:
    stage.start(a_template(), a_pod("before", template="template"))
    slices, old = at_rest(stage), {pod["metadata"]["uid"] for pod in stage.driver_pods("node1")}
    stage.patch_driver({"metadata": {"annotations": {"elasticgpu.io/test": str(time.monotonic())}}})
    for number in range(3):
        stage.start(a_pod(f"meanwhile-{number}", template="template"))
    stage.rollout()
    until("old driver gone", lambda: old.isdisjoint(pod["metadata"]["uid"] for pod in stage.driver_pods("node1")))
    assert identities(stage) == slices
    stage.delete("pod", "before")
    stage.start(a_pod("after", template="template"))


def test_an_update_that_does_not_start_leaves_the_old_driver_at_work(stage: Stage) -> None:
    slices = at_rest(stage)
    running = stage.kubectl.objects("daemonset", f"{release.NAME}-node", "-n", release.NAMESPACE)[0]
    image = running["spec"]["template"]["spec"]["containers"][0]["image"]
    stage.patch_driver({"spec": {"containers": [{"name": "driver", "image": "registry.local/no-such-image:1"}]}})
    try:
        nodes = stage.cluster.nodes  # which comes first is the DaemonSet's choice
        until("new pod is tried", lambda: any(len(stage.driver_pods(node)) == 2 for node in nodes))
        stage.start(a_template(), a_pod(template="template"))
        assert identities(stage) == slices
    finally:
        stage.patch_driver({"spec": {"containers": [{"name": "driver", "image": image}]}})
        stage.rollout()
    stage.delete("pod", "pod")
    assert identities(stage) == slices


def _answers(stage: Stage) -> bool:
    try:
        stage.inside("pod", "true")
    except Exception:  # noqa: BLE001 - the kubelet is on its way
        return False
    return True
