"""The chart as a release on a cluster: installed, upgraded, removed. Helm comes in a wheel, nothing is downloaded.

All of it may be repeated: what is there already is brought up to date. CRDs are applied by kubectl each time, since Helm
only ever installs them once.
"""

import hashlib
import time
from pathlib import Path
from typing import Any

import helm_python
import yaml

from hack.cluster import images
from hack.kubectl import Kubectl, KubectlError

NAME = "elastic-gpu"
NAMESPACE = "elastic-gpu"
ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "elastic-gpu"

_NAMESPACE_TEXT = f"""
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: privileged}}
"""


def image() -> tuple[str, Path]:
    """The project's image and its archive. The tag follows from the sources, so that changed ones make new pods."""
    sources = images.inputs(ROOT)
    key = hashlib.sha256(
        b"".join(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in sources)
    ).hexdigest()[:12]
    reference = f"registry.local/elastic-gpu:{key}"
    return reference, images.build_driver_image(ROOT, reference)


def values(image: str, driver_root: str, cgroup_root: str = "/sys/fs/cgroup") -> dict[str, Any]:
    """The chart's values for an image by its full name."""
    repository, _, tag = image.rpartition(":")
    return {"image": {"repository": repository, "tag": tag}, "driverRoot": driver_root, "cgroupRoot": cgroup_root}


def install(kubectl: Kubectl, wanted: dict[str, Any]) -> None:
    """Install the release or bring it up to date, without waiting for its pods."""
    kubectl("apply", "--server-side", "-f", "-", text=_NAMESPACE_TEXT)
    apply_crds(kubectl)
    with helm_python.Config(kubeconfig_path=kubectl.kubeconfig, namespace=NAMESPACE) as helm:
        found = {release["name"]: release["status"] for release in helm.list(all_states=True)}
        if found.get(NAME, "").startswith("pending"):  # an install that was cut off; Helm refuses to go on with it
            helm.uninstall(NAME)
            del found[NAME]
        (helm.upgrade if NAME in found else helm.install)(CHART, NAME, wanted)


def apply_crds(kubectl: Kubectl, *more: str, limit_s: float = 120) -> None:
    """Make our kinds known, or bring them up to date, and wait until they can be asked for.

    `kubectl wait --for=condition=Established` gives up where a CRD is so new that its conditions are null, and says nothing
    of the list of kinds, in which Helm has to find them.
    """
    kubectl("apply", "--server-side", *more, "-f", str(CHART / "crds"))
    kinds = ",".join(yaml.safe_load(path.read_text())["metadata"]["name"] for path in (CHART / "crds").iterdir())
    deadline = time.monotonic() + limit_s
    while True:
        try:
            kubectl("get", kinds, "-o", "name")
        except KubectlError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def installed(kubectl: Kubectl) -> bool:
    """Whether the release is there, in whatever state."""
    with helm_python.Config(kubeconfig_path=kubectl.kubeconfig, namespace=NAMESPACE) as helm:
        return any(release["name"] == NAME for release in helm.list(all_states=True))


def wait(kubectl: Kubectl, limit_s: int = 180) -> None:
    """Wait until every pod of the release is ready and its class can be claimed."""
    for what in (f"daemonset/{NAME}-node", f"deployment/{NAME}-controller"):
        kubectl("-n", NAMESPACE, "rollout", "status", what, f"--timeout={limit_s}s")
    kubectl("wait", "--for=create", "deviceclass/training.elasticgpu.io", f"--timeout={limit_s}s")


def uninstall(kubectl: Kubectl) -> None:
    """Remove the release, its CRDs and its namespace; pods that hold claims have to be gone before."""
    with helm_python.Config(kubeconfig_path=kubectl.kubeconfig, namespace=NAMESPACE) as helm:
        helm.uninstall(NAME, ignore_not_found=True)
    kubectl("delete", "--ignore-not-found", "-f", str(CHART / "crds"))
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
