"""A real etcd and kube-apiserver on the loopback device, and the objects that the measured plugins work with.

No scheduler runs: the benchmark writes what a scheduler would, finalizer and allocation, so that only the plugin and the
API server are in the picture. etcd does not sync, so that it does not compete with the plugins for the disk.
"""

import concurrent.futures
import http.client
import json
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.measure import programs

NAMESPACE = "bench"
_DRA = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_DRA}/namespaces/{NAMESPACE}/resourceclaims"
_TOKEN = "bench"
_CALLERS = 4


class APIServer:
    """Both programs; requests raise when the answer is not 2xx, save 404, which is None."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self._local = threading.local()
        self._directory = directory
        directory.mkdir()
        etcd, peer, self._port = programs.free_ports(3)
        self._etcd = self._start_etcd(binaries, f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}")
        self._server = self._start_server(binaries, f"http://127.0.0.1:{etcd}")
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()))

    def _start_etcd(self, binaries: Path, client: str, peer: str) -> programs.Program:
        urls = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
        cluster = ("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        data = ("--data-dir", self._directory / "etcd", "--unsafe-no-fsync", "--log-level", "error")
        return programs.Program((binaries / "etcd", *urls, *cluster, *data), self._directory / "etcd.log")

    def _start_server(self, binaries: Path, etcd: str) -> programs.Program:
        key, tokens = self._directory / "sa.key", self._directory / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f'{_TOKEN},bench,1,"system:masters"\n')
        arguments = {
            "etcd-servers": etcd,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "secure-port": self._port,
            "cert-dir": self._directory / "certs",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "token-auth-file": tokens,
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.96.0.0/16",
        }
        flags = [f"--{name}={value}" for name, value in arguments.items()]
        return programs.Program((binaries / "kube-apiserver", *flags), self._directory / "apiserver.log")

    def wait_until_ready(self, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._etcd.check()
            self._server.check()
            try:
                self.request("GET", "/readyz")
            except (OSError, RuntimeError):
                time.sleep(0.1)
            else:
                labels = {"resource.kubernetes.io/admin-access": "true"}
                self.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
                return
        raise RuntimeError(f"the API server is not ready after {timeout_s:.0f} s:\n{self._server.tail()}")

    def request(self, method: str, path: str, body: object = None) -> Any:
        try:
            status, text = self._exchange(method, path, body)
        except (http.client.RemoteDisconnected, ConnectionResetError):  # closed by the server after idle minutes
            status, text = self._exchange(method, path, body)
        if status == 404:
            return None
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {text.decode(errors='replace')[:500]}")
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = self._connection()
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    def make_node(self, name: str) -> None:
        self.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})

    def slices(self, driver: str) -> list[dict[str, Any]]:
        listed = self.request("GET", f"{_DRA}/resourceslices?fieldSelector=spec.driver%3D{driver}")
        return sorted(listed["items"], key=lambda item: str(item["metadata"]["name"]))

    def delete_slices(self, driver: str) -> None:
        """All at once, as a kubelet does when it starts."""
        self.request("DELETE", f"{_DRA}/resourceslices?fieldSelector=spec.driver%3D{driver}")

    def make_claims(
        self,
        names: list[str],
        driver: str,
        node: str,
        devices: list[tuple[str, str]],
        *,
        admin: bool,
        part: Mapping[str, str] | None = None,
    ) -> list[dict[str, str]]:
        """Allocated claims, the n-th for the n-th of `devices` (pool and name), beginning again after the last.

        `part`: what of its card each of them has; nothing given: all.
        """
        chosen = [devices[index % len(devices)] for index in range(len(names))]
        with concurrent.futures.ThreadPoolExecutor(_CALLERS) as callers:
            made = callers.map(
                lambda name, device: self._make_claim(name, driver, node, device, admin=admin, part=part), names, chosen
            )
            return list(made)

    def _make_claim(
        self,
        name: str,
        driver: str,
        node: str,
        device: tuple[str, str],
        *,
        admin: bool,
        part: Mapping[str, str] | None,
    ) -> dict[str, str]:
        access = {"adminAccess": True} if admin else {}
        metadata = {"name": name, "finalizers": ["resource.kubernetes.io/delete-protection"]}
        requests = [{"name": "card", "exactly": {"deviceClassName": "bench.elasticgpu.io", **access}}]
        claim = self.request("POST", _CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": requests}}})
        uid = str(claim["metadata"]["uid"])
        result: dict[str, object] = {
            "request": "card",
            "driver": driver,
            "pool": device[0],
            "device": device[1],
            **access,
        }
        devices: dict[str, object] = {"results": [result]}
        if part:
            result |= {"consumedCapacity": dict(part), "shareID": str(uuid.uuid4())}
            config = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ShareConfig", "memory": "BestEffort"}
            devices["config"] = [{"source": "FromClass", "opaque": {"driver": driver, "parameters": config}}]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        claim["status"] = {
            "allocation": {"devices": devices, "nodeSelector": {"nodeSelectorTerms": terms}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        self.request("PUT", f"{_CLAIMS}/{name}/status", claim)
        return {"namespace": NAMESPACE, "name": name, "uid": uid}

    def stop(self) -> None:
        self._server.stop()
        self._etcd.stop()

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            trust = ssl.create_default_context(cafile=str(self._directory / "certs/apiserver.crt"))
            connection = self._local.connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, context=trust, timeout=30
            )
        return connection

    def _kubeconfig(self) -> dict[str, Any]:
        server = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self._directory / "certs/apiserver.crt"),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": server}],
            "users": [{"name": "bench", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
