"""Remote cards on the command line, by the real kubectl: pools, leases, who has which card."""

import datetime
import json
import re

import pytest

from cli import checks, lendingchecks
from tests.cli.conftest import put
from tests.cli.terminal import User
from tests.cli.test_doctor import served
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import (
    FAR,
    JSON,
    a_card,
    a_device_class,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_pod,
    a_pool,
    a_rule,
    name_of,
    view,
)

NOW = datetime.datetime(2026, 1, 1, 0, 0, 30, tzinfo=datetime.UTC)
SLICE = a_far_slice(a_card(7), a_card(8))


@pytest.fixture
def lab(server: FakeAPIServer) -> FakeAPIServer:
    """A pool of two cards beside the cluster; a pod on a node without cards has one."""
    claim = a_far_claim("far", 7, node="node9", pods=("debugger",), of_class="simulation.elasticgpu.io")
    pod = a_pod("debugger", claim="far", node="node9")
    put(server, SLICE, a_pool(), claim, pod, a_lease(7, claim="far", node="node9"), a_device_class("far", driver=FAR))
    return server


def cells(text: str, row: int) -> list[str]:
    return re.split(r"  +", text.splitlines()[row])


async def test_cards_have_a_place_which_is_a_node_or_a_pool(lab: FakeAPIServer, user: User) -> None:
    done = await user.egpu("cards")
    assert (done.code, done.err) == (0, "")
    assert cells(done.out, 0)[:2] == ["PLACE", "CARD"]
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["node1"] * 3 + ["node2"] + ["pool/lab"] * 2
    assert cells(done.out, 5)[1:] == [name_of(7), "NVIDIA H100 80GB HBM3", "Held", "80GiB", "0", "ml/debugger"]


async def test_remote_ones_alone_show_the_node_that_uses_them_and_the_lease(lab: FakeAPIServer, user: User) -> None:
    out = (await user.egpu("cards", "--remote", "-o", "wide", "--no-headers")).out
    assert cells(out, 0)[7:10] == ["ml/debugger", "node9", "Attached"]
    assert cells(out, 1)[7:10] == ["<none>", "<none>", "<none>"]
    named = (await user.egpu("cards", "--remote", "-o", "name")).out
    assert named == f"card/{name_of(7)}\ncard/{name_of(8)}\n"


async def test_a_card_tells_pool_pod_and_lease(lab: FakeAPIServer, user: User) -> None:
    out = (await user.egpu("card", "gpu-00000007")).out
    assert "Pool:      lab (remote)\n" in out
    assert "Node:" not in out
    assert re.search(r"^ml +debugger +main +far +card +simulation.elasticgpu.io ", out, re.MULTILINE)
    assert re.search(r"^lease-far-7 +Attached +ml/far +node9 ", out, re.MULTILINE)


async def test_a_card_that_two_pools_list_is_one_card_shown_where_it_is_held(lab: FakeAPIServer, user: User) -> None:
    put(lab, a_far_slice(a_card(7), a_card(8), pool="attic"), a_pool("attic"))
    out = (await user.egpu()).out
    assert out.startswith("6 cards on 2 nodes and 2 remote pools: 1 free, 1 partly held, 3 held, 1 blocked (as of ")
    assert "pool lab: lists 2 cards that pool attic lists too: each counts once in all sums" in out
    shown = await user.egpu("card", "gpu-00000007")
    assert (shown.code, "Pool:      lab (remote)\n" in shown.out) == (0, True)


async def test_status_counts_cards_of_nodes_and_of_pools(lab: FakeAPIServer, user: User) -> None:
    out = (await user.egpu()).out
    assert out.startswith("6 cards on 2 nodes and 1 remote pool: 1 free, 1 partly held, 3 held, 1 blocked (as of ")
    assert re.search(r"^NVIDIA H100 80GB HBM3 \(remote\) +2 +1 +0 +1 +0 +0 ", out, re.MULTILINE)
    assert re.search(r"^lab +yes +2 +1 +0 +1 ", out, re.MULTILINE)
    (found,) = json.loads((await user.egpu("-o", "json")).out)["remotePools"]
    assert (found["name"], found["reachable"], found["tally"]["held"]) == ("lab", True, 1)


