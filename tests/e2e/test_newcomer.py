"""The README's five commands, as they are written, from an empty cluster to a share. Helm is the library that the other tests
use, behind a program of its name; the placeholder for a registry is filled in, and where this cluster has its driver."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import helm_python
import pytest

from hack import release
from hack.cluster import Cluster, cards
from hack.kubectl import Kubectl
from tests.e2e.manifests import a_claim, a_pod
from tests.e2e.stage import until

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRAConsumableCapacity")]
ROOT = Path(__file__).resolve().parents[2]
HELM = """\
import os, sys, helm_python
verb, name, chart, *rest = sys.argv[1:]
assert verb == "install"
options = dict(zip(rest[::2], rest[1::2], strict=True))
values = {}
for text in (options["--set"], *os.environ["MORE"].split(",")):
    path, _, value = text.partition("=")
    *way, last = path.split(".")
    place = values
    for step in way:
        place = place.setdefault(step, {})
    place[last] = value
with helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=options["-n"]) as helm:
    helm.install(chart, name, values)
"""


def commands() -> list[str]:
    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def empty(kubernetes: str) -> Iterator[Cluster]:
    up = Cluster.up(f"new-{os.getpid()}", nodes=1, cards=(2,), kubernetes=kubernetes)
    try:
        yield up
    finally:
        up.down()


def test_five_commands_lead_from_an_empty_cluster_to_a_share(
    empty: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, archive = release.image()
    empty.load_image(archive)
    repository, _, tag = reference.rpartition(":")
    (tmp_path / "helm.py").write_text(HELM)
    for name, line in (
        ("helm", f'exec {sys.executable} {tmp_path}/helm.py "$@"'),
        ("kubectl-egpu", f'exec {sys.executable} -m cli "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{empty.bin}:/usr/bin:/bin",
        "KUBECONFIG": str(empty.kubeconfig),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "MORE": f"image.tag={tag},driverRoot={cards.DRIVER_ROOT}",
    }
    found = commands()
    assert len(found) == 5

    def run(line: str) -> str:
        text = line.replace("<your registry>/elastic-gpu", repository)
        done = subprocess.run(
            ["sh", "-ec", text], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    for line in found[:2]:
        run(line)
    began = time.monotonic()
    for line in found[2:4]:
        run(line)
    kubectl = Kubectl(program=str(empty.bin / "kubectl"), kubeconfig=empty.kubeconfig)
    kubectl("wait", "--for=condition=Ready", "pod/share-a", "pod/share-b", "--timeout=240s")
    with capsys.disabled():
        print(  # noqa: T201  a figure, not a limit
            f"\nhelm install to two pods that run on a card: {time.monotonic() - began:.1f} s"
        )
    until("both pods are shown on one card", lambda: "share-a" in (shown := run(found[4])) and "share-b" in shown)


def test_a_release_is_alone_says_who_still_needs_it_leaves_nothing_and_mends_what_was_broken(empty: Cluster) -> None:
    reference, archive = release.image()
    empty.load_image(archive)
    kubectl = Kubectl(program=str(empty.bin / "kubectl"), kubeconfig=empty.kubeconfig)
    wanted = {**release.values(reference, cards.DRIVER_ROOT), "hooks": {"leave": True}}
    release.install(kubectl, wanted)
    release.wait(kubectl)
    _ended(kubectl)
    with (
        helm_python.Config(kubeconfig_path=empty.kubeconfig, namespace="default") as second,
        pytest.raises(helm_python.HelmError, match="release elastic-gpu in namespace elastic-gpu serves driver gpu"),
    ):
        second.install(release.CHART, "another", wanted)
    objects = {"apiVersion": "v1", "kind": "List", "items": [a_claim("held"), a_pod("holder", claim="held")]}
    kubectl("create", "-f", "-", text=json.dumps(objects))
    kubectl("wait", "--for=condition=Ready", "pod/holder", "--timeout=240s")
    with helm_python.Config(kubeconfig_path=empty.kubeconfig, namespace=release.NAMESPACE) as helm:
        with pytest.raises(helm_python.HelmError):
            helm.uninstall(release.NAME)
        said = kubectl("-n", release.NAMESPACE, "logs", "job/elastic-gpu-leave")
        assert "1 claims still hold cards: default/held" in said
        _ended(kubectl)
        helm.uninstall(release.NAME)
        until("nothing of it is left", lambda: not _of_the_release(kubectl))
        # an install that was cut off: half of it wrong, and Helm's own notes are lost
        helm.install(
            release.CHART, release.NAME, {**wanted, "image": {"repository": "registry.local/none", "tag": "0"}}
        )
        kubectl("-n", release.NAMESPACE, "delete", "secrets", "-l", "owner=helm")
        assert _of_the_release(kubectl)
        helm.install(release.CHART, release.NAME, wanted)
    release.wait(kubectl)
    kubectl("create", "-f", "-", text=json.dumps(objects))
    kubectl("wait", "--for=condition=Ready", "pod/holder", "--timeout=240s")
    _ended(kubectl)


def _ended(kubectl: Kubectl) -> None:
    kubectl("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    kubectl("delete", "resourceclaims", "--all", "--timeout=120s")


def _of_the_release(kubectl: Kubectl) -> list[str]:
    kinds = (
        *("clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        *("elasticgpuclasses", "deviceclasses", "daemonsets", "deployments", "serviceaccounts", "jobs"),
    )
    found = kubectl.objects(",".join(kinds), "-A", "-l", f"app.kubernetes.io/instance={release.NAME}")
    return [f"{one['kind']} {one['metadata']['name']}" for one in found]
