"""How fast the pool's agent lends: python -m hack.lending. The real process, its real door, cards from a file, profile fake.

one after another   Attach, the answer (synced to disk), ATTACHED (the server listens), Detach, RELEASED
all at once         as many leases as there are cards
renewals            1,000 in one call, as a controller or a node sends them each minute: processor time of the agent
"""

import asyncio
import datetime
import functools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import grpc

from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from pool import credentials

ROOT = Path(__file__).resolve().parents[1]
CARDS, ROUNDS, CALLS, REFS = 100, 50, 30, 1000
OWNER = wire.Owner(cluster_uid="bench", controller_epoch=1)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent, port = await _started(Path(folder))
        try:
            authority = credentials.Authority.load(
                Path(folder) / "state", functools.partial(datetime.datetime.now, datetime.UTC)
            )
            certificate, key = authority.for_controller("bench")
            trust = grpc.ssl_channel_credentials(authority.pem, key, certificate)
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trust) as channel:
                api = stubs.PoolStub(channel)  # type: ignore[no-untyped-call]
                await _one_by_one(api)
                await _renewals(api, await _at_once(api), agent.pid)
        finally:
            agent.send_signal(signal.SIGTERM)
            await agent.wait()


async def _started(folder: Path) -> tuple[asyncio.subprocess.Process, int]:
    cards = [{"uuid": f"GPU-{number}"} for number in range(CARDS)]
    (folder / "cards").write_text(json.dumps({"cards": cards}))
    environment = {
        "PATH": os.environ["PATH"],
        "EGPU_PROFILES": "fake",
        "EGPU_CARDS_FILE": str(folder / "cards"),
        "EGPU_STATE_DIR": str(folder / "state"),
        "EGPU_LISTEN": "127.0.0.1:0",
        "EGPU_ADVERTISE": "127.0.0.1",
        "EGPU_METRICS_PORT": "0",
    }
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pool"), cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE, limit=2**20
    )
    assert agent.stderr is not None
    while line := await agent.stderr.readline():
        if b'"event": "started"' in line:
            asyncio.create_task(_drained(agent.stderr), name="log")  # noqa: RUF006  it ends with the agent
            return agent, int(json.loads(line)["port"])
    raise RuntimeError("the agent did not start; it needs root")


async def _drained(log: asyncio.StreamReader) -> None:
    while await log.read(2**16):
        pass


async def _one_by_one(api: stubs.PoolStub) -> None:
    answers, ready, over = [], [], []
    for number in range(ROUNDS):
        began = time.perf_counter()
        made = await api.Attach(_attach(f"one-{number}", 0))
        answers.append(time.perf_counter() - began)
        await _reached(api, made, wire.ATTACHED)
        ready.append(time.perf_counter() - began)
        began = time.perf_counter()
        await api.Detach(wire.DetachRequest(lease_id=made.lease_id, fencing_token=made.fencing_token, owner=OWNER))
        await _reached(api, made, wire.RELEASED)
        over.append(time.perf_counter() - began)
    for name, times in (("Attach answered", answers), ("attached", ready), ("Detach to released", over)):
        p95 = sorted(times)[int(len(times) * 0.95)]
        print(f"{name:20} p50 {statistics.median(times) * 1000:6.1f} ms   p95 {p95 * 1000:6.1f} ms   of {len(times)}")


async def _at_once(api: stubs.PoolStub) -> list[wire.Lease]:
    began = time.perf_counter()
    made = await asyncio.gather(*(api.Attach(_attach(f"all-{number}", number)) for number in range(CARDS)))
    answered = time.perf_counter() - began
    for each in made:
        await _reached(api, each, wire.ATTACHED)
    print(f"{CARDS} attaches at once   answered {answered:.2f} s   attached {time.perf_counter() - began:.2f} s")
    return list(made)


async def _renewals(api: stubs.PoolStub, held: list[wire.Lease], pid: int) -> None:
    refs = [wire.LeaseRef(lease_id=one.lease_id, fencing_token=one.fencing_token) for one in held] * (REFS // len(held))
    request = wire.RenewLeasesRequest(leases=refs, owner=OWNER)
    before = _seconds(pid)
    for _ in range(CALLS):
        answer = await api.RenewLeases(request)
        assert all(one.renewed for one in answer.renewals)
    each = (_seconds(pid) - before) / CALLS
    print(f"{len(refs)} renewals in a call   {each * 1000:.0f} ms of a core; once a minute: {each / 60:.2%} of a core")
    print(f"resident with {len(held)} leases   {_resident_mib(pid)} MiB")


async def _reached(api: stubs.PoolStub, made: wire.Lease, state: int) -> None:
    stream = api.WatchLeases(wire.WatchRequest(after_revision=made.created_revision - 1))
    async for event in stream:
        if event.lease.lease_id == made.lease_id and event.lease.state == state:
            break
    stream.cancel()


def _attach(key: str, card: int) -> wire.AttachRequest:
    who = wire.Consumer(namespace="ns", claim_name=key, claim_uid=f"uid-{key}", node_name="n", node_uid="n-uid")
    return wire.AttachRequest(idempotency_key=key, device_id=f"gpu-{card}", owner=OWNER, consumer=who)


def _resident_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asyncio.run(main())
