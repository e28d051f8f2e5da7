"""The command line against an API server, by the real kubectl."""

import asyncio
import json
import os
import pty
import re
import signal
import sys
from pathlib import Path

import yaml

from tests.cli.conftest import put
from tests.cli.terminal import ROOT, User
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import a_card, a_slice, name_of

TAIL = "0d4e-4f7b-9c31-5e2b7a90d101"
CARDS = f"""\
NODE   CARD                                      MODEL                  STATE    MEMORY   FREE  PODS
node1  gpu-00000001-{TAIL}  NVIDIA H100 80GB HBM3  Held      80GiB      0  ml/trainer
node1  gpu-00000002-{TAIL}  NVIDIA H100 80GB HBM3  Held      80GiB      0  old/left (claim, unused)
node1  gpu-00000003-{TAIL}  NVIDIA H100 80GB HBM3  Blocked   80GiB  80GiB  <none>
node2  gpu-00000004-{TAIL}  NVIDIA L40S            Partly    48GiB  38GiB  web/one,web/two
"""
NARROW = """\
NODE   CARD          STATE     FREE  PODS
node1  gpu-00000001  Held         0  ml/trainer
node1  gpu-00000002  Held         0  old/left (claim, unused)
node1  gpu-00000003  Blocked  80GiB  <none>
node2  gpu-00000004  Partly   38GiB  web/one,web/two
"""
HELD = """\
NAMESPACE  POD  CONTAINERS  CLAIM  REQUEST  CLASS                   CORES  MEMORY  HELD BY  SINCE
web        one  main        half   card     training.elasticgpu.io    25%   10GiB  <none>   AGE
web        two  main        half   card     training.elasticgpu.io    25%   10GiB  <none>   AGE
"""


async def test_cards_into_a_pipe_shorten_nothing(user: User) -> None:
    done = await user.egpu("cards")
    assert (done.code, done.out, done.err) == (0, CARDS, "")


async def test_cards_on_a_narrow_terminal_leave_out_what_does_not_fit(user: User) -> None:
    assert await user.sees("cards", "--color=never", width=70) == NARROW


async def test_a_terminal_gets_colours_unless_no_color_is_set(user: User) -> None:
    assert "\033[34mHeld" in await user.sees("cards")
    quiet = User(user.home, user.kubeconfig, user.kubectl, {"NO_COLOR": "1"})
    assert "\033" not in await quiet.sees("cards")


async def test_status_is_what_no_command_gives(user: User) -> None:
    done = await user.egpu()
    assert done.code == 0
    assert done.out.startswith("4 cards on 2 nodes: 1 partly held, 2 held, 1 blocked (as of ")
    assert "inference      1       1     2   10GiB\ntraining       2       2     1  160GiB\n" in done.out
    problems = re.findall(r"^  (\w+ \S+): ", done.out, re.MULTILINE)
    assert problems == ["claim old/left", f"card {name_of(3)}", "pod ml/late"]
    assert "    kubectl delete resourceclaim left -n old\n" in done.out


async def test_status_as_json_has_the_same_numbers(user: User) -> None:
    status = json.loads((await user.egpu("status", "-o", "json")).out)
    assert (status["kind"], status["total"]["held"], status["total"]["partly"]) == ("Status", 2, 1)
    assert len(status["problems"]) == 3


async def test_a_card_is_found_by_name_uuid_beginning_and_short_name(user: User) -> None:
    whole = name_of(4)
    for name in (whole, whole.replace("gpu", "GPU", 1), "gpu-00000004", "00000004", "gpu-00000004..d101"):
        done = await user.egpu("card", name)
        assert done.code == 0
        assert re.sub(r" +\d+d\n", "   AGE\n", done.out).endswith(HELD)
        assert "Memory:    38GiB free of 48GiB\n" in done.out


async def test_a_card_that_is_not_there_or_not_told_apart_is_exit_code_1(user: User) -> None:
    done = await user.egpu("card", "gpu-99")
    assert (done.code, done.out) == (1, "")
    assert done.err == 'Error: card "gpu-99" not found; kubectl egpu cards lists them all\n'
    assert "is the beginning of 4 cards" in (await user.egpu("card", "gpu-0000000")).err


