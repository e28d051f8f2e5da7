"""The cluster in etcd: one node through the API server, and from it all others.

    node 0 with slice, claims, pods --> API server (checks, defaults, managed fields) --> read back: the pattern
    pattern + what is a node's own --> etcd, by several processes

What must stay true: a copy has the fields that the API server gives a pattern; `check` compares one through the API.
"""

import concurrent.futures
import functools
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from api import names
from controller import gpus
from hack.measure import apiserver
from hack.scale import etcd, objects
from kube import slices
from view import join, reader
from view import objects as seen

NODES = "/api/v1/nodes"
PODS = f"/api/v1/namespaces/{objects.NAMESPACE}/pods"
SLICES = slices.PATH
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{objects.NAMESPACE}/resourceclaims"
MERGE = "application/merge-patch+json"
_KEYS = {
    "Node": "/registry/minions/{name}",
    "ResourceSlice": "/registry/resourceslices/{name}",
    "Pod": f"/registry/pods/{objects.NAMESPACE}/{{name}}",
    "ResourceClaim": f"/registry/resourceclaims/{objects.NAMESPACE}/{{name}}",
    "ElasticGPU": f"/registry/{names.GROUP}/elasticgpus/{{name}}",
}
_PATHS = {"Node": NODES, "ResourceSlice": SLICES, "Pod": PODS, "ResourceClaim": CLAIMS, "ElasticGPU": gpus.PATH}
_PROCESSES, _PART = 2, 25
JSON = dict[str, Any]
Pattern = Mapping[str, JSON]
"""Kind -> an object of it as the API server gives it."""


def key(kind: str, name: str) -> str:
    return _KEYS[kind].format(name=name)


def pattern(client: apiserver.Client) -> Pattern:
    """Makes node 0 as everybody would."""
    found: dict[str, JSON] = {}
    uids: dict[str, str] = {}
    for one in whole(0, {}):
        kind, name, path = one["kind"], one["metadata"]["name"], _PATHS[one["kind"]]
        body = json.loads(functools.reduce(lambda text, uid: text.replace(*uid), uids.items(), json.dumps(one)))
        assumed = body["metadata"].pop("uid")
        made = client.request("POST", path, body)
        uids[assumed] = made["metadata"]["uid"]
        if kind in ("Pod", "ResourceClaim"):
            status = {"status": body["status"]}
            made = client.request("PATCH", f"{path}/{name}/status", status, content=MERGE)
        found[kind] = made
    return found


def fill(port: int, copied: Pattern, nodes: int, say: Callable[[str], None]) -> None:
    """All nodes but the first, straight into etcd."""
    numbers = range(1, nodes)
    parts = [numbers[start : start + _PART] for start in range(0, len(numbers), _PART)]
    done = 0
    with concurrent.futures.ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("forkserver")) as pool:
        for future in concurrent.futures.as_completed([pool.submit(_fill, port, copied, part) for part in parts]):
            before, done = done, done + future.result()
            if before * 10 // nodes != done * 10 // nodes:
                say(f"{done} of {nodes} nodes are in etcd")


def _fill(port: int, copied: Pattern, numbers: Sequence[int]) -> int:
    store = etcd.Etcd(port)
    for number in numbers:
        store.put_all((key(one["kind"], one["metadata"]["name"]), one) for one in whole(number, copied))
    store.close()
    return len(numbers)


def check(client: apiserver.Client, node: int) -> None:
    """Raises where a copy has other fields than the pattern has."""
    for kind, one, two in (
        ("Node", objects.node_name(0), objects.node_name(node)),
        ("Pod", next(objects.holdings(0)).name, next(objects.holdings(node)).name),
        ("ResourceClaim", next(objects.holdings(0)).name, next(objects.holdings(node)).name),
        ("ElasticGPU", objects.card(0, 0).name, objects.card(node, 0).name),
    ):
        shapes = [_shape(client.request("GET", f"{_PATHS[kind]}/{name}") or {}) for name in (one, two)]
        if shapes[0] != shapes[1] or not shapes[0]:
            differing = sorted(shapes[0] ^ shapes[1])
            raise RuntimeError(f"{kind} {two}, a copy, differs from {one}, which the API server made: {differing[:10]}")


def _shape(found: Any, at: str = "") -> frozenset[str]:
    if isinstance(found, dict):
        return frozenset[str]().union(*(_shape(value, f"{at}.{name}") for name, value in found.items()))
    if isinstance(found, list):
        return frozenset[str]().union(*(_shape(value, f"{at}[]") for value in found))
    return frozenset((at,))


def whole(number: int, copied: Pattern) -> Iterator[JSON]:
    """All that a node brings: itself, its slice, its driver's pod, its claims with their pods, its cards' objects."""
    node = _complete("Node", objects.node(number), copied)
    uid = node["metadata"]["uid"]
    yield node
    sliced = [_complete("ResourceSlice", one, copied) for one in objects.slices_of(number, uid, given=False)]
    yield from sliced
    yield _complete("Pod", objects.driver_pod(number) | objects.running(), copied)
    claims, pods = [], []
    for of in objects.holdings(number):
        body = objects.pod(of.name, claim_name=of.name, node_=objects.node_name(number)) | objects.running()
        pod = _complete("Pod", body, copied)
        claim = objects.claim(of.name, objects.BY_SCHEDULER, count=len(of.cards), quarters=of.quarters)
        claim["metadata"]["finalizers"] = [objects.FINALIZER]
        claim["status"] = objects.status(of, pod["metadata"]["uid"])
        pods.append(pod)
        claims.append(_complete("ResourceClaim", claim, copied))
    yield from pods
    yield from claims
    for body in _gpus(sliced, claims, pods):
        yield _complete("ElasticGPU", body, copied)


def _gpus(sliced: Sequence[JSON], claims: Sequence[JSON], pods: Sequence[JSON]) -> Iterator[JSON]:
    """What our recorder would write of these cards."""
    known = seen.Objects(
        slices=reader.part(sliced, reader.slice_),
        claims=reader.part(claims, reader.claim),
        pods=reader.part(pods, reader.pod),
    )
    for write in gpus.turn(known, join.View(known), {}, objects.THEN):
        assert isinstance(write, gpus.Apply)
        yield write.body


def _complete(kind: str, body: JSON, copied: Pattern) -> JSON:
    """`body` with all that the API server adds to an object of its kind."""
    sample = copied.get(kind, {})
    meta = {**sample.get("metadata", {}), "creationTimestamp": objects.THEN} if sample else {}
    name = body["metadata"]["name"]
    whole_ = {**sample, "kind": kind, "apiVersion": _VERSIONS[kind], "metadata": meta | body["metadata"]}
    for part in ("spec", "status"):
        if part in body:
            whole_[part] = {**sample.get(part, {}), **body[part]}
    whole_["metadata"]["uid"] = objects.uid(kind, name)
    whole_["metadata"].pop("resourceVersion", None)
    return whole_


_VERSIONS = {
    "Node": "v1",
    "Pod": "v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ElasticGPU": names.API_VERSION,
}
