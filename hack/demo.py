"""`make demo`: a pod that holds a card, two that share one, one that computes on a card of another machine, from nothing.
`make demo-down` removes all of it. Both may be repeated.

    a cluster of its own with four fake cards, or the one that KUBECONFIG names
    -> the image, loaded on the nodes -> the chart -> examples/whole-card, examples/share
    -> what the pods, the API and the node say
    -> (on a cluster of its own) a host that lends a card, examples/remote-card: `borrowing`

With a cluster of yours: KUBECONFIG=... EGPU_IMAGE=<image your nodes can pull> [EGPU_DRIVER_ROOT=/run/nvidia/driver] make demo
"""

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python

from hack import borrowing, cluster, release, sights, telling
from hack.cluster import cards, cgroups, errors, lifecycle
from hack.kubectl import Kubectl, KubectlError

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "whole-card"
SHARES = ROOT / "examples" / "share"
NAMESPACE = "elastic-gpu-demo"
POD = "whole-card"
SHARING = ("share-a", "share-b")
CLUSTER = "demo"
_CLASS, _VIEWER, _BINDING = "training.elasticgpu.io", "viewer", "elastic-gpu-demo-viewer"
_WITH_CHART = "elasticgpu.io/demo-with-chart"

_DEMO_IMAGE, _PUBLIC_IMAGE = "registry.local/busybox:1", "busybox:1.37"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster of this demo and what differs between one of ours and one of theirs."""

    kubectl: Kubectl
    image: str
    driver_root: str
    pod_image: str
    cgroup_root: str
    own: "Own | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What there is only where the demo made the cluster: it, and the archive of the image."""

    cluster: cluster.Cluster
    archive: Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.demo", description="Pods with cards, shares and a remote card, from nothing."
    )
    parser.add_argument("verb", choices=["up", "down"])
    try:
        (_up if parser.parse_args().verb == "up" else _down)()
    except (errors.ClusterError, KubectlError, helm_python.HelmError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


def _up() -> None:
    target = _ours() if _own() else _theirs()
    telling.step("The chart: node driver on every node, controller, classes training and inference.elasticgpu.io")
    values = release.values(target.image, target.driver_root, target.cgroup_root)
    if _chart_is_the_demos(target.kubectl):
        release.install(target.kubectl, values | borrowing.values(target.kubectl))
    else:
        telling.show(f"It is installed here already, and stays as it is: release {release.NAME}")
    release.wait(target.kubectl)
    telling.step("examples/whole-card: a ResourceClaimTemplate and a pod of that class")
    _apply(target, *sorted(EXAMPLE.glob("*.yaml")))
    _wait_for(target.kubectl, POD)
    telling.step("examples/share: two pods on one card, half of its cores and 8 GiB each")
    _apply(target, SHARES / "class.yaml", SHARES / "two-pods.yaml")
    _wait_for(target.kubectl, *SHARING)
    _show(target.kubectl)
    _let_look(target.kubectl)
    _borrow(target, values)
    _how_to_go_on(target)


def _borrow(target: Target, values: dict[str, Any]) -> None:
    if target.own is None:
        telling.step(
            "A card of another machine is not shown here: it takes a host that your nodes reach (README, Remote cards)"
        )
        return
    borrowing.run(target.own.cluster, target.kubectl, values, target.own.archive, NAMESPACE)


def _own() -> bool:
    """Whether this is about a cluster of the demo's: also where KUBECONFIG was set as the demo says at its end."""
    own = cluster.Cluster.find(CLUSTER)
    return not _variable("KUBECONFIG") or (own is not None and Path(_variable("KUBECONFIG")) == own.kubeconfig)


def _chart_is_the_demos(kubectl: Kubectl) -> bool:
    """Whether the demo may change and remove the chart. Its namespace remembers, so that nobody else's goes with it."""
    namespaces = kubectl.objects("namespaces", f"--field-selector=metadata.name={NAMESPACE}")
    if not namespaces:
        with_chart = "false" if release.installed(kubectl) else "true"
        kubectl("create", "namespace", NAMESPACE)
        kubectl("annotate", "namespace", NAMESPACE, f"{_WITH_CHART}={with_chart}")
        return with_chart == "true"
    return bool(namespaces[0]["metadata"].get("annotations", {}).get(_WITH_CHART) == "true")


def _ours() -> Target:
    telling.step(
        "A real Kubernetes: two nodes, four fake cards on the first (the first time it is built: about ten minutes)"
    )
    up = cluster.Cluster.up(CLUSTER, nodes=2, cards=(4, 0))
    cards.install(up.host_path("node1", cards.DRIVER_ROOT), cards.LIMITING)
    telling.step("The image, built from the Dockerfile and loaded on both nodes")
    reference, archive = release.image()
    up.load_image(archive)
    kubectl = Kubectl(program=str(up.bin / "kubectl"), kubeconfig=up.kubeconfig)
    return Target(
        kubectl=kubectl,
        image=reference,
        driver_root=cards.DRIVER_ROOT,
        pod_image=_DEMO_IMAGE,
        cgroup_root=str(cgroups.unified()),
        own=Own(cluster=up, archive=archive),
    )


def _theirs() -> Target:
    program = shutil.which("kubectl")
    if program is None:
        raise errors.ClusterError("KUBECONFIG is set, so the demo uses that cluster, but kubectl is not in PATH")
    kubectl = Kubectl(program=program, kubeconfig=Path(_variable("KUBECONFIG")))
    telling.step(
        f"The cluster of KUBECONFIG: {kubectl('config', 'view', '--minify', '-o', 'jsonpath={.clusters[0].cluster.server}')}"
    )
    if not (reference := _variable("EGPU_IMAGE")):
        raise errors.ClusterError(
            "this cluster needs an image that its nodes can pull:\n"
            "  python3 -m pip download --require-hashes --only-binary :all: --dest dist/wheels -r requirements.lock\n"
            "  python3 -m pip wheel --no-deps --wheel-dir dist/wheels .\n"
            "  docker build --tag <your registry>/elastic-gpu:0.1.0 . && docker push <your registry>/elastic-gpu:0.1.0\n"
            "  (kind: `kind load docker-image` in place of the push)\n"
            "then: EGPU_IMAGE=<your registry>/elastic-gpu:0.1.0 make demo; without KUBECONFIG the demo makes a cluster of its own"
        )
    root = _variable("EGPU_DRIVER_ROOT") or "/"
    return Target(
        kubectl=kubectl,
        image=reference,
        driver_root=root,
        pod_image=_PUBLIC_IMAGE,
        cgroup_root="/sys/fs/cgroup",
    )


def _apply(target: Target, *paths: Path) -> None:
    for path in paths:
        text = path.read_text(encoding="utf-8").replace(_DEMO_IMAGE, target.pod_image)
        target.kubectl("-n", NAMESPACE, "apply", "-f", "-", text=text)


def _wait_for(kubectl: Kubectl, *pods: str) -> None:
    for pod in pods:
        try:
            kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=120s")
        except KubectlError:
            print(kubectl("-n", NAMESPACE, "describe", "pod", pod))
            raise


def _show(kubectl: Kubectl) -> None:
    for pod in (POD, *SHARING):
        telling.step(f"What the pod {pod} sees")
        telling.show(kubectl("-n", NAMESPACE, "logs", pod))
        if pod in SHARING:
            telling.show(
                kubectl("-n", NAMESPACE, "exec", pod, "--", "sh", "-c", "env | grep -E 'LIMIT|PINNED' || echo no limit")
            )
    claims = kubectl.objects("resourceclaims", "-n", NAMESPACE)
    telling.step("The claims, and the card that each holds, or what of it")
    telling.show("\n".join(line for claim in claims for line in sights.claim_lines(claim)))
    shares = [claim for claim in claims if claim["metadata"]["name"].startswith(SHARING)]
    card = sights.shared_card(shares)
    telling.show(f"Both shares stand on one card, {card}.")
    telling.step("The slices: what the node drivers publish, in this cluster")
    held: dict[tuple[str, str], list[str]] = {}
    for claim in claims:
        for result in sights.results(claim):
            held.setdefault((result["pool"], result["device"]), []).append(claim["metadata"]["name"])
    slices = kubectl.objects("resourceslices", "--field-selector=spec.driver=gpu.elasticgpu.io")
    telling.show("\n".join(line for found in slices for line in sights.slice_lines(found, held)))
    telling.step("The CDI file on the node: what containerd adds to the container")
    telling.show("\n".join(line for claim in claims for line in sights.cdi_lines(kubectl, claim)))


def _how_to_go_on(target: Target) -> None:
    telling.step("How to look further")
    here = (
        f"export KUBECONFIG={target.kubectl.kubeconfig} PATH={Path(target.kubectl.program).parent}:{ROOT}/hack/bin:$PATH\n"
        if target.own
        else ""
    )
    telling.show(
        f"{here}kubectl egpu                        the whole cluster, and what is wrong\n"
        f"kubectl egpu cards                  which pod has which card, and what is left of each\n"
        f"kubectl egpu explain pod/{POD} -n {NAMESPACE}\n"
        f"kubectl egpu fit --class {_CLASS}\n"
        f"kubectl -n {NAMESPACE} exec -it {POD} -- sh\n"
        "make demo-down                      removes all of it\n"
        f"\nThe page: http://127.0.0.1:8081/ while this runs, with the token that the second line prints:\n"
        f"kubectl -n {release.NAMESPACE} port-forward deployment/{release.NAME}-controller 8081\n"
        f"kubectl -n {NAMESPACE} create token {_VIEWER}"
    )


def _let_look(kubectl: Kubectl) -> None:
    """Somebody whom the page shows everything: a service account with the role `view`."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _VIEWER, "namespace": NAMESPACE}}
    subject = {"kind": "ServiceAccount", "name": _VIEWER, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": _BINDING},
        "roleRef": role, "subjects": [subject],
    }  # fmt: skip
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": [account, binding]}))


def _down() -> None:
    if _own():
        telling.step("The demo's cluster goes, and all that is in it")
        lifecycle.down(CLUSTER)
        return
    kubectl = Kubectl(program=shutil.which("kubectl") or "kubectl", kubeconfig=Path(_variable("KUBECONFIG")))
    if not kubectl.objects("namespaces", f"--field-selector=metadata.name={NAMESPACE}"):
        telling.show("There is no demo on the cluster of KUBECONFIG; nothing was touched.")
        return
    with_chart = _chart_is_the_demos(kubectl)
    telling.step(f"The demo's pods{', then the chart' if with_chart else '; the chart was there before and stays'}")
    kubectl("delete", "namespace", NAMESPACE)
    kubectl("delete", "clusterrolebinding", _BINDING, "--ignore-not-found")
    kubectl("delete", "--ignore-not-found", "-f", str(SHARES / "class.yaml"))
    if with_chart:
        release.uninstall(kubectl)
        telling.show("All is gone but the slices: the kubelets remove them within half a minute.")


def _variable(name: str) -> str:
    return os.environ.get(name, "")


if __name__ == "__main__":
    sys.exit(main())
