"""Writes allocations, and finds out what became of one whose write had no answer.

    claim as it was seen --> finalizer, then allocation with the pod that uses it --> API server
    claim of an unknown outcome --> read anew; what is not allocated is fenced --> no write on its way can be stored any more

What must stay true: each write carries uid and resourceVersion; the finalizer is first, since without it nobody would free the claim.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from api import errors, names, resource
from controller import allotment, mirror
from kube import apiserver, informer


class Granter:
    """`claims`: where own writes are taken in; `nodes`: by name, those that are there now."""

    def __init__(
        self,
        api: apiserver.APIServer,
        claims: informer.Informer[Any],
        nodes: Mapping[str, Any],
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._api, self._claims, self._nodes, self._clock = api, claims, nodes, clock

    async def write(self, claim: mirror.Claim, allocation: dict[str, Any], chosen: allotment.Allotment) -> None:
        """The pod is written down as the claim's user, which saves kube-scheduler a write, and frees the cards with the pod."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        version = claim.version
        if mirror.FINALIZER not in claim.finalizers:
            meta: dict[str, Any] = {"uid": claim.uid, "resourceVersion": version}
            body: dict[str, Any] = {"metadata": meta | {"finalizers": [*claim.finalizers, mirror.FINALIZER]}}
            held = await self._api.patch(path, body, fieldManager=names.FIELD_MANAGER)
            if held is None:
                raise errors.Conflict(f"claim {claim} was deleted while it was being allocated")
            version = held["metadata"]["resourceVersion"]
        if chosen.node not in self._nodes:
            raise errors.Conflict(f"node {chosen.node} went while its cards were being given to claim {claim}")
        told: dict[str, Any] = {"allocation": allocation | {"allocationTimestamp": resource.timestamp(self._clock())}}
        if (pod := chosen.want.pod) is not None:
            told["reservedFor"] = [{"resource": "pods", "name": pod.name, "uid": pod.uid}]
        body = {"metadata": {"uid": claim.uid, "resourceVersion": version}, "status": told}
        stored = await self._api.patch(f"{path}/status", body, fieldManager=names.FIELD_MANAGER)
        if stored is None:
            raise errors.Conflict(f"claim {claim} was deleted while it was being allocated")
        self._claims.adopt(stored)

    async def find_out(self, claim: mirror.Claim) -> None:
        """Raises what keeps the outcome unknown."""
        place = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims"
        page = await self._api.list_page(place, fieldSelector=f"metadata.name={claim.name}")
        for item in page.items:
            self._claims.adopt(await self._fenced(f"{place}/{claim.name}", msgspec.json.decode(item)))

    async def _fenced(self, path: str, found: dict[str, Any]) -> dict[str, Any]:
        """A write that nobody has answered may be stored later yet, as long as the claim is what it was sent for: so what
        is not allocated gets another resourceVersion, by giving back its finalizer, before its cards count as free.
        """
        meta = found["metadata"]
        kept = [name for name in meta.get("finalizers") or () if name != mirror.FINALIZER]
        if (found.get("status") or {}).get("allocation") or len(kept) == len(meta.get("finalizers") or ()):
            return found
        seen = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        stored = await self._api.patch(
            path, {"metadata": seen | {"finalizers": kept}}, fieldManager=names.FIELD_MANAGER
        )
        return stored or found
