"""Pods and their whole cards, as users write them."""

import contextlib
import json
import re

import pytest

from hack import release
from hack.kubectl import KubectlError
from tests.e2e.manifests import CLASS, STAY, a_claim, a_container, a_pod, a_request, a_template, opaque
from tests.e2e.stage import Stage, until

pytestmark = pytest.mark.e2e
EXAMPLE = release.ROOT / "examples/whole-card"


def test_the_example_of_the_documentation_runs_and_prints_what_its_readme_says(stage: Stage) -> None:
    stage("apply", "-f", str(EXAMPLE))
    stage.ready("whole-card")
    readme = (EXAMPLE / "README.md").read_text()
    promised = [line.strip() for line in readme.partition("own output")[2].splitlines() if line.startswith("    ")]
    until("all is printed", lambda: len(stage("logs", "whole-card").splitlines()) >= len(promised))
    assert _timeless(stage("logs", "whole-card").splitlines()) == _timeless(promised)


def test_a_pod_gets_its_card(stage: Stage) -> None:
    stage.start(a_template(), a_pod(template="template"))
    ((minor, uuid),) = stage.cards("pod").items()
    assert "NVIDIA_VISIBLE_DEVICES=void" in stage.inside("pod", "env").splitlines()
    assert f"195, {minor:>3}" in stage.inside("pod", f"ls -l /dev/nvidia{minor}")
    claim = stage.claim_of("pod")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    (device,) = stage.status_of_devices(claim["metadata"]["name"])
    assert (result["driver"], result["pool"]) == ("gpu.elasticgpu.io", "egpu/node1")
    assert {key: device[key] for key in ("driver", "pool", "device")} == {
        key: result[key] for key in ("driver", "pool", "device")
    }
    assert device["data"]["uuid"] == uuid
    assert device["data"]["model"] == "NVIDIA H100 80GB HBM3"
    assert "enforcement" in device["data"]
    assert uuid.removeprefix("GPU-").lower() in result["device"]


def test_a_container_can_open_its_card_and_no_other(stage: Stage) -> None:
    """No driver is behind the nodes here, so opening one fails with another error than being forbidden."""
    stage.start(a_template(), a_pod(template="template"))
    (minor,) = stage.cards("pod")
    other = (int(minor) + 1) % 4
    tried = f"cat /dev/nvidia{minor} 2>&1; mknod /tmp/other c 195 {other} 2>&1; cat /tmp/other 2>&1; true"
    own, *foreign = stage.inside("pod", tried).splitlines()
    assert "not permitted" not in own
    assert any("not permitted" in line for line in foreign)


def test_two_pods_hold_two_different_cards(stage: Stage) -> None:
    stage.start(a_template(), a_pod("one", template="template"), a_pod("two", template="template"))
    assert set(stage.cards("one").values()).isdisjoint(stage.cards("two").values())


def test_a_pod_may_hold_two_cards(stage: Stage) -> None:
    stage.start(a_template(requests=[a_request(count=2)]), a_pod(template="template"))
    assert len(stage.cards("pod")) == 2


def test_all_cards_of_the_node(stage: Stage) -> None:
    stage.start(a_template(requests=[a_request(allocationMode="All")]), a_pod(template="template"))
    assert set(stage.cards("pod")) == {"0", "1", "2", "3"}


def test_a_pod_waits_while_all_cards_are_held_and_runs_after_a_release(stage: Stage) -> None:
    stage.start(a_template(), *(a_pod(f"holder-{number}", template="template") for number in range(4)))
    stage.create(a_pod("waiting", template="template"))
    stage.pending_because("waiting", "cannot allocate all claims")
    released = stage.cards("holder-2")
    stage.delete("pod", "holder-2")
    stage.ready("waiting")
    assert stage.cards("waiting") == released


def test_two_pods_share_a_claim(stage: Stage) -> None:
    stage.start(a_claim(), a_pod("one", claim="claim"), a_pod("two", claim="claim"))
    assert stage.cards("one") == stage.cards("two")
    stage.delete("pod", "one")
    stage.start(a_pod("three", claim="claim"))
    assert stage.cards("three") == stage.cards("two")


