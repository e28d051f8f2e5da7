"""What an end-to-end test does to a cluster: a namespace of its own, objects in it, and waiting for what has to happen."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hack import release
from hack.cluster import Cluster
from hack.kubectl import Kubectl, KubectlError
from tests.e2e import manifests

T = TypeVar("T")
Object = dict[str, Any]
CDI = "/var/run/cdi"
NODE_PODS = "app.kubernetes.io/name=elastic-gpu,app.kubernetes.io/component=node"
LIMIT_S = 120
"""For whatever is waited for: a machine may be busy for many seconds at a time. Speed is the benchmark's."""


def until(what: str, look: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """The first answer of `look` that holds; the API has no event for most of what these tests wait for. Where kubectl says
    no, it is asked again: what it is asked about may be on its way, and so may be a right or a server."""
    deadline = time.monotonic() + limit_s
    while True:
        late, no = time.monotonic() > deadline, ""
        try:
            if found := look():
                return found
        except KubectlError as error:
            no = f"; {error}"
        assert not late, f"not within {limit_s:.0f} s: {what}{no}"
        time.sleep(0.1)


def becomes(wanted: object, look: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Waits until `look` answers this, and shows what it answers else."""
    deadline = time.monotonic() + limit_s
    found: object = None
    while time.monotonic() < deadline:
        try:
            if (found := look()) == wanted:
                return
        except KubectlError as error:
            found = error
        time.sleep(0.1)
    assert found == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    kubectl: Kubectl
    cluster: Cluster
    namespace: str
    started: float

    @classmethod
    def open(cls, kubectl: Kubectl, cluster: Cluster, test: str) -> "Stage":
        namespace = (
            f"{re.sub(r'[^a-z0-9]+', '-', test.removeprefix('test_').lower())[:40]}-{time.monotonic_ns() % 10**6}"
        )
        kubectl("create", "namespace", namespace)
        # pods are refused before the account is there, and their volumes fail before the certificates are
        for given in ("serviceaccount/default", "configmap/kube-root-ca.crt"):
            # one at a time: asked for two of which neither is there yet, kubectl gives up at once
            kubectl("-n", namespace, "wait", "--for=create", given, f"--timeout={LIMIT_S}s")
        return cls(kubectl=kubectl, cluster=cluster, namespace=namespace, started=time.monotonic())

    def close(self) -> None:
        """Pods first: their cards are free when they are gone."""
        self("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
        self("delete", "resourceclaims", "--all", "--timeout=120s")
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")
        assert not self.defects()

    def defects(self) -> list[str]:
        """What the drivers logged as a failure of their own since the test began, even if a repeat of the call went well."""
        since = f"--since={max(1, int(time.monotonic() - self.started))}s"
        logs = self.kubectl("-n", release.NAMESPACE, "logs", since, "--tail=-1", "-l", NODE_PODS, "--ignore-errors")
        return [line for line in logs.splitlines() if '"driver failed"' in line or '"level": "critical"' in line]

    def __call__(self, *arguments: str, text: str = "") -> str:
        return self.kubectl("-n", self.namespace, *arguments, text=text)

    def create(self, *objects: Object) -> None:
        self("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def acting(self, account: str, pod: Object, folder: Path) -> Kubectl:
        """kubectl with the token of an account of ours that this pod holds."""
        meta = pod["metadata"]
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={meta['name']}", f"--bound-object-uid={meta['uid']}")
        token = self.kubectl("-n", release.NAMESPACE, "create", "token", account, *bound)
        config = yaml.safe_load(self.kubectl.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": token}
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return Kubectl(program=self.kubectl.program, kubeconfig=path)

    def delete(self, kind: str, name: str, *more: str) -> None:
        self("delete", kind, name, "--timeout=120s", *(more or ("--grace-period=1",) if kind == "pod" else more))

    def start(self, *objects: Object) -> None:
        """Create them and wait until the pods among them are ready."""
        self.create(*objects)
        self.ready(*(found["metadata"]["name"] for found in objects if found["kind"] == "Pod"))

    def ready(self, *pods: str) -> None:
        """At the first attempt: the kubelet's second comes after a minute and a half, and a limit would have to tell them apart."""
        for pod in pods:
            self("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={LIMIT_S}s")
        assert not self.failed_starts(*pods)

    def failed_starts(self, *pods: str) -> list[str]:
        """What the kubelet says of attempts to start these pods, or any here, that failed at the driver or at what it told the
        runtime. Failures of scheduling and of volumes are others' and are tried again."""
        return [
            f"{one['involvedObject']['name']}: {one.get('message', '')}"
            for one in self.kubectl.objects("events", "-n", self.namespace)
            if one.get("reason") == "FailedPrepareDynamicResources"
            or (one.get("reason") == "Failed" and re.search("CDI|hook", one.get("message", "")))
            if not pods or one["involvedObject"]["name"] in pods
        ]

    def ready_after_failures(self, *pods: str) -> None:
        """Like `ready`, where Prepare fails first. The kubelet tries again after a minute and a half, and at once when the
        pod changes: so it is changed."""

        def pushed() -> bool:
            try:
                self("annotate", "--overwrite", "pod", *pods, f"elasticgpu.io/test={time.monotonic_ns()}")
                self("wait", "--for=condition=Ready", "pod", *pods, "--timeout=3s")
            except KubectlError:
                return False
            return True

        until(f"{pods} ready", pushed, 240)

    def inside(self, pod: str, command: str, container: str = "main") -> str:
        return self("exec", pod, "-c", container, "--", "sh", "-c", command)

    def cards(self, pod: str, container: str = "main") -> dict[str, str]:
        """Minor number -> UUID of the cards that the container has, by its environment and by its device nodes alike."""
        by_environment = dict(re.findall(r"ELASTIC_GPU_CARD_(\d+)=(\S+)", self.inside(pod, "env", container)))
        by_nodes = set(re.findall(r"nvidia(\d+)\b", self.inside(pod, "ls /dev", container)))
        assert set(by_environment) == by_nodes
        return by_environment

    def pending_because(self, pod: str, pattern: str, limit_s: float = LIMIT_S) -> None:
        """Wait until the scheduler says that the pod cannot run, with this reason."""

        def refused() -> bool:
            conditions = self.get("pod", pod).get("status", {}).get("conditions", [])
            return any(
                one["reason"] == "Unschedulable" and re.search(pattern, one["message"])
                for one in conditions
                if "reason" in one
            )

        until(f"{pod} unschedulable: {pattern}", refused, limit_s)

    def event(self, pattern: str, limit_s: float = LIMIT_S) -> None:
        def seen() -> bool:
            return any(
                re.search(pattern, one.get("message", ""))
                for one in self.kubectl.objects("events", "-n", self.namespace)
            )

        until(f"an event with {pattern}", seen, limit_s)

    def claim_of(self, pod: str) -> Object:
        """The claim made for a pod from a template."""
        statuses = self.get("pod", pod)["status"]["resourceClaimStatuses"]
        return self.get("resourceclaim", statuses[0]["resourceClaimName"])

    def status_of_devices(self, claim: str) -> list[Object]:
        """What the driver wrote about the claim's devices; it does so behind the answer to the kubelet."""
        return until(f"status.devices of {claim}", lambda: self.get("resourceclaim", claim)["status"].get("devices"))

    def gone(self, kind: str, name: str, limit_s: float = LIMIT_S) -> None:
        until(f"{kind} {name} gone", lambda: not self.kubectl.objects(kind, name, "-n", self.namespace), limit_s)

    # The node and its driver.

    def slices(self) -> list[Object]:
        return self.kubectl.objects("resourceslices", "--field-selector=spec.driver=gpu.elasticgpu.io")

    def slice_of(self, node: str) -> Object | None:
        return next((found for found in self.slices() if found["spec"].get("nodeName") == node), None)

    def driver_pods(self, node: str = "node1", *, leaving: bool = False) -> list[Object]:
        """`leaving`: also those that end, which serve the kubelet to their last moment."""
        pods = self.kubectl.objects(
            "pods", "-n", release.NAMESPACE, "-l", NODE_PODS, f"--field-selector=spec.nodeName={node}"
        )
        return [pod for pod in pods if leaving or "deletionTimestamp" not in pod["metadata"]]

    def processes(self, pod_uid: str, command: bytes) -> list[int]:
        """Processes of a pod by a word of their command, as this machine numbers them: other clusters may run beside it."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if pod_uid in (directory / "cgroup").read_text() and command in (directory / "cmdline").read_bytes():
                    found.append(int(directory.name))
        return found

    def cdi_files(self, node: str = "node1") -> set[str]:
        return {path.name for path in self.cluster.host_path(node, CDI).iterdir() if not path.name.startswith(".")}

    def rollout(self) -> None:
        """Until each node has one driver, which is ready. The DaemonSet alone may not have seen yet what was deleted."""
        self.kubectl("-n", release.NAMESPACE, "rollout", "status", f"daemonset/{release.NAME}-node", "--timeout=240s")

        def settled() -> bool:
            found = [self.driver_pods(node) for node in self.cluster.nodes]
            return all(len(pods) == 1 and _ready(pods[0]) for pods in found)

        until("one driver a node", settled)

    def patch_driver(self, template: Object) -> None:
        """Change the node driver's pod template, which starts a rolling update."""
        patch = json.dumps({"spec": {"template": template}})
        self.kubectl(
            "-n", release.NAMESPACE, "patch", "daemonset", f"{release.NAME}-node", "--type=strategic", "-p", patch
        )


def _ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


__all__ = ["CDI", "LIMIT_S", "KubectlError", "Stage", "becomes", "manifests", "until"]
