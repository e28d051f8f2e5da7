"""The API server's objects as the node needs them: pools, its own identity, tokens for pools, and RemoteLeases.

Only what this node may do: RemoteLeases of its own, tokens of its own account, bound to its own pod.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from api import errors, names, resource
from api import remote as kinds
from driver.remote import records
from kube import apiserver

_POOLS = f"/apis/{names.API_VERSION}/{kinds.POOL_PLURAL}"
_LEASES = f"/apis/{names.API_VERSION}/{kinds.LEASE_PLURAL}"
_TOKEN_LIVES_S = 600
_ASK_AGAIN = 0.7
"""The part of a token's life after which another one is asked for."""
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The pod that this process runs in."""

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What keys of this node are made of."""

    cluster_uid: str
    node_name: str
    node_uid: str


class RemoteLeases:
    """The door to them. `now` is the time as the API writes it."""

    def __init__(self, api: apiserver.APIServer, node_name: str, account: Account, now: Callable[[], str]) -> None:
        self._api, self._node_name, self._account, self._now = api, node_name, account, now
        self._identity: Identity | None = None
        self._tokens: dict[str, tuple[str, float]] = {}

    async def identity(self) -> Identity:
        """Read once. Raises NotReady while it cannot be known."""
        if self._identity is None:
            node = await self._api.get(f"/api/v1/nodes/{self._node_name}")
            cluster = await self._api.get("/api/v1/namespaces/kube-system")
            if node is None or cluster is None:
                raise errors.NotReady(f"node {self._node_name} or namespace kube-system cannot be read yet")
            self._identity = Identity(
                cluster_uid=cluster["metadata"]["uid"],
                node_name=self._node_name,
                node_uid=node["metadata"]["uid"],
            )
        return self._identity

    async def pool(self, name: str) -> kinds.PoolSpec:
        data = await self._api.get(f"{_POOLS}/{name}")
        if data is None:
            raise errors.NotReady(f"RemotePool {name} does not exist (any more): nobody knows where its cards are")
        return kinds.decode_pool(data, f"pool {name}")

    async def token(self, audience: str) -> str:
        """Bound to this pod, so that it ends with it and names the node."""
        now = asyncio.get_running_loop().time()
        kept, until = self._tokens.get(audience, ("", 0.0))
        if kept and now < until:
            return kept
        account = self._account
        bound = {"apiVersion": "v1", "kind": "Pod", "name": account.pod_name, "uid": account.pod_uid}
        spec = {"audiences": [audience], "expirationSeconds": _TOKEN_LIVES_S, "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.service_account}/token"
        head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        made = await self._api.create(path, head | {"metadata": {}, "spec": spec})
        token = str(made["status"]["token"])
        self._tokens[audience] = token, now + _TOKEN_LIVES_S * _ASK_AGAIN
        return token

    async def intend(self, claim: resource.Claim, holding: records.Holding) -> kinds.LeaseSpec:
        """Writes the RemoteLease of a card that we attach ourselves; one that is there already is ours."""
        me = await self.identity()
        spec = kinds.LeaseSpec(
            pool=holding.pool,
            device=holding.device,
            key=holding.key,
            epoch=holding.epoch,
            share_id=holding.share_id,
            protocol=holding.protocol,
            claim=kinds.LeaseClaim(namespace=claim.namespace, name=claim.name, uid=claim.uid),
            node=kinds.LeaseNode(name=me.node_name, uid=me.node_uid),
            attached_by=kinds.AttachedBy.NODE,
        )
        status = kinds.LeaseStatus(phase=kinds.Phase.ATTACHING, since=self._now())
        try:
            await self._api.create(_LEASES, kinds.encode_lease(kinds.RemoteLease(spec=spec, status=status)))
        except errors.Conflict:
            return spec
        return spec

    async def move(self, holding: records.Holding, phase: kinds.Phase, reason: str = "") -> None:
        """What is gone needs no phase. Raises what the API server says: nothing is taken for written that is not."""
        status = kinds.LeaseStatus(phase=phase, since=self._now(), reason=reason)
        told = msgspec.to_builtins(status) | ({"reason": reason} if reason else {"reason": None})
        if holding.lease_id:
            told |= {"leaseId": holding.lease_id, "fencingToken": holding.token}
        await self._api.patch(f"{_LEASES}/{kinds.lease_name(holding.key)}", {"status": told})

    async def used_by_others(self, record: records.Record) -> bool:
        """Whether a pod of this node that is not about to end still has the claim (KK PR#140212)."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{record.namespace}/resourceclaims/{record.name}"
        found = await self._api.get(path)
        if found is None or found["metadata"]["uid"] != record.uid:
            return False
        users = [
            user for user in (found.get("status") or {}).get("reservedFor") or () if user.get("resource") == "pods"
        ]
        if len(users) < 2:  # noqa: PLR2004  one is the pod that ends
            return False
        for user in users:
            pod = await self._api.get(f"/api/v1/namespaces/{record.namespace}/pods/{user['name']}")
            if pod is not None and pod["metadata"]["uid"] == user["uid"] and self._lives_here(pod):
                return True
        return False

    def _lives_here(self, pod: dict[str, dict[str, object]]) -> bool:
        ending = "deletionTimestamp" in pod["metadata"] or (pod.get("status") or {}).get("phase") in _ENDED
        return not ending and pod["spec"].get("nodeName") == self._node_name
