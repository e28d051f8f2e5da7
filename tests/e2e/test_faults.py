"""Things go wrong on the node: nothing is lost, nothing is given out twice, nobody waits for ever."""

import os
import signal
from collections.abc import Iterator

import pytest

from hack.cluster import cards
from tests.e2e import manifests
from tests.e2e.manifests import a_claim, a_pod, a_template
from tests.e2e.stage import CDI, Object, Stage, until

pytestmark = pytest.mark.e2e
CARDS_FILE = f"{cards.DRIVER_ROOT}/{cards.CARDS_FILE}"


def test_a_second_pod_on_a_claim_starts_although_the_cdi_files_were_lost(stage: Stage) -> None:
    """The kubelet makes no Prepare call for it: the driver puts the file back by itself."""
    stage.start(a_claim(), a_pod("one", claim="claim"))
    uid = stage.get("resourceclaim", "claim")["metadata"]["uid"]
    before = {name for name in stage.cdi_files() if uid in name}
    assert before
    for name in before:
        (stage.cluster.host_path("node1", CDI) / name).unlink()
    until("files are back", lambda: stage.cdi_files() >= before)
    stage.start(a_pod("two", claim="claim"))
    assert stage.cards("two") == stage.cards("one")


def test_a_cdi_file_that_was_altered_is_put_right(stage: Stage) -> None:
    stage.start(a_claim(), a_pod("one", claim="claim"))
    uid = stage.get("resourceclaim", "claim")["metadata"]["uid"]
    (path,) = (path for path in stage.cluster.host_path("node1", CDI).iterdir() if uid in path.name)
    text = path.read_text()
    path.write_text(text.replace("nvidia-uvm", "nvidia-xxx"))
    until("file is as it was", lambda: path.exists() and path.read_text() == text)


def test_the_driver_is_killed_while_a_pod_stops(stage: Stage) -> None:
    stage.start(a_template(), a_pod(template="template"))
    uid = stage.claim_of("pod")["metadata"]["uid"]
    stage("delete", "pod", "pod", "--grace-period=1", "--wait=false")
    _kill(stage)
    stage.gone("pod", "pod", 240)  # the driver's second death is followed by a pause of the kubelet's
    until("CDI file gone", lambda: not any(uid in name for name in stage.cdi_files()))


def test_the_driver_is_killed_while_pods_start(stage: Stage) -> None:
    stage.create(a_template(), *(a_pod(f"pod-{number}", template="template") for number in range(4)))
    _kill(stage)
    stage.ready_after_failures(*(f"pod-{number}" for number in range(4)))
    assert len({card for number in range(4) for card in stage.cards(f"pod-{number}").values()}) == 4


def test_a_pod_stays_until_its_driver_is_back_to_release_its_card(stage: Stage) -> None:
    stage.start(a_template(), a_pod(template="template"))
    stage.patch_driver({"spec": {"nodeSelector": {"elasticgpu.io/test": "nowhere"}}})
    try:
        until("driver gone", lambda: not stage.driver_pods("node1", leaving=True))
        stage("delete", "pod", "pod", "--grace-period=1", "--wait=false")
        until("container stopped", lambda: _stopped(stage.get("pod", "pod")))
        assert stage.get("pod", "pod")["metadata"]["deletionTimestamp"]
    finally:
        stage.patch_driver({"spec": {"nodeSelector": {"elasticgpu.io/test": None}}})
        stage.rollout()
    stage.gone("pod", "pod", 240)


def test_a_pod_deleted_by_force_and_made_again_under_its_name(stage: Stage) -> None:
    """The kubelet waits for the old claim's end; the new one must get a card all the same."""
    stage.start(a_claim(), a_pod(claim="claim"))
    old = stage.get("resourceclaim", "claim")["metadata"]["uid"]
    stage("delete", "pod", "pod", "--force", "--grace-period=0")
    stage("delete", "resourceclaim", "claim")
    stage.create(a_claim(), a_pod(claim="claim"))
    stage.ready_after_failures("pod")
    assert stage.get("resourceclaim", "claim")["metadata"]["uid"] != old
    assert len(stage.cards("pod")) == 1
    until("old CDI file gone", lambda: not any(old in name for name in stage.cdi_files()))


def test_pods_stop_while_the_api_server_is_down(stage: Stage) -> None:
    """Unprepare needs no API server: the CDI file goes while there is none."""
    stage.start(a_template(), a_pod(template="template"))
    uid, pod_uid = stage.claim_of("pod")["metadata"]["uid"], stage.get("pod", "pod")["metadata"]["uid"]
    stage.cluster.stop_apiserver()
    try:
        for process in stage.processes(pod_uid, manifests.STAY.encode()):
            os.kill(process, signal.SIGTERM)
        until("CDI file gone", lambda: not any(uid in name for name in stage.cdi_files()))
    finally:
        stage.cluster.start_apiserver()
    stage("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/pod", "--timeout=240s")
    until("no claim left", lambda: not stage.kubectl.objects("resourceclaims", "-n", stage.namespace))
    stage.start(a_pod("after", template="template"))


