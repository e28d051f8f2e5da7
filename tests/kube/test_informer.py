"""What an informer holds after pages, events, cuts, compaction and own writes; and that it never asks in a hot loop."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.apiserver import APIServer
from kube.informer import Informer, Kept
from tests.fakes.apiserver import FakeAPIServer

PODS = "/api/v1/pods"


def pod(name: str) -> str:
    return f"/api/v1/namespaces/ns/pods/{name}"


def spec_n(data: dict[str, Any]) -> int:
    return int(data["spec"]["n"])


@contextlib.asynccontextmanager
async def informing(server: FakeAPIServer, folder: Path, **options: Any) -> AsyncIterator[Informer[int]]:
    async with APIServer.connect(server.kubeconfig(folder)) as api:
        informer = Informer(api, PODS, **{"project": spec_n, **options})
        task = asyncio.create_task(informer.run(), name="informer")
        try:
            async with asyncio.timeout(60):
                await informer.synced.wait()
            yield informer
        finally:
            task.cancel()
            await asyncio.wait([task])


async def until(informer: Informer[int], wanted: dict[str, int]) -> None:
    async with asyncio.timeout(60):
        while dict(informer.objects) != wanted:
            await informer.changed(informer.version)


async def test_it_lists_in_pages_and_follows_every_kind_of_event(server: FakeAPIServer, tmp_path: Path) -> None:
    for number in range(1001):
        server.put(pod(f"p{number}"), {"spec": {"n": number}})
    async with informing(server, tmp_path) as informer:
        assert dict(informer.objects) == {f"ns/p{number}": number for number in range(1001)}
        assert server.count("GET", "pods", watch=False) == 3
        for number in range(2, 1001):
            server.remove(pod(f"p{number}"))
        server.put(pod("p0"), {"spec": {"n": 7}})
        server.put(pod("new"), {"spec": {"n": 8}})
        await until(informer, {"ns/p0": 7, "ns/p1": 1, "ns/new": 8})


async def test_selectors_go_to_the_server(server: FakeAPIServer, tmp_path: Path) -> None:
    server.put(pod("a"), {"spec": {"n": 1, "nodeName": "here"}})
    server.put(pod("b"), {"spec": {"n": 2, "nodeName": "there"}})
    async with informing(server, tmp_path, field_selector="spec.nodeName=here") as informer:
        assert dict(informer.objects) == {"ns/a": 1}
        await server.until(lambda: server.watching)
        assert all(request.query["fieldSelector"] == "spec.nodeName=here" for request in server.requests)


async def test_a_cut_watch_goes_on_where_it_was_without_a_list(server: FakeAPIServer, tmp_path: Path) -> None:
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        server.cut_streams()
        server.put(pod("a"), {"spec": {"n": 1}})
        await until(informer, {"ns/a": 1})
        assert server.count("GET", "pods", watch=False) == 1


async def test_a_server_that_restarts_is_found_again(server: FakeAPIServer, tmp_path: Path) -> None:
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        await server.stop()
        server.put(pod("a"), {"spec": {"n": 1}})
        await server.start()
        await until(informer, {"ns/a": 1})


async def test_bookmarks_move_the_place_to_go_on_from(server: FakeAPIServer, tmp_path: Path) -> None:
    async with informing(server, tmp_path):
        await server.until(lambda: server.watching)
        for number in range(2, 8):
            for _ in range(5):
                server.bookmark()
            version = str(server.store.revision)
            await asyncio.sleep(0.1)
            server.cut_streams()
            await server.until(lambda: server.count(watch=True) == number and server.watching)  # noqa: B023
            if server.requests[-1].query["resourceVersion"] == version:
                return  # else the cut was faster than the bookmarks
        pytest.fail("no bookmark was gone on from")


@pytest.mark.parametrize("in_stream", [True, False])
async def test_too_old_a_version_means_a_list_and_what_is_gone_is_gone(
    server: FakeAPIServer, tmp_path: Path, in_stream: bool
) -> None:
    server.put(pod("a"), {"spec": {"n": 1}})
    server.put(pod("b"), {"spec": {"n": 2}})
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        if in_stream:
            server.store.remove(next(p for p in server.store.objects if p.name == "a"))
            server.compact()
            server.bookmark()
        else:
            await server.stop()
            server.remove(pod("a"))
            server.compact()
            await server.start()
        await until(informer, {"ns/b": 2})
        assert server.count("GET", "pods", watch=False) == 2


async def test_a_page_token_that_expires_starts_the_list_again(server: FakeAPIServer, tmp_path: Path) -> None:
    for number in range(501):
        server.put(pod(f"p{number}"), {"spec": {"n": number}})
    server.page_tokens_expire = True
    async with informing(server, tmp_path) as informer:
        assert len(informer.objects) == 501
        assert server.count("GET", "pods", watch=False) == 4


async def test_watches_that_end_at_once_are_opened_ever_more_slowly(server: FakeAPIServer, tmp_path: Path) -> None:
    """A server that closes each stream cleanly and empty: other clients ask 500 times a second."""
    server.watches_end_at_once = True
    started = asyncio.get_running_loop().time()
    async with informing(server, tmp_path):
        await server.until(lambda: server.count(watch=True) >= 6, within_s=60)
        assert asyncio.get_running_loop().time() - started > 1.5, "five pauses, each twice as long, halved at the most"


async def test_410_for_ever_is_no_hot_loop(server: FakeAPIServer, tmp_path: Path) -> None:
    server.fault(status=410, reason="Expired", watch=True, times=-1)
    started = asyncio.get_running_loop().time()
    async with informing(server, tmp_path):
        await server.until(lambda: server.count(watch=True) >= 6, within_s=60)
        assert asyncio.get_running_loop().time() - started > 1.5, "five pauses, each twice as long, halved at the most"


async def test_an_object_that_cannot_be_read_costs_only_itself(server: FakeAPIServer, tmp_path: Path) -> None:
    server.put(pod("a"), {"spec": {}})
    server.put(pod("b"), {"spec": {"n": 2}})
    async with informing(server, tmp_path) as informer:
        assert dict(informer.objects) == {"ns/b": 2}
        server.put(pod("b"), {"spec": {"n": "no number"}})
        await until(informer, {})
        server.put(pod("a"), {"spec": {"n": 1}})
        await until(informer, {"ns/a": 1})


async def test_an_own_write_counts_at_once_but_never_against_what_the_watch_has_told(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """In Go's helper a cache of own writes kept deleted slices alive."""
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        ahead = {"metadata": {"namespace": "ns", "name": "mine", "resourceVersion": "5000"}, "spec": {"n": 1}}
        informer.adopt(ahead)
        assert dict(informer.objects) == {"ns/mine": 1}
        stored = server.put(pod("late"), {"spec": {"n": 2}})
        server.remove(pod("late"))
        server.put(pod("other"), {"spec": {"n": 3}})
        await until(informer, {"ns/mine": 1, "ns/other": 3})
        informer.adopt(stored)  # its answer came after its deletion was told
        assert dict(informer.objects) == {"ns/mine": 1, "ns/other": 3}


