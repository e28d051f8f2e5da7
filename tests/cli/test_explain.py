"""`kubectl egpu explain` and `fit` by the real kubectl, against the objects of an API server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.cli.terminal import User
from tests.explain import objects
from tests.fakes.apiserver import FakeAPIServer

RESOURCES = "/apis/resource.k8s.io/v1"
PLACES = {
    "ResourceSlice": f"{RESOURCES}/resourceslices",
    "ResourceClaim": f"{RESOURCES}/namespaces/team/resourceclaims",
    "ResourceClaimTemplate": f"{RESOURCES}/namespaces/team/resourceclaimtemplates",
    "DeviceClass": f"{RESOURCES}/deviceclasses",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/team/pods",
    "Event": "/api/v1/namespaces/team/events",
}
HELD = {"cores": "25", "memory": "21Gi"}
FULL = tuple(
    objects.a_claim(f"c{number}", on=f"node-{1 + number // 2}/gpu-{1 + number}", takes=HELD) for number in range(4)
)
REFUSED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 cannot allocate all claims.",
    "lastTransitionTime": "2026-01-02T00:00:00Z",
}


def put(server: FakeAPIServer, *items: objects.JSON) -> None:
    for item in items:
        server.put(f"{PLACES[item['kind']]}/{item['metadata']['name']}", item)


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        pod = objects.a_pod(template="template", made="mine")
        pod["status"]["conditions"] = [REFUSED]
        put(server, *objects.SLICES, objects.a_class(), objects.a_template(), objects.a_claim("mine"), pod)
        put(server, objects.a_node("node-1"), objects.a_node("node-2"))
        yield server


async def test_explain_says_the_verdict_first_and_exits_with_it(server: FakeAPIServer, user: User) -> None:
    put(server, *FULL)
    done = await user.egpu("explain", "pod", "-n", "team")
    assert (done.code, done.err) == (1, "")
    first, *rest = done.out.split("\n")
    assert (
        first
        == "Pod team/pod does not fit: 4 cards: 17Gi of memory short, closest gpu-1 on node-1 with 3Gi free of 20Gi asked."
    )
    assert "  - Request card: 1 of class inference.elasticgpu.io" in rest
    assert "  - gpu-1 on node-1 is free when claim team/c0 ends" in rest
    assert "The scheduler says: 0/2 nodes are available: 2 cannot allocate all claims." in rest


async def test_explain_as_json_has_the_reason_as_a_word(server: FakeAPIServer, user: User) -> None:
    put(server, *FULL)
    told = json.loads((await user.egpu("explain", "pod/pod", "-n", "team", "-o", "json")).out)
    assert (told["kind"], told["verdict"], told["reason"]) == ("Explanation", "DoesNotFit", "NotEnoughLeft")
    assert told["funnels"][0]["groups"][0]["cards"] == 4
    as_yaml = yaml.safe_load((await user.egpu("explain", "claim/mine", "-n", "team", "-o", "yaml")).out)
    assert as_yaml["verdict"] == "DoesNotFit"


async def test_a_scheduler_that_has_not_tried_for_long_disagrees_and_one_that_has_just_tried_is_waited_for(
    server: FakeAPIServer, user: User
) -> None:
    done = await user.egpu("explain", "pod", "-n", "team")
    assert (done.code, done.out.split("\n")[0]) == (
        0,
        "Pod team/pod should fit, on node node-1; the scheduler disagrees since 2026-01-02T00:00:00Z.",
    )
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "team"},
        "reason": "FailedScheduling",
        "involvedObject": {"kind": "Pod", "name": "pod", "namespace": "team"},
        "lastTimestamp": "2999-01-01T00:00:00Z",
    }
    put(server, event)
    assert "fits now, on node node-1" in (await user.egpu("explain", "pod", "-n", "team")).out


async def test_who_may_not_see_the_claims_of_others_is_promised_nothing(server: FakeAPIServer, user: User) -> None:
    server.fault(method="GET", path=f"{RESOURCES}/resourceclaims", status=403, reason="Forbidden", times=-1)
    done = await user.egpu("explain", "pod", "-n", "team")
    assert done.code == 2
    assert done.err == "Warning: claims: you may not list resourceclaims in all namespaces\n"
    assert "cannot be told: node node-1 looks free" in done.out


async def test_what_is_not_there_is_said_in_kubectls_words(user: User) -> None:
    done = await user.egpu("explain", "pod/nobody", "-n", "team")
    assert (done.code, done.out) == (1, "")
    assert "NotFound" in done.err
    assert "pod/NAME" in (await user.egpu("explain", "node/x", "-n", "team")).err


async def test_fit_counts_by_plain_numbers_with_exit_codes(server: FakeAPIServer, user: User) -> None:
    numbers = ("fit", "--class", objects.CLASS, "--cores", "25", "--memory", "10Gi", "-n", "team")
    done = await user.egpu(*numbers)
    assert (done.code, done.out.split("\n")[0]) == (
        0,
        f"8 copies of 1 card of class {objects.CLASS} (cores 25%, memory 10Gi) fit, on 2 nodes.",
    )
    assert (await user.egpu(*numbers, "--replicas", "9")).code == 1
    told = json.loads((await user.egpu(*numbers, "-o", "json")).out)
    assert (told["fits"], told["nodes"]) == (8, [["node-1", 4], ["node-2", 4]])
    assert (await user.egpu("fit", "-n", "team")).code == 2


async def test_fit_reads_a_workload_with_its_template_from_a_file(user: User, tmp_path: Path) -> None:
    pod = objects.a_pod(template="mine-alone")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": {"spec": pod["spec"]}},
    }
    template = objects.a_template("mine-alone", objects.a_spec(memory="24Gi"))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all([job, template]))
    done = await user.egpu("fit", "-f", str(tmp_path / "job.yaml"), "-n", "team")
    assert (done.code, done.out.split("\n")[0]) == (0, "4 copies of pod team/job fit, on 2 nodes.")


async def test_pods_that_wait_show_the_reason_that_explain_gives(server: FakeAPIServer, user: User) -> None:
    put(server, *FULL)
    done = await user.egpu("pods", "-n", "team")
    assert "does not fit: 4 cards: 17Gi of memory short, closest gpu-1 on node-1" in done.out
