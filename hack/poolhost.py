"""A host beside a cluster that lends a card: `egpu-pool` on a guest of hack/cluster, with ggml's server on its processor.

    start      the guest, ggml's server and the agent's settings on it -> the agent listens
    introduce  certificate of the controller -> Secret; a RemotePool that says where the pool is

The agent runs as it does on any host: its own network, its own /var/lib, nothing of the cluster but the right to ask whose
token a node shows. All may be repeated.
"""

import json
import re
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack import ggml, release
from hack.cluster import Cluster, errors, guests
from hack.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[1]
POOL = "lab"
CARD = "GPU-processor-1"
AGENT = "egpu-pool"
_PLACE, _STATE = "/var/lib/ggml", "/var/lib/elastic-gpu-pool"
_PORT, _METRICS_PORT = 7480, 8080
_READY_S = 60.0
_RIGHTS = ROOT / "examples" / "remote-card" / "pool-account.yaml"
_ACCOUNT = "egpu-pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHost:
    """One whose agent listens."""

    guest: guests.Guest
    settings: tuple[str, ...]

    @property
    def endpoint(self) -> str:
        return f"{self.guest.address}:{_PORT}"

    @property
    def command(self) -> tuple[str, ...]:
        """The words that run egpu-pool there, with its settings."""
        return (*self.guest.entering, *_agent(self.settings))

    def leases(self) -> dict[str, int]:
        """How many leases hold a card of it, by their state: its own word."""
        found = re.findall(r'^elasticgpu_pool_leases\{state="(\w+)"\} (\d+)', self.series(), re.MULTILINE)
        return {state: int(count) for state, count in found if int(count)}

    def series(self) -> str:
        """Its metrics. Raises OSError where it does not answer."""
        with urllib.request.urlopen(f"http://{self.guest.address}:{_METRICS_PORT}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def stop(self) -> None:
        self.guest.stop(AGENT)


def start(cluster: Cluster, kubectl: Kubectl) -> PoolHost:
    """Returns when it listens. Raises ClusterError where ggml cannot be had or the agent does not start."""
    guest = cluster.guest()
    ggml.lay_out(guest.path(_PLACE))
    state = guest.path(_STATE)
    state.mkdir(mode=0o700, exist_ok=True)
    command = ["python3", f"{_PLACE}/{ggml.SERVER.name}", _PLACE, "{port}"]
    profile = {"protocol": "ggml-rpc", "command": command, "port": 50052}
    (state / "profiles.yaml").write_text(json.dumps({"profiles": [profile]}))
    card = {"uuid": CARD, "productName": "processor", "memory": 1 << 30}
    (state / "cards.yaml").write_text(json.dumps({"cards": [card]}))
    kubectl("apply", "-f", str(_RIGHTS))
    (state / "token").write_text(
        kubectl("-n", release.NAMESPACE, "create", "token", _ACCOUNT, "--duration=720h").strip()
    )
    (state / "cluster.crt").write_text(
        kubectl("-n", release.NAMESPACE, "get", "configmap", "kube-root-ca.crt", "-o", r"jsonpath={.data.ca\.crt}")
    )
    settings = (
        f"EGPU_POOL_ID={POOL}",
        "EGPU_PROFILES=ggml-rpc",
        f"EGPU_PROFILES_FILE={_STATE}/profiles.yaml",
        f"EGPU_CARDS_FILE={_STATE}/cards.yaml",
        f"EGPU_LISTEN=:{_PORT}",
        f"EGPU_ADVERTISE={guest.address}",
        f"EGPU_REVIEW_URL={cluster.instance.addresses.api_url}",
        f"EGPU_REVIEW_CA_FILE={_STATE}/cluster.crt",
        f"EGPU_REVIEW_TOKEN_FILE={_STATE}/token",
        f"EGPU_METRICS_PORT={_METRICS_PORT}",
    )
    host = PoolHost(guest=guest, settings=settings)
    guest.start(AGENT, *_agent(settings))
    _wait(host)
    return host


def introduce(kubectl: Kubectl, host: PoolHost, secret: str) -> None:
    """What an admin does once: a certificate for this cluster's controller, in a Secret, and where the pool is."""
    uid = kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    host.guest.run(*_agent(host.settings), "controller-certificate", uid, f"{_STATE}/controller")
    made = {
        name: host.guest.path(f"{_STATE}/controller/{name}").read_text() for name in ("tls.crt", "tls.key", "ca.crt")
    }
    pair = {f"{POOL}.crt": made["tls.crt"], f"{POOL}.key": made["tls.key"]}
    head = {"name": secret, "namespace": release.NAMESPACE}
    _apply(kubectl, {"apiVersion": "v1", "kind": "Secret", "metadata": head, "stringData": pair})
    spec = {"endpoint": host.endpoint, "caBundle": made["ca.crt"]}
    version = "elasticgpu.io/v1alpha1"
    _apply(kubectl, {"apiVersion": version, "kind": "RemotePool", "metadata": {"name": POOL}, "spec": spec})


def _agent(settings: tuple[str, ...]) -> tuple[str, ...]:
    return ("env", f"--chdir={ROOT}", *settings, sys.executable, "-m", "pool")


def _apply(kubectl: Kubectl, made: dict[str, Any]) -> None:
    kubectl("apply", "-f", "-", text=json.dumps(made))


def _wait(host: PoolHost) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and host.guest.runs(AGENT):
        try:
            host.series()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise errors.ClusterError(f"egpu-pool did not start:\n{host.guest.last_words(AGENT)}")
