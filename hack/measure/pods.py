"""What claims cost pods on the real cluster.

latencies_ms   one pod after the other: from its first sight in a watch until it is seen Running, with a claim and without
burst          many pods with shares at once
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from hack import cluster, release
from hack.cluster import cards, cgroups, paths
from hack.kubectl import Kubectl

NAME = "bench"
_CLASS = "training.elasticgpu.io"
_SEEN = '{.metadata.name} {.status.phase}{"\\n"}'
_LIMIT_S = 120
_BURST_LIMIT_S = 900
_SHARES = "lenient-share.example.com"
_METRICS = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/metrics').read().decode())"


@contextmanager
def installed() -> Iterator[Kubectl]:
    """A cluster of its own, one node with eight cards, with our release."""
    up = cluster.Cluster.up(NAME, nodes=1, cards=(8,))
    try:
        kubectl = Kubectl(program=str(up.bin / "kubectl"), kubeconfig=up.kubeconfig)
        reference, archive = release.image()
        up.load_image(archive)
        release.install(kubectl, release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified())))
        release.wait(kubectl)
        yield kubectl
    finally:
        up.down()


def latencies_ms(kubectl: Kubectl, pods: int) -> tuple[list[float], list[float]]:
    """Milliseconds to Running of as many pods without a claim as with one, in turns."""
    kubectl("apply", "-f", "-", text=json.dumps(_template()))
    with _watch(kubectl) as seen:
        _running_ms(kubectl, seen, "first", claim=True)
        turns = [
            (
                _running_ms(kubectl, seen, f"plain-{n}", claim=False),
                _running_ms(kubectl, seen, f"claim-{n}", claim=True),
            )
            for n in range(pods)
        ]
    return [plain for plain, _ in turns], [claim for _, claim in turns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Pods with shares that were started at once: how many ran, after how long all, and what Prepare took on the node."""

    running: int
    all_running_s: float
    p99_s: float
    """The end of the bucket of the driver's own series that the 99th percentile is in."""


def burst(kubectl: Kubectl, pods: int) -> Burst:
    """Starts as many pods at once, each with a share of a card, sixteen to a card."""
    kubectl("apply", "-f", str(release.ROOT / "examples/share/class.yaml"))
    kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{_SHARES}", "--timeout=30s")
    share = {"deviceClassName": _SHARES, "capacity": {"requests": {"cores": "6", "memory": "1Gi"}}}
    kubectl("apply", "-f", "-", text=json.dumps(_template("share", share)))
    before = _prepared(kubectl)
    items = [_pod(f"burst-{n}", claim=True, template="share") for n in range(pods)]
    began = time.monotonic()
    kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pods", "--all", f"--timeout={_BURST_LIMIT_S}s")
    took = time.monotonic() - began
    running = len(kubectl.objects("pods", "--field-selector=status.phase=Running"))
    after = _prepared(kubectl)
    kubectl("delete", "pods", "--all", "--grace-period=1", f"--timeout={_BURST_LIMIT_S}s")
    return Burst(running=running, all_running_s=took, p99_s=_percentile(before, after, Fraction(99, 100)))


def _prepared(kubectl: Kubectl) -> dict[float, float]:
    """The driver's series of Prepare: the end of each bucket and how many were within it."""
    (pod,) = kubectl.objects("pods", "-n", release.NAMESPACE, "-l", "app.kubernetes.io/component=node")
    name = pod["metadata"]["name"]
    text = kubectl("-n", release.NAMESPACE, "exec", name, "--", "python3", "-c", _METRICS)
    found = re.findall(
        r'^dra_plugin_claim_seconds_bucket\{.*le="([^"]+)",method="prepare"\} (\S+)$', text, re.MULTILINE
    )
    return {float(end): float(count) for end, count in found}


def _percentile(before: dict[float, float], after: dict[float, float], part: Fraction) -> float:
    new = {end: count - before[end] for end, count in sorted(after.items())}
    return next(end for end, count in new.items() if count >= part * new[float("inf")])


@contextmanager
def _watch(kubectl: Kubectl) -> Iterator[Iterator[tuple[float, str, str]]]:
    """Each pod of the default namespace whenever it changes: when that was seen, its name, its phase."""
    command = (kubectl.program, "get", "pods", "--watch", "-o", f"jsonpath={_SEEN}")
    environment = paths.environment(KUBECONFIG=str(kubectl.kubeconfig))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        try:
            yield ((time.monotonic(), *_parsed(line)) for line in watcher.stdout)
        finally:
            watcher.terminate()


def _parsed(line: str) -> tuple[str, str]:
    name, _, phase = line.strip().partition(" ")
    return name, phase


def _running_ms(kubectl: Kubectl, seen: Iterator[tuple[float, str, str]], name: str, *, claim: bool) -> float:
    kubectl("apply", "-f", "-", text=json.dumps(_pod(name, claim=claim)))
    events = ((when, phase) for when, pod, phase in seen if pod == name)
    began, _ = next(events)
    ended = next(when for when, phase in events if phase == "Running" or when - began > _LIMIT_S)
    kubectl("delete", "pod", name, "--grace-period=1")
    return (ended - began) * 1000


def _template(name: str = NAME, request: Mapping[str, object] | None = None) -> dict[str, object]:
    requests = [{"name": "card", "exactly": request or {"deviceClassName": _CLASS}}]
    spec = {"spec": {"devices": {"requests": requests}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": spec,
    }


def _pod(name: str, *, claim: bool, template: str = NAME) -> dict[str, object]:
    image = {"image": "registry.local/busybox:1", "imagePullPolicy": "Never", "command": ["sleep", "3600"]}
    resources = {"resources": {"claims": [{"name": "card"}]}} if claim else {}
    claims = {"resourceClaims": [{"name": "card", "resourceClaimTemplateName": template}]} if claim else {}
    spec = {"containers": [{"name": "main", **image, **resources}], **claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
