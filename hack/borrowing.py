"""The demo's remote card: a pod on a node without cards computes on a card of another host, and gives it back.

    a host with egpu-pool -> its RemotePool, the chart with remote cards on -> examples/remote-card/multiply.yaml
    -> what the pod computed, beside the same computed here -> the lease -> the pod goes, and the lease with it

What is told of a step is looked at first: a step that cannot be seen is an error of the demo.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hack import ggml, poolhost, release, telling
from hack.cluster import Cluster, errors
from hack.kubectl import Kubectl

T = TypeVar("T")
Values = dict[str, Any]
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "remote-card" / "multiply.yaml"
CLASS = "simulation.elasticgpu.io"
POD = "multiply"
TIMES = 3
_SECRET = "pools"
_REMOTE: Values = {"enabled": True, "credentialsSecret": _SECRET, "relay": True}
_LIMIT_S = 120.0
_LEASES = ("remoteleases",)


def values(kubectl: Kubectl) -> Values:
    """The chart's values for remote cards, where a pool is known already: a repeat takes nothing away."""
    return {"remote": _REMOTE} if kubectl.objects("secrets", _SECRET, "-n", release.NAMESPACE) else {}


def run(cluster: Cluster, kubectl: Kubectl, wanted: Values, archive: Path, namespace: str) -> None:
    """All of it. Where ggml cannot be had that is said, and nothing more is done."""
    telling.step("A card of another machine: what computes on it is ggml (the first time it is built: about a minute)")
    try:
        telling.show(f"ggml is in {ggml.libraries()}")
    except ggml.NotBuilt as error:
        telling.show(f"The demo goes on without a card of another machine: {error}")
        return
    host = lend(cluster, kubectl, wanted, archive)
    compute(kubectl, namespace)
    give_back(kubectl, host, namespace)


def lend(cluster: Cluster, kubectl: Kubectl, wanted: Values, archive: Path) -> poolhost.PoolHost:
    """A pool, known to the cluster; `wanted`: the values of the chart that is installed, `archive`: its image."""
    telling.step("A host beside the cluster that lends its processor as a card: egpu-pool, with ggml's server")
    host = poolhost.start(cluster, kubectl)
    cluster.load_image(ggml.image(archive))
    telling.show(f"egpu-pool listens on {host.endpoint}, in a network of its own")
    telling.step(
        "The cluster is told of it: a certificate for its controller, a RemotePool, remote.enabled of the chart"
    )
    poolhost.introduce(kubectl, host, _SECRET)
    release.install(kubectl, wanted | {"remote": _REMOTE})
    release.wait(kubectl)
    _until("the driver of remote cards and the relay on each node", lambda: _all_ready(kubectl, 2 * len(cluster.nodes)))
    _until("the pool's card in a slice", lambda: _offered(kubectl))
    kubectl("wait", "--for=condition=Reachable", f"remotepool/{poolhost.POOL}", f"--timeout={_LIMIT_S:.0f}s")
    telling.show(_asked(kubectl, "get", "remotepools"))
    return host


def compute(kubectl: Kubectl, namespace: str) -> None:
    """The pod, what it computed, and whether it is what is computed here."""
    telling.step(
        "examples/remote-card/multiply.yaml: a pod on node2, which has no card, multiplies matrices on the pool's"
    )
    kubectl("-n", namespace, "apply", "-f", str(EXAMPLE))
    try:
        far = _until(f"what pod {POD} computed", lambda: _computed(kubectl, namespace))
    except errors.ClusterError:
        telling.show(kubectl("-n", namespace, "describe", "pod", POD))
        raise
    node = kubectl("-n", namespace, "get", "pod", POD, "-o", "jsonpath={.spec.nodeName}")
    telling.show(f"On {node}:\n{far}")
    here = ggml.at_home(TIMES)
    telling.show(f"The same on this machine itself, without Kubernetes:\n{here}")
    if far != here:
        raise errors.ClusterError("the pod did not compute what this machine computes")
    telling.show("They are equal to the last bit: the last word of each line is a digest of the whole product.")


def give_back(kubectl: Kubectl, host: poolhost.PoolHost, namespace: str) -> None:
    """The lease while the pod lives, and that nothing is left of it when the pod is gone."""
    telling.step("Who holds the card: a lease, written before the card was attached and the pod bound")
    telling.show(_asked(kubectl, "get", *_LEASES))
    telling.show(f"The pool's own word: leases {_told(host.leases())}")
    telling.step("The pod is deleted, and the card given back")
    kubectl("-n", namespace, "delete", "pod", POD, "--timeout=120s")
    _until("no lease is left", lambda: not kubectl.objects(*_LEASES))
    _until("the pool has its card back", lambda: not host.leases())
    telling.show(_asked(kubectl, "get", *_LEASES) or "kubectl get remoteleases: none")
    telling.show(
        f"The pool's own word: leases {_told(host.leases())}; the server of that lease is gone, and its certificate with it"
    )


def forget(kubectl: Kubectl) -> None:
    """The cluster knows the pool no more; nobody may hold a card of it."""
    kubectl("delete", "remotepools", poolhost.POOL, "--ignore-not-found")
    kubectl("-n", release.NAMESPACE, "delete", "secret", _SECRET, "--ignore-not-found")
    _until("no slice of the pool", lambda: not _offered(kubectl))


def _computed(kubectl: Kubectl, namespace: str) -> str:
    """All that it prints, once it has."""
    if kubectl("-n", namespace, "get", "pod", POD, "-o", "jsonpath={.status.phase}") not in {"Running", "Succeeded"}:
        return ""
    said = kubectl("-n", namespace, "logs", POD)
    return said if len(said.splitlines()) >= TIMES else ""


def _all_ready(kubectl: Kubectl, count: int) -> bool:
    pods = kubectl.objects("pods", "-n", release.NAMESPACE, "-l", "app.kubernetes.io/component in (remote,relay)")
    ready = [
        pod for pod in pods
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]  # fmt: skip
    return len(ready) == len(pods) == count


def _offered(kubectl: Kubectl) -> bool:
    slices = kubectl.objects("resourceslices", "--field-selector=spec.driver=remote.gpu.elasticgpu.io")
    return any(device for one in slices for device in one["spec"].get("devices") or ())


def _asked(kubectl: Kubectl, *words: str) -> str:
    answer = kubectl(*words)
    return answer and f"$ kubectl {' '.join(words)}\n{answer}"


def _told(leases: dict[str, int]) -> str:
    return ", ".join(f"{state} {count}" for state, count in leases.items()) or "none"


def _until(what: str, look: Callable[[], T]) -> T:
    """The first answer that holds; the API has no event for most of it."""
    deadline = time.monotonic() + _LIMIT_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise errors.ClusterError(f"not within {_LIMIT_S:.0f} s: {what}")
        time.sleep(0.2)
    return found
