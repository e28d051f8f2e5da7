"""One leader at a time: takeover, restart, a black hole, a clock of another, a Lease that is not there yet."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from api import errors
from kube.apiserver import APIServer
from kube.election import Election
from tests.fakes.apiserver import FakeAPIServer

ROOT = Path(__file__).resolve().parents[2]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/egpu"


class Stage:
    """Work that says when it runs, and how many run at once."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.moved = asyncio.Event()

    def say(self, line: str) -> None:
        self.log.append(line)
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(60):
            while self.log[: len(lines)] != list(lines):
                await self.moved.wait()

    def work(self, name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.say(f"{name} starts")
            try:
                await asyncio.Event().wait()
            finally:
                self.say(f"{name} ends")

        return run


def candidate(api: APIServer, name: str) -> Election:
    return Election(api, "ns", "egpu", name, lease_s=14.0, renew_s=8.0, retry_s=0.2)


@contextlib.asynccontextmanager
async def leading(api: APIServer, stage: Stage, name: str) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(candidate(api, name).lead(stage.work(name)), name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_first_candidate_makes_the_lease_and_leads(api: APIServer, server: FakeAPIServer) -> None:
    stage = Stage()
    async with leading(api, stage, "a"):
        await stage.until("a starts")
        lease = server.get(LEASE)
        assert lease is not None
        assert lease["spec"]["holderIdentity"].startswith("a_")
        assert lease["spec"]["leaseDurationSeconds"] == 14


async def test_of_two_candidates_one_leads_and_the_other_follows_at_once_when_it_stops(
    api: APIServer, server: FakeAPIServer
) -> None:
    stage = Stage()
    async with leading(api, stage, "a") as first:
        await stage.until("a starts")
        async with leading(api, stage, "b"):
            await server.until(lambda: server.count("GET", "leases") >= 4)
            first.cancel()
            await stage.until("a starts", "a ends", "b starts")
            written = [request.body["spec"]["holderIdentity"] for request in server.requests if request.method == "PUT"]
            assert "" in written  # released, not waited out


async def test_two_at_once_make_one_leader(api: APIServer, server: FakeAPIServer) -> None:
    stage = Stage()
    async with leading(api, stage, "a"), leading(api, stage, "b"):
        await server.until(lambda: server.count("PUT", "leases") >= 4)
        assert len(stage.log) == 1


async def test_a_dead_leader_is_followed_after_the_lease_whatever_its_clock_said(
    api: APIServer, server: FakeAPIServer
) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2099-01-01T00:00:00.000000Z"}
    server.put(LEASE, {"spec": spec | {"leaseTransitions": 6}})
    stage = Stage()
    began = asyncio.get_running_loop().time()
    async with leading(api, stage, "a"):
        await stage.until("a starts")
        assert asyncio.get_running_loop().time() - began >= 1.0
        lease = server.get(LEASE)
        assert lease is not None
        assert lease["spec"]["leaseTransitions"] == 7


async def test_a_leader_that_renews_with_a_clock_far_behind_keeps_its_lease(
    api: APIServer, server: FakeAPIServer
) -> None:
    stage = Stage()
    async with leading(api, stage, "a"):
        for second in range(36):
            spec = {"holderIdentity": "old", "leaseDurationSeconds": 5, "renewTime": f"1999-01-01T00:00:{second:02}Z"}
            server.put(LEASE, {"spec": spec})
            await asyncio.sleep(0.2)
        assert not stage.log


async def test_work_has_ended_before_the_lease_can_expire_when_the_server_swallows_calls(
    api: APIServer, server: FakeAPIServer
) -> None:
    stage, loop = Stage(), asyncio.get_running_loop()
    async with leading(api, stage, "a"):
        await stage.until("a starts")
        renewed = loop.time()
        server.fault(black_hole=True, times=-1)
        await stage.until("a starts", "a ends")
        assert loop.time() - renewed < 14.0
        server.heal()
        await stage.until("a starts", "a ends", "a starts")


async def test_a_lease_taken_by_force_ends_the_work(api: APIServer, server: FakeAPIServer) -> None:
    stage = Stage()
    async with leading(api, stage, "a"):
        await stage.until("a starts")
        lease = server.get(LEASE)
        assert lease is not None
        server.put(LEASE, lease | {"spec": lease["spec"] | {"holderIdentity": "other"}})
        await stage.until("a starts", "a ends")
        assert server.get(LEASE)["spec"]["holderIdentity"] == "other"  # type: ignore[index]


async def test_a_renewal_whose_answer_is_lost_costs_nothing(api: APIServer, server: FakeAPIServer) -> None:
    stage = Stage()
    async with leading(api, stage, "a"):
        await stage.until("a starts")
        server.fault(method="PUT", lose_answer=True)
        await server.until(lambda: server.count("PUT") >= 5)
        assert stage.log == ["a starts"]


async def test_work_that_returns_or_fails_gives_the_lease_back(api: APIServer, server: FakeAPIServer) -> None:
    async def fails() -> None:
        raise errors.Invalid("no")

    with pytest.raises(errors.Invalid):
        await candidate(api, "a").lead(fails)
    assert server.get(LEASE)["spec"]["holderIdentity"] == ""  # type: ignore[index]


STUBBORN = """
import asyncio, pathlib, sys
from kube.apiserver import APIServer
from kube.election import Election

async def stubborn():
    print("works", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def main():
    async with APIServer.connect(pathlib.Path(sys.argv[1])) as api:
        await Election(api, "ns", "egpu", "a", lease_s=2.0, renew_s=1.0, retry_s=0.2).lead(stubborn)

asyncio.run(main())
"""


async def test_work_that_does_not_end_takes_its_process_down_before_the_lease_expires(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """The best of ten: half a second is left for it, which a machine that stalls may take for itself."""
    took = []
    while not took or (took[-1] >= 2.0 and len(took) < 10):
        took.append(await _stubborn(server, server.kubeconfig(tmp_path)))
        server.heal()
    assert took[-1] < 2.0, took


async def _stubborn(server: FakeAPIServer, kubeconfig: Path) -> float:
    """How long it lives when nothing is answered any more."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUBBORN, str(kubeconfig), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout
    try:
        while await program.stdout.readline() not in {b"works\n", b""}:
            pass
        began = asyncio.get_running_loop().time()
        server.fault(black_hole=True, times=-1)
        async with asyncio.timeout(60):
            await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.communicate()
    assert program.returncode == 70
    return asyncio.get_running_loop().time() - began


def test_times_that_leave_the_work_no_time_to_end_are_refused() -> None:
    with pytest.raises(errors.Invalid, match="renew 15"):
        Election(None, "ns", "n", "i", lease_s=15.0, renew_s=15.0)  # type: ignore[arg-type]
