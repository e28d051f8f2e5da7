"""`make demo`: a pod that holds a card and two that share one, from nothing. `make demo-down` removes all
of it. Both may be repeated.

    a cluster of its own with four fake cards, or the one that KUBECONFIG names
    -> the image, loaded on the nodes -> the chart -> examples/whole-card, examples/share
    -> what the pods, the API and the node say

With a cluster of yours: KUBECONFIG=... EGPU_IMAGE=<image your nodes can pull> [EGPU_DRIVER_ROOT=/run/nvidia/driver] make demo
"""

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python

from hack import cluster, release
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

_START = time.monotonic()
_DEMO_IMAGE, _PUBLIC_IMAGE = "registry.local/busybox:1", "busybox:1.37"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster of this demo and what differs between one of ours and one of theirs."""

    kubectl: Kubectl
    image: str
    driver_root: str
    pod_image: str
    cgroup_root: str
    ours: bool


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.demo", description="Pods that hold cards and shares, from nothing."
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
    _step("The chart: node driver on every node, controller, classes training and inference.elasticgpu.io")
    if _chart_is_the_demos(target.kubectl):
        release.install(target.kubectl, release.values(target.image, target.driver_root, target.cgroup_root))
    else:
        _print(f"It is installed here already, and stays as it is: release {release.NAME}")
    release.wait(target.kubectl)
    _step("examples/whole-card: a ResourceClaimTemplate and a pod of that class")
    _apply(target, *sorted(EXAMPLE.glob("*.yaml")))
    _wait_for(target.kubectl, POD)
    _step("examples/share: two pods on one card, half of its cores and 8 GiB each")
    _apply(target, SHARES / "class.yaml", SHARES / "two-pods.yaml")
    _wait_for(target.kubectl, *SHARING)
    _show(target.kubectl)
    _let_look(target.kubectl)
    _how_to_go_on(target)


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
    _step("A real Kubernetes: two nodes, four fake cards on the first (the first time it is built: about ten minutes)")
    up = cluster.Cluster.up(CLUSTER, nodes=2, cards=(4, 0))
    cards.install(up.host_path("node1", cards.DRIVER_ROOT), cards.LIMITING)
    _step("The image, built from the Dockerfile and loaded on both nodes")
    reference, archive = release.image()
    up.load_image(archive)
    kubectl = Kubectl(program=str(up.bin / "kubectl"), kubeconfig=up.kubeconfig)
    return Target(
        kubectl=kubectl,
        image=reference,
        driver_root=cards.DRIVER_ROOT,
        pod_image=_DEMO_IMAGE,
        cgroup_root=str(cgroups.unified()),
        ours=True,
    )


def _theirs() -> Target:
    program = shutil.which("kubectl")
    if program is None:
        raise errors.ClusterError("KUBECONFIG is set, so the demo uses that cluster, but kubectl is not in PATH")
    kubectl = Kubectl(program=program, kubeconfig=Path(_variable("KUBECONFIG")))
    _step(
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
        ours=False,
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
        _step(f"What the pod {pod} sees")
        _print(kubectl("-n", NAMESPACE, "logs", pod))
        if pod in SHARING:
            _print(
                kubectl("-n", NAMESPACE, "exec", pod, "--", "sh", "-c", "env | grep -E 'LIMIT|PINNED' || echo no limit")
            )
    claims = kubectl.objects("resourceclaims", "-n", NAMESPACE)
    _step("The claims, and the card that each holds, or what of it")
    _print("\n".join(line for claim in claims for line in _claim_lines(claim)))
    _step("The slices: what the node drivers publish, in this cluster")
    held: dict[tuple[str, str], list[str]] = {}
    for claim in claims:
        for result in _results(claim):
            held.setdefault((result["pool"], result["device"]), []).append(claim["metadata"]["name"])
    slices = kubectl.objects("resourceslices", "--field-selector=spec.driver=gpu.elasticgpu.io")
    _print("\n".join(line for found in slices for line in _slice_lines(found, held)))
    _step("The CDI file on the node: what containerd adds to the container")
    _print("\n".join(line for claim in claims for line in _cdi_lines(kubectl, claim)))


def _claim_lines(claim: dict[str, Any]) -> list[str]:
    holders = ", ".join(f"{user['resource'][:-1]} {user['name']}" for user in claim["status"].get("reservedFor", []))
    lines = [f"{claim['metadata']['name']}, held by {holders}"]
    lines += [f"  request {one['request']} -> pool {one['pool']}, device {one['device']}" for one in _results(claim)]
    return lines + [
        f"  prepared: {json.dumps(device.get('data', {}))}" for device in claim["status"].get("devices", [])
    ]


def _results(claim: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return results


def _slice_lines(found: dict[str, Any], held: dict[tuple[str, str], list[str]]) -> list[str]:
    spec = found["spec"]
    devices = spec.get("devices") or []
    lines = [
        f"pool {spec['pool']['name']}: {len(devices)} cards" if devices else f"pool {spec['pool']['name']}: no card"
    ]
    for device in devices:
        values = {name: next(iter(value.values())) for name, value in device.get("attributes", {}).items()}
        holders = held.get((spec["pool"]["name"], device["name"]), [])
        facts = (
            device["name"],
            values.get("productName", ""),
            device.get("capacity", {}).get("memory", {}).get("value", ""),
        )
        lines.append(f"  {'  '.join(facts)}  {'<- ' + ', '.join(holders) if holders else 'free'}")
    return lines


def _cdi_lines(kubectl: Kubectl, claim: dict[str, Any]) -> list[str]:
    """The claim's file as the driver on that node has it, in short."""
    node = _results(claim)[0]["pool"].removeprefix("egpu/")
    selector = "app.kubernetes.io/name=elastic-gpu,app.kubernetes.io/component=node"
    pod = kubectl.objects("pods", "-n", release.NAMESPACE, "-l", selector, f"--field-selector=spec.nodeName={node}")[0]
    inside = ("-n", release.NAMESPACE, "exec", pod["metadata"]["name"], "--")
    path = kubectl(*inside, "sh", "-c", f"ls /var/run/cdi/*{claim['metadata']['uid']}*").split()[0]
    spec = json.loads(kubectl(*inside, "cat", path))
    lines = [f"{node}:{path}"]
    for name, edits in (
        ("every container", spec.get("containerEdits", {})),
        *((d["name"], d["containerEdits"]) for d in spec["devices"]),
    ):
        nodes = [entry["path"] for entry in edits.get("deviceNodes", [])]
        parts = (
            *edits.get("env", []),
            *nodes,
            f"{len(edits.get('mounts', []))} mounts",
            f"{len(edits.get('hooks', []))} hooks",
        )
        lines.append(f"  {name}: {', '.join(parts)}")
    return lines


