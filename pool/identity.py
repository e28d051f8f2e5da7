"""Which node calls: its pod's ServiceAccount token, put before the cluster's API server (TokenReview).

    token -> TokenReview (audience: this pool) -> account, node -> Caller, kept for a while by the token's own digest

What must stay true: a token that is not for this pool, not of the driver's account or not bound to a pod on a node is
nobody's; what was found for one token serves no other; a token never gets into a log or an error.
"""

import asyncio
import hashlib
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api import errors, lease

_KEEP_S = 60.0
"""A pod that is gone may be believed so long."""
_LIMIT_S = 5.0
_MOST = 4096
_EXTRA = "authentication.kubernetes.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An API server that reviews tokens. `account`: namespace:name of the node driver's ServiceAccount."""

    url: str
    ca_file: Path
    token_file: Path
    account: str
    uid: str = ""


class Unknown(errors.Invalid):
    """Nobody that this pool knows."""


class Identity:
    """`seconds`: a clock that only goes on."""

    def __init__(self, cluster: Cluster | None, pool_id: str, seconds: Callable[[], float]) -> None:
        self._cluster = cluster
        self._pool_id = pool_id
        self._seconds = seconds
        self._found: dict[bytes, tuple[float, lease.Caller]] = {}

    async def node(self, token: str) -> lease.Caller:
        """Raises Unknown, or Unavailable where the API server does not answer."""
        if self._cluster is None:
            raise Unknown("this pool knows no cluster that could say which node calls; set EGPU_REVIEW_URL")
        if not token:
            raise Unknown("a client certificate, or a ServiceAccount token as `authorization: Bearer`, is needed")
        name, now = hashlib.sha256(token.encode()).digest(), self._seconds()
        if (known := self._found.get(name)) is not None and now < known[0]:
            return known[1]
        caller = await self._review(self._cluster, token)
        if len(self._found) >= _MOST:
            self._found = {key: entry for key, entry in self._found.items() if now < entry[0]}
        if len(self._found) < _MOST:
            self._found[name] = (now + _KEEP_S, caller)
        return caller

    async def _review(self, cluster: Cluster, token: str) -> lease.Caller:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._pool_id]},
        }
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = (await asyncio.to_thread(_ask, cluster, "POST", path, review)).get("status") or {}
        return judged(status, cluster, self._pool_id, cluster.uid or await self._uid(cluster))

    async def _uid(self, cluster: Cluster) -> str:
        namespace = await asyncio.to_thread(_ask, cluster, "GET", "/api/v1/namespaces/kube-system", None)
        return str(namespace["metadata"]["uid"])


def judged(status: dict[str, Any], cluster: Cluster, pool_id: str, uid: str) -> lease.Caller:
    """Who a reviewed token is. Raises Unknown."""
    if not status.get("authenticated"):
        raise Unknown("the cluster does not know the token, or it has run out")
    if pool_id not in (status.get("audiences") or ()):
        raise Unknown(f"the token is not made out to this pool, {pool_id!r}")
    user = status.get("user") or {}
    if user.get("username") != f"system:serviceaccount:{cluster.account}":
        raise Unknown(f"the token is of {user.get('username')!r}, not of the node driver's account {cluster.account}")
    extra = user.get("extra") or {}
    name, node_uid = (next(iter(extra.get(_EXTRA + key) or ()), "") for key in ("node-name", "node-uid"))
    if not name or not node_uid:
        raise Unknown("the token is bound to no pod on a node")
    return lease.Caller(cluster=uid, node_name=name, node_uid=node_uid)


def _ask(cluster: Cluster, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    target = urllib.parse.urlsplit(cluster.url)
    try:
        trust = ssl.create_default_context(cafile=str(cluster.ca_file))
        own = cluster.token_file.read_text().strip()
        line = http.client.HTTPSConnection(target.hostname or "", target.port or 443, timeout=_LIMIT_S, context=trust)
        try:
            headers = {"Authorization": f"Bearer {own}", "Content-Type": "application/json"}
            line.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = line.getresponse()
            text = answer.read()
        finally:
            line.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise errors.Unavailable(
                f"{method} {path} at {cluster.url}: status {answer.status}; the pool's account needs "
                "`create tokenreviews` and `get` of the namespace kube-system"
            )
        told = json.loads(text)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise errors.Unavailable(f"{cluster.url} does not say which node calls: {error}") from error
    if not isinstance(told, dict):
        raise errors.Unavailable(f"{cluster.url} answers no object")
    return told
