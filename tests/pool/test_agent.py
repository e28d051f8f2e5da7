"""The agent as a process, over its real door: lending, ending, crashing, and what it refuses. Needs root."""

import signal
from pathlib import Path

import pytest

from api import lease
from api.protos import pool_v1alpha1_pb2 as wire
from tests.fakes.lender import Lender, an_attach, state
from tests.pool.borrowing import (
    LOST,
    OWNER,
    RELEASED,
    RELEASING,
    client,
    detaching,
    lent,
    no_way_in,
    ref,
    refused,
    trusted,
)


async def test_a_card_is_lent_reached_through_the_door_and_given_back(tmp_path: Path) -> None:
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        cards = await api.ListDevices(wire.ListDevicesRequest(page_size=1))
        assert [card.device_id for card in cards.devices] == ["gpu-0"]
        following = await api.ListDevices(wire.ListDevicesRequest(page_size=1, page_token=cards.next_page_token))
        assert [card.device_id for card in following.devices] == ["gpu-1"]
        made = await lent(api)
        assert (made.endpoint.port, made.endpoint.protocol, made.endpoint.auth_modes) == (pool.port, "fake", ["mtls"])
        async with client(pool, await trusted(pool, node, made)) as ask:
            told = await ask(say="hello")
            assert (told["said"], told["card"], told["uid"]) == ("hello", "GPU-0", 64000)
            assert (await ask(multiply=[[[1, 2]], [[3], [4]]]))["product"] == [[11]]
        await api.Detach(detaching(made))
        over = await state(api, made, RELEASED)
        assert over.reason == "detached"
        again = await lent(api, "k2")
        assert again.fencing_token > made.fencing_token


async def test_row_19_a_session_ends_with_its_lease_and_its_certificate_is_worth_nothing_after(tmp_path: Path) -> None:
    """A fenced node that comes back computes no more."""
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        context = await trusted(pool, node, made)
        async with client(pool, context) as ask:
            await ask(say=1)
            fence = wire.FenceRequest(
                owner=OWNER, device=wire.DeviceFence(device_id="gpu-0", up_to_token=made.fencing_token)
            )
            (ending,) = (await api.Fence(fence)).leases
            assert ending.state == RELEASING
            with pytest.raises((EOFError, OSError)):
                await ask(say=2)
        await state(api, made, RELEASED)
        second = await lent(api, "k2")
        await no_way_in(pool, context)
        async with client(pool, await trusted(pool, node, second)) as ask:
            assert (await ask(say=3))["said"] == 3


async def test_row_12(tmp_path: Path) -> None:
    """The server dies while its pod runs: the lease is lost, and stays so."""
    async with Lender(tmp_path) as pool, pool.controller() as api, pool.node("n1") as node:
        made = await lent(api)
        context = await trusted(pool, node, made)
        async with client(pool, context) as ask:
            with pytest.raises((EOFError, OSError)):
                await ask(die=9)
        lost = await state(api, made, LOST)
        assert lost.reason == "the server ended with status 9"
        assert not lost.HasField("endpoint")
        await no_way_in(pool, context)
        (renewal,) = (await node.RenewLeases(wire.RenewLeasesRequest(leases=[ref(made)]))).renewals
        assert (renewal.renewed, renewal.lease.state) == (False, LOST)
        assert (await api.Attach(an_attach())).state == LOST


async def test_row_13(tmp_path: Path) -> None:
    """The host restarts: another incarnation, and the old certificate leads nowhere."""
    async with Lender(tmp_path) as pool:
        async with pool.controller() as api, pool.node("n1") as node:
            before = await api.GetPoolInfo(wire.GetPoolInfoRequest())
            made = await lent(api)
            context = await trusted(pool, node, made)
        await pool.stop(signal.SIGKILL)
        await pool.start()
        async with pool.controller() as api:
            after = await api.GetPoolInfo(wire.GetPoolInfoRequest())
            assert after.incarnation > before.incarnation
            lost = await api.GetLease(ref(made))
            assert (lost.state, lost.fencing_token) == (LOST, made.fencing_token)
            await no_way_in(pool, context)
            with refused(lease.Kind.HELD):
                await api.Attach(an_attach("k2"))
            await api.Detach(detaching(made))
            await state(api, made, RELEASED)
            assert (await lent(api, "k2")).fencing_token > made.fencing_token
