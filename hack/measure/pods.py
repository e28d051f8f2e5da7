"""What a claim costs a pod on the real cluster: from the pod's first sight in a watch until it is seen Running."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hack import cluster, release
from hack.cluster import cards, cgroups, paths
from hack.kubectl import Kubectl

NAME = "bench"
_CLASS = "training.elasticgpu.io"
_SEEN = '{.metadata.name} {.status.phase}{"\\n"}'
_LIMIT_S = 120


def latencies_ms(pods: int) -> tuple[list[float], list[float]]:
    """Milliseconds to Running of as many pods without a claim as with one, in turns, on a cluster of its own."""
    up = cluster.Cluster.up(NAME, nodes=1, cards=(4,))
    try:
        kubectl = Kubectl(program=str(up.bin / "kubectl"), kubeconfig=up.kubeconfig)
        reference, archive = release.image()
        up.load_image(archive)
        release.install(kubectl, release.values(reference, cards.DRIVER_ROOT, str(cgroups.unified())))
        release.wait(kubectl)
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
    finally:
        up.down()
    return [plain for plain, _ in turns], [claim for _, claim in turns]


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


def _template() -> dict[str, object]:
    requests = [{"name": "card", "exactly": {"deviceClassName": _CLASS}}]
    spec = {"spec": {"devices": {"requests": requests}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": NAME},
        "spec": spec,
    }


def _pod(name: str, *, claim: bool) -> dict[str, object]:
    image = {"image": "registry.local/busybox:1", "imagePullPolicy": "Never", "command": ["sleep", "3600"]}
    resources = {"resources": {"claims": [{"name": "card"}]}} if claim else {}
    claims = {"resourceClaims": [{"name": "card", "resourceClaimTemplateName": NAME}]} if claim else {}
    spec = {"containers": [{"name": "main", **image, **resources}], **claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
