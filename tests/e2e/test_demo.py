"""The demo's remote card by the functions that `make demo` calls: what it promises in print, and what users are told."""

import re
from collections.abc import Iterator

import pytest

from hack import borrowing, ggml, poolhost, release
from hack.cluster import Cluster, cards, cgroups
from hack.kubectl import Kubectl
from tests.e2e import manifests
from tests.e2e.manifests import a_container, a_pod, a_request, a_template
from tests.e2e.stage import Stage, until

pytestmark = pytest.mark.e2e
LOST = {"key": "remote.gpu.elasticgpu.io/lost", "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture
def host(cluster: Cluster, admin: Kubectl, installed: None, stage: Stage) -> Iterator[poolhost.PoolHost]:
    """As the demo makes it; at the end the chart is without remote cards, and the cluster knows no pool."""
    reference, archive = release.image()
    wanted = release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified()))
    made = borrowing.lend(cluster, admin, wanted, archive)
    try:
        yield made
    finally:
        stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
        until("no lease is left", lambda: not admin.objects("remoteleases"), 120)
        borrowing.forget(admin)
        release.install(admin, wanted)
        made.stop()


def told(stage: Stage, reason: str) -> dict[str, str]:
    """Kind of the object -> the text of its event of this reason."""
    events = [event for event in stage.kubectl.objects("events", "-n", stage.namespace) if event["reason"] == reason]
    return {event["involvedObject"]["kind"]: event["message"] for event in events}


def test_the_demos_pod_computes_on_another_hosts_card_and_gives_it_back(
    host: poolhost.PoolHost, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    borrowing.compute(stage.kubectl, stage.namespace)
    until("claim and pod are told", lambda: told(stage, "CardAttached").keys() == {"Pod", "ResourceClaim"})
    borrowing.give_back(stage.kubectl, host, stage.namespace)
    said = capsys.readouterr().out
    assert "On node2:" in said
    for line in ggml.at_home(borrowing.TIMES).splitlines():
        assert said.count(line) == 2
    assert "They are equal" in said
    assert re.search(r"lab +gpu-processor-1 .* node2 +Attached", said)
    before, after = re.findall(r"The pool's own word: leases (\w+)", said)
    assert (before, after) == ("ATTACHED", "none")
    assert stage.kubectl.objects("remoteleases") == []
    assert host.leases() == {}
    text = "card gpu-processor-1 of pool lab is attached for node node2"
    assert told(stage, "CardAttached") == {"Pod": text, "ResourceClaim": text}


def test_claim_and_pod_are_told_that_their_card_is_lost_with_its_host(host: poolhost.PoolHost, stage: Stage) -> None:
    """The claim tolerates it, so that the pod is there to be told."""
    request = a_request("card", deviceClassName=borrowing.CLASS, tolerations=[LOST])
    container = a_container(command=manifests.STAY)
    where = {"kubernetes.io/hostname": "node2"}
    stage.create(a_template("far", [request]), a_pod("pod", template="far", containers=[container], nodeSelector=where))
    stage.ready("pod")
    host.stop()
    poolhost.start(stage.cluster, stage.kubectl)
    until("claim and pod are told", lambda: told(stage, "CardLost").keys() == {"Pod", "ResourceClaim"}, 120)
    assert told(stage, "CardLost")["Pod"].startswith("card gpu-processor-1 of pool lab is lost: ")
