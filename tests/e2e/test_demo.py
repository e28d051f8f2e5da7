"""The demo's remote card by the functions that `make demo` calls: what it promises in print, what users are told, and the
same by the README's commands, as they are written.
"""

import os
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack import borrowing, ggml, poolhost, release
from hack.cluster import Cluster, cards, cgroups
from hack.kubectl import Kubectl
from tests.e2e import manifests
from tests.e2e.manifests import a_container, a_pod, a_request, a_template
from tests.e2e.stage import Stage, until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
LOST = {"key": "remote.gpu.elasticgpu.io/lost", "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture(scope="module")
def chart(cluster: Cluster, admin: Kubectl, installed: None) -> Iterator[borrowing.Values]:
    """Its values without remote cards, which it has again at the end; then the cluster knows no pool."""
    reference, _ = release.image()
    values = release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified()))
    borrowing.forget(admin)
    try:
        yield values
    finally:
        borrowing.forget(admin)
        release.install(admin, values)
        release.wait(admin)
        cluster.guest().stop(poolhost.AGENT)


@pytest.fixture(scope="module")
def host(chart: borrowing.Values, cluster: Cluster, admin: Kubectl) -> poolhost.PoolHost:
    """As the demo makes it."""
    return borrowing.lend(cluster, admin, chart, release.image()[1])


@pytest.fixture
def far(chart: borrowing.Values, stage: Stage) -> Iterator[Stage]:
    """Whatever a test did, at its end nobody holds a card."""
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    until("no lease is left", lambda: not stage.kubectl.objects("remoteleases"), 120)


def commands() -> str:
    """The README's for a pool on a host outside."""
    (block,) = re.findall(r"For a host outside.*?:\n\n(.*?)\n\n(?! )", (ROOT / "README.md").read_text(), re.DOTALL)
    return textwrap.dedent(block)


def told(stage: Stage, reason: str) -> dict[str, str]:
    """Kind of the object -> the text of its event of this reason."""
    events = [event for event in stage.kubectl.objects("events", "-n", stage.namespace) if event["reason"] == reason]
    return {event["involvedObject"]["kind"]: event["message"] for event in events}


def test_the_readmes_commands_lead_to_a_card_of_another_host(
    chart: borrowing.Values, far: Stage, tmp_path: Path
) -> None:
    """The pool's host runs its agent as a service; Helm is the library that the other tests use, told of what is set."""
    host = poolhost.start(far.cluster, far.kubectl)
    far.cluster.load_image(ggml.image(release.image()[1]))
    for name, line in (
        ("egpu-pool", f'[ $# = 0 ] || exec {shlex.join(host.command)} "$1" "$2" "$PWD/$3"'),
        ("helm", 'echo "$@" > told-helm'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "config").write_bytes(far.kubectl.kubeconfig.read_bytes())
    environment = {"PATH": f"{tmp_path}:{far.cluster.bin}:{os.environ['PATH']}", "KUBECONFIG": str(tmp_path / "config")}
    text = f"kubectl config set-context --current --namespace={far.namespace}\n{commands()}"
    done = subprocess.run(
        ["sh", "-ec", text.replace("gpu-host-1:7480", host.endpoint)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    settings = dict(re.findall(r"--set remote\.(\w+)=(\S+)", (tmp_path / "told-helm").read_text()))
    assert settings.keys() == {"enabled", "credentialsSecret", "relay"}
    remote = {name: True if value == "true" else value for name, value in settings.items()}
    release.install(far.kubectl, chart | {"remote": remote})
    far("wait", "--for=condition=Ready", "pod/multiply", "--timeout=300s")
    until("it has computed", lambda: far("logs", "multiply") == ggml.at_home(borrowing.TIMES))


def test_the_demos_pod_computes_on_another_hosts_card_and_gives_it_back(
    host: poolhost.PoolHost, far: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    borrowing.compute(far.kubectl, far.namespace)
    until("claim and pod are told", lambda: told(far, "CardAttached").keys() == {"Pod", "ResourceClaim"})
    borrowing.give_back(far.kubectl, host, far.namespace)
    said = capsys.readouterr().out
    assert "On node2:" in said
    for line in ggml.at_home(borrowing.TIMES).splitlines():
        assert said.count(line) == 2
    assert "They are equal" in said
    assert re.search(r"lab +gpu-processor-1 .* node2 +Attached", said)
    before, after = re.findall(r"The pool's own word: leases (\w+)", said)
    assert (before, after) == ("ATTACHED", "none")
    assert far.kubectl.objects("remoteleases") == []
    assert host.leases() == {}
    text = "card gpu-processor-1 of pool lab is attached for node node2"
    assert told(far, "CardAttached") == {"Pod": text, "ResourceClaim": text}


def test_claim_and_pod_are_told_that_their_card_is_lost_with_its_host(host: poolhost.PoolHost, far: Stage) -> None:
    """The claim tolerates it, so that the pod is there to be told."""
    request = a_request("card", deviceClassName=borrowing.CLASS, tolerations=[LOST])
    container = a_container(command=manifests.STAY)
    where = {"kubernetes.io/hostname": "node2"}
    far.create(a_template("far", [request]), a_pod("pod", template="far", containers=[container], nodeSelector=where))
    far("wait", "--for=condition=Ready", "pod/pod", "--timeout=180s")
    host.stop()
    poolhost.start(far.cluster, far.kubectl)
    until("claim and pod are told", lambda: told(far, "CardLost").keys() == {"Pod", "ResourceClaim"}, 120)
    assert told(far, "CardLost")["Pod"].startswith("card gpu-processor-1 of pool lab is lost: ")
