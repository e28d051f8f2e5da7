import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from api import errors
from kubeletplugin import locks

ROOT = Path(__file__).parents[2]
HOLDER = """
import asyncio, sys
from pathlib import Path
from kubeletplugin import locks

async def main():
    async with locks.Locks(Path(sys.argv[1])).hold(sys.argv[2]):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "claims.lock"


async def test_tasks_of_one_process_take_turns(path: Path) -> None:
    one, inside, most = locks.Locks(path), 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with one.hold("card"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 1


async def test_different_keys_do_not_wait_for_each_other(path: Path) -> None:
    one = locks.Locks(path)
    async with asyncio.timeout(60), one.hold("a"), one.hold("b"):
        pass


async def test_two_openers_of_one_file_exclude_each_other(path: Path) -> None:
    entered = asyncio.Event()

    async def second() -> None:
        async with locks.Locks(path).hold("claim"):
            entered.set()

    async with locks.Locks(path).hold("claim"):
        waiting = asyncio.create_task(second())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(entered.wait(), 0.2)
    await asyncio.wait_for(waiting, 60)


async def test_a_waiter_that_is_cancelled_leaves_nothing_locked(path: Path) -> None:
    one = locks.Locks(path)
    async with one.hold("claim"):
        waiting = asyncio.create_task(one.hold("claim").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    async with asyncio.timeout(60), one.hold("claim"), locks.Locks(path).hold("other"):
        pass
    assert one._local == {}


async def test_another_process_is_waited_for_and_its_death_frees_the_key(path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, path, "claim", cwd=ROOT, stdin=pipe, stdout=pipe
    )
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        one = locks.Locks(path)
        async with asyncio.timeout(60), one.hold("another claim"):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), one.hold("claim"):
                pass
        holder.kill()
        async with asyncio.timeout(60), one.hold("claim"):
            pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            holder.kill()
        await holder.communicate()


async def test_a_lock_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.Unavailable, match=r"lock file .*claims\.lock: File exists"):
        async with locks.Locks(tmp_path / "file" / "claims.lock").hold("a"):
            pass
