"""Claims that nobody can meet, a hundred thousand of them, of a class that is allocated at once: what others feel of it."""

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator

from hack.measure import apiserver, figures
from hack.scale import crowd, etcd, load, objects, stage

CLASS = "at-once.example.com"
_BESIDE = 20
_LIMIT_S = 400
_WAITING = re.compile(r"^elasticgpu_controller_allocation_waiting (\S+)$", re.MULTILINE)


def measured(api: apiserver.APIServer, controller: stage.Controller, count: int) -> Iterator[figures.Figure]:
    stage.make_class(api.client, objects.gpu_class(CLASS, "Controller", "Immediate"))
    stop, slowest = threading.Event(), [0.0]
    watcher = threading.Thread(target=_probe, args=(controller.port, stop, slowest))
    watcher.start()
    try:
        began = time.monotonic()
        store = etcd.Etcd(api.etcd_port)
        for one in map(claim, range(count)):  # each with a version of its own: who watches goes on from one
            store.put(load.key("ResourceClaim", one["metadata"]["name"]), json.dumps(one).encode())
        store.close()
        took = _all_refused(controller, count, began)
        beside = crowd.wave(api, "beside", objects.BY_CONTROLLER, _BESIDE, limit_s=_LIMIT_S)
    finally:
        stop.set()
        watcher.join()
    name = f"with {count} claims that never fit"
    yield figures.Figure(name=f"{name}: all of them are refused after", unit="s", ours=took)
    yield figures.Figure(
        name=f"of {_BESIDE} pods beside them allocated", unit="", ours=beside.allocated, at_least=_BESIDE
    )
    last = max(beside.allocations.values(), default=beside.began) - beside.began
    yield figures.Figure(name="the last of these after", unit="s", ours=last, at_most=30)
    yield figures.Figure(name="slowest answer to a probe (5 s kill it)", unit="s", ours=slowest[0], at_most=5)
    yield figures.Figure(name=f"RSS {name}", unit="MiB", ours=controller.program.rss_mib(), at_most=512)


def claim(number: int) -> objects.JSON:
    """Nine cards: no node has them."""
    name = f"pending-{number:06}"
    found = objects.claim(name, CLASS, count=9)
    meta = {"uid": objects.uid("ResourceClaim", name), "creationTimestamp": objects.THEN}
    return found | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": found["metadata"] | meta}


def _all_refused(controller: stage.Controller, count: int, began: float) -> float:
    while float((_WAITING.findall(controller.metrics()) or ["0"])[0]) < count:
        if time.monotonic() - began > _LIMIT_S:
            raise RuntimeError(
                f"not all of {count} claims are refused after {_LIMIT_S} s:\n{controller.program.tail()}"
            )
        time.sleep(0.5)
    return time.monotonic() - began


def _probe(port: int, stop: threading.Event, slowest: list[float]) -> None:
    """As the kubelet's probe asks."""
    while not stop.wait(0.2):
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        finally:
            connection.close()
        slowest[0] = max(slowest[0], time.monotonic() - began)
