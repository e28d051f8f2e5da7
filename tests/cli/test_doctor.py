"""`doctor`, `top`, `cordon`, by the real kubectl."""

import datetime
import json
from typing import Any

import pytest

from api import names
from cli import checks, usage
from tests.cli.conftest import put
from tests.cli.terminal import User
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import GI, a_card, a_claim, a_device_class, a_driver, a_result, a_rule, a_slice, name_of

NODE = "system:serviceaccount:elastic-gpu:node"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
NOW = datetime.datetime(2026, 1, 2, 12, 0, 0, tzinfo=datetime.UTC)


def a_telling_driver(node: str = "node1") -> dict[str, Any]:
    found = a_driver(node)
    found["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": 8080}]
    found["spec"]["serviceAccountName"] = "node"
    found["metadata"]["labels"]["app.kubernetes.io/version"] = "0.1.0"
    return found


def tells(server: FakeAPIServer, node: str, text: str) -> None:
    server.said[f"/api/v1/namespaces/elastic-gpu/pods/driver-{node}:8080/proxy/metrics"] = text


def uuid(number: int) -> str:
    found: str = a_card(number)["attributes"]["uuid"]["string"]
    return found


def served(server: FakeAPIServer) -> None:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    server.said |= {"/version": {"major": "1", "minor": "37+", "gitVersion": "v1.37.2"}, "now": now}
    server.said["/apis/elasticgpu.io/v1alpha1"] = {"kind": "APIResourceList"}
    kinds = {"kind": "APIResourceList", "resources": [{"name": "devicetaintrules"}]}
    server.said["/apis/resource.k8s.io/v1"] = kinds
    for node in ("node1", "node2"):
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        server.put(path, {"kind": "Lease", "spec": {"renewTime": now.replace("Z", ".000000Z")}})
    rights = ("get resourceclaims", "create resourceslices")
    server.rights |= {(NODE, right, "") for right in rights}


async def test_top_shows_used_beside_booked_and_says_what_it_could_not_ask(server: FakeAPIServer, user: User) -> None:
    put(server, a_telling_driver("node1"))
    tells(server, "node1", f'# HELP x\nelasticgpu_card_memory_used_bytes{{card_uuid="{uuid(1)}"}} {60 * GI}\n')
    done = await user.egpu("top")
    assert done.code == 0
    lines = {line.split()[1]: line.split() for line in done.out.splitlines()[1:]}
    assert lines[name_of(1)][6:10] == ["80GiB", "80GiB", "60GiB", "75%"]
    assert lines[name_of(2)][8] == "<unknown>"
    assert "Warning: used is unknown on node1: its driver does not tell of use there" in done.err
    assert "Warning: used is unknown on node2: its driver is not ready" in done.err


async def test_top_claims_marks_who_uses_more_than_is_booked(server: FakeAPIServer, user: User) -> None:
    put(server, a_telling_driver("node2"))
    labels = f'claim_uid="uid-web-half",device="{name_of(4)}",request="card"'
    tells(
        server,
        "node2",
        f"elasticgpu_claim_memory_used_bytes{{{labels}}} {12 * GI}\nelasticgpu_claim_cores_used_percent{{{labels}}} 40\n",
    )
    done = await user.egpu("top", "claims", "--node", "node2")
    assert done.out.splitlines()[1].split()[-5:] == ["10GiB", "12GiB", "over", "25%", "40%"]
    found = json.loads((await user.egpu("top", "claims", "--node=node2", "-o", "json")).out)["items"]
    assert (found[0]["booked"], found[0]["used"], found[0]["unknown"]) == (10 * GI, 12 * GI, "")


async def test_top_without_the_right_names_it(server: FakeAPIServer, user: User) -> None:
    put(server, a_telling_driver("node1"))
    server.fault(path="/proxy/", status=403, reason="Forbidden", times=-1)
    assert "you may not get pods/proxy in namespace elastic-gpu" in (await user.egpu("top", "--node", "node1")).err


