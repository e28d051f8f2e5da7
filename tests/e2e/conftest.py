"""One real Kubernetes for all end-to-end tests: two nodes, four fake cards on the first, our image, our chart.

What a test leaves behind in its namespace goes with it; a test that changes a node puts it right itself. When one fails,
its report ends with every DRA object, the events and the logs of the driver.

TEST_CLUSTER=<name of a running instance of hack/cluster> uses that one and leaves it: for working on these tests. It needs
`--feature-gates GenericWorkload=true`, as the one that is brought up here has it.
TEST_KUBERNETES=1.34 brings up one of that version. What a test needs of Kubernetes beyond whole cards it says by
`needs(<feature gate>)`; where the server says that the gate is off, it is skipped. The usual version has them all.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack import release
from hack.cluster import Cluster, build, cards, cgroups, paths
from hack.kubectl import Kubectl, KubectlError
from tests.e2e.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
_GATES = "GenericWorkload=true"
"""What tests need that the usual version has off by itself: PodGroups."""
_LIMIT_S = 900
"""The first test of a session also brings the cluster up and builds the image."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_LIMIT_S))


@pytest.fixture(scope="session")
def cluster(kubernetes: str) -> Iterator[Cluster]:
    if running := paths.environment().get("TEST_CLUSTER"):
        found = Cluster.find(running)
        assert found, f"no instance {running} is up"
        yield found
        return
    gates = _GATES if kubernetes == build.KUBERNETES else ""
    up = Cluster.up(f"test-{os.getpid()}", nodes=2, cards=(4, 0), kubernetes=kubernetes, feature_gates=gates)
    try:
        yield up
    finally:
        up.down()


@pytest.fixture(scope="session")
def kubernetes() -> str:
    return build.named(paths.environment().get("TEST_KUBERNETES") or build.KUBERNETES)


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> Kubectl:
    """kubectl with all rights."""
    return Kubectl(program=str(cluster.bin / "kubectl"), kubeconfig=cluster.kubeconfig)


@pytest.fixture(scope="session")
def gates(admin: Kubectl) -> frozenset[str]:
    """The feature gates that are on, as the API server tells."""
    series = admin("get", "--raw", "/metrics")
    found = frozenset(re.findall(r'^kubernetes_feature_enabled\{name="(\w+)"[^}]*\} 1$', series, re.MULTILINE))
    assert "DynamicResourceAllocation" in found
    return found


@pytest.fixture(autouse=True)
def has_what_it_needs(request: pytest.FixtureRequest) -> None:
    """Before the cluster is changed for a test that cannot succeed on it, or is about what this one does not lack."""
    _skip_unless_it_is_there(request)


@pytest.fixture(scope="module", autouse=True)
def module_has_what_it_needs(request: pytest.FixtureRequest) -> None:
    """The same before what a module changes for all its tests."""
    _skip_unless_it_is_there(request)


def _skip_unless_it_is_there(request: pytest.FixtureRequest) -> None:
    for marker in request.node.iter_markers():
        if marker.name not in {"needs", "lacks", "since"}:
            continue
        on, version = request.getfixturevalue("gates"), request.getfixturevalue("cluster").instance.kubernetes
        if marker.name == "since":
            minor, what = marker.args
            if int(version.split(".")[1]) < minor:
                pytest.skip(f"Kubernetes {version} has no {what}")
            continue
        for gate in marker.args:
            if marker.name == "needs" and gate not in on:
                assert version != build.KUBERNETES, f"{version} has {gate} off: this would be tested nowhere"
                pytest.skip(f"Kubernetes {version} has {gate} off")
            if marker.name == "lacks" and gate in on:
                pytest.skip(f"Kubernetes {version} has {gate} on")


@pytest.fixture(scope="session")
def installed(cluster: Cluster, admin: Kubectl) -> None:
    """The chart with our image, up on both nodes."""
    reference, archive = release.image()
    cluster.load_image(archive)
    release.install(admin, release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified())))
    release.wait(admin)


@pytest.fixture
def stage(installed: None, admin: Kubectl, cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A namespace of the test's own."""
    made = Stage.open(admin, cluster, request.node.name)
    yield made
    made.close()


@pytest.fixture
def egpu(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`kubectl egpu ... -o json` as the admin, found by kubectl as a plugin; the answer whatever the exit code."""
    plugin = tmp_path / "kubectl-egpu"
    plugin.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cli "$@"\n')
    plugin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(stage.kubectl.program).parent}:/usr/bin:/bin")

    def ask(*words: str) -> Any:
        try:
            return json.loads(stage.kubectl("egpu", *words, "-o", "json"))
        except KubectlError as no:  # an exit code other than 0 is an answer, too
            return json.loads(str(no)[str(no).index("{") :])

    return ask


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    admin = getattr(item, "funcargs", {}).get("admin") or getattr(
        getattr(item, "funcargs", {}).get("stage"), "kubectl", None
    )
    if report.failed and admin:
        report.sections.append(("the cluster", _picture(admin)))
    return report


def _picture(kubectl: Kubectl) -> str:
    driver = ("-n", release.NAMESPACE, "logs", "--tail=200", "--prefix", "-l", "app.kubernetes.io/name=elastic-gpu")
    questions = (
        ("get", "nodes,pods", "-A", "-o", "wide"),
        ("get", "resourceclaims,resourceclaimtemplates", "-A", "-o", "yaml"),
        ("get", "deviceclasses,resourceslices,elasticgpuclasses", "-o", "yaml"),
        ("get", "events", "-A", "--sort-by=.lastTimestamp"),
        driver,
        (*driver, "--previous", "--ignore-errors"),
    )
    return "\n\n".join(_answer(kubectl, question) for question in questions)


def _answer(kubectl: Kubectl, question: tuple[str, ...]) -> str:
    try:
        return f"$ kubectl {' '.join(question)}\n{kubectl(*question)}"
    except KubectlError as error:
        return f"$ {error}"