def test_a_claim_is_used_again_after_its_pod_is_gone(stage: Stage) -> None:
    stage.start(a_claim(), a_pod("one", claim="claim"))
    stage.delete("pod", "one")
    until("deallocated", lambda: not stage.get("resourceclaim", "claim").get("status", {}).get("allocation"))
    uid = stage.get("resourceclaim", "claim")["metadata"]["uid"]
    assert not any(uid in name for name in stage.cdi_files())
    stage.start(a_pod("two", claim="claim"))
    assert len(stage.cards("two")) == 1


def test_containers_of_a_pod_share_a_claim_and_one_without_it_sees_no_card(stage: Stage) -> None:
    containers = [a_container("main"), a_container("second"), a_container("without", claims=[])]
    stage.start(a_template(), a_pod(template="template", containers=containers))
    assert stage.cards("pod") == stage.cards("pod", "second")
    assert stage.cards("pod", "without") == {}


def test_each_container_gets_the_device_of_its_request(stage: Stage) -> None:
    containers = [
        a_container("main", claims=[{"name": "card", "request": "first"}]),
        a_container("second", claims=[{"name": "card", "request": "second"}]),
        a_container("both"),
    ]
    requests = [a_request("first"), a_request("second")]
    stage.start(a_template(requests=requests), a_pod(template="template", containers=containers))
    first, second = stage.cards("pod"), stage.cards("pod", "second")
    assert len(first) == len(second) == 1
    assert first != second
    assert stage.cards("pod", "both") == {**first, **second}


def test_two_claims_of_one_container_add_up(stage: Stage) -> None:
    claims = [{"name": name, "resourceClaimTemplateName": "template"} for name in ("left", "right")]
    container = a_container(claims=[{"name": "left"}, {"name": "right"}])
    stage.start(a_template(), a_pod(claims=claims, containers=[container]))
    assert len(stage.cards("pod")) == 2


def test_an_init_container_uses_the_card_of_the_pod(stage: Stage) -> None:
    init = a_container("before", command="ls /dev | grep -c '^nvidia[0-9]'; env | grep ELASTIC_GPU_CARD_")
    stage.start(a_template(), a_pod(template="template", initContainers=[init]))
    ((minor, uuid),) = stage.cards("pod").items()
    assert stage("logs", "pod", "-c", "before").split() == ["1", f"ELASTIC_GPU_CARD_{minor}={uuid}"]


def test_a_claim_that_no_container_uses_is_prepared_all_the_same(stage: Stage) -> None:
    stage.start(a_template(), a_pod(template="template", containers=[a_container(claims=[])]))
    claim = stage.claim_of("pod")
    assert stage.status_of_devices(claim["metadata"]["name"])
    assert any(claim["metadata"]["uid"] in name for name in stage.cdi_files())
    assert stage.cards("pod") == {}


def test_the_claim_of_a_template_goes_when_its_pod_is_done(stage: Stage) -> None:
    stage.create(a_template(), a_pod(template="template", containers=[a_container(command="true")]))
    stage("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/pod", "--timeout=120s")
    assert not stage.failed_starts()
    until("claim gone", lambda: not stage.kubectl.objects("resourceclaims", "-n", stage.namespace))


def test_a_reservation_ends_with_the_pod_and_not_with_a_restart_of_its_container(stage: Stage) -> None:
    stage.start(a_claim(), a_pod(claim="claim", restartPolicy="Always"))
    cards = stage.cards("pod")
    with contextlib.suppress(KubectlError):  # the shell that kills it may go with it
        stage.inside("pod", "kill -TERM 1")
    until("restarted", lambda: stage.get("pod", "pod")["status"]["containerStatuses"][0]["restartCount"] >= 1)
    stage.ready("pod")
    assert stage.cards("pod") == cards
    assert len(stage.get("resourceclaim", "claim")["status"]["reservedFor"]) == 1
    stage.delete("pod", "pod")
    until("released", lambda: not stage.get("resourceclaim", "claim").get("status", {}).get("reservedFor"))


def test_a_pod_on_a_node_without_cards_waits(stage: Stage) -> None:
    stage.create(a_template(), a_pod(template="template", nodeSelector={"kubernetes.io/hostname": "node2"}))
    stage.pending_because("pod", "cannot allocate all claims")


