"""The claim behind a ClaimRef: read, checked, parsed.

The kubelet names a claim by namespace, name and UID; the API server knows what it holds. A claim of the same name with
another UID is another claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api import errors, resource
from kube import apiserver
from kubeletplugin import contract

_API = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`statuses`: the claim's `status.devices` as stored, entries of all drivers."""

    claim: resource.Claim
    statuses: tuple[Mapping[str, Any], ...]


class Claims:
    def __init__(self, api: apiserver.APIServer) -> None:
        self._api = api

    async def get(self, ref: contract.ClaimRef) -> Found:
        """The allocated claim.

        Raises Invalid where it is gone or replaced, NotReady while it is not allocated.
        """
        data = await self._api.get(_path(ref))
        if data is None:
            raise errors.Invalid(f"claim {ref} (uid {ref.uid}) does not exist any more; its pod has to be made anew")
        uid = data["metadata"]["uid"]
        if uid != ref.uid:
            raise errors.Invalid(
                f"claim {ref} was replaced: asked for uid {ref.uid}, the API server has {uid}; "
                "the kubelet has to release the old claim first"
            )
        return _found(data)

    async def held(self, ref: contract.ClaimRef) -> Found | None:
        """A claim that we hold; None where the API server says for certain that no claim of this UID exists.

        Raises NotReady where it proves nothing. A missing claim counts only on a server that serves this version at all:
        else every claim would be gone at once. Slices are asked for, since a node's account may list those and need not
        list claims.
        """
        data = await self._api.get(_path(ref))
        if data is not None:
            return _found(data) if data["metadata"]["uid"] == ref.uid else None
        if await self._api.get(f"{_API}/resourceslices", limit=1) is None:
            raise errors.NotReady(f"{_API} is not served there (now): whether claim {ref} exists is unknown")
        return None


def _found(data: dict[str, Any]) -> Found:
    statuses = (data.get("status") or {}).get("devices") or ()
    return Found(claim=resource.claim(data), statuses=tuple(statuses))


def _path(ref: contract.ClaimRef) -> str:
    return f"{_API}/namespaces/{ref.namespace}/resourceclaims/{ref.name}"
