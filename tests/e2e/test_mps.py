"""Shares held by MPS on a real cluster: our driver runs the daemon in its pod, and programs in containers are its clients.

What stands for NVIDIA's programs (tests/fakes/mps) is put into the driver root of the node, as the driver's package would.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack import release
from hack.cluster import cards, cgroups
from tests.e2e.manifests import a_container, a_pod, a_template
from tests.e2e.stage import NODE_PODS, Object, Stage, until
from tests.e2e.test_faults import devices
from tests.fakes.mpsdriver import SOURCE

pytestmark = pytest.mark.e2e
CLASS = "mps-held.example.com"
NODE = "node1"
PROGRAMS = "/run/nvidia/programs"
DAEMON = b"nvidia-cuda-mps-control\0-p"
SHARES = {
    "apiVersion": "elasticgpu.io/v1alpha1",
    "kind": "ElasticGPUClass",
    "metadata": {"name": CLASS},
    "spec": {"backend": "Share", "share": {"memory": "Required", "cores": "Required", "accept": ["MPS"]}},
}


@pytest.fixture(scope="module")
def node(cluster: Any, admin: Any, installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The driver root of a node whose driver has MPS, and our release with `node.mps`; as before when they are over."""
    root, built = cluster.host_path(NODE, cards.DRIVER_ROOT), tmp_path_factory.mktemp("mps")
    library = root / cards.LIBRARIES / f"libcuda.so.{cards.DRIVER}"
    shutil.copy2(library, built / "before")
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    subprocess.run(["gcc", *flags, "-o", built / "libcuda", SOURCE / "libcuda.c"], check=True)
    programs = cluster.host_path(NODE, PROGRAMS)
    programs.mkdir(exist_ok=True)
    static = [SOURCE / "program.c", SOURCE / "libcuda.c"]
    subprocess.run(["gcc", "-static", "-o", programs / "mps-program", *static], check=True)
    shutil.copy2(built / "libcuda", library)
    shutil.copy2(SOURCE / "nvidia-cuda-mps-control", root / "usr/bin")
    reference, _ = release.image()
    wanted = release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified()))
    _upgrade(admin, wanted | {"node": {"mps": True}})
    yield root
    shutil.copy2(built / "before", library)
    (root / "usr/bin/nvidia-cuda-mps-control").unlink()  # before the next driver looks at what the host gives
    _upgrade(admin, wanted)
    shutil.rmtree(programs)


def _upgrade(admin: Any, wanted: dict[str, Any]) -> None:
    """With MPS nobody but us ends the driver's pods."""
    release.install(admin, wanted)

    def seen() -> bool:
        (found,) = admin.objects("daemonset", f"{release.NAME}-node", "-n", release.NAMESPACE)
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    until("the DaemonSet makes pods of the new template", seen)
    admin("-n", release.NAMESPACE, "delete", "pods", "-l", NODE_PODS, "--wait=true")
    ready(admin)


def ready(admin: Any) -> None:
    """`kubectl rollout status` has no word for pods that are not replaced by themselves."""

    def all_ready() -> bool:
        pods = admin.objects("pods", "-n", release.NAMESPACE, "-l", NODE_PODS)
        conditions = [one for pod in pods for one in pod["status"].get("conditions", ())]
        return len(pods) == 2 and sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions) == 2

    until("both driver pods ready", all_ready, 240)


@pytest.fixture
def mps(node: Path, stage: Stage) -> Iterator[Stage]:
    # on this machine its driver sees the daemons of other tests, too, and waits until they are gone
    until("the cards say what holds their shares", lambda: words(stage) == {"mps"}, 300)
    stage.create(SHARES)
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{CLASS}", "--timeout=120s")
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    stage.kubectl("delete", "elasticgpuclass", CLASS)


def words(stage: Stage) -> set[str]:
    """What the cards of the node say that holds their shares."""
    names = ("memoryEnforcement", "coresEnforcement")
    return {device["attributes"][name]["string"] for device in devices(stage) for name in names}


def a_share(cores: str, memory: str) -> Object:
    return {
        "name": "card",
        "exactly": {"deviceClassName": CLASS, "capacity": {"requests": {"cores": cores, "memory": memory}}},
    }