async def test_a_card_is_cordoned_shown_so_and_let_go_again(server: FakeAPIServer, user: User) -> None:
    done = await user.egpu("cordon", "gpu-00000004")
    assert (done.code, done.out) == (0, f"card/{name_of(4)} cordoned\n")
    assert done.err == "1 claims keep it; --evict ends their pods\n"
    rule = server.get(f"{RULES}/cordon-{name_of(4)}") or {}
    assert rule["spec"]["deviceSelector"] == {"driver": "gpu.elasticgpu.io", "pool": "egpu/node2", "device": name_of(4)}
    assert rule["spec"]["taint"]["effect"] == "NoSchedule"
    assert (await user.egpu("cordon", "gpu-00000004")).out == f"card/{name_of(4)} already cordoned\n"
    shown = (await user.egpu("card", "gpu-00000004")).out
    assert "State:     Held: taint gpu.elasticgpu.io/cordoned" in shown
    assert (await user.egpu("uncordon", "gpu-00000004")).out == f"card/{name_of(4)} uncordoned\n"
    assert server.list("devicetaintrules") == []
    assert (await user.egpu("uncordon", "gpu-00000004")).out == f"card/{name_of(4)} is not cordoned\n"


async def test_a_card_that_is_kept_back_is_released(server: FakeAPIServer, user: User) -> None:
    rule = a_rule(f"retained-{name_of(4)}", pool="egpu/node2", device=name_of(4))
    rule["spec"]["taint"]["key"] = names.RETAINED_TAINT
    rule["metadata"]["annotations"] = {names.RETAINED_FOR: "gone"}
    server.put(f"{RULES}/retained-{name_of(4)}", rule)
    done = await user.egpu("status")
    assert f"kubectl egpu release {name_of(4)}" in done.out
    assert (await user.egpu("release", "gpu-00000004")).out == f"card/{name_of(4)} free again\n"
    assert server.list("devicetaintrules") == []
    assert "was not released by its claims yet" in (await user.egpu("release", "gpu-00000004")).out


async def test_where_the_server_has_no_rules_cordon_says_what_else_there_is(server: FakeAPIServer, user: User) -> None:
    server.fault(path="devicetaintrules", status=404, reason="NotFound", times=-1)
    done = await user.egpu("cordon", "gpu-00000004")
    assert (done.code, done.out) == (2, "")
    assert "they come with Kubernetes 1.37" in done.err
    cards = await user.egpu("cards")
    assert (cards.code, cards.err) == (0, "")


async def test_doctor_finds_what_is_wrong_and_says_what_to_do(server: FakeAPIServer, user: User) -> None:
    served(server)
    put(server, a_telling_driver("node1"), a_telling_driver("node2"))
    tells(server, "node1", "elasticgpu_shares_stored 0.0\n")
    server.rights.discard((NODE, "create resourceslices", ""))
    bad = {"selectors": [{"cel": {"expression": 'device.attributes["gpu.elasticgpu.io"].rack == "a"'}}]}
    put(server, {**a_device_class("broken"), "spec": bad})
    done = await user.egpu("doctor")
    assert done.code == 1
    wrong = [line for line in done.out.splitlines() if line.startswith("WRONG")]
    assert any("drops fields that shares need" in line for line in wrong)
    assert any(f"{NODE} may not create resourceslices" in line for line in wrong)
    assert any("class broken fails on device" in line and "rack" in line for line in wrong)
    assert any("claim old/left: has" in line for line in wrong)
    assert "         kubectl delete resourceclaim left -n old\n" in done.out
    assert "ok     server: Kubernetes v1.37.2\n" in done.out


async def test_doctor_shows_what_an_older_kubernetes_has_not_and_that_is_no_mistake(
    server: FakeAPIServer, user: User
) -> None:
    """As 1.34 does: it takes slices and classes, and keeps none of these fields."""
    served(server)
    server.said["/apis/resource.k8s.io/v1"] = {"kind": "APIResourceList", "resources": [{"name": "resourceslices"}]}
    server.drops("devices.allowMultipleAllocations", "devices.taints", "deviceclasses:extendedResourceName")
    before = server.store.revision
    done = await user.egpu("doctor", "-o", "json")
    found = [one for one in json.loads(done.out)["items"] if one["check"] == "features"]
    assert [(one["verdict"], one["text"].partition(":")[0].removeprefix("this Kubernetes has ")) for one in found] == [
        ("Ok", "binding conditions"),
        ("Absent", "no shares of cards"),
        ("Absent", "no taints of cards"),
        ("Absent", "no resource names of classes"),
        ("Absent", "no DeviceTaintRules"),
    ]
    assert "1.37, or the feature gate DRADeviceTaintRules" in found[-1]["remedy"]
    assert server.store.revision == before, "it asks and writes nothing"


async def test_doctor_says_where_it_may_not_try(server: FakeAPIServer, user: User) -> None:
    served(server)
    server.fault(path="/resourceslices", method="POST", status=403, reason="Forbidden", times=-1)
    done = await user.egpu("doctor")
    assert "?      features: what it keeps of resourceslices could not be tried: " in done.out
    assert "this Kubernetes has resource names of classes, DeviceTaintRules" in done.out


