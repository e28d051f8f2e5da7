"""What stands on the stage: etcd, kube-apiserver, kube-scheduler, and the controller as its users start it."""

import contextlib
import http.client
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hack.cluster import paths
from hack.measure import apiserver, plugins, programs
from hack.scale import objects

_CRDS = plugins.ROOT / "charts/elastic-gpu/crds"
_CARDS = re.compile(r'^elasticgpu_cards\{.*state="(\w+)"\} (\S+)$', re.MULTILINE)
_LIMIT_S = 600
_FAST = ("--kube-api-qps=2000", "--kube-api-burst=2000")
"""Its own limit, 50 requests a second, would be what is measured: two of them bind a pod."""


class Controller:
    """The program, with the packages of the image and no others."""

    def __init__(self, api: apiserver.APIServer, directory: Path, *, command: tuple[str | Path, ...] = ()) -> None:
        interpreter = plugins.runtime()
        self.port, page = programs.free_ports(2)
        environment = paths.environment(
            KUBECONFIG=str(api.kubeconfig_of(apiserver.CONTROLLER)),
            PYTHONPATH=str(plugins.ROOT),
            EGPU_NAMESPACE=objects.NAMESPACE,
            EGPU_PORT=str(self.port),
            EGPU_PAGE_PORT=str(page),
            MALLOC_TRIM_THRESHOLD_="131072",  # as the image has it
        )
        self.began = time.monotonic()
        words: tuple[str | Path, ...] = (interpreter, *(command or ("-m", "controller")))
        self.program = programs.Program(words, directory / "controller.log", environment=environment)

    def metrics(self) -> str:
        """Empty while it does not answer."""
        self.program.check()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    def cards(self) -> dict[str, int]:
        """How many by state; nothing before the first picture."""
        found: dict[str, int] = {}
        for state, number in _CARDS.findall(self.metrics()):
            found[state] = found.get(state, 0) + int(float(number))
        return found

    def wait_for(self, state: str, cards: int, limit_s: float = _LIMIT_S) -> float:
        """Seconds, since it was started, until its picture has so many cards of that state."""
        while (found := self.cards()).get(state) != cards:
            if time.monotonic() - self.began > limit_s:
                raise RuntimeError(f"the controller sees {found}, not {cards} {state}:\n{self.program.tail()}")
            time.sleep(0.05)
        return time.monotonic() - self.began

    def rest(self, limit_s: float = 120) -> None:
        """Until it has read all and takes less than a tenth of a core."""
        end, before = time.monotonic() + limit_s, self.program.cpu_ms()
        while time.monotonic() < end:
            time.sleep(5)
            now = self.program.cpu_ms()
            if now - before < 500:
                return
            before = now


@contextlib.contextmanager
def scheduler(binaries: Path, api: apiserver.APIServer, directory: Path) -> Iterator[programs.Program]:
    """kube-scheduler, once it has read everything."""
    port = programs.free_ports(1)[0]
    kubeconfig = api.kubeconfig_of(apiserver.SCHEDULER)
    flags = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={port}",
             f"--cert-dir={directory}/scheduler", *_FAST)  # fmt: skip
    program = programs.Program((binaries / "kube-scheduler", *flags), directory / "scheduler.log")
    try:
        yield program
    finally:
        program.stop()


def prepare(client: apiserver.Client) -> None:
    """Kinds, rights, the namespace and the classes."""
    for file in sorted(_CRDS.iterdir()):
        client.request(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text())
        )
    binding = {
        "metadata": {"name": apiserver.CONTROLLER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": apiserver.CONTROLLER, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    client.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": objects.NAMESPACE}})
    account = {"metadata": {"name": "default"}}  # no controller manager is there to make it
    client.request("POST", f"/api/v1/namespaces/{objects.NAMESPACE}/serviceaccounts", account)
    for name, by in ((objects.BY_SCHEDULER, "Scheduler"), (objects.BY_CONTROLLER, "Controller")):
        make_class(client, objects.gpu_class(name, by))


def make_class(client: apiserver.Client, body: dict[str, Any]) -> None:
    """As soon as its kind is served."""
    deadline = time.monotonic() + 60
    while client.request("POST", "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses", body) is None:
        if time.monotonic() > deadline:
            raise RuntimeError("the API server does not serve ElasticGPUClasses")
        time.sleep(0.2)