def with_program(pod: Object) -> Object:
    pod["spec"]["volumes"] = [{"name": "programs", "hostPath": {"path": PROGRAMS}}]
    for container in pod["spec"]["containers"]:
        container["volumeMounts"] = [{"name": "programs", "mountPath": "/programs"}]
    return pod


def takes(stage: Stage, pod: str, mib: int, container: str = "main") -> str:
    """What a program in the container gets."""
    return stage.inside(pod, f"/programs/mps-program {mib}", container).strip()


def start(stage: Stage, name: str, cores: str, memory: str, **more: Any) -> None:
    stage.start(a_template(name, requests=[a_share(cores, memory)]), with_program(a_pod(name, template=name, **more)))


def test_programs_of_two_pods_on_one_card_run_into_their_own_limits(mps: Stage) -> None:
    start(mps, "small", "10", "1Gi")
    start(mps, "large", "60", "40Gi")
    assert mps.cards("small") == mps.cards("large")
    for pod, cores, mib in (("small", 10, 1024), ("large", 60, 40960)):
        assert takes(mps, pod, mib) == f"taken, limits {cores} % {mib} MiB"
        assert takes(mps, pod, mib + 1) == f"refused, limits {cores} % {mib} MiB"
        (device,) = mps.status_of_devices(mps.claim_of(pod)["metadata"]["name"])
        assert device["data"]["enforcement"] == {"memory": "mps", "cores": "mps"}


def test_what_a_container_changes_in_its_environment_raises_no_limit(mps: Stage) -> None:
    start(mps, "pod", "10", "1Gi")
    higher = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40960M CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"
    assert mps.inside("pod", f"{higher} /programs/mps-program 2048").strip() == "refused, limits 10 % 1024 MiB"


def test_a_daemon_that_is_killed_comes_back_with_its_shares(mps: Stage) -> None:
    """k8s-device-plugin#1614: owned and watched, not started and forgotten."""
    start(mps, "pod", "25", "8Gi")
    (driver,) = mps.driver_pods()
    uid = driver["metadata"]["uid"]
    before = until("the daemon", lambda: mps.processes(uid, DAEMON))
    for pid in before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until("another daemon", lambda: set(mps.processes(uid, DAEMON)) - set(before))
    until("the share is held again", lambda: takes(mps, "pod", 8192) == "taken, limits 25 % 8192 MiB")
    assert takes(mps, "pod", 8193) == "refused, limits 25 % 8192 MiB"


def test_a_driver_pod_that_is_replaced_starts_the_daemon_anew_for_the_pods_that_run(mps: Stage) -> None:
    start(mps, "pod", "25", "8Gi")
    mps.kubectl("-n", release.NAMESPACE, "delete", "pod", mps.driver_pods()[0]["metadata"]["name"], "--wait=true")
    ready(mps.kubectl)
    until("the share is held again", lambda: takes(mps, "pod", 8192) == "taken, limits 25 % 8192 MiB")


def test_containers_that_one_namespace_cannot_keep_apart_are_refused_in_words(mps: Stage) -> None:
    both = [a_container("main"), a_container("second")]
    mps.create(a_template(requests=[a_share("10", "1Gi")]), a_pod(template="template", containers=both))
    mps.event("container main of pod pod, container second of pod pod use this one together")


def test_a_share_without_mps_waits_for_a_card_that_has_none_by_it(mps: Stage) -> None:
    """Mixed on one card, its programs would find the card taken; the class decides, and the node refuses in words."""
    start(mps, "by-mps", "10", "1Gi")
    lax = {**SHARES, "metadata": {"name": "lax.example.com"}}
    lax["spec"] = {"backend": "Share", "share": {"memory": "BestEffort", "cores": "BestEffort", "accept": ["HAMi"]}}
    mps.create(lax)
    try:
        mps.kubectl("wait", "--for=condition=Ready", "elasticgpuclass/lax.example.com", "--timeout=120s")
        request = a_share("10", "1Gi")
        request["exactly"]["deviceClassName"] = "lax.example.com"
        mps.create(a_template("lax", requests=[request]), a_pod("lax", template="lax"))
        mps.event("has shares held by MPS, as claim .*/by-mps-card-.*, and request card would be held without MPS")
        mps.delete("pod", "by-mps")
        mps.ready_after_failures("lax")
        mps.delete("pod", "lax")
    finally:
        mps.kubectl("delete", "elasticgpuclass", "lax.example.com")
