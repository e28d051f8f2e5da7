"""The page, events, cordon, top and doctor where they belong: on the real cluster, with the real API server's answers."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack import release
from hack.cluster import paths
from tests.e2e.manifests import a_pod, a_template
from tests.e2e.stage import Stage, becomes, until
from tests.e2e.test_view import card_of

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
Look = Callable[[str, str], tuple[int, Any]]


@pytest.fixture
def look(stage: Stage) -> Iterator[Look]:
    """(path, token) -> status and answer of the page's port, by kubectl port-forward as the chart's notes say."""
    controller = f"deployment/{release.NAME}-controller"
    stage.kubectl("-n", release.NAMESPACE, "rollout", "status", controller, "--timeout=240s")
    command = [
        stage.kubectl.program,
        "-n",
        release.NAMESPACE,
        "port-forward",
        controller,
        ":8081",
    ]
    environment = paths.environment(KUBECONFIG=str(stage.kubectl.kubeconfig))  # without HOME it would keep files here
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
    assert found

    def ask(path: str, token: str) -> tuple[int, Any]:
        headers = {"X-Elastic-GPU-Token": token} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{found[1]}/{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer) if path.startswith("api/") else answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    yield ask
    process.terminate()
    process.communicate()


@pytest.fixture
def egpu(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Exit code and output of `kubectl egpu ...`, by kubectl as a plugin."""
    plugin = tmp_path / "kubectl-egpu"
    plugin.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cli "$@"\n')
    plugin.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{Path(stage.kubectl.program).parent}:/usr/bin:/bin",
        "KUBECONFIG": str(stage.kubectl.kubeconfig),
        "HOME": str(tmp_path),
    }

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [stage.kubectl.program, "egpu", *words], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def a_token(stage: Stage, name: str) -> str:
    stage("create", "serviceaccount", name)
    return stage("create", "token", name).strip()


def test_the_page_shows_each_reader_as_much_as_the_api_server_lets_them_list(stage: Stage, look: Look) -> None:
    stage.start(a_template(), a_pod(template="template"))
    name = card_of(stage, "pod")
    assert look("", "")[0] == 200
    assert look("api/overview", "")[0] == 401
    assert look("api/overview", "no-token")[0] == 401
    stranger = a_token(stage, "stranger")
    assert look("api/overview", stranger)[0] == 403
    account = f"--serviceaccount={stage.namespace}:"
    binding = f"{stage.namespace}-reader"
    stage("create", "clusterrolebinding", binding, "--clusterrole=view", f"{account}reader")
    try:
        reader = a_token(stage, "reader")
        until("the picture has the pod", lambda: look(f"api/pods/{stage.namespace}/pod", reader)[0] == 200)
        _, found = look(f"api/cards/{name}", reader)
        (holder,) = found["data"]["card"]["holders"]
        assert (found["as"]["namespaces"], holder["pods"][0]["name"]) == (None, "pod")
        stage("delete", "clusterrolebinding", binding)
        stage("create", "clusterrolebinding", binding, "--clusterrole=elastic-gpu-inventory", f"{account}tenant")
        stage("create", "rolebinding", "tenant", "--clusterrole=view", f"{account}tenant")
        tenant = a_token(stage, "tenant")
        found = until("the rights are there", lambda: _seen(look, f"api/cards/{name}", tenant, [stage.namespace]))
        assert found["data"]["card"]["holders"][0]["pods"][0]["name"] == "pod"
        other = Stage.open(stage.kubectl, stage.cluster, "other")
        other("create", "serviceaccount", "tenant")
        stage(
            "create",
            "clusterrolebinding",
            f"{binding}-other",
            "--clusterrole=elastic-gpu-inventory",
            f"--serviceaccount={other.namespace}:tenant",
        )
        foreign = other("create", "token", "tenant").strip()
        found = until("the rights are there", lambda: _seen(look, f"api/cards/{name}", foreign, []))
        assert stage.namespace not in json.dumps(found)
        assert found["data"]["card"]["state"] == "Held"
        stage.kubectl("delete", "clusterrolebinding", f"{binding}-other")
        other.close()
    finally:
        stage.kubectl("delete", "clusterrolebinding", binding, "--ignore-not-found")


def _seen(look: Look, path: str, token: str, namespaces: list[str]) -> Any:
    """The answer to who may look into these, which the API server learns one binding after the other."""
    status, found = look(path, token)
    return found if status == 200 and found["as"]["namespaces"] == namespaces else None


def test_a_pod_says_which_card_it_got_and_why_another_waits(stage: Stage) -> None:
    stage.start(a_template(), a_pod(template="template"))
    stage.event(rf"has card {card_of(stage, 'pod')}")
    stage.create(a_pod("greedy", template="missing"))
    stage.event("no claim was made from template missing yet; does it exist")


def test_a_cordoned_card_is_got_by_nobody_and_all_say_so(stage: Stage, egpu: Callable[..., tuple[int, str]]) -> None:
    cards = [item["metadata"]["name"] for item in stage.kubectl.objects("elasticgpus")]
    try:
        for card in cards:
            code, said = egpu("cordon", card)
            assert (code, said) == (0, f"card/{card} cordoned\n")
        until(
            "objects are Blocked",
            lambda: all(one["status"]["state"] == "Blocked" for one in stage.kubectl.objects("elasticgpus")),
        )
        stage.create(a_template(), a_pod(template="template"))
        stage.pending_because("pod", "cannot allocate all claims")
        assert "cordoned" in egpu("card", cards[0])[1]
    finally:
        for card in cards:
            egpu("uncordon", card)
    stage.ready("pod")


def test_doctor_finds_what_is_wrong_here_and_a_class_that_fails(
    stage: Stage, egpu: Callable[..., tuple[int, str]]
) -> None:
    """The ready-made class for inference requires what nothing on these nodes can hold: that is told, and nothing else."""

    def wrong() -> list[str]:
        lines = [line for line in egpu("doctor")[1].splitlines() if not line.startswith(("ok", " "))]
        return [line for line in lines if "class inference.elasticgpu.io" not in line]

    becomes([], wrong)
    name = f"broken-{stage.namespace}"
    text = 'device.attributes["gpu.elasticgpu.io"].rack == "a"'
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": text}}]},
    }
    stage.kubectl("create", "-f", "-", text=json.dumps(body))
    try:
        code, said = egpu("doctor")
        assert (code, f"class {name} fails on device" in said) == (1, True), said
    finally:
        stage.kubectl("delete", "deviceclass", name)


def test_top_sets_what_is_used_beside_what_is_booked(stage: Stage, egpu: Callable[..., tuple[int, str]]) -> None:
    stage.start(a_template(), a_pod(template="template"))
    name = card_of(stage, "pod")

    def row() -> Any:
        code, said = egpu("top", "-q", "-o", "json")
        assert code == 0, said
        items = json.loads(said)["items"]
        return next((one for one in items if one["card"] == name and one["used"] is not None), None)

    found = until("the card was measured", row)
    assert found["booked"] == found["size"]
    assert 0 <= found["used"] <= found["size"]
