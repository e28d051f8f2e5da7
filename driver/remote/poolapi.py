"""A pool's API as a node sees it: known to the pool by its ServiceAccount token, good for the leases of this node alone.

The messages of `poolclient` as values.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from api import lease
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from poolclient import connection

Token = Callable[[str], Awaitable[str]]
"""Gives the node's token for an audience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease of this node as its pool has it."""

    id: str
    token: int
    state: lease.State
    node: str
    reason: str = ""
    host: str = ""
    port: int = 0
    protocol: str = ""
    spki: str = ""
    profile: str = ""
    auth_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    certificate: bytes
    authorities: bytes
    lives_s: float


class PoolAPI:
    """One connection to one pool."""

    def __init__(self, name: str, spec: kinds.PoolSpec, cluster_uid: str, token: Token) -> None:
        self.name, self.spec = name, spec
        self._token = token
        self._pool = connection.Connection(name, spec, wire.Owner(cluster_uid=cluster_uid), self._proof)

    async def close(self) -> None:
        await self._pool.close()

    async def lease(self, key: str) -> Lease | None:
        """By its key; None where the pool has no such lease."""
        held = await self._pool.lease(key)
        return None if held is None else _lease(held)

    async def attach(self, spec: kinds.LeaseSpec, within_s: float) -> Lease:
        return _lease(await self._pool.attach(spec, within_s))

    async def detach(self, *, key: str, lease_id: str, token: int, reason: str) -> None:
        """What the pool does not know is over, and so is what is another's by now."""
        try:
            await self._pool.detach(key=key, lease_id=lease_id, token=token, reason=reason)
        except connection.Refused as error:
            if error.meaning is lease.Meaning.HELD:
                raise

    async def renew(self, refs: tuple[tuple[str, int], ...]) -> dict[str, str]:
        """Lease id -> why it is not prolonged; those that were are not in it."""
        answer = await self._pool.renew(refs)
        return {
            one.lease_id: one.reason or one.lease.reason or "the pool has ended the lease"
            for one in answer.renewals
            if not one.renewed
        }

    async def credential(self, lease_id: str, token: int, csr: bytes) -> Credential:
        ask = wire.IssueCredentialRequest(lease_id=lease_id, fencing_token=token, csr=csr)
        answer: wire.Credential = await self._pool.ask("IssueCredential", ask)
        lives_s = answer.expires_in_ms / 1000
        return Credential(certificate=answer.certificate, authorities=answer.authorities, lives_s=lives_s)

    async def _proof(self) -> connection.Proof:
        return connection.Proof(token=await self._token(kinds.pool_id(self.name, self.spec)))


def _lease(item: wire.Lease) -> Lease:
    end = item.endpoint
    return Lease(
        id=item.lease_id,
        token=item.fencing_token,
        state=connection.state(item),
        node=item.consumer.node_name,
        reason=item.reason,
        host=end.host,
        port=end.port,
        protocol=end.protocol,
        spki=end.server_spki_sha256,
        profile=end.client_profile,
        auth_modes=tuple(end.auth_modes),
    )