async def test_doctor_is_0_only_where_all_was_looked_at_and_nothing_is_wrong(server: FakeAPIServer, user: User) -> None:
    server.store.objects.clear()
    controller = a_telling_driver("node1")
    controller["metadata"] |= {
        "name": "controller",
        "labels": {"app.kubernetes.io/name": "elastic-gpu", "app.kubernetes.io/component": "controller"},
    }
    for node in ("node1", "node2"):
        put(server, a_node_with_runtime(node), a_telling_driver(node))
        tells(server, node, "elasticgpu_shares_stored 1.0\n")
    put(server, a_slice(a_card(1, shared=True)), a_device_class(), controller)
    served(server)
    for right in (
        "list elasticgpuclasses",
        "create deviceclasses",
        "list resourceclaims",
        "list pods",
        "list nodes",
        "patch elasticgpus",
    ):
        server.rights.add((NODE, right, ""))
    done = await user.egpu("doctor")
    assert (done.code, [line for line in done.out.splitlines() if not line.startswith("ok")]) == (0, [])
    server.fault(path="leases", status=403, reason="Forbidden", times=-1)
    assert (await user.egpu("doctor")).code == 2


def a_node_with_runtime(name: str, runtime: str = "containerd://2.1.4") -> dict[str, Any]:
    from tests.view.objects import a_node

    node = a_node(name)
    node["status"]["nodeInfo"] = {"containerRuntimeVersion": runtime, "kubeletVersion": "v1.37.2"}
    return node


@pytest.mark.parametrize(
    ("runtime", "verdict"),
    [
        ("containerd://1.6.36", "Wrong"),
        ("containerd://1.7.28", "Unknown"),
        ("containerd://2.1.4", None),
        ("cri-o://1.34.1", None),
        ("", "Unknown"),
    ],
)
def test_a_runtime_is_judged_as_far_as_the_node_tells(runtime: str, verdict: str | None) -> None:
    found = list(checks.runtimes([a_node_with_runtime("n", runtime)], {"n"}))
    assert [one.verdict.value for one in found] == ([verdict] if verdict else [])


@pytest.mark.parametrize(("seconds", "wrong"), [(0, 0), (60, 0), (120, 1), (-20, 0), (-45, 1)])
def test_a_clock_that_is_ahead_or_behind_is_told_from_a_late_renewal(seconds: int, wrong: int) -> None:
    renewed = (NOW - datetime.timedelta(seconds=seconds)).isoformat()
    leases = [{"metadata": {"name": "n"}, "spec": {"renewTime": renewed}}]
    found = list(checks.clocks(leases, {"n"}, NOW.isoformat(), NOW))
    assert sum(one.verdict is checks.Verdict.WRONG for one in found) == wrong


def test_a_driver_and_a_controller_of_two_versions_are_told() -> None:
    found = list(checks.versions([], set(), [("a", "0.1.0"), ("b", "0.2.0")], ""))
    assert [(one.verdict.value, "0.1.0,0.2.0" in one.text) for one in found] == [("Wrong", True)]


def test_series_are_read_with_quotes_and_commas_in_their_labels() -> None:
    text = 'elasticgpu_claim_memory_used_bytes{claim_uid="u",device="d",request="r",claim_name="a\\"b,c{}"} 1.5e+06\n'
    assert usage.read([text]).memory == {("u", "d", "r"): 1500000}
    assert usage.read(["elasticgpu_card_memory_used_bytes 7\n", "nonsense"]) == usage.Used()


def test_an_old_server_and_a_missing_kind_are_wrong() -> None:
    found = list(checks.server({"minor": "33"}, {"elasticgpu.io/v1alpha1": "Error from server (NotFound)"}))
    assert [one.verdict.value for one in found] == ["Wrong", "Wrong"]


async def test_nodes_and_cards_of_chosen_nodes(server: FakeAPIServer, user: User) -> None:
    node = server.get("/api/v1/nodes/node2") or {}
    node["metadata"]["labels"] = {"zone": "b"}
    server.put("/api/v1/nodes/node2", node)
    put(server, a_claim("c", a_result(4, node="node2")))
    assert [
        line.split()[0] for line in (await user.egpu("nodes", "-l", "zone=b", "--no-headers")).out.splitlines()
    ] == ["node2"]
    assert [
        line.split()[0] for line in (await user.egpu("cards", "-l", "zone=b", "--no-headers")).out.splitlines()
    ] == ["node2"]