async def test_pods_and_claims_name_the_pool(lab: FakeAPIServer, user: User) -> None:
    assert f"{name_of(7)} of pool/lab" in (await user.egpu("pods", "-n", "ml")).out
    (row,) = [line for line in (await user.egpu("claims", "-n", "ml", "-o", "wide")).out.splitlines() if "far" in line]
    assert (re.split(r"  +", row)[5:7], re.split(r"  +", row)[-1]) == (["node9", "debugger"], "lab")


async def test_a_pod_whose_card_is_being_attached_says_so(server: FakeAPIServer, user: User) -> None:
    claim = a_far_claim("far", 7, attached="", pods=("new",))
    put(server, SLICE, claim, a_pod("new", claim="far", phase="Pending", node=""))
    assert f"card {name_of(7)} of pool lab is being attached" in (await user.egpu("pods", "-n", "ml")).out


async def test_pools_say_whether_they_answer_and_why_not(lab: FakeAPIServer, user: User) -> None:
    put(lab, a_pool("attic", reachable="False", why="connection refused"), a_pool("new", reachable=""))
    lines = (await user.egpu("pools", "-o", "wide")).out.splitlines()[1:]
    rows = [re.split(r"  +", line) for line in lines]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("attic", "no", "0", "connection refused"), ("lab", "yes", "2", "<none>"),
        ("new", "<unknown>", "0", "the controller has not asked it yet"),
    ]  # fmt: skip
    assert (await user.egpu("pools", "-o", "name")).out.splitlines()[1] == "remotepool.elasticgpu.io/lab"


async def test_leases_name_card_claim_pod_node_and_phase(lab: FakeAPIServer, user: User) -> None:
    put(lab, a_lease(8, claim="gone", namespace="old", node="node8", phase="Releasing", reason="its claim is gone"))
    lines = (await user.egpu("leases", "-o", "wide")).out.splitlines()[1:]
    assert [re.split(r"  +", line)[:8] for line in lines] == [
        ["lab", name_of(7), "ml", "far", "debugger", "node9", "Attached", "yes"],
        ["lab", name_of(8), "old", "gone", "<none>", "node8", "Releasing", "no"],
    ]
    assert lines[1].endswith("2026-01-01T00:10:00Z  its claim is gone")
    assert (await user.egpu("leases", "-n", "old", "-o", "name")).out == "remotelease.elasticgpu.io/lease-gone-8\n"


async def test_who_may_not_list_leases_is_told_so_and_still_sees_the_cards(lab: FakeAPIServer, user: User) -> None:
    lab.fault(path="remoteleases", status=403, reason="Forbidden", times=-1)
    lab.fault(path="remotepools", status=403, reason="Forbidden", times=-1)
    done = await user.egpu("cards", "--remote", "-o", "wide", "--no-headers")
    assert (done.code, done.err) == (0, "Warning: leases: you may not list remoteleases\n")
    assert cells(done.out, 0)[7:10] == ["ml/debugger", "node9", "<unknown>"]
    assert "Its lease is not known: you may not list remoteleases" in (await user.egpu("card", "gpu-00000007")).out
    for command, kind in (("pools", "remote pools"), ("leases", "leases")):
        done = await user.egpu(command, "-o", "name")
        assert f"Warning: {kind}: you may not list remote{command}\n" in done.err
    assert (await user.egpu("leases")).code == 2
    assert "Warning" not in (await user.egpu("nodes")).err


async def test_a_cluster_without_remote_cards_hears_nothing_of_rights_to_them(
    server: FakeAPIServer, user: User
) -> None:
    server.fault(path="/remote", status=403, reason="Forbidden", times=-1)
    done = await user.egpu("status")
    assert (done.code, done.err) == (0, "")
    assert "remote" not in done.out
    server.heal()
    assert (await user.egpu("pools")).err == "No remote pools found.\n"
    assert (await user.egpu("cards", "--remote")).err == "No remote cards found.\n"


async def test_a_cluster_without_the_kinds_says_that_they_are_not_installed(server: FakeAPIServer, user: User) -> None:
    server.fault(path="/remote", status=404, reason="NotFound", times=-1)
    for command in ("pools", "leases"):
        done = await user.egpu(command)
        assert done.code == 2
        assert "the kinds of elasticgpu.io are not installed in this cluster" in done.err
    assert (await user.egpu("status")).err == ""


