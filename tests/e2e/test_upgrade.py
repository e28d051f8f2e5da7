"""An upgrade of everything under a stream of pods, and back again: nobody notices, and what one version wrote the other reads."""

import concurrent.futures
import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack import release
from hack.cluster import cards, cgroups
from hack.kubectl import Kubectl
from tests.e2e.manifests import CLASS, STAY, a_container, a_pod, a_template
from tests.e2e.stage import Object, Stage, until

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRAConsumableCapacity")]
SHARES = "streamed-share.example.com"
ONE_CARD = "test $(ls /dev | grep -c '^nvidia[0-9]') = 1 && sleep 1"
PARTS = {
    "node": f"daemonset/{release.NAME}-node",
    "controller": f"deployment/{release.NAME}-controller",
    "webhook": f"deployment/{release.NAME}-webhook",
}


def plain() -> dict[str, Any]:
    return release.values(release.image()[0], cards.DRIVER_ROOT, str(cgroups.unified()))


def values() -> dict[str, Any]:
    # two replicas of each: what is upgraded under load is what has to be there all the time
    return {**plain(), "webhook": {"enabled": True}, "controller": {"replicas": 2}}


def wait_for(admin: Kubectl) -> None:
    for what in PARTS.values():
        admin("-n", release.NAMESPACE, "rollout", "status", what, "--timeout=280s")


@pytest.fixture(scope="module")
def whole(installed: None, admin: Kubectl) -> Iterator[None]:
    """The release with its webhook, and a class of shares for old requests."""
    release.install(admin, values())
    spec = {
        "backend": "Share",
        "workloadTypes": ["streamed"],
        "share": {"memory": "BestEffort", "cores": "BestEffort"},
    }
    made = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": SHARES}}
    admin("create", "-f", "-", text=json.dumps({**made, "spec": spec}))
    try:
        wait_for(admin)
        admin("wait", "--for=condition=Ready", f"elasticgpuclass/{SHARES}", "--timeout=120s")
        yield
    finally:
        admin("delete", "elasticgpuclass", SHARES)
        release.install(admin, plain())
        release.wait(admin)


def an_old_pod(name: str, command: str, **labels: str) -> Object:
    """Without a claim: admission gives it one."""
    container = a_container(command=command, claims=())
    container["resources"] = {
        "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024", "nvidia.com/gpucores": "5"}
    }
    pod = a_pod(name, containers=[container], labels=labels)
    del pod["spec"]["resourceClaims"]
    return pod


def a_streamed(number: int) -> Object:
    """A share, a share by its old name, now and then a whole card; it has one card, keeps it a second, and ends."""
    name = f"pod-{number}"
    if number % 3 == 0:
        return an_old_pod(name, ONE_CARD, stream="yes")
    template = "whole" if number % 6 == 1 else "share"  # seldom: who finds no free card waits for the scheduler
    return a_pod(name, template=template, containers=[a_container(command=ONE_CARD)], labels={"stream": "yes"})


@contextlib.contextmanager
def a_pod_a_second(stage: Stage, before: Object) -> Iterator[list[str]]:
    """Meanwhile; the names of those made so far. What went wrong with one of them, or with the slices, is raised at the end."""
    made: list[str] = []
    over = threading.Event()

    def stream() -> None:
        began = time.monotonic()
        while not over.wait(max(0.0, began + len(made) - time.monotonic())):
            pod = a_streamed(len(made))
            stage.create(pod)
            made.append(pod["metadata"]["name"])
            assert offered(stage) == before

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        streaming = threads.submit(stream)
        try:
            yield made
            until("ten of them were made", lambda: len(made) >= 10 or streaming.done())
        finally:
            over.set()
        streaming.result()


def another_version(folder: Path) -> Path:
    """The chart as the next release would bring it: every pod's label says so, so each of them is made anew."""
    chart = folder / "elastic-gpu"
    shutil.copytree(release.CHART, chart)
    meta = chart / "Chart.yaml"
    meta.write_text(re.sub(r"(?m)^(version|appVersion): .*$", r"\1: 0.99.0", meta.read_text()))
    return chart


