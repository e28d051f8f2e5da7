"""What every Driver must do (kubeletplugin/contract.py), whatever its devices are.

class TestLamps(driver_suite.DriverSuite):
    @pytest.fixture
    async def subject(self, tmp_path): yield driver_suite.Subject(...)
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from api import errors, resource
from kubeletplugin import contract

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Subject:
    """One driver under test. `devices`: at least two free ones, by their names in `pool`.

    `restart` makes a new driver from what is on disk; `reboot` also empties the CDI directory first.
    `resolves` says whether a runtime would find this CDI id now.
    """

    driver: contract.Driver
    name: str
    pool: str
    devices: tuple[str, ...]
    restart: Callable[[], Awaitable[contract.Driver]]
    reboot: Callable[[], Awaitable[contract.Driver]]
    resolves: Callable[[str], bool]

    def claim(self, uid: str, *devices: str, others: tuple[resource.Result, ...] = ()) -> resource.Claim:
        ours = tuple(
            resource.Result(request=f"request-{number}", driver=self.name, pool=self.pool, device=device)
            for number, device in enumerate(devices)
        )
        return resource.Claim(
            uid=resource.ClaimUID(uid), namespace="default", name=f"claim-{uid}", results=(*others, *ours)
        )


def ref(claim: resource.Claim) -> contract.ClaimRef:
    return contract.ClaimRef(uid=claim.uid, namespace=claim.namespace, name=claim.name)


async def first(told: AsyncIterator[T]) -> T:
    """What is told at once; the iterator is closed where it can be."""
    try:
        return await anext(told)
    finally:
        if isinstance(told, AsyncGenerator):
            await told.aclose()


class DriverSuite:
    async def test_prepare_gives_the_devices_in_the_order_of_the_results(self, subject: Subject) -> None:
        first, second = subject.devices[:2]
        prepared = await subject.driver.prepare(subject.claim("a", second, first))
        assert [(one.device, one.pool, one.requests) for one in prepared] == [
            (second, subject.pool, ("request-0",)),
            (first, subject.pool, ("request-1",)),
        ]
        ids = [cdi_id for one in prepared for cdi_id in one.cdi_ids]
        assert len(ids) == len(set(ids))
        assert all(subject.resolves(cdi_id) for cdi_id in ids)

    async def test_prepare_again_gives_the_same_answer(self, subject: Subject) -> None:
        claim = subject.claim("a", subject.devices[0])
        assert await subject.driver.prepare(claim) == await subject.driver.prepare(claim)

    async def test_prepare_after_a_restart_gives_the_same_answer(self, subject: Subject) -> None:
        claim = subject.claim("a", subject.devices[0])
        before = await subject.driver.prepare(claim)
        assert await (await subject.restart()).prepare(claim) == before

    async def test_prepare_after_a_reboot_makes_the_cdi_devices_again(self, subject: Subject) -> None:
        """KK#141433: /var/run/cdi is empty, the records are not."""
        claim = subject.claim("a", subject.devices[0])
        await subject.driver.prepare(claim)
        prepared = await (await subject.reboot()).prepare(claim)
        assert all(subject.resolves(cdi_id) for one in prepared for cdi_id in one.cdi_ids)

    async def test_the_name_of_a_subrequest_is_left_out(self, subject: Subject) -> None:
        result = resource.Result(request="gpu/big", driver=subject.name, pool=subject.pool, device=subject.devices[0])
        prepared = await subject.driver.prepare(subject.claim("a", others=(result,)))
        assert [one.requests for one in prepared] == [("gpu",)]

    async def test_devices_of_other_drivers_are_ignored(self, subject: Subject) -> None:
        """NV PR#435."""
        foreign = resource.Result(request="nic", driver="nic.example.com", pool="p", device="eth0")
        prepared = await subject.driver.prepare(subject.claim("a", subject.devices[0], others=(foreign,)))
        assert [one.device for one in prepared] == [subject.devices[0]]

    async def test_a_device_held_by_another_claim_is_refused_and_the_holder_named(self, subject: Subject) -> None:
        device = subject.devices[0]
        await subject.driver.prepare(subject.claim("a", device))
        with pytest.raises(errors.Conflict, match="claim-a"):
            await subject.driver.prepare(subject.claim("b", device))
        await subject.driver.prepare(subject.claim("c", subject.devices[1]))

    async def test_a_refused_claim_holds_nothing(self, subject: Subject) -> None:
        first, second = subject.devices[:2]
        await subject.driver.prepare(subject.claim("a", first))
        with pytest.raises(errors.Conflict):
            await subject.driver.prepare(subject.claim("b", second, first))
        await subject.driver.prepare(subject.claim("c", second))

    async def test_a_late_unprepare_of_the_old_claim_leaves_the_new_one_alone(self, subject: Subject) -> None:
        """NV#641."""
        device = subject.devices[0]
        old, new = subject.claim("a", device), subject.claim("b", device)
        await subject.driver.prepare(old)
        await subject.driver.unprepare(ref(old))
        prepared = await subject.driver.prepare(new)
        await subject.driver.unprepare(ref(old))
        assert all(subject.resolves(cdi_id) for one in prepared for cdi_id in one.cdi_ids)
        with pytest.raises(errors.Conflict):
            await subject.driver.prepare(subject.claim("c", device))

    async def test_a_device_that_does_not_exist_is_refused_by_name(self, subject: Subject) -> None:
        with pytest.raises(errors.ElasticGPUError, match="no-such-device"):
            await subject.driver.prepare(subject.claim("a", "no-such-device"))
        assert await subject.driver.prepared() == ()

    async def test_unprepare_frees_the_device_and_removes_the_cdi_device(self, subject: Subject) -> None:
        claim = subject.claim("a", subject.devices[0])
        prepared = await subject.driver.prepare(claim)
        await subject.driver.unprepare(ref(claim))
        assert not any(subject.resolves(cdi_id) for one in prepared for cdi_id in one.cdi_ids)
        await subject.driver.prepare(subject.claim("b", subject.devices[0]))

    async def test_unprepare_twice_or_of_an_unknown_claim_succeeds(self, subject: Subject) -> None:
        claim = subject.claim("a", subject.devices[0])
        await subject.driver.unprepare(ref(claim))
        await subject.driver.prepare(claim)
        await subject.driver.unprepare(ref(claim))
        await subject.driver.unprepare(ref(claim))
        assert await subject.driver.prepared() == ()

    async def test_prepared_names_what_is_held_also_after_a_restart(self, subject: Subject) -> None:
        claims = [subject.claim("a", subject.devices[0]), subject.claim("b", subject.devices[1])]
        for claim in claims:
            await subject.driver.prepare(claim)
        held = await (await subject.restart()).prepared()
        assert sorted(held, key=str) == sorted(map(ref, claims), key=str)

    async def test_what_was_answered_is_told_again_or_not_at_all(self, subject: Subject) -> None:
        claim = subject.claim("a", subject.devices[0])
        assert await subject.driver.devices(ref(claim)) == ()
        answer = await subject.driver.prepare(claim)
        assert await (await subject.restart()).devices(ref(claim)) in (answer, ())
        await subject.driver.unprepare(ref(claim))
        assert await subject.driver.devices(ref(claim)) == ()

    async def test_pools_and_health_tell_all_devices_at_once(self, subject: Subject) -> None:
        pools = await first(subject.driver.pools())
        assert {device.name for pool in pools if pool.name == subject.pool for device in pool.devices} >= set(
            subject.devices
        )
        health = await first(subject.driver.health())
        assert {one.device for one in health if one.pool == subject.pool} >= set(subject.devices)