async def test_top_says_that_remote_cards_are_not_measured(lab: FakeAPIServer, user: User) -> None:
    done = await user.egpu("top")
    (row,) = [line for line in done.out.splitlines() if name_of(7) in line]
    assert (row.split()[0], row.split()[6:9]) == ("pool/lab", ["80GiB", "80GiB", "<unknown>"])
    assert "Warning: used is unknown on pool/lab: remote cards are not measured" in done.err


async def test_a_remote_card_is_cordoned_by_a_rule_for_its_own_driver(lab: FakeAPIServer, user: User) -> None:
    lab.said["/apis/resource.k8s.io/v1"] = {"resources": [{"name": "devicetaintrules"}]}
    assert (await user.egpu("cordon", "gpu-00000008")).out == f"card/{name_of(8)} cordoned\n"
    rule = lab.get(f"/apis/resource.k8s.io/v1/devicetaintrules/cordon-{name_of(8)}")
    assert rule
    assert rule["spec"]["deviceSelector"] == {"driver": FAR, "pool": "lab", "device": name_of(8)}
    assert cells((await user.egpu("cards", "--remote", "--no-headers")).out, 1)[3] == "Blocked"


async def test_completion_knows_the_commands_the_flag_and_the_cards_of_pools(lab: FakeAPIServer, user: User) -> None:
    assert "pools\t" in (await user.egpu("__complete", "po")).out
    assert (await user.egpu("__complete", "cards", "--re")).out == "--remote\n:4\n"
    assert (await user.egpu("__complete", "card", "gpu-00000008")).out == f"{name_of(8)}\n:4\n"


async def test_doctor_looks_at_pools_only_where_there_are_some(server: FakeAPIServer, user: User) -> None:
    served(server)
    assert "pool" not in (await user.egpu("doctor")).out
    put(server, SLICE, a_pool(reachable="False", why="connection refused"))
    out = (await user.egpu("doctor")).out
    assert "WRONG  pools: pool lab: does not answer; nobody new gets its 2 cards: connection refused\n" in out
    assert "ok     fields: the API server stores what attaching before binding needs\n" in out


def look(*given: JSON, controller: str = "1.0", now: datetime.datetime = NOW) -> set[tuple[str, str, str]]:
    slices = [one for one in given if one["kind"] == "ResourceSlice"]
    found = lendingchecks.look(view(*given), slices, [controller], now)
    return {(one.check, one.verdict.value, one.text) for one in found}


def test_an_agent_of_another_version_than_the_controller_is_named() -> None:
    older, newer = (look(SLICE, a_pool(), controller=version) for version in ("1.1.0", "0.9"))
    assert ("versions", "Wrong", "the agent of pool lab is 1.0, older than the controller (1.1.0)") in older
    assert ("versions", "Wrong", "the agent of pool lab is 1.0, newer than the controller (0.9)") in newer
    assert {text for check, _, text in look(SLICE, a_pool(), controller="0") if check == "versions"} == set()


def test_binding_conditions_that_the_server_dropped_are_seen_in_the_slices() -> None:
    dropped = a_far_slice(a_card(7))
    del dropped["spec"]["devices"][0]["bindingConditions"]
    found = {verdict for check, verdict, _ in look(dropped, a_pool()) if check == "fields"}
    assert found == {"Wrong"}


def test_a_lease_is_given_a_minute_to_be_given_back() -> None:
    given = (SLICE, a_pool(), a_lease(7, phase="Releasing"))
    soon, late = (
        {one.verdict for one in lendingchecks.look(view(*given), (), (), now) if one.check == "leases"}
        for now in (NOW, NOW + datetime.timedelta(minutes=5))
    )
    assert (soon, late) == ({checks.Verdict.OK}, {checks.Verdict.WRONG})


def test_a_rule_of_every_driver_is_seen_on_both() -> None:
    blocked = [card.state.value for card in view(SLICE, a_rule(device=name_of(7))).cards]
    assert blocked == ["Blocked", "Free"]
