"""Reports about shares that other projects got, replayed on ours; tests/README.md has the list of all."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from api import errors, resource
from tests.fakes.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.hami_library = tmp_path / "libvgpu.so"
    made.hami_library.write_bytes(b"the library")
    return made


def _limit(machine: Machine, uid: str) -> str:
    (limit,) = re.findall(r"CUDA_DEVICE_MEMORY_LIMIT_0=(\d+)m", str(machine.spec(uid)))
    return str(limit)


async def test_shares_that_are_prepared_at_once_get_each_its_own_amount(machine: Machine) -> None:
    """HAMi#404, volcano devices#60: one pod got what another one on the node had asked for."""
    sizes = {f"c{number}": 1000 + number for number in range(24)}
    async with machine.node() as driver:
        claims = [
            machine.share(uid, number % 2, cores=4, memory=f"{mib}Mi")
            for number, (uid, mib) in enumerate(sizes.items())
        ]
        await asyncio.gather(*map(driver.prepare, claims))
        assert {uid: int(_limit(machine, uid)) for uid in sizes} == sizes


async def test_what_a_share_had_is_free_to_the_mib_though_nobody_remembers_what_was_asked(machine: Machine) -> None:
    """tensor-fusion#478: release read the request again, which was in percent, and failed. Here the record knows."""
    async with machine.node() as driver:
        await driver.prepare(machine.share("odd", 0, cores=34, memory="7630Mi"))
    async with machine.node() as driver:
        await driver.unprepare(machine.ref("odd"))
        (device,) = await driver.prepare(machine.share("rest", 0, cores=99, memory="81559Mi"))
        assert device.data["memory"] == "81559Mi"


async def test_a_claim_that_fails_holds_up_no_other_on_its_node(machine: Machine) -> None:
    """HAMi#1130: one failed bind locked the node for five minutes."""
    wrong: dict[str, Any] = {"memory": "Required", "accept": ["Driver"]}
    async with machine.node() as driver, asyncio.timeout(60):
        for number in range(4):
            with pytest.raises(errors.Invalid):
                await driver.prepare(machine.share("wrong", 0, firm=wrong))
            await driver.prepare(machine.share(f"right{number}", 0, cores=5, memory="1Gi"))


async def test_the_directory_of_a_share_never_goes_with_another_ones_end(machine: Machine) -> None:
    """volcano#5532: the wrong pod's directory was removed, while its programs ran."""
    async with machine.node() as driver:
        for uid in ("a", "b"):
            await driver.prepare(machine.share(uid, 0, cores=5, memory="1Gi"))
        await driver.unprepare(machine.ref("a"))
        await driver.unprepare(machine.ref("a"))
        left = {path.name for path in (machine.data_dir / "hami").iterdir()}
        assert left == {"ld.so.preload", "b-0"}


async def test_a_share_of_a_card_of_another_node_is_refused_with_the_card_s_name(machine: Machine) -> None:
    """HAMi#1106, #987: the annotation named a card of another node, and the container failed with "unknown device"."""
    claim = machine.share("a", 0)
    (result,) = claim.results
    elsewhere = resource.Claim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        configs=claim.configs,
        results=(
            resource.Result(
                request=result.request,
                driver=result.driver,
                pool=result.pool,
                device="gpu-of-another-node",
                share_id=result.share_id,
                consumed_capacity=result.consumed_capacity,
            ),
        ),
    )
    async with machine.node() as driver:
        with pytest.raises(
            errors.Invalid, match="device gpu-of-another-node is gone from this node; the cards here are"
        ):
            await driver.prepare(elsewhere)