def _how_to_go_on(target: Target) -> None:
    _step("How to look further")
    here = (
        f"export KUBECONFIG={target.kubectl.kubeconfig} PATH={Path(target.kubectl.program).parent}:{ROOT}/hack/bin:$PATH\n"
        if target.ours
        else ""
    )
    _print(
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
        _step("The demo's cluster goes, and all that is in it")
        lifecycle.down(CLUSTER)
        return
    kubectl = Kubectl(program=shutil.which("kubectl") or "kubectl", kubeconfig=Path(_variable("KUBECONFIG")))
    if not kubectl.objects("namespaces", f"--field-selector=metadata.name={NAMESPACE}"):
        _print("There is no demo on the cluster of KUBECONFIG; nothing was touched.")
        return
    with_chart = _chart_is_the_demos(kubectl)
    _step(f"The demo's pods{', then the chart' if with_chart else '; the chart was there before and stays'}")
    kubectl("delete", "namespace", NAMESPACE)
    kubectl("delete", "clusterrolebinding", _BINDING, "--ignore-not-found")
    kubectl("delete", "--ignore-not-found", "-f", str(SHARES / "class.yaml"))
    if with_chart:
        release.uninstall(kubectl)
        _print("All is gone but the slices: the kubelets remove them within half a minute.")


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def _step(text: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}[{time.monotonic() - _START:5.0f} s] {text}{plain}", flush=True)


def _print(text: str) -> None:
    print("\n".join(f"    {line}" for line in text.strip().splitlines()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
