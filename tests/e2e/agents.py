"""A pool of remote cards beside a cluster: the real agent, on this machine, reached by the cluster's nodes and pods."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.cluster import Cluster
from hack.kubectl import Kubectl
from tests.e2e.stage import until

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "pool-reviewer"
_RIGHTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: pool-reviewer, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pool-reviewer}
rules:
  - {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
  - {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pool-reviewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pool-reviewer}
subjects: [{kind: ServiceAccount, name: pool-reviewer, namespace: default}]
"""


class Agent:
    """`egpu-pool` with as many cards of a file. Whatever the protocol is called, the server is that of `fake`."""

    def __init__(
        self,
        kubectl: Kubectl,
        cluster: Cluster,
        folder: Path,
        name: str,
        count: int,
        port: int,
        protocol: str = "fake",
    ) -> None:
        self.name, self._folder, self._kubectl = name, folder, kubectl
        self._place = cluster.instance.addresses
        self.endpoint = f"{self._place.host}:{port}"
        kubectl("apply", "-f", "-", text=_RIGHTS)
        folder.mkdir(parents=True, exist_ok=True)
        token = kubectl("-n", "default", "create", "token", ACCOUNT, "--duration=8h").strip()
        (folder / "token").write_text(token)
        config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
        (folder / "ca.crt").write_bytes(
            base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        )
        cards = [
            {"uuid": f"GPU-{name}{number:04d}", "productName": "NVIDIA A100", "memory": 80 << 30}
            for number in range(count)
        ]
        (folder / "cards.yaml").write_text(json.dumps({"cards": cards}))
        profile = {"protocol": protocol, "command": ["python3", "{here}/fakeserver.py", "{port}"], "port": 7000}
        (folder / "profiles.yaml").write_text(json.dumps({"profiles": [profile]}))
        self._environment = {
            "PATH": os.environ["PATH"],
            "EGPU_POOL_ID": name,
            "EGPU_PROFILES": protocol,
            "EGPU_PROFILES_FILE": str(folder / "profiles.yaml"),
            "EGPU_CARDS_FILE": str(folder / "cards.yaml"),
            "EGPU_STATE_DIR": str(folder / "state"),
            "EGPU_LISTEN": self.endpoint,
            "EGPU_ADVERTISE": self._place.host,
            "EGPU_REVIEW_URL": self._place.api_url,
            "EGPU_REVIEW_CA_FILE": str(folder / "ca.crt"),
            "EGPU_REVIEW_TOKEN_FILE": str(folder / "token"),
            "EGPU_METRICS_PORT": "0",
            "EGPU_FIRST_UID": str(64000 + port % 1000 * 50),
        }
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "state").mkdir(mode=0o700, exist_ok=True)

    def start(self) -> None:
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pool"], cwd=ROOT, env=self._environment, stderr=log, stdout=log
            )
        until("the agent listens", lambda: '"port"' in self.log())

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(120)
            self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It answers nothing, and holds all that it has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def certificate(self) -> tuple[str, str, str]:
        """What the cluster's controller shows (certificate, key) and whom all trust."""
        uid = json.loads(self._kubectl("get", "namespace", "kube-system", "-o", "json"))["metadata"]["uid"]
        folder = self._folder / "controller"
        subprocess.run(
            [sys.executable, "-m", "pool", "controller-certificate", uid, str(folder)],
            cwd=ROOT,
            env=self._environment,
            check=True,
        )
        return tuple((folder / name).read_text() for name in ("tls.crt", "tls.key", "ca.crt"))  # type: ignore[return-value]

    def object(self, ca: str, **spec: Any) -> dict[str, Any]:
        """Its RemotePool."""
        return {
            "apiVersion": "elasticgpu.io/v1alpha1",
            "kind": "RemotePool",
            "metadata": {"name": self.name},
            "spec": {"endpoint": self.endpoint, "caBundle": ca, **spec},
        }


def secret(name: str, namespace: str, pairs: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Certificate and key by the name of the pool."""
    data = {
        f"{pool}.{end}": text for pool, pair in pairs.items() for end, text in zip(("crt", "key"), pair, strict=True)
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": data,
    }