async def test_a_consumer_that_was_busy_wakes_once(server: FakeAPIServer, tmp_path: Path) -> None:
    async with informing(server, tmp_path) as informer:
        seen = informer.version
        for number in range(10):
            server.put(pod("a"), {"spec": {"n": number}})
        await until(informer, {"ns/a": 9})
        assert await informer.changed(seen) == informer.version


async def test_an_event_that_changes_nothing_that_is_kept_wakes_nobody_where_that_is_wished(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    server.put(pod("a"), {"spec": {"n": 10**6}})
    async with informing(server, tmp_path, quiet=True) as informer:
        await server.until(lambda: server.watching)
        before, kept = informer.version, informer.objects["ns/a"]
        for beat in range(5):
            server.put(pod("a"), {"spec": {"n": 10**6}, "status": {"beat": beat}})
        server.put(pod("b"), {"spec": {"n": 2}})
        await until(informer, {"ns/a": 10**6, "ns/b": 2})
        assert informer.objects["ns/a"] is kept
        assert informer.version == before + 1


@contextlib.asynccontextmanager
async def more_beside(informer: Informer[int], *, quiet: bool = False) -> AsyncIterator[Kept[str]]:
    more = informer.beside(lambda data: f"n={data['spec']['n']}", quiet=quiet)
    try:
        yield more
    finally:
        informer.leave(more)


async def told(more: Kept[str], wanted: dict[str, str]) -> None:
    async with asyncio.timeout(60):
        while not (more.synced.is_set() and dict(more.objects) == wanted):
            await more.changed(more.version)


async def test_a_second_projection_has_all_and_follows_by_the_same_watch(server: FakeAPIServer, tmp_path: Path) -> None:
    server.put(pod("a"), {"spec": {"n": 1}})
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        async with more_beside(informer) as more:
            await told(more, {"ns/a": "n=1"})
            assert server.count("GET", "pods", watch=False) == 2
            server.put(pod("a"), {"spec": {"n": 2}})
            server.put(pod("b"), {"spec": {"n": 3}})
            await told(more, {"ns/a": "n=2", "ns/b": "n=3"})
            await until(informer, {"ns/a": 2, "ns/b": 3})
            server.remove(pod("b"))
            await told(more, {"ns/a": "n=2"})
            assert server.count("GET", "pods", watch=True) == 2
        server.put(pod("a"), {"spec": {"n": 4}})
        await until(informer, {"ns/a": 4})
        assert dict(more.objects) == {"ns/a": "n=2"}


async def test_two_that_come_one_after_the_other_are_served_by_what_follows(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    for number in range(1001):
        server.put(pod(f"p{number}"), {"spec": {"n": number}})
    all_ = {f"ns/p{number}": f"n={number}" for number in range(1001)}
    async with APIServer.connect(server.kubeconfig(tmp_path)) as api:
        informer = Informer(api, PODS, project=spec_n)
        task = asyncio.create_task(informer.run(), name="informer")
        try:
            await server.until(lambda: server.count("GET", "pods", watch=False) >= 2)
            async with more_beside(informer) as one:
                await server.until(lambda: server.count("GET", "pods", watch=False) > 3)
                async with more_beside(informer) as other:
                    await told(other, all_)
                    await told(one, all_)
                    assert len(informer.objects) == 1001
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_who_comes_after_an_own_write_hears_of_it_from_the_watch(server: FakeAPIServer, tmp_path: Path) -> None:
    before = int(server.put(pod("a"), {"spec": {"n": 1}})["metadata"]["resourceVersion"])
    async with informing(server, tmp_path) as informer:
        meta = {"namespace": "ns", "name": "own", "resourceVersion": str(before + 2)}
        informer.adopt({"metadata": meta, "spec": {"n": 5}})
        async with more_beside(informer) as more:
            await told(more, {"ns/a": "n=1"})
            server.put(pod("b"), {"spec": {"n": 2}})
            assert server.put(pod("own"), {"spec": {"n": 5}})["metadata"]["resourceVersion"] == str(before + 2)
            await told(more, {"ns/a": "n=1", "ns/b": "n=2", "ns/own": "n=5"})


async def test_a_second_projection_may_be_quiet_where_the_first_is_not(server: FakeAPIServer, tmp_path: Path) -> None:
    server.put(pod("a"), {"spec": {"n": 1}})
    async with informing(server, tmp_path) as informer, more_beside(informer, quiet=True) as more:
        await told(more, {"ns/a": "n=1"})
        kept, heard = more.objects["ns/a"], more.version
        server.put(pod("a"), {"spec": {"n": 1}, "status": {"phase": "Running"}})
        server.put(pod("b"), {"spec": {"n": 2}})
        await told(more, {"ns/a": "n=1", "ns/b": "n=2"})
        assert more.version == heard + 1
        assert more.objects["ns/a"] is kept


async def test_whatever_happened_before_a_list_what_is_held_is_what_the_server_has(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """Changes, own writes and their losses, lists anew and somebody who comes, in an order that is drawn."""
    dice = random.Random(5)
    async with informing(server, tmp_path) as informer, contextlib.AsyncExitStack() as stack:
        more: Kept[str] | None = None
        for step in range(40):
            name = f"p{dice.randrange(6)}"
            match dice.choice(("put", "put", "put", "own", "own", "remove", "remove", "cut", "again", "beside")):
                case "put":
                    server.put(pod(name), {"spec": {"n": step}})
                case "own":
                    informer.adopt(server.put(pod(name), {"spec": {"n": step}}))
                case "remove" if server.get(pod(name)) is not None:
                    server.remove(pod(name))
                    if dice.random() < 0.5:
                        informer.discard(f"ns/{name}")
                case "cut":
                    server.cut_streams()
                case "again":
                    server.compact()
                    server.bookmark()
                case "beside" if more is None:
                    more = await stack.enter_async_context(more_beside(informer))
            if step % 8 == 7:
                wanted = {f"ns/{one['metadata']['name']}": one["spec"]["n"] for one in server.list("pods")}
                await until(informer, wanted)
                if more is not None:
                    await told(more, {key: f"n={number}" for key, number in wanted.items()})
        assert more is not None


async def test_a_list_anew_leaves_what_has_not_changed_the_very_same_where_that_is_wished(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        server.put(pod(name), {"spec": {"n": 10**6}})
    async with informing(server, tmp_path, quiet=True) as informer:
        await server.until(lambda: server.watching)
        before = dict(informer.objects)
        await server.stop()
        server.put(pod("b"), {"spec": {"n": 10**6 + 1}})
        server.compact()
        await server.start()
        await until(informer, {"ns/a": 10**6, "ns/b": 10**6 + 1})
        assert informer.objects["ns/a"] is before["ns/a"]


async def test_a_server_set_back_to_a_copy_is_believed_whatever_its_versions_are(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    """A copy of etcd may be brought back with a version far ahead, so that nobody takes what it has for old."""
    server.put(pod("a"), {"spec": {"n": 1}})
    copied = server.get(pod("a"))
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        server.put(pod("a"), {"spec": {"n": 2}})
        await until(informer, {"ns/a": 2})
        await server.stop()
        (place,) = server.store.objects
        server.store.objects[place] = copied
        server.store.revision += 1000
        server.compact()
        await server.start()
        await until(informer, {"ns/a": 1})


async def test_an_own_write_that_a_server_set_back_knows_nothing_of_is_gone(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    server.put(pod("a"), {"spec": {"n": 1}})
    copied, before = server.get(pod("a")), server.store.revision
    async with informing(server, tmp_path) as informer:
        await server.until(lambda: server.watching)
        await server.stop()
        informer.adopt(server.put(pod("a"), {"spec": {"n": 2}}))
        informer.adopt(server.put(pod("b"), {"spec": {"n": 3}}))
        assert dict(informer.objects) == {"ns/a": 2, "ns/b": 3}
        server.store.objects = {place: copied for place in server.store.objects if place.name == "a"}
        server.compact()
        server.store.revision = before
        server.store.oldest = 10**6  # none of the versions from before is one of this server
        await server.start()
        await server.until(lambda: server.count("GET", "pods", watch=True) >= 2)
        server.store.oldest = before
        await until(informer, {"ns/a": 1})
        server.put(pod("a"), {"spec": {"n": 5}})
        await until(informer, {"ns/a": 5})


async def test_a_list_that_ends_halfway_lets_no_older_event_replace_what_it_brought(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    for number in range(501):  # one more than a page
        server.put(pod(f"p{number:03}"), {"spec": {"n": 0}})
    seen = []

    def first(data: dict[str, Any]) -> int:
        if data["metadata"]["name"] == "p000":
            seen.append(spec_n(data))
        return spec_n(data)

    def leaves(data: dict[str, Any]) -> int:
        informer.leave(more)
        return spec_n(data)

    async with informing(server, tmp_path, project=first) as informer:
        await server.until(lambda: server.watching)
        more = informer.beside(leaves)
        for number in (1, 2):
            server.put(pod("p000"), {"spec": {"n": number}})
        server.put(pod("p500"), {"spec": {"n": 3}})
        async with asyncio.timeout(60):
            while informer.objects["ns/p500"] != 3:
                await informer.changed(informer.version)
        assert seen == sorted(seen)
