"""Shares held by the card's own driver: NVIDIA's real hook sets the limit, and a program inside runs into it.

The node gets a newer driver for these tests, as an update of its package would bring it. What stands for NVML and the
kernel keeps the limits and refuses what is beyond them; `fake-cuda` in the container is the program that allocates.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack import release
from hack.cluster import cards
from tests.e2e.manifests import a_container, a_pod, a_template
from tests.e2e.stage import Object, Stage, becomes, until
from tests.e2e.test_faults import devices

pytestmark = pytest.mark.e2e
CLASS = "driver-held.example.com"
NODE = "node1"
SHARES = {
    "apiVersion": "elasticgpu.io/v1alpha1",
    "kind": "ElasticGPUClass",
    "metadata": {"name": CLASS},
    "spec": {"backend": "Share", "share": {"memory": "Required", "cores": "BestEffort", "accept": ["Driver"]}},
}
MOUNTS = (("fake", f"{cards.DRIVER_ROOT}/{cards.LIBRARIES}", "/fake"), ("memory", cards.MEMORY, cards.MEMORY))


def driver_root(stage: Stage) -> Path:
    return stage.cluster.host_path(NODE, cards.DRIVER_ROOT)


def rung(stage: Stage) -> set[str]:
    return {device["attributes"]["memoryEnforcement"]["string"] for device in devices(stage)}


@pytest.fixture
def limits(stage: Stage) -> Iterator[Stage]:
    """The node with a driver that limits control groups, and a class that takes nothing less."""
    cards.install(driver_root(stage), cards.LIMITING)
    until("the cards say what holds their shares", lambda: rung(stage) == {"driver"})
    stage.create(SHARES)
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{CLASS}", "--timeout=120s")
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    stage.kubectl("delete", "elasticgpuclass", CLASS)
    cards.install(driver_root(stage), cards.DRIVER)
    until("the old driver is back", lambda: rung(stage) == {"none"})


def a_share(memory: str, name: str = "card") -> Object:
    amounts = {"cores": "10", "memory": memory}
    return {"name": name, "exactly": {"deviceClassName": CLASS, "capacity": {"requests": amounts}}}


def with_programs(pod: Object) -> Object:
    """The pod with what stands for CUDA in each of its containers."""
    spec = pod["spec"]
    spec["volumes"] = [{"name": name, "hostPath": {"path": host}} for name, host, _ in MOUNTS]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container["volumeMounts"] = [{"name": name, "mountPath": inside} for name, _, inside in MOUNTS]
    return pod


def cuda(stage: Stage, pod: str, words: str, container: str = "main") -> str:
    """What a program in the container gets of its card."""
    (uuid,) = stage.cards(pod, container).values()
    return stage.inside(pod, f"/fake/fake-cuda {uuid} {words} || true", container).strip()


def data_of(stage: Stage, pod: str) -> Any:
    (device,) = stage.status_of_devices(stage.claim_of(pod)["metadata"]["name"])
    return device["data"]


def test_two_pods_on_one_card_run_into_their_own_limits(limits: Stage) -> None:
    for name, memory in (("small", "1Gi"), ("large", "40Gi")):
        limits.start(a_template(name, requests=[a_share(memory)]), with_programs(a_pod(name, template=name)))
    assert limits.cards("small") == limits.cards("large")
    assert cuda(limits, "small", "info") == "free 1024 MiB, total 1024 MiB"
    assert cuda(limits, "large", "info") == "free 40960 MiB, total 40960 MiB"
    assert cuda(limits, "small", "alloc 1000 30") == (
        "allocated 1000 MiB\nout of memory: 30 MiB asked, 24 of 1024 MiB free"
    )
    assert cuda(limits, "large", "alloc 40960") == "allocated 40960 MiB"
    assert data_of(limits, "small")["enforcement"] == {"memory": "driver", "cores": "none"}


def test_what_a_pod_writes_into_its_environment_raises_no_limit(limits: Stage) -> None:
    container = a_container()
    container["env"] = [{"name": f"NVIDIA_GPU_MEMORY_{word}", "value": "81559"} for word in ("LIMIT", "REQUEST")]
    limits.start(
        a_template(requests=[a_share("2Gi")]), with_programs(a_pod(template="template", containers=[container]))
    )
    assert cuda(limits, "pod", "info") == "free 2048 MiB, total 2048 MiB"


def test_a_container_that_starts_again_has_its_limit_again(limits: Stage) -> None:
    container = a_container(command="sleep infinity & wait")
    pod = a_pod(template="template", containers=[container], restartPolicy="Always")
    limits.start(a_template(requests=[a_share("1Gi")]), with_programs(pod))
    (status,) = limits.get("pod", "pod")["status"]["containerStatuses"]
    own = status["containerID"].rpartition("/")[2]
    for pid in until("the shell has started it", lambda: limits.processes(own, b"sleep\0infinity")):
        os.kill(pid, signal.SIGKILL)

    def again() -> bool:
        (status,) = limits.get("pod", "pod")["status"]["containerStatuses"]
        return bool(status["restartCount"] >= 1 and status["ready"])

    until("the container runs again", again)
    assert cuda(limits, "pod", "info") == "free 1024 MiB, total 1024 MiB"


def test_containers_on_one_share_have_one_limit_together(limits: Stage) -> None:
    both = [
        a_container("main"),
        a_container("second", command="/fake/fake-cuda $(env | sed -n 's/^ELASTIC_GPU_CARD_.*=//p') hold 700"),
    ]
    pod = a_pod(template="template", containers=both, initContainers=[a_container("before", command="true")])
    limits.start(a_template(requests=[a_share("1Gi")]), with_programs(pod))
    until("the second one has its memory", lambda: "allocated" in limits("logs", "pod", "-c", "second"))
    assert cuda(limits, "pod", "alloc 300") == "allocated 300 MiB"
    assert cuda(limits, "pod", "alloc 400") == "out of memory: 400 MiB asked, 324 of 81559 MiB free"
    uid = limits.get("pod", "pod")["metadata"]["uid"]
    kept = limits.cluster.host_path(NODE, cards.MEMORY) / "memory"
    assert re.search(rf"^limit .* 0 {1 << 30} /\S*{uid}\s*$", kept.read_text(), re.MULTILINE)
    limits.delete("pod", "pod")
    until("the limit is gone", lambda: f"{uid} " not in kept.read_text())


def test_a_hook_that_fails_keeps_the_container_from_starting(limits: Stage) -> None:
    """Never without its limit: what the runtime says of the hook is in the pod's events, and the pod runs when it is mended."""
    hook = driver_root(limits) / "usr/bin/nvidia-cdi-hook"
    good = hook.read_text() if hook.with_suffix(".real").exists() else ""
    if not good:
        pytest.skip("only where the hook is started by a script of ours")
    hook.write_text(good.replace("exec /usr/bin/unshare", "echo the driver says no >&2; exit 1; exec /usr/bin/unshare"))
    try:
        limits.create(
            a_template(requests=[a_share("1Gi")]), with_programs(a_pod(template="template", restartPolicy="Always"))
        )
        limits.event("the driver says no")
    finally:
        hook.write_text(good)
    limits("wait", "--for=condition=Ready", "pod/pod", "--timeout=240s")
    assert cuda(limits, "pod", "info") == "free 1024 MiB, total 1024 MiB"


