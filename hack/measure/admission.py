"""What admission costs: egpu-webhook as a process, asked as the API server asks it, and by the API server itself.

a pod by an old name, a thousand times over one TLS connection          --> p50, p99 of the answer
dry runs of the same pod, with and without the webhook's configuration  --> what the creation takes longer
"""

import base64
import datetime
import http.client
import json
import ssl
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hack.cluster import paths
from hack.measure import apiserver, figures, programs
from webhook import certificates

ROOT = Path(__file__).resolve().parents[2]
_HOST = "localhost"
_SECRET = "admission-tls"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_PODS = f"/api/v1/namespaces/{apiserver.NAMESPACE}/pods"
_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bench-admission"},
    "spec": {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": "i",
                "resources": {
                    "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
                },
            }
        ],
    },
}


def measured(api: apiserver.APIServer, directory: Path, *, quick: bool) -> Iterator[figures.Figure]:
    count = 200 if quick else 1000
    with _webhook(api, directory) as (port, trust):
        answers = _answers(port, trust, count)
        plain = _creations(api, count // 5)
        _register(api, port, trust)
        asked = _creations(api, count // 5)
        api.request("DELETE", f"{_CONFIGURATIONS}/bench")
    p99 = statistics.quantiles(answers, n=100)[98]
    yield figures.Figure(name=f"admission's answer, p50 of {count}", unit="ms", ours=statistics.median(answers))
    yield figures.Figure(name=f"admission's answer, p99 of {count}", unit="ms", ours=p99, at_most=15)
    later = statistics.median(asked) - statistics.median(plain)
    yield figures.Figure(name="a pod by an old name is made later, p50", unit="ms", ours=later, at_most=15)


@contextmanager
def _webhook(api: apiserver.APIServer, directory: Path) -> Iterator[tuple[int, str]]:
    _prepare(api)
    now = datetime.datetime.now(datetime.UTC)
    pair = certificates.issue((_HOST,), now, datetime.timedelta(days=1))
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    secret = {
        "metadata": {"name": _SECRET},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }
    api.request("POST", f"/api/v1/namespaces/{apiserver.NAMESPACE}/secrets", secret)
    port, probes = programs.free_ports(2)
    environment = paths.environment(
        KUBECONFIG=str(api.kubeconfig),
        PYTHONPATH=str(ROOT),
        EGPU_NAMESPACE=apiserver.NAMESPACE,
        EGPU_SECRET=_SECRET,
        EGPU_CERTIFICATES="external",
        EGPU_WEBHOOK_PORT=str(port),
        EGPU_PORT=str(probes),
    )
    program = programs.Program((sys.executable, "-m", "webhook"), directory / "webhook.log", environment=environment)
    try:
        _wait_until_ready(program, probes)
        yield port, pair.authority
    finally:
        program.stop()


def _prepare(api: apiserver.APIServer) -> None:
    """The kind of classes, and a class of shares; the namespace is labelled."""
    crd = yaml.safe_load((ROOT / "charts/elastic-gpu/crds/elasticgpuclasses.yaml").read_text())
    api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    made = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClass",
        "metadata": {"name": "inference.elasticgpu.io"},
        "spec": {"backend": "Share", "workloadTypes": ["inference"]},
    }
    deadline = time.monotonic() + 30
    while api.request("POST", "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses", made) is None:
        if time.monotonic() > deadline:
            raise RuntimeError("the API server does not serve ElasticGPUClasses")
        time.sleep(0.2)
    account = {"metadata": {"name": "default"}}  # no controller is there to make it
    api.request("POST", f"/api/v1/namespaces/{apiserver.NAMESPACE}/serviceaccounts", account)
    space = api.request("GET", f"/api/v1/namespaces/{apiserver.NAMESPACE}")
    space["metadata"]["labels"]["elasticgpu.io/translate"] = "true"
    api.request("PUT", f"/api/v1/namespaces/{apiserver.NAMESPACE}", space)


def _wait_until_ready(program: programs.Program, port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        program.check()
        way = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            way.request("GET", "/readyz")
            if way.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            way.close()
        time.sleep(0.1)
    raise RuntimeError(f"the webhook is not ready:\n{program.tail()}")


def _answers(port: int, trust: str, count: int) -> list[float]:
    request = {
        "uid": "u",
        "kind": {"kind": "Pod"},
        "operation": "CREATE",
        "namespace": apiserver.NAMESPACE,
        "object": _POD,
    }
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    way = http.client.HTTPSConnection(_HOST, port, context=ssl.create_default_context(cadata=trust), timeout=10)
    taken = []
    for _ in range(count + 20):
        began = time.perf_counter()
        way.request("POST", "/mutate", body)
        answer = json.loads(way.getresponse().read())
        taken.append((time.perf_counter() - began) * 1000)
        if not answer["response"].get("patch"):
            raise RuntimeError(f"the pod was not translated: {answer}")
    way.close()
    return taken[20:]


def _creations(api: apiserver.APIServer, count: int) -> list[float]:
    taken = []
    for _ in range(count + 5):
        began = time.perf_counter()
        api.request("POST", f"{_PODS}?dryRun=All", _POD)
        taken.append((time.perf_counter() - began) * 1000)
    return taken[5:]


def _register(api: apiserver.APIServer, port: int, trust: str) -> None:
    hook = {
        "name": "translate.bench.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {
            "url": f"https://{_HOST}:{port}/mutate",
            "caBundle": base64.b64encode(trust.encode()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"elasticgpu.io/translate": "true"}},
    }
    api.request("POST", _CONFIGURATIONS, {"metadata": {"name": "bench"}, "webhooks": [hook]})
    deadline = time.monotonic() + 30
    while "resourceClaims" not in api.request("POST", f"{_PODS}?dryRun=All", _POD)["spec"]:
        if time.monotonic() > deadline:
            raise RuntimeError("the API server does not ask the webhook")
        time.sleep(0.2)
