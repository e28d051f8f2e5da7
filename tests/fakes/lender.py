"""The real pool agent as a process, with cards from a file, for whoever needs a pool that lends.

    async with Lender(tmp_path, cards=2) as pool:
        async with pool.controller() as api: await api.Attach(...)      a controller, by its certificate
        async with pool.node("n1") as api: await api.GetLease(...)      a node, by a token that the reviewer knows

`Reviewer` is the cluster's API server as far as tokens go. The agent needs root: it makes namespaces.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import http.server
import json
import os
import signal
import ssl
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import grpc

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from pool import credentials

ROOT = Path(__file__).parents[2]
CLUSTER = "cluster-1"
ACCOUNT = "elastic-gpu:elastic-gpu-remote"
now = functools.partial(datetime.datetime.now, datetime.UTC)


class Reviewer:
    """Knows tokens of the form `node:<name>[:<audience>[:<account>]]`; `broken` makes it answer nonsense."""

    def __init__(self, folder: Path) -> None:
        self.asked = 0
        self.broken = False
        authority = credentials.Authority.load(folder / "reviewer", now)
        context, _ = authority.front(["127.0.0.1"], folder / "reviewer")
        context.verify_mode = ssl.CERT_NONE
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({"metadata": {"uid": CLUSTER}})

            def do_POST(self) -> None:
                outer.asked += 1
                spec = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["spec"]
                assert self.headers["Authorization"] == "Bearer own-token"
                self._answer({"status": {} if outer.broken else _status(spec)})

            def _answer(self, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        (folder / "own-token").write_text("own-token\n")
        self.environment = {
            "EGPU_REVIEW_URL": f"https://127.0.0.1:{self._server.server_port}",
            "EGPU_REVIEW_CA_FILE": str(folder / "reviewer" / "ca.pem"),
            "EGPU_REVIEW_TOKEN_FILE": str(folder / "own-token"),
            "EGPU_NODE_ACCOUNT": ACCOUNT,
        }

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _status(spec: dict[str, Any]) -> dict[str, Any]:
    kind, name, audience, account = (*spec["token"].split("|"), "", "", "")[:4]
    if kind != "node":
        return {"authenticated": False}
    extra = {"node-name": [name], "node-uid": [f"{name}-uid"]} if name else {}
    return {
        "authenticated": True,
        "audiences": [audience or spec["audiences"][0]],
        "user": {
            "username": f"system:serviceaccount:{account or ACCOUNT}",
            "extra": {f"authentication.kubernetes.io/{key}": value for key, value in extra.items()},
        },
    }


@dataclasses.dataclass
class Said:
    """What the agent wrote, line by line."""

    lines: list[str] = dataclasses.field(default_factory=list)

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)


class Lender:
    """Starts, stops, kills and starts again on the same state. `environment` wins over what is set here."""

    def __init__(self, folder: Path, *, cards: int = 2, address: str = "127.0.0.1", **environment: str) -> None:
        self.folder = folder
        self.address = address
        self.state = folder / "state"
        self.cards_file = folder / "cards.yaml"
        self.set_cards(*(f"GPU-{index}" for index in range(cards)))
        self._environment = environment
        self.reviewer = Reviewer(folder)
        self.said = Said()
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    def set_cards(self, *uuids: str, draining: tuple[str, ...] = ()) -> None:
        cards = [
            {"uuid": uuid, "productName": "fake", "memory": 1 << 30, "draining": uuid in draining} for uuid in uuids
        ]
        self.cards_file.write_text(json.dumps({"cards": cards}))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await asyncio.to_thread(self.reviewer.close)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            await asyncio.to_thread(self.reviewer.close)

    async def start(self) -> None:
        """Returns when it serves. Raises AssertionError with what it said if it does not."""
        environment = {
            "PATH": os.environ["PATH"],
            "EGPU_POOL_ID": "pool-1",
            "EGPU_PROFILES": "fake",
            "EGPU_CARDS_FILE": str(self.cards_file),
            "EGPU_STATE_DIR": str(self.state),
            "EGPU_LISTEN": f"{self.address}:{self.port}",
            "EGPU_ADVERTISE": self.address,
            "EGPU_METRICS_PORT": "0",
            **self.reviewer.environment,
            **self._environment,
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pool"),
            cwd=ROOT,
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        assert self._process.stderr is not None
        while line := (await self._process.stderr.readline()).decode():
            self.said.lines.append(line)
            if '"event": "started"' in line:
                self.port = json.loads(line)["port"]
                self._reading = asyncio.create_task(self._read(), name="RequestHandler.start of the agent's log")
                return
        await self._process.wait()
        raise AssertionError("".join(self.said.lines[-20:]))

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.said.lines.append(line.decode())

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it, by SIGKILL for a crash."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.wait()
        if self._reading is not None:
            await self._reading
        self._process = self._reading = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def authority(self) -> credentials.Authority:
        return credentials.Authority.load(self.state, now)

    @contextlib.asynccontextmanager
    async def controller(self, cluster: str = CLUSTER) -> AsyncIterator[stubs.PoolStub]:
        certificate, key = self.authority().for_controller(cluster)
        async with self.channel(certificate, key) as channel:
            yield stubs.PoolStub(channel)

    @contextlib.asynccontextmanager
    async def node(self, name: str, token: str = "") -> AsyncIterator[stubs.PoolStub]:
        held = token or f"node|{name}"
        async with self.channel(token=held) as channel:
            yield stubs.PoolStub(channel)

    def channel(self, certificate: bytes | None = None, key: bytes | None = None, token: str = "") -> grpc.aio.Channel:
        trust = grpc.ssl_channel_credentials((self.state / "ca.pem").read_bytes(), key, certificate)
        if token:
            trust = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(token))
        return grpc.aio.secure_channel(f"{self.address}:{self.port}", trust)


def an_attach(key: str = "k1", device: str = "gpu-0", **difference: Any) -> wire.AttachRequest:
    fields: dict[str, Any] = {
        "idempotency_key": key,
        "device_id": device,
        "owner": wire.Owner(cluster_uid=CLUSTER, controller_epoch=1),
        "consumer": wire.Consumer(
            namespace="ns", claim_name="c", claim_uid=f"uid-{key}", node_name="n1", node_uid="n1-uid"
        ),
    }
    return wire.AttachRequest(**(fields | difference))


async def state(api: stubs.PoolStub, made: wire.Lease, *wanted: int) -> wire.Lease:
    """Waits until the lease is in one of these states, by the pool's own watch."""
    stream = api.WatchLeases(wire.WatchRequest(after_revision=max(made.created_revision - 1, 0)))
    try:
        async for event in stream:
            if event.lease.lease_id == made.lease_id and event.lease.state in wanted:
                return event.lease
    finally:
        stream.cancel()
    raise AssertionError("the pool ended its watch")


def refusal(error: grpc.aio.AioRpcError) -> wire.Refusal:
    for name, value in error.trailing_metadata() or ():
        if name == lease.REFUSAL_METADATA:
            return wire.Refusal.FromString(value)
    return wire.Refusal()