def test_a_node_whose_hook_is_missing_holds_nothing_and_says_so(limits: Stage) -> None:
    hook = driver_root(limits) / "usr/bin/nvidia-cdi-hook"
    away = hook.with_name("away")
    hook.rename(away)
    try:
        until("the cards say so", lambda: rung(limits) == {"none"})
        limits.create(a_template(requests=[a_share("1Gi")]), a_pod(template="template"))
        limits.pending_because("pod", "cannot allocate all claims")
    finally:
        away.rename(hook)
    until("the cards are held again", lambda: rung(limits) == {"driver"})
    limits.ready("pod")


def _hasty(**patch: str) -> Object:
    """The node driver looks at claims and use more often than it has to, or as usual again."""
    settings = {"SWEEP_S": "2", "MEASURE_S": "1", "UNBOOKED_S": "6", "UNBOOKED_TAINT_MIB": "2000"}
    env = [{"name": f"EGPU_{name}", "value": value, **patch} for name, value in settings.items()]
    return {"spec": {"containers": [{"name": "driver", "env": env}]}}


@pytest.fixture
def measured(limits: Stage) -> Iterator[Stage]:
    limits.patch_driver(_hasty())
    limits.rollout()
    yield limits
    limits("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    limits.patch_driver(_hasty(**{"$patch": "delete"}))
    limits.rollout()


def series(stage: Stage, name: str, **labels: str) -> list[float]:
    """Of the node's driver, those with these labels."""
    (pod,) = stage.driver_pods(NODE)
    path = f"/api/v1/namespaces/{release.NAMESPACE}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    lines = stage.kubectl("get", "--raw", path).splitlines()
    return [
        float(line.split()[-1])
        for line in lines
        if line.startswith(f"elasticgpu_{name}{{") and all(word in line for word in wanted)
    ]


def _verified(stage: Stage, pod: str) -> Any:
    data = data_of(stage, pod)
    return data if "verified" in data else None


HOLD = "/fake/fake-cuda $(env | sed -n 's/^ELASTIC_GPU_CARD_.*=//p') hold"


def test_a_claim_tells_its_limit_its_use_and_when_the_limit_was_seen_in_force(measured: Stage) -> None:
    measured.start(
        *(a_template(name, requests=[a_share(memory)]) for name, memory in (("small", "1Gi"), ("large", "40Gi"))),
        with_programs(a_pod("small", template="small")),
        with_programs(a_pod("large", template="large", containers=[a_container(command=f"{HOLD} 5000")])),
    )
    uids = {name: measured.claim_of(name)["metadata"]["uid"] for name in ("small", "large")}
    until(
        "the program's memory is seen",
        lambda: series(measured, "claim_memory_used_bytes", claim_uid=uids["large"]) == [5000 << 20],
    )
    becomes([0], lambda: series(measured, "claim_memory_used_bytes", claim_uid=uids["small"]))
    assert series(measured, "claim_memory_limit_bytes", claim_uid=uids["small"]) == [1 << 30]
    until(
        "both limits were seen in force",
        lambda: all(
            any(series(measured, "claim_limit_verified_timestamp_seconds", claim_uid=uid)) for uid in uids.values()
        ),
    )
    data = until("the claim says when", lambda: _verified(measured, "large"))
    assert (data["memory"], data["limit"], data["enforcement"]["memory"]) == ("40Gi", {"memory": "40Gi"}, "driver")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", data["verified"])


def test_a_process_that_nobody_booked_for_shows_on_the_card_and_keeps_new_pods_away(
    measured: Stage, tmp_path: Path
) -> None:
    """HAMi#1069: processes outside Kubernetes fill a card."""
    text = (driver_root(measured) / cards.CARDS_FILE).read_text()
    file = tmp_path / "fake-nvml.cards"
    file.write_text(text.replace(cards.MEMORY, str(measured.cluster.host_path(NODE, cards.MEMORY))))
    (uuid, *_) = re.findall(r"uuid=(\S+)", text)

    def shown() -> tuple[list[str], list[str]]:
        cards = [one["status"] for one in measured.kubectl.objects("elasticgpus") if one["status"].get("uuid") == uuid]
        conditions = [one for card in cards for one in card.get("conditions", ()) if one["type"] == "UsedAsBooked"]
        own = [one for one in devices(measured) if one["attributes"]["uuid"]["string"] == uuid]
        taints = [taint for one in own for taint in one.get("taints", ())]
        return [one["status"] for one in conditions], [f"{one['key']}={one['value']}:{one['effect']}" for one in taints]

    program = (driver_root(measured) / cards.LIBRARIES / "fake-cuda", uuid, "hold", "3000")
    with subprocess.Popen(program, env={"FAKE_NVML_CARDS": str(file)}, stdout=subprocess.DEVNULL) as stranger:
        try:
            becomes((["False"], ["gpu.elasticgpu.io/used-beyond-booking=2Gi:NoSchedule"]), shown)
        finally:
            stranger.kill()
    becomes((["True"], []), shown)


def test_the_limit_of_a_running_share_follows_its_claims_annotation(measured: Stage) -> None:
    """HAMi#740, #1224: resize without a restart."""
    pod = with_programs(a_pod(template="template"))
    measured.start(a_template(requests=[a_share("1Gi")]), pod)
    claim = measured.claim_of("pod")["metadata"]["name"]

    def ask(text: str) -> None:
        measured("annotate", "--overwrite", "resourceclaim", claim, f"elasticgpu.io/memory-limit{text}")

    def condition() -> tuple[str, str]:
        (device,) = measured.status_of_devices(claim)
        (found,) = device.get("conditions") or [{"reason": "", "message": ""}]
        return found["reason"], found["message"]

    ask("=512Mi")
    until("the container has less", lambda: cuda(measured, "pod", "info") == "free 512 MiB, total 512 MiB")
    until("the claim says so", lambda: condition() == ("Applied", "request card is held to 512Mi"))
    becomes({"memory": "512Mi"}, lambda: data_of(measured, "pod").get("limit"))
    ask("=2Gi")
    until("more than is booked is refused", lambda: condition()[0] == "Refused")
    assert "A booking cannot grow: make a new claim for more" in condition()[1]
    assert cuda(measured, "pod", "info") == "free 512 MiB, total 512 MiB"
    ask("-")
    until("it has what it booked", lambda: cuda(measured, "pod", "info") == "free 1024 MiB, total 1024 MiB")
    until("nothing is left to say", lambda: condition() == ("", ""))