async def test_pods_say_why_they_wait(user: User) -> None:
    done = await user.egpu("pods", "-n", "ml", "-o", "wide")
    assert (
        f"does not fit: 1 card: 25% of cores short, closest {name_of(4)} on node2 with 75% free of 100% asked"
        in done.out
    )
    assert "0/2 nodes are available: 2 cannot allocate all claims." in done.out
    assert "NotEnoughLeft" in done.out
    assert "NAMESPACE" not in done.out


async def test_flags_may_stand_before_the_command(user: User) -> None:
    assert (await user.egpu("-n", "web", "pods", "--no-headers")).out == (
        await user.egpu("pods", "-n", "web", "--no-headers")
    ).out


async def test_the_namespace_is_that_of_the_context(user: User) -> None:
    assert (await user.egpu("claims")).err == "No claims found in default namespace.\n"
    config = yaml.safe_load(user.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = "old"
    user.kubeconfig.write_text(yaml.safe_dump(config))
    assert (await user.egpu("claims", "-o", "name")).out == "resourceclaim.resource.k8s.io/left\n"


async def test_claims_of_all_namespaces_show_cards_nodes_and_pods(user: User) -> None:  # dynamo PR#13536
    lines = (await user.egpu("claims", "-A", "--no-headers")).out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["ml", "train", "InUse"], ["ml", "wanted", "Waiting"], ["old", "left", "Allocated"], ["web", "half", "InUse"],
    ]  # fmt: skip


async def test_nodes_and_classes_count_cards(user: User) -> None:
    nodes = (await user.egpu("nodes", "--no-headers")).out.splitlines()
    assert nodes[0].split()[:9] == ["node1", "yes", "ok", "3", "0", "0", "2", "1", "0"]
    classes = (await user.egpu("classes", "--no-headers")).out
    assert classes.split()[:8] == ["training.elasticgpu.io", "Whole", "training", "True", "1", "3", "3", "1"]


async def test_json_and_yaml_say_the_same(user: User) -> None:
    as_json, as_yaml = [(await user.egpu("pods", "-A", "-o", form)).out for form in ("json", "yaml")]
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert json.loads(as_json)["kind"] == "PodList"


async def test_who_may_not_list_claims_sees_own_ones_and_unknown_cards(
    server: FakeAPIServer, user: User
) -> None:  # enh#5677
    server.fault(path="v1/resourceclaims", status=403, reason="Forbidden", times=-1)
    done = await user.egpu("cards", "-n", "ml", "--no-headers")
    states = [re.split(r"  +", line)[3] for line in done.out.splitlines()]
    assert (done.code, states) == (0, ["Held", "Unknown", "Unknown", "Unknown"])
    assert done.err == "Warning: claims: only those of namespace ml could be read\n"


async def test_who_may_list_no_claims_at_all_is_told_so(server: FakeAPIServer, user: User) -> None:
    server.fault(path="resourceclaims", status=403, reason="Forbidden", times=-1)
    done = await user.egpu("cards", "--no-headers")
    assert done.out.count("Unknown") == 4
    assert done.err == "Warning: claims: you may not list resourceclaims in all namespaces\n"
    assert (await user.egpu("claims", "-n", "ml")).code == 2


async def test_without_the_inventory_nothing_can_be_told(server: FakeAPIServer, user: User) -> None:
    server.fault(path="resourceslices", status=403, reason="Forbidden", times=-1)
    for command in (["status"], ["cards"], ["card", "gpu-1"], ["nodes"]):
        done = await user.egpu(*command)
        assert done.code == 2
        assert "you may not list resourceslices" in done.err


async def test_a_cluster_without_our_kinds_says_that_they_are_not_installed(server: FakeAPIServer, user: User) -> None:
    server.fault(path="elasticgpuclasses", status=404, reason="NotFound", times=-1)
    done = await user.egpu("classes")
    assert (done.code, done.out) == (2, "")
    assert done.err == "Warning: classes: the kinds of elasticgpu.io are not installed in this cluster\n"
    assert (await user.egpu("cards")).code == 0


async def test_no_server_is_one_line_in_kubectls_words(server: FakeAPIServer, user: User) -> None:
    await server.stop()
    done = await user.egpu("cards")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "was refused" in done.err


