"""etcd itself, by its HTTP door: objects put there are the API server's, which tells its watchers of each.

A write through the API server costs two cores a millisecond; a cluster of this size has more than a hundred thousand.
"""

import base64
import http.client
import json
from collections.abc import Iterable, Mapping
from typing import Any

_AT_ONCE = 100
"""etcd takes at most 128 operations in one transaction."""


class Etcd:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, key: str) -> bytes:
        """Raises where there is none: then the API server keeps its objects elsewhere than this program believes."""
        found = self._ask("range", {"key": _text(key.encode())}).get("kvs")
        if not found:
            raise RuntimeError(f"nothing at {key} in etcd; the API server's layout has changed")
        return base64.b64decode(found[0]["value"])

    def put(self, key: str, value: bytes) -> None:
        self._ask("put", {"key": _text(key.encode()), "value": _text(value)})

    def put_all(self, items: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Objects as JSON, many in one transaction."""
        operations = [
            {"requestPut": {"key": _text(key.encode()), "value": _text(json.dumps(value).encode())}}
            for key, value in items
        ]
        for start in range(0, len(operations), _AT_ONCE):
            self._ask("txn", {"success": operations[start : start + _AT_ONCE]})

    def close(self) -> None:
        self._connection.close()

    def _ask(self, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._connection.request("POST", f"/v3/kv/{what}", json.dumps(body), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"etcd refuses {what}: {response.status} {text.decode(errors='replace')[:300]}")
        found: dict[str, Any] = json.loads(text)
        return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