def running(stage: Stage, pod: str) -> tuple[str, int]:
    (status,) = stage.get("pod", pod)["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def versions(stage: Stage) -> dict[str, str]:
    return {
        part: stage.kubectl.objects(*what.split("/"), "-n", release.NAMESPACE)[0]["spec"]["template"]["metadata"][
            "labels"
        ]["app.kubernetes.io/version"]
        for part, what in PARTS.items()
    }


def test_an_upgrade_and_the_way_back_under_a_pod_a_second_fail_no_start_and_withdraw_no_card(
    whole: None, stage: Stage, tmp_path: Path
) -> None:  # k8s#128964, NV PR#1358, NV PR#1326
    label = ("elasticgpu.io/translate=true", "elasticgpu.io/workload-type=streamed")
    stage.kubectl("label", "namespace", stage.namespace, *label)
    share: Object = {"name": "card", "exactly": {"deviceClassName": SHARES}}
    share["exactly"]["capacity"] = {"requests": {"cores": "5", "memory": "1Gi"}}
    stage.create(
        a_template("whole", [{"name": "card", "exactly": {"deviceClassName": CLASS}}]), a_template("share", [share])
    )
    until("admission translates", lambda: translated(stage))
    # one by its old name, too: a template is made for the first pod of its shape, and stays for the others
    stage.start(*(a_pod(f"long-{name}", template=name) for name in ("whole", "share")), an_old_pod("long-old", STAY))
    long = {name: running(stage, name) for name in ("long-whole", "long-share", "long-old")}
    before = offered(stage)
    old = versions(stage)
    with a_pod_a_second(stage, before) as made:
        upgrade(stage.kubectl, another_version(tmp_path))
        wait_for(stage.kubectl)
        assert set(versions(stage).values()) == {"0.99.0"}
        upgrade(stage.kubectl, release.CHART)
        wait_for(stage.kubectl)
        assert versions(stage) == old
    every = ("pods", "-l", "stream=yes")
    stage("wait", "--for=jsonpath={.status.phase}=Succeeded", *every, "--timeout=280s")
    pods = stage.kubectl.objects(*every, "-n", stage.namespace)
    assert len(pods) == len(made) >= 10
    assert [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("resourceClaims")] == []
    assert stage.failed_starts(*made) == []
    assert offered(stage) == before
    assert {name: running(stage, name) for name in long} == long
    claims = [stage.claim_of(name)["metadata"]["uid"] for name in long]
    for name in long:
        stage.delete("pod", name)
    until(
        "nothing of them is left on the node",
        lambda: not any(uid in file for file in stage.cdi_files() for uid in claims),
    )


def offered(stage: Stage) -> Object:
    """The slices with their cards in any order: that of the fill follows the shares, which come and go."""
    return {
        one["metadata"]["uid"]: sorted(json.dumps(card, sort_keys=True) for card in one["spec"].get("devices") or ())
        for one in stage.slices()
    }


def upgrade(admin: Kubectl, chart: Path) -> None:
    """In a process of its own: Helm's library is Go, and this process forks all the time meanwhile."""
    program = (
        "import json, sys, helm_python\n"
        "kubeconfig, namespace, chart, name, values = sys.argv[1:]\n"
        "with helm_python.Config(kubeconfig_path=kubeconfig, namespace=namespace) as helm:\n"
        "    helm.upgrade(chart, name, json.loads(values))\n"
    )
    given = (str(admin.kubeconfig), release.NAMESPACE, str(chart), release.NAME, json.dumps(values()))
    subprocess.run([sys.executable, "-c", program, *given], check=True, timeout=600)


def translated(stage: Stage) -> bool:
    made = stage("create", "-f", "-", "-o", "json", "--dry-run=server", text=json.dumps(an_old_pod("probe", ONE_CARD)))
    return "resourceClaims" in json.loads(made)["spec"]
