"""How long `kubectl egpu` takes beside a large cluster. `python -m hack.measure.listing`

5,000 nodes with 40,000 cards, 30,000 claims as JSON, made once -> a server that only sends -> kubectl, a process a list -> the command

What the API server itself takes to make such an answer is not in it: the server here has each ready, and sends it as fast as
it is read. The real kubectl is between, as for a user.
"""

import contextlib
import http.server
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import yaml

from api import names
from hack.cluster import build
from hack.measure import figures
from hack.scale import objects

ROOT = Path(__file__).resolve().parents[2]
_NODES = 5000
_TIMES = 5


def measured(nodes: int = _NODES) -> Iterator[figures.Figure]:
    answers = _answers(nodes)
    size = sum(map(len, answers.values())) / 2**20
    with _serving(answers) as address, tempfile.TemporaryDirectory() as folder:
        environment = _environment(Path(folder), address)
        lists = [path for path, answer in answers.items() if len(answer) > 2**20]
        raw = min(_took(["kubectl", "get", "--raw", path], environment)[0] for path in lists)
        walls, cpus = zip(
            *(_took([sys.executable, "-m", "cli", "cards"], environment) for _ in range(_TIMES)), strict=True
        )
        start = min(_took([sys.executable, "-m", "cli", "claim", "--help"], environment)[0] for _ in range(_TIMES))
    name = f"kubectl egpu cards of {nodes * objects.CARDS} cards"
    yield figures.Figure(name=f"{name}, best of {_TIMES}", unit="s", ours=min(walls), at_most=1.5)
    yield figures.Figure(name="the same, CPU with kubectl's", unit="s", ours=min(cpus))
    yield figures.Figure(name="what it reads", unit="MiB", ours=size)
    yield figures.Figure(name="kubectl alone, for the smaller of its large lists", unit="s", ours=raw)
    yield figures.Figure(name="start of kubectl egpu beyond kubectl", unit="ms", ours=start * 1000, at_most=150)


def _took(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU with what it starts."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return time.perf_counter() - began, sum(after[2:4]) - sum(before[2:4])


def _environment(folder: Path, address: str) -> Mapping[str, str]:
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
    }
    (folder / "config").write_text(yaml.safe_dump(kubeconfig))
    path = f"{build.build()}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"KUBECONFIG": str(folder / "config"), "PATH": path}


@contextlib.contextmanager
def _serving(answers: Mapping[str, bytes]) -> Iterator[str]:
    """The server is a process of its own, as it is for a user."""
    reading, writing = os.pipe()
    server = os.fork()
    if server == 0:
        _serve(answers, writing)
    try:
        os.close(writing)
        yield f"http://127.0.0.1:{int(os.read(reading, 16))}"
    finally:
        os.close(reading)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _serve(answers: Mapping[str, bytes], told: int) -> NoReturn:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path, b'{"items":[]}')
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    os.write(told, str(server.server_port).encode())
    server.serve_forever()
    raise AssertionError("it is killed")


def _answers(nodes: int) -> Mapping[str, bytes]:
    """Path -> list; all others are empty."""
    slices = [
        _kept(item)
        for node in range(nodes)
        for item in objects.slices_of(node, objects.uid("node", str(node)), given=False)
    ]
    holdings = [holding for node in range(nodes) for holding in objects.holdings(node)]
    claims = [
        _kept(objects.claim(one.name, objects.BY_SCHEDULER, count=len(one.cards), quarters=one.quarters))
        | {"status": objects.status(one, objects.uid("pod", one.name))}
        for one in holdings
    ]
    group = "/apis/resource.k8s.io/v1"
    query = urllib.parse.urlencode({"fieldSelector": f"spec.driver={names.LOCAL_DRIVER}"})
    paths = (f"{group}/resourceslices?{query}", f"{group}/resourceclaims")
    return {
        path: msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})
        for path, items in zip(paths, (slices, claims), strict=True)
    }


def _kept(body: dict[str, Any]) -> dict[str, Any]:
    """As the API server gives it out."""
    meta = body["metadata"]
    mine = {
        "uid": objects.uid("object", meta["name"]),
        "resourceVersion": "12345678",
        "creationTimestamp": objects.THEN,
    }
    managed = [
        {
            "manager": "elastic-gpu",
            "operation": "Update",
            "apiVersion": "resource.k8s.io/v1",
            "time": objects.THEN,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {}},
        }
    ]
    return body | {"metadata": meta | mine | {"managedFields": managed}}


if __name__ == "__main__":
    print(figures.table(list(measured())))