def test_the_container_runtime_is_restarted(stage: Stage) -> None:
    stage.start(a_claim(), a_pod("one", claim="claim"))
    stage.cluster.restart_containerd("node1")
    stage.start(a_pod("two", claim="claim"))
    assert stage.cards("two") == stage.cards("one")


@pytest.fixture
def cards_file(stage: Stage) -> Iterator["CardsFile"]:
    found = CardsFile(stage)
    yield found
    found.restore()
    until("four healthy cards", lambda: [bool(device.get("taints")) for device in devices(stage)] == [False] * 4)


class CardsFile:
    """The text file that the stand-in for NVML reads: edited by renaming over it, so that no half of it is read."""

    def __init__(self, stage: Stage) -> None:
        self._path = stage.cluster.host_path("node1", CARDS_FILE)
        self.before = self._path.read_text()

    def change(self, uuid: str, words: str) -> None:
        lines = [f"{line} {words}" if f"uuid={uuid} " in f"{line} " else line for line in self.before.splitlines()]
        self._write("\n".join(lines) + "\n")

    def take_out(self, uuid: str) -> None:
        self._write("".join(f"{line}\n" for line in self.before.splitlines() if f"uuid={uuid}" not in line))

    def event(self, words: str) -> None:
        with self._path.with_name(f"{self._path.name}.events").open("a") as events:
            events.write(f"{words}\n")

    def restore(self) -> None:
        self._write(self.before)

    def _write(self, text: str) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(text)
        fresh.replace(self._path)


def devices(stage: Stage) -> list[Object]:
    found = stage.slice_of("node1")
    return found["spec"].get("devices") or [] if found else []


def tainted(stage: Stage) -> dict[str, list[str]]:
    """UUID -> keys of its taints."""
    return {
        device["attributes"]["uuid"]["string"]: [taint["key"] for taint in device.get("taints", [])]
        for device in devices(stage)
    }


def health(stage: Stage, pod: str) -> list[str]:
    statuses = stage.get("pod", pod)["status"]["containerStatuses"][0].get("allocatedResourcesStatus", [])
    return [resource["health"] for status in statuses for resource in status["resources"]]


@pytest.mark.needs("DRADeviceTaints", "ResourceHealthStatus")
def test_a_lost_card_costs_only_itself_and_comes_back(stage: Stage, cards_file: CardsFile) -> None:
    stage.start(a_template(), a_pod("holder", template="template"), a_pod("other", template="template"))
    (uuid,), (healthy,) = stage.cards("holder").values(), stage.cards("other").values()
    for pod in ("holder", "other"):
        until(f"{pod} healthy in its status", lambda pod=pod: health(stage, pod) == ["Healthy"])  # type: ignore[misc]
    cards_file.change(uuid, "lost=true")
    until("taint of the lost card", lambda: tainted(stage).get(uuid) == ["gpu.elasticgpu.io/lost"])
    assert len(tainted(stage)) == 4
    assert tainted(stage)[healthy] == []
    until("unhealthy in the pod's status", lambda: health(stage, "holder") == ["Unhealthy"])
    assert health(stage, "other") == ["Healthy"]
    stage.start(a_pod("new", template="template"))
    assert uuid not in stage.cards("new").values()
    cards_file.restore()
    until("no taint any more", lambda: tainted(stage).get(uuid) == [])
    until("healthy again", lambda: health(stage, "holder") == ["Healthy"])


@pytest.mark.needs("DRADeviceTaints")
def test_pods_can_stop_on_a_lost_card(stage: Stage, cards_file: CardsFile) -> None:
    stage.start(a_template(), a_pod(template="template"))
    (uuid,) = stage.cards("pod").values()
    cards_file.take_out(uuid)
    until("taint of the lost card", lambda: tainted(stage).get(uuid) == ["gpu.elasticgpu.io/lost"])
    stage.delete("pod", "pod")


@pytest.mark.needs("DRADeviceTaints")
def test_an_xid_taints_the_card_until_it_was_reset(stage: Stage, cards_file: CardsFile) -> None:
    uuid = next(iter(until("the cards", lambda: tainted(stage))))
    cards_file.event(f"xid {uuid} 79")
    until("taint of the card", lambda: tainted(stage).get(uuid) == ["gpu.elasticgpu.io/xid"])
    assert [keys for card, keys in tainted(stage).items() if card != uuid] == [[], [], []]
    cards_file.take_out(uuid)
    until("the card is away", lambda: tainted(stage).get(uuid) != ["gpu.elasticgpu.io/xid"])
    cards_file.restore()
    until("no taint any more", lambda: tainted(stage).get(uuid) == [])


def _kill(stage: Stage) -> None:
    """kill -9 of node1's driver, as the kernel would for want of memory; one that was killed before is waited for."""

    def running() -> list[int]:
        pods = [pod["metadata"]["uid"] for pod in stage.driver_pods("node1")]
        return [process for uid in pods for process in stage.processes(uid, b"egpu-node")]

    for process in until("the driver runs", running):
        os.kill(process, signal.SIGKILL)


def _stopped(pod: Object) -> bool:
    return all("terminated" in status["state"] for status in pod["status"].get("containerStatuses", []))