def test_an_allocated_claim_and_a_new_one_in_one_pod(stage: Stage) -> None:
    stage.start(a_claim(), a_template(), a_pod("first", claim="claim"))
    claims = [{"name": "old", "resourceClaimName": "claim"}, {"name": "new", "resourceClaimTemplateName": "template"}]
    stage.start(a_pod("second", claims=claims, containers=[a_container(claims=[{"name": "old"}, {"name": "new"}])]))
    assert stage.cards("first").items() < stage.cards("second").items()


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_claim_written_by_an_older_client(stage: Stage, version: str) -> None:
    request = {"name": "card", "deviceClassName": CLASS} if version == "v1beta1" else a_request()
    stage.start(a_claim(requests=[request], version=version), a_pod(claim="claim"))
    assert len(stage.cards("pod")) == 1


def test_a_claim_whose_config_was_written_in_another_order_gets_its_status(stage: Stage) -> None:
    """The server takes no apply for such a claim; kubectl sorts the keys, other clients do not."""
    claim = a_claim(config=[opaque()])
    parameters = claim["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    unsorted = {key: parameters[key] for key in ("kind", "apiVersion")}
    claim["spec"]["devices"]["config"][0]["opaque"]["parameters"] = unsorted
    path = f"/apis/resource.k8s.io/v1/namespaces/{stage.namespace}/resourceclaims"
    stage.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(claim, separators=(",", ":")))
    stage.start(a_pod(claim="claim"))
    (told,) = stage.status_of_devices("claim")
    assert told["data"]["uuid"] in stage.cards("pod").values()


def test_names_as_long_as_kubernetes_allows(stage: Stage) -> None:
    long, request = "c" * 200, "r" * 63
    claims = [{"name": "p" * 63, "resourceClaimName": long}]
    container = a_container(claims=[{"name": "p" * 63, "request": request}])
    stage.start(a_claim(long, requests=[a_request(request)]), a_pod("pod", claims=claims, containers=[container]))
    assert len(stage.cards("pod")) == 1


def test_a_quota_on_claims_of_the_class_holds(stage: Stage) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one-card"}}
    stage.create({**quota, "spec": {"hard": {f"{CLASS}.deviceclass.resource.k8s.io/devices": "1"}}})
    until("quota counted", lambda: stage.get("resourcequota", "one-card").get("status", {}).get("hard"))
    stage.create(a_claim("one"))
    with pytest.raises(Exception, match="exceeded quota: one-card"):
        stage.create(a_claim("two"))


def test_twenty_short_pods_over_four_cards_leave_nothing_behind(stage: Stage) -> None:
    """Ten at a time over four cards, so that claims are prepared, unprepared and waited for all the while."""
    before = stage.cdi_files()
    stage.create(a_template())
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "short"}}
    pod = a_pod(
        template="template",
        containers=[a_container(command="ls /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3 2>/dev/null | wc -l")],
    )
    stage.create({**job, "spec": {"completions": 20, "parallelism": 10, "template": {"spec": pod["spec"]}}})
    stage("wait", "--for=condition=Complete", "job/short", "--timeout=280s")
    until("no claim left", lambda: not stage.kubectl.objects("resourceclaims", "-n", stage.namespace))
    until("no CDI file left", lambda: stage.cdi_files() <= before)
    logs = stage("logs", "-l", "batch.kubernetes.io/job-name=short", "--tail=-1", "--max-log-requests=30")
    assert set(logs.split()) == {"1"}


def test_a_pod_that_is_deleted_while_it_starts_frees_its_card(stage: Stage) -> None:
    stage.create(a_template(), a_pod(template="template", containers=[a_container(command=STAY)]))
    until("claim", lambda: stage.kubectl.objects("resourceclaims", "-n", stage.namespace))
    stage.delete("pod", "pod")
    until("no claim left", lambda: not stage.kubectl.objects("resourceclaims", "-n", stage.namespace))


def _timeless(lines: list[str]) -> list[str]:
    """Without what differs from run to run: times, which of the cards it is, and which driver the node has."""
    which = r"GPU-[0-9a-f-]+|(?<=195,   )\d|(?<=nvidia)\d$|(?<=CARD_)\d|(?<=\.so\.)\d+\.\d+\.\d+"
    return sorted(re.sub(rf"[A-Z][a-z]{{2}} +\d+ \d\d:\d\d|{which}", "", line) for line in lines)