async def test_no_kubectl_is_said_so(user: User, tmp_path: Path) -> None:
    done = await User(user.home, user.kubeconfig, user.kubectl, {"PATH": str(tmp_path)}).egpu("cards")
    assert (done.code, done.err) == (2, "kubectl cannot be run (No such file or directory); it has to be in PATH\n")


async def test_kubectls_own_flags_are_passed_on(user: User) -> None:
    done = await user.egpu("--context", "elsewhere", "cards")
    assert done.code == 2
    assert "elsewhere" in done.err


async def test_an_empty_cluster_is_not_an_error(server: FakeAPIServer, user: User) -> None:
    for item in server.list("resourceslices"):
        server.remove(f"/apis/resource.k8s.io/v1/resourceslices/{item['metadata']['name']}")
    assert (await user.egpu("cards")).err == "No cards found.\n"
    assert "No node publishes a card" in (await user.egpu("status")).out


async def test_one_object_that_makes_no_sense_costs_itself(server: FakeAPIServer, user: User) -> None:  # HAMi#1932
    broken = a_slice(a_card(9) | {"capacity": {"memory": {"value": "many"}}}, node="node9")
    put(server, broken)
    done = await user.egpu("cards")
    assert done.out == CARDS
    assert done.err.startswith("Warning: could not be read: node9-1-0: ")


async def test_a_reader_that_has_enough_ends_it_in_silence(user: User) -> None:
    command = f"{sys.executable} -m cli cards -o json | head -c 1"
    done = await user.run("sh", "-c", command)
    assert (done.out, done.err) == ("{", "")


async def test_kubectl_finds_it_and_completes_it(user: User) -> None:
    programs = user.home / "bin"
    programs.mkdir()
    plugin = programs / "kubectl-egpu"
    plugin.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m cli "$@"\n')
    plugin.chmod(0o755)
    assert (await user.run(user.kubectl, "egpu", "cards")).out == CARDS
    script = programs / "kubectl_complete-egpu"
    script.write_text((await user.egpu("completion")).out)
    script.chmod(0o755)
    told = (await user.run(user.kubectl, "__complete", "egpu", "ca")).out.splitlines()
    assert [line.partition("\t")[0] for line in told] == ["cards", "card", ":4"]
    cards = (await user.run(user.kubectl, "__complete", "egpu", "card", "gpu-00000003")).out.splitlines()
    assert cards == [name_of(3), ":4"]


async def test_a_wrong_flag_is_exit_code_2_with_the_usage(user: User) -> None:
    done = await user.egpu("cards", "-o", "xml")
    assert done.code == 2
    assert done.err.startswith("usage: kubectl egpu cards ")


async def test_an_interrupt_ends_it_and_its_kubectls_without_a_trace(server: FakeAPIServer, user: User) -> None:
    server.fault(path="resourceslices", black_hole=True, times=-1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "cards"), cwd=ROOT, env=user.environment, stderr=asyncio.subprocess.PIPE
    )
    await server.until(lambda: server.count("GET", "resourceslices"), within_s=60)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
    server.heal()


async def test_watch_draws_again_when_something_changed(server: FakeAPIServer, user: User) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "cards", "-w"), cwd=ROOT, env=user.environment, stdout=theirs
    )
    os.close(theirs)
    try:
        first = await asyncio.to_thread(_picture, ours)
        server.remove("/apis/resource.k8s.io/v1/namespaces/old/resourceclaims/left")
        second = await asyncio.to_thread(_picture, ours)
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()
        os.close(ours)
    assert (b"old/left" in first, b"old/left" in second) == (True, False)
    assert second.startswith(b"\033[H\033[2J")
    assert process.returncode == 130


def _picture(terminal: int) -> bytes:
    """What was drawn, to the end of its last line; a terminal gives it in pieces."""
    drawn = b""
    while b"web/one,web/two\r\n" not in drawn:
        drawn += os.read(terminal, 65536)
    return drawn


async def test_watch_in_a_pipe_says_what_to_use(user: User) -> None:
    done = await user.egpu("cards", "--watch")
    assert (done.code, done.out) == (2, "")
    assert "kubectl get elasticgpus --watch" in done.err
