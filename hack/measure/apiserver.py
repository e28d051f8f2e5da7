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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hack.measure import programs

NAMESPACE = "bench"
_DRA = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_DRA}/namespaces/{NAMESPACE}/resourceclaims"
ADMIN = "bench"
SCHEDULER, CONTROLLER = "system:kube-scheduler", "bench-controller"
"""Users, whose names are their tokens too. The last one may nothing yet."""
_CALLERS = 4


class Client:
    """Requests of one user; they raise when the answer is not 2xx, save 404, which is None. It goes to other processes."""

    def __init__(self, port: int, authority: Path, token: str = ADMIN) -> None:
        self._way = (port, authority, token)
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Client, self._way

    def request(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Any:
        try:
            status, text = self._exchange(method, path, body, content)
        except (
            http.client.RemoteDisconnected,
            ConnectionError,
            ssl.SSLEOFError,
        ):  # closed by the server, which was idle
            status, text = self._exchange(method, path, body, content)
        if status == 404:
            return None
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {text.decode(errors='replace')[:500]}")
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def lines(self, path: str, timeout_s: float) -> Iterator[Any]:
        """The events of a watch; ends with TimeoutError after so long without one."""
        connection = self._connect(timeout_s)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._way[2]}"})
            with connection.getresponse() as response:
                while line := response.readline():
                    yield json.loads(line)
        finally:
            connection.close()

    def _exchange(self, method: str, path: str, body: object, content: str) -> tuple[int, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(60)
        headers = {"Authorization": f"Bearer {self._way[2]}", "Content-Type": content}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        port, authority, _ = self._way
        trust = ssl.create_default_context(cafile=str(authority))
        return http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=timeout_s)


class APIServer:
    """Both programs. `data`: etcd's directory, kept where it is given."""

    def __init__(self, binaries: Path, directory: Path, *, data: Path | None = None) -> None:
        self._directory = directory
        self._data = data or directory / "etcd"
        directory.mkdir()
        etcd, peer, self._port = programs.free_ports(3)
        self.etcd_port = etcd
        self._etcd = self._start_etcd(binaries, f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}")
        self._server = self._start_server(binaries, f"http://127.0.0.1:{etcd}")
        self.client = Client(self._port, self._authority)
        self.kubeconfig = self.kubeconfig_of(ADMIN)

    def _start_etcd(self, binaries: Path, client: str, peer: str) -> programs.Program:
        urls = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
        cluster = ("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        data = (
            "--data-dir",
            self._data,
            "--unsafe-no-fsync",
            "--log-level",
            "error",
            "--quota-backend-bytes",
            str(2**33),
        )
        return programs.Program((binaries / "etcd", *urls, *cluster, *data), self._directory / "etcd.log")

    def _start_server(self, binaries: Path, etcd: str) -> programs.Program:
        key, tokens = self._directory / "sa.key", self._directory / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        others = "".join(f"{name},{name},{name}\n" for name in (SCHEDULER, CONTROLLER))
        tokens.write_text(f'{ADMIN},{ADMIN},1,"system:masters"\n{others}')
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
            "disable-admission-plugins": "TaintNodesByCondition",  # nobody is there to take its taint off
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
                if self.request("GET", f"/api/v1/namespaces/{NAMESPACE}") is None:
                    self.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
                return
        raise RuntimeError(f"the API server is not ready after {timeout_s:.0f} s:\n{self._server.tail()}")

    def request(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Any:
        return self.client.request(method, path, body, content=content)

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
        self.stop_server()
        self._etcd.stop()

    def stop_server(self) -> None:
        """The API server alone: what is in etcd is left to others."""
        self._server.stop()

    def memory_mib(self) -> tuple[float, float]:
        """The API server's and etcd's."""
        return self._server.rss_mib(), self._etcd.rss_mib()

    @property
    def _authority(self) -> Path:
        return self._directory / "certs/apiserver.crt"

    def kubeconfig_of(self, user: str) -> Path:
        """A file by which a program is this user."""
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self._authority)}
        told = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": server}],
            "users": [{"name": "bench", "user": {"token": user}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
        file = self._directory / f"{user.rpartition(':')[2]}.kubeconfig"
        file.write_text(json.dumps(told))
        return file
