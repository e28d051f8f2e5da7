"""Pods that come at once, each with a claim of a quarter of a card, and how fast they are allocated and bound.

one claim and one pod --> API server, which checks and completes them, and stores nothing --> the patterns
claims, then the pods by number --> etcd: two cores would be busy with making them, and both sides wait for that
"""

import concurrent.futures
import copy
import json
import time
from dataclasses import dataclass, field
from typing import Any

from api import names
from hack.measure import apiserver
from hack.scale import etcd, load, objects
from kube import slices

_CALLERS = 4


@dataclass(slots=True, kw_only=True)
class Wave:
    """When, by the monotonic clock, each was seen allocated and bound; when the first was made, and when the last."""

    began: float
    made: float
    allocations: dict[str, float] = field(default_factory=dict)
    bindings: dict[str, float] = field(default_factory=dict)

    @property
    def allocated(self) -> int:
        return len(self.allocations)

    @property
    def bound(self) -> int:
        return len(self.bindings)

    @property
    def allocated_rate(self) -> float:
        return self._rate(self.allocations)

    @property
    def bound_rate(self) -> float:
        return self._rate(self.bindings)

    def _rate(self, seen: dict[str, float]) -> float:
        return len(seen) / (max(seen.values()) - self.began) if seen else 0.0


def wave(api: apiserver.APIServer, name: str, class_: str, pods: int, *, limit_s: float) -> Wave:
    """Makes the claims and the pods, and watches until all are bound or the time is over."""
    client, now = api.client, time.monotonic()
    found = Wave(began=now, made=now)
    numbered = [f"{name}-{number:05}" for number in range(pods)]
    claims, crowd = _patterns(client, name, class_)
    version = {path: client.request("GET", f"{path}?limit=1")["metadata"]["resourceVersion"] for path in _WATCHED}
    with concurrent.futures.ThreadPoolExecutor(len(_WATCHED)) as watchers:
        watches = [
            watchers.submit(_watch, client, path, version[path], name, pods, limit_s, found) for path in _WATCHED
        ]
        _put_all(api.etcd_port, [_copy(claims, one) for one in numbered])
        found.began = time.monotonic()
        _put_all(api.etcd_port, [_copy(crowd, one) for one in numbered])
        found.made = time.monotonic()
        for watch in watches:
            watch.result()
    return found


def give_all(client: apiserver.Client, nodes: int) -> None:
    """All nodes' cards to the controller, as their drivers do when the label comes."""
    with concurrent.futures.ThreadPoolExecutor(_CALLERS) as callers:
        list(callers.map(lambda number: _give(client, number), range(nodes)))


def _give(client: apiserver.Client, number: int) -> None:
    labels = {"metadata": {"labels": {names.ALLOCATED_BY_LABEL: "controller"}}}
    node = client.request("PATCH", f"{load.NODES}/{objects.node_name(number)}", labels, content=load.MERGE)
    uid = node["metadata"]["uid"]
    name = objects.slices_of(number, uid, given=False)[0]["metadata"]["name"]
    present = slices.seen(client.request("GET", f"{load.SLICES}/{name}"))
    for body in objects.slices_of(number, uid, given=True, present=(present,)):
        client.request("PUT", f"{load.SLICES}/{name}", body)


def _patterns(client: apiserver.Client, of: str, class_: str) -> tuple[objects.JSON, objects.JSON]:
    """A claim and its pod as the API server would store them."""
    labels = {"wave": of}
    claim = client.request("POST", f"{load.CLAIMS}?dryRun=All", objects.claim(of, class_, labels=labels))
    return claim, client.request("POST", f"{load.PODS}?dryRun=All", objects.pod(of, claim_name=of, labels=labels))


def _copy(pattern: objects.JSON, name: str) -> objects.JSON:
    """Another object of that kind; a pod's claim is called as the pod is."""
    found = copy.deepcopy(pattern)
    found["metadata"] |= {"name": name, "uid": objects.uid(found["kind"], name)}
    for entry in found["spec"].get("resourceClaims") or ():
        entry["resourceClaimName"] = name
    return found


def _put_all(port: int, made: list[objects.JSON]) -> None:
    store = etcd.Etcd(port)
    for one in made:  # each with a version of its own: who watches goes on from one
        store.put(load.key(one["kind"], one["metadata"]["name"]), json.dumps(one).encode())
    store.close()


def _watch(
    client: apiserver.Client, path: str, version: str, name: str, pods: int, limit_s: float, found: Wave
) -> None:
    """Goes on where the API server ends a watch, as it does with one that it finds slow."""
    reached, seen = (_bound, found.bindings) if path == load.PODS else (_allocated, found.allocations)
    while (left_s := found.began + limit_s - time.monotonic()) > 0:
        query = f"watch=true&resourceVersion={version}&labelSelector=wave%3D{name}&timeoutSeconds={left_s + 1:.0f}"
        for event in client.lines(f"{path}?{query}", left_s + 60):
            one = event["object"]
            if event["type"] == "ERROR":
                raise RuntimeError(f"the watch of {path} ends: {one}")
            version = one["metadata"]["resourceVersion"]
            if reached(one):
                seen.setdefault(one["metadata"]["name"], time.monotonic())
            if len(seen) == pods:
                return


def _bound(pod: dict[str, Any]) -> bool:
    return bool(pod.get("spec", {}).get("nodeName"))


def _allocated(claim: dict[str, Any]) -> bool:
    return bool(claim.get("status", {}).get("allocation"))


_WATCHED: tuple[str, ...] = (load.PODS, load.CLAIMS)
