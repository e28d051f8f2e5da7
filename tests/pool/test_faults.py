"""What goes wrong around the agent, for real: callers that are not who they say, crashes, disks, cards. Needs root."""

import asyncio
import contextlib
import datetime
import json
import os
import resource
import signal
import ssl
from pathlib import Path

import grpc
import pytest

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire
from api.protos import pool_v1alpha1_pb2_grpc as stubs
from pool import credentials, servers
from tests.fakes import lender, secrets
from tests.fakes.cards import FakeCards
from tests.fakes.lender import Lender, an_attach, state
from tests.pool.borrowing import (
    ATTACHED,
    ATTACHING,
    FAILED,
    LOST,
    OWNER,
    RELEASED,
    RELEASING,
    a_key,
    client,
    detaching,
    launcher,
    lent,
    ref,
    refused,
    status,
    trusted,
)

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def issue(made: wire.Lease) -> wire.IssueCredentialRequest:
    return wire.IssueCredentialRequest(lease_id=made.lease_id, fencing_token=made.fencing_token, csr=a_key()[1])


def info(api: stubs.PoolStub) -> grpc.aio.UnaryUnaryCall:
    return api.GetPoolInfo(wire.GetPoolInfoRequest(), timeout=60)


async def live(api: stubs.PoolStub) -> list[wire.Lease]:
    return list((await api.ListLeases(wire.ListLeasesRequest())).leases)


async def test_callers_without_a_name_are_turned_away(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool:
        async with pool.channel() as channel:
            with status(UNAUTHENTICATED):
                await info(stubs.PoolStub(channel))
        for token in ("nonsense", "node|", "node|n1|another-pool", "node|n1||default:default"):
            async with pool.node("", token) as api:
                with status(UNAUTHENTICATED):
                    await info(api)
        async with pool.node("n1") as api:
            assert (await info(api)).pool_id == "pool-1"


async def test_certificates_of_others_and_expired_ones_do_not_get_in(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool:
        stranger = credentials.Authority.load(tmp_path / "stranger", lender.now)
        long_ago = lambda: lender.now() - datetime.timedelta(days=366)  # noqa: E731
        old = credentials.Authority.load(pool.state, long_ago)
        for authority in (stranger, old):
            certificate, key = authority.for_controller(lender.CLUSTER)
            async with pool.channel(certificate, key) as channel:
                with status(grpc.StatusCode.UNAVAILABLE):
                    await stubs.PoolStub(channel).GetPoolInfo(wire.GetPoolInfoRequest(), timeout=60)
        async with pool.controller() as api:
            assert (await info(api)).pool_id == "pool-1"


async def test_row_32_a_client_whose_clock_is_an_hour_behind_takes_the_door_for_valid(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", pool.port, ssl=ssl.create_default_context(cadata=(pool.state / "ca.pem").read_text())
        )
        shown = writer.get_extra_info("peercert")
        begins = ssl.cert_time_to_seconds(shown["notBefore"])
        assert begins < lender.now().timestamp() - 3600
        writer.close()
        del reader


async def test_a_node_touches_nothing_of_another_node(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n2") as other:
        made = await lent(api)
        for call in (
            other.GetLease(ref(made)),
            other.IssueCredential(issue(made)),
            other.Detach(detaching(made)),
            other.Attach(an_attach("k2", "gpu-1")),
            other.Fence(wire.FenceRequest(device=wire.DeviceFence(device_id="gpu-0", up_to_token=made.fencing_token))),
        ):
            with refused(lease.Kind.FORBIDDEN):
                await call
        assert await live(other) == []
        (renewal,) = (await other.RenewLeases(wire.RenewLeasesRequest(leases=[ref(made)]))).renewals
        assert not renewal.renewed
        assert not renewal.HasField("lease")


async def test_row_31_a_cluster_touches_nothing_of_another_cluster(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.controller("cluster-2") as other:
        made = await lent(api)
        with refused(lease.Kind.FORBIDDEN):
            await other.Attach(an_attach("k2", "gpu-1"))
        theirs = wire.Owner(cluster_uid="cluster-2", controller_epoch=1)
        with refused(lease.Kind.HELD) as told:
            await other.Attach(an_attach("k2", owner=theirs))
        assert not lender.refusal(told.value).HasField("holder")
        assert "ns/c" not in (told.value.details() or "")
        with refused(lease.Kind.FORBIDDEN):
            await other.Detach(
                wire.DetachRequest(lease_id=made.lease_id, fencing_token=made.fencing_token, owner=theirs)
            )


async def test_row_02(tmp_path: Path) -> None:
    """The answer to Attach is lost: the same key again is the same lease, and there is one."""
    async with Lender(tmp_path) as pool, pool.controller() as api:
        call = api.Attach(an_attach())
        await asyncio.sleep(0)
        call.cancel()
        made = await lent(api)
        assert [held.lease_id for held in await live(api)] == [made.lease_id]
        with refused(lease.Kind.REUSED):
            await api.Attach(an_attach(device="gpu-1"))


async def test_row_08(tmp_path: Path) -> None:
    """A deposed controller is not heard, also after the pool was restarted."""
    async with Lender(tmp_path) as pool:
        async with pool.controller() as api:
            await api.Attach(an_attach(owner=wire.Owner(cluster_uid=lender.CLUSTER, controller_epoch=5)))
            with refused(lease.Kind.DEPOSED):
                await api.Attach(an_attach("k2", "gpu-1"))
        await pool.stop(signal.SIGKILL)
        await pool.start()
        async with pool.controller() as api:
            with refused(lease.Kind.DEPOSED):
                await api.Attach(an_attach("k2", "gpu-1"))


async def test_row_17(tmp_path: Path) -> None:
    """A node dies: without renewals its lease ends by itself, and a fence ends it at once."""
    async with Lender(tmp_path) as pool, pool.controller() as api:
        made = await lent(api, ttl_ms=15_000)
        over = await state(api, made, RELEASED)
        assert over.reason == "nobody renewed it for 15 s"
        second = await lent(api, "k2")
        seen = (await info(api)).revision
        node = wire.NodeFence(node_name="n1", node_uid="n1-uid", up_to_revision=seen)
        await api.Fence(wire.FenceRequest(owner=OWNER, node=node))
        await state(api, second, RELEASED)


async def test_row_20(tmp_path: Path) -> None:
    """A card is allocated anew while its former lease lives: refused with the holder, who is detached, and then lent."""
    async with Lender(tmp_path) as pool, pool.controller() as api:
        old = await lent(api)
        with refused(lease.Kind.HELD) as told:
            await api.Attach(an_attach("k2"))
        holder = lender.refusal(told.value).holder
        assert (holder.lease_id, holder.consumer.claim_uid) == (old.lease_id, "uid-k1")
        await api.Detach(detaching(holder))
        await state(api, old, RELEASED)
        assert (await lent(api, "k2")).fencing_token > old.fencing_token


async def test_row_24(tmp_path: Path) -> None:
    """The same claim from a second node: refused, and the first one is named."""
    async with Lender(tmp_path) as pool, pool.node("n1") as first, pool.node("n2") as second:
        await first.Attach(an_attach(owner=wire.Owner(cluster_uid=lender.CLUSTER)))
        who = wire.Consumer(namespace="ns", claim_name="c", claim_uid="uid-k1", node_name="n2", node_uid="n2-uid")
        with pytest.raises(grpc.aio.AioRpcError, match="claim ns/c on node n1"):
            await second.Attach(an_attach("k2", consumer=who, owner=wire.Owner(cluster_uid=lender.CLUSTER)))


async def test_row_30(tmp_path: Path) -> None:
    """A card goes away under its lease: it stays listed, as removed, and the lease is lost."""
    async with Lender(tmp_path, EGPU_LOOK_S="1") as pool, pool.controller() as api:
        made = await lent(api)
        pool.set_cards("GPU-1")
        lost = await state(api, made, LOST)
        assert lost.reason == "it is no longer listed"
        cards = {card.device_id: card.state for card in (await api.ListDevices(wire.ListDevicesRequest())).devices}
        assert cards == {"gpu-0": wire.REMOVED, "gpu-1": wire.OFFERED}
        await api.Detach(detaching(made))
        await state(api, made, RELEASED)
        with refused(lease.Kind.WITHHELD):
            await api.Attach(an_attach("k2"))


async def test_a_card_that_is_drained_keeps_its_lease_and_gets_no_other(tmp_path: Path) -> None:
    async with Lender(tmp_path, EGPU_LOOK_S="1") as pool, pool.controller() as api:
        made = await lent(api)
        pool.set_cards("GPU-0", "GPU-1", draining=("GPU-0",))
        async for event in api.WatchDevices(wire.WatchRequest()):
            if event.device.state == wire.DRAINING:
                break
        assert (await api.GetLease(ref(made))).state == ATTACHED
        await api.Detach(detaching(made))
        await state(api, made, RELEASED)
        with refused(lease.Kind.WITHHELD):
            await api.Attach(an_attach("k2"))


def profile(tmp_path: Path, *command: str, **more: object) -> dict[str, str]:
    file = tmp_path / "profiles.yaml"
    file.write_text(json.dumps({"profiles": [{"protocol": "odd", "command": command, "port": 7000} | more]}))
    return {"EGPU_PROFILES": "odd", "EGPU_PROFILES_FILE": str(file)}


async def test_a_server_that_does_not_come_up_fails_its_lease_and_frees_the_card(tmp_path: Path) -> None:
    async with Lender(tmp_path, **profile(tmp_path, "/nowhere")) as pool, pool.controller() as api:
        failed = await state(api, await api.Attach(an_attach()), FAILED)
        assert "No such file" in failed.reason
        assert (await api.Attach(an_attach())).state == FAILED
        assert (await api.Attach(an_attach("k2"))).state == ATTACHING


@pytest.mark.parametrize("detached", [False, True])
async def test_a_card_whose_server_neither_came_up_nor_died_is_lent_to_nobody(tmp_path: Path, detached: bool) -> None:
    """The server's launcher is held as a hung driver would hold the server; the lease says so, and ends when that does."""
    odd = profile(tmp_path, "sleep", "3600", readyWithinS=10)
    async with Lender(tmp_path, **odd) as pool, pool.controller() as api:
        made = await api.Attach(an_attach())
        held = await launcher(pool.pid)
        os.kill(held, signal.SIGSTOP)
        try:
            if detached:
                await api.Detach(detaching(made))
            async for event in api.WatchLeases(wire.WatchRequest()):
                assert event.lease.state in {ATTACHING, RELEASING}
                if "the card is not free yet" in event.lease.reason:
                    assert "does not die" in event.lease.reason
                    break
            with refused(lease.Kind.HELD):
                await api.Attach(an_attach("k2"))
        finally:
            os.kill(held, signal.SIGCONT)
        await state(api, made, FAILED)


async def test_a_detach_while_the_server_starts_ends_it_on_the_way(tmp_path: Path) -> None:
    odd = profile(tmp_path, "sleep", "3600", readyWithinS=600)
    async with Lender(tmp_path, **odd) as pool, pool.controller() as api:
        made = await api.Attach(an_attach())
        await api.Detach(detaching(made))
        await state(api, made, FAILED)


@pytest.mark.parametrize("reached", [ATTACHING, ATTACHED, LOST, RELEASING, RELEASED])
async def test_a_crash_in_any_state_leaves_no_server_and_forgets_no_lease(tmp_path: Path, reached: int) -> None:
    """The agent is killed in each state of a lease; the cards are NVML's, so that one can be kept from coming clean."""
    cards = FakeCards(tmp_path / "nvml", count=1)
    device = "gpu-" + cards.uuids[0].lower().removeprefix("gpu-")
    odd = profile(tmp_path, "sleep", "3600", readyWithinS=600) if reached == ATTACHING else {}
    async with Lender(
        tmp_path, EGPU_NVML_LIBRARY=str(cards.library), EGPU_CARDS_FILE="", EGPU_LOOK_S="1", **odd
    ) as pool:
        async with pool.controller() as api, pool.node("n1") as node:
            made = await api.Attach(an_attach(device=device))
            if reached != ATTACHING:
                made = await state(api, made, ATTACHED)
            if reached == LOST:
                async with client(pool, await trusted(pool, node, made)) as ask:
                    with pytest.raises((EOFError, OSError)):
                        await ask(die=1)
            if reached in {RELEASING, RELEASED}:
                if reached == RELEASING:
                    cards.change(0, used=1024)
                await api.Detach(detaching(made))
            await state(api, made, reached)
        await pool.stop(signal.SIGKILL)
        await pool.start()
        async with pool.controller() as api:
            now = await api.GetLease(ref(made))
            assert now.fencing_token == made.fencing_token
            assert now.state == (LOST if reached == ATTACHED else reached)
            if reached != RELEASED:
                with refused(lease.Kind.HELD):
                    await api.Attach(an_attach("k2", device))
                cards.change(0, used=0)
                await api.Detach(detaching(made))
                await state(api, made, RELEASED, FAILED)
            assert await live(api) == []
            assert (await api.Attach(an_attach("k2", device))).fencing_token > made.fencing_token


async def test_a_card_is_not_free_while_something_is_on_it(tmp_path: Path) -> None:
    """llama.cpp PR#6829: memory that stays behind belongs to nobody's next claim."""
    cards = FakeCards(tmp_path / "nvml", count=1)
    device = "gpu-" + cards.uuids[0].lower().removeprefix("gpu-")
    async with (
        Lender(tmp_path, EGPU_NVML_LIBRARY=str(cards.library), EGPU_CARDS_FILE="") as pool,
        pool.controller() as api,
    ):
        made = await lent(api, device=device)
        cards.change(0, used=1024)
        await api.Detach(detaching(made))
        async for event in api.WatchLeases(wire.WatchRequest()):
            if "the card is not free yet" in event.lease.reason:
                assert "1024 MiB of the card are in use by no process" in event.lease.reason
                break
        with refused(lease.Kind.HELD):
            await api.Attach(an_attach("k2", device))
        cards.change(0, used=0)
        await state(api, made, RELEASED)


async def test_without_its_driver_an_agent_takes_no_card_for_clean_and_none_for_unknown(tmp_path: Path) -> None:
    cards = FakeCards(tmp_path / "nvml", count=1)
    device = "gpu-" + cards.uuids[0].lower().removeprefix("gpu-")
    hidden = cards.library.with_name("away")
    async with Lender(tmp_path, EGPU_NVML_LIBRARY=str(cards.library), EGPU_CARDS_FILE="", EGPU_LOOK_S="1") as pool:
        async with pool.controller() as api:
            made = await lent(api, device=device)
            cards.change(0, used=1024)
            await api.Detach(detaching(made))
        await pool.stop(signal.SIGKILL)
        cards.library.rename(hidden)
        await pool.start()
        async with pool.controller() as api:
            async for event in api.WatchLeases(wire.WatchRequest()):
                if "the cards cannot be listed" in event.lease.reason:
                    break
            with status(grpc.StatusCode.UNAVAILABLE):
                await api.Attach(an_attach("k2", device))
            hidden.rename(cards.library)
            cards.change(0, used=0)
            await state(api, made, RELEASED)


async def test_a_full_disk_refuses_changes_and_nothing_else(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api:
        made = await lent(api)
        size = (pool.state / "leases.journal").stat().st_size
        resource.prlimit(pool.pid, resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        with status(grpc.StatusCode.UNAVAILABLE):
            await api.Attach(an_attach("k2", "gpu-1"))
        with status(grpc.StatusCode.UNAVAILABLE):
            await api.Detach(detaching(made))
        assert [(held.lease_id, held.state) for held in await live(api)] == [(made.lease_id, ATTACHED)]
        (renewal,) = (await api.RenewLeases(wire.RenewLeasesRequest(leases=[ref(made)], owner=OWNER))).renewals
        assert renewal.renewed
        resource.prlimit(pool.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await api.Detach(detaching(made))
        await state(api, made, RELEASED)


async def test_a_second_agent_on_the_same_state_ends_with_the_reason(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool:
        (tmp_path / "second").mkdir()
        with pytest.raises(AssertionError, match="belongs to another agent that works"):
            async with Lender(tmp_path / "second", EGPU_STATE_DIR=str(pool.state)):
                pass
        async with pool.controller() as api:
            await lent(api)


async def test_noise_at_the_door_disturbs_nobody(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api:
        silent, open_ = await asyncio.open_connection("127.0.0.1", pool.port)
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 4000):
            _, writer = await asyncio.open_connection("127.0.0.1", pool.port)
            writer.write(noise)
            writer.close()
        trust = ssl.create_default_context(cadata=(pool.state / "ca.pem").read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", pool.port, ssl=trust)
        writer.write(b"not http/2\r\n" * 1000)
        assert (await reader.read(2**16))[:3] != b"PRI"
        writer.close()
        await lent(api)
        open_.close()
        del silent


async def test_callers_that_prove_nothing_keep_nobody_out(tmp_path: Path) -> None:
    """Many that never finish TLS, and many that do and never call: those of the address with most go, its oldest first."""
    async with Lender(tmp_path) as pool, pool.controller() as api, contextlib.AsyncExitStack() as stack:
        trust = ssl.create_default_context(cadata=(pool.state / "ca.pem").read_text())
        alone = await idle(stack, pool, "127.0.0.1", trust)
        for number, wanted in enumerate((None, trust)):
            crowd = [await idle(stack, pool, "127.0.0.2", wanted) for _ in range(300)]
            async with asyncio.timeout(60):
                await crowd[0].read()  # to its end
            assert number or not alone.at_eof()
            async with pool.node("n1") as node:
                made = await lent(api, f"k{number}", f"gpu-{number}")
                async with client(pool, await trusted(pool, node, made)) as ask:
                    assert (await ask(say=1))["said"] == 1


async def test_who_proves_nothing_is_cut_after_a_while_and_a_node_that_has_is_not(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.node("n1") as node, contextlib.AsyncExitStack() as stack:
        watched = node.WatchLeases(wire.WatchRequest())
        reading = asyncio.ensure_future(watched.read())
        stack.callback(reading.cancel)
        await info(node)
        trust = ssl.create_default_context(cadata=(pool.state / "ca.pem").read_text())
        async with asyncio.timeout(60):
            for silent in [await idle(stack, pool, "127.0.0.1", wanted) for wanted in (None, trust)]:
                await silent.read()
        assert not reading.done()


async def idle(
    stack: contextlib.AsyncExitStack, pool: Lender, host: str, trust: ssl.SSLContext | None
) -> asyncio.StreamReader:
    """A connection from that address that says nothing, until the stack ends."""
    name = "127.0.0.1" if trust else None
    reader, writer = await asyncio.open_connection(
        pool.address, pool.port, ssl=trust, server_hostname=name, local_addr=(host, 0)
    )
    stack.callback(writer.close)
    return reader


async def test_a_lease_has_256_connections_and_the_next_when_one_is_closed(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        context = await trusted(pool, node, await lent(api))
        async with contextlib.AsyncExitStack() as stack:
            for number in range(256):
                ask = await stack.enter_async_context(client(pool, context))
                assert (await ask(say=number))["said"] == number
            async with client(pool, context) as one_more:
                with pytest.raises((EOFError, OSError)):
                    await one_more(say=1)
            assert (await ask(say=1))["said"] == 1
        async with asyncio.timeout(60):
            while not await served(pool, context):  # noqa: ASYNC110  the pool learns of an end when the network tells it
                await asyncio.sleep(0.05)


async def served(pool: Lender, context: ssl.SSLContext) -> bool:
    with contextlib.suppress(EOFError, OSError):
        async with client(pool, context) as ask:
            return bool((await ask(say=2))["said"] == 2)
    return False


async def test_a_csr_cannot_name_another_lease(tmp_path: Path) -> None:
    """Only its public key counts; what is no CSR gets an answer that says so."""
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        for csr in (b"", b"garbage", a_key()[1].replace(b"MI", b"MJ")):
            request = wire.IssueCredentialRequest(lease_id=made.lease_id, fencing_token=made.fencing_token, csr=csr)
            with status(grpc.StatusCode.INVALID_ARGUMENT):
                await node.IssueCredential(request)
        with refused(lease.Kind.FORBIDDEN):
            await api.IssueCredential(issue(made))
        with refused(lease.Kind.STALE):
            await node.IssueCredential(wire.IssueCredentialRequest(lease_id=made.lease_id, fencing_token=1, csr=b""))


async def test_an_api_server_that_answers_nonsense_makes_nobody_a_node(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.node("n1") as api, pool.node("n2") as other:
        await info(api)
        asked = pool.reviewer.asked
        await info(api)
        assert pool.reviewer.asked == asked, "what was found for a token is kept"
        pool.reviewer.broken = True
        with status(UNAUTHENTICATED):
            await info(other)


async def test_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        async with client(pool, await trusted(pool, node, made)) as ask:
            variables = json.dumps(await ask(say=1))
        held = Path(f"/proc/{pool.pid}/environ").read_bytes().decode()
        files = [path for path in pool.state.rglob("*") if path.is_file() and path.name not in {"ca.key", "front.pem"}]
        texts = {str(path): path.read_text() for path in files} | {"env": held, "server": variables}
        texts["log"] = "".join(pool.said.lines)
        secrets.none_in(texts)
        for name in ("ca.key", "front.pem"):
            assert (pool.state / name).stat().st_mode & 0o77 == 0
        assert pool.state.stat().st_mode & 0o77 == 0


async def test_a_hundred_attaches_at_once_are_all_lent(tmp_path: Path) -> None:
    server = Path(servers.__file__).with_name("fakeserver.py")
    patient = profile(tmp_path, "python3", str(server), "7000", readyWithinS=250)
    async with Lender(tmp_path, cards=100, **patient) as pool, pool.controller() as api:
        made = await asyncio.gather(*(api.Attach(an_attach(f"k{n}", f"gpu-{n}")) for n in range(100)))
        for each in made:
            await state(api, each, ATTACHED)
        refs = [ref(each) for each in made]
        answer = await api.RenewLeases(wire.RenewLeasesRequest(leases=refs, owner=OWNER))
        assert all(renewal.renewed for renewal in answer.renewals)
