"""The verbs against a real socket: answers, errors that tell what to do, deadlines, and repeats only where they are safe."""

import asyncio
import contextlib
from pathlib import Path

import pytest
import yaml

from api import errors
from kube import responses
from kube.apiserver import APIServer, Patch
from tests.fakes.apiserver import FakeAPIServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
NAMED = {"metadata": {"name": "a"}, "spec": {"n": 1}}


async def test_what_is_not_there_is_none_and_not_an_error(api: APIServer) -> None:
    assert await api.get(f"{LEASES}/a") is None
    assert await api.patch(f"{LEASES}/a", {"spec": {}}) is None
    assert await api.update(f"{LEASES}/a", NAMED) is None
    assert await api.delete(f"{LEASES}/a", uid="u") is False


async def test_an_object_is_created_read_patched_and_deleted_as_plain_dicts(
    api: APIServer, server: FakeAPIServer
) -> None:
    made = await api.create(LEASES, NAMED)
    assert await api.get(f"{LEASES}/a") == made
    patched = await api.patch(f"{LEASES}/a", {"spec": {"n": 2}})
    assert patched is not None
    assert patched["spec"] == {"n": 2}
    assert await api.delete(f"{LEASES}/a", uid=made["metadata"]["uid"])
    assert server.requests[0].agent == "test/1"


async def test_only_the_very_object_is_deleted(api: APIServer) -> None:
    made = await api.create(LEASES, NAMED)
    with pytest.raises(errors.Conflict, match="precondition failed: uid"):
        await api.delete(f"{LEASES}/a", uid="another")
    with pytest.raises(errors.Conflict, match="resourceVersion"):
        await api.delete(f"{LEASES}/a", uid=made["metadata"]["uid"], resource_version="1")


async def test_apply_creates_and_sends_its_manager(api: APIServer, server: FakeAPIServer) -> None:
    await api.patch(f"{LEASES}/a", NAMED, kind=Patch.APPLY, fieldManager="us", force=True)
    assert server.requests[0].query == {"fieldManager": "us", "force": "true"}
    assert server.get(f"{LEASES}/a")


async def test_a_list_comes_page_by_page(api: APIServer, server: FakeAPIServer) -> None:
    for number in range(5):
        server.put(f"{LEASES}/l{number}", {})
    first = await api.list_page(LEASES, limit=3)
    second = await api.list_page(LEASES, limit=3, following=first.following)
    assert [item["metadata"]["name"] for item in (*first.objects, *second.objects)] == ["l0", "l1", "l2", "l3", "l4"]
    assert not second.following


async def test_an_old_page_token_says_to_list_again(api: APIServer, server: FakeAPIServer) -> None:
    server.put(f"{LEASES}/a", {})
    server.put(f"{LEASES}/b", {})
    first = await api.list_page(LEASES, limit=1)
    server.page_tokens_expire = True
    with pytest.raises(responses.Expired, match="list again"):
        await api.list_page(LEASES, limit=1, following=first.following)


async def test_too_many_requests_is_answered_by_waiting_as_told(api: APIServer, server: FakeAPIServer) -> None:
    server.fault(method="POST", status=429, reason="TooManyRequests", retry_after="0.2", times=2)
    started = asyncio.get_running_loop().time()
    await api.create(LEASES, NAMED)
    assert asyncio.get_running_loop().time() - started >= 0.4
    assert server.count("POST") == 3


async def test_a_wait_longer_than_the_deadline_is_not_waited_for(api: APIServer, server: FakeAPIServer) -> None:
    server.fault(status=429, reason="TooManyRequests", retry_after="30")
    with pytest.raises(errors.NotReady, match="asks for fewer calls"):
        await api.get(f"{LEASES}/a")


async def test_a_read_is_repeated_after_a_server_error(api: APIServer, server: FakeAPIServer) -> None:
    server.put(f"{LEASES}/a", {})
    server.fault(method="GET", status=500, reason="InternalError", times=2)
    assert await api.get(f"{LEASES}/a")
    assert server.count("GET") == 3


async def test_a_creation_whose_answer_is_lost_is_not_repeated(api: APIServer, server: FakeAPIServer) -> None:
    server.fault(method="POST", lose_answer=True)
    with pytest.raises(errors.Unavailable, match="cut"):
        await api.create(LEASES, NAMED)
    assert server.count("POST") == 1


async def test_a_replacement_whose_answer_is_lost_shows_as_conflict(api: APIServer, server: FakeAPIServer) -> None:
    made = await api.create(LEASES, NAMED)
    server.fault(method="PUT", lose_answer=True)
    with pytest.raises(errors.Conflict):
        await api.update(f"{LEASES}/a", made | {"spec": {"n": 2}})


async def test_a_json_patch_is_not_repeated(api: APIServer, server: FakeAPIServer) -> None:
    server.put(f"{LEASES}/a", {})
    server.fault(method="PATCH", status=500)
    with pytest.raises(errors.Unavailable):
        await api.patch(f"{LEASES}/a", [], kind=Patch.JSON)
    assert server.count("PATCH") == 1


async def test_a_server_that_comes_back_within_the_deadline_is_waited_for(
    api: APIServer, server: FakeAPIServer
) -> None:
    await server.stop()
    call = asyncio.create_task(api.create(LEASES, NAMED))
    await asyncio.sleep(0.3)
    await server.start()
    assert (await call)["metadata"]["name"] == "a"


async def test_a_black_hole_ends_at_the_deadline(api: APIServer, server: FakeAPIServer) -> None:
    server.fault(black_hole=True, times=-1)
    started = asyncio.get_running_loop().time()
    with pytest.raises(errors.Unavailable, match="did not answer within 10 s"):
        await api.create(LEASES, NAMED)
    assert asyncio.get_running_loop().time() - started < 19, "as long as two of them"
    assert server.count("POST") == 1
    server.heal()


async def test_a_deadline_that_ends_the_tries_says_what_went_wrong_before(
    api: APIServer, server: FakeAPIServer
) -> None:
    server.fault(status=500, reason="InternalError", message="no space left")
    server.fault(black_hole=True, times=-1)
    with pytest.raises(errors.Unavailable, match=r"did not answer within 10 s.*; the try before: .*no space left"):
        await api.get(f"{LEASES}/a")
    server.heal()


async def test_a_callers_shorter_limit_ends_the_call(api: APIServer, server: FakeAPIServer) -> None:
    fault = server.fault(black_hole=True, times=-1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await api.get(f"{LEASES}/a")
    fault.times = 0
    assert await api.get(f"{LEASES}/a") is None  # the next call has a connection of its own
    server.heal()


async def test_a_new_token_is_taken_up_without_a_restart(server: FakeAPIServer, tmp_path: Path) -> None:
    server.token = "old"
    async with APIServer.connect(server.kubeconfig(tmp_path, token="old")) as api:
        assert await api.get(f"{LEASES}/a") is None
        server.token = "new"
        server.kubeconfig(tmp_path, token="new")
        assert await asyncio.gather(*(api.get(f"{LEASES}/a") for _ in range(4))) == [None] * 4


async def test_a_token_that_stays_wrong_is_an_error_with_advice(server: FakeAPIServer, tmp_path: Path) -> None:
    server.token = "right"
    async with APIServer.connect(server.kubeconfig(tmp_path, token="wrong")) as api:
        with pytest.raises(errors.NotReady, match="check the token"):
            await api.get(f"{LEASES}/a")


async def test_an_exec_plugin_gives_the_token(server: FakeAPIServer, tmp_path: Path) -> None:
    server.token = "from-plugin"
    plugin = tmp_path / "plugin"
    answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-plugin"}}'
    plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
    plugin.chmod(0o755)
    path = server.kubeconfig(tmp_path)
    config = yaml.safe_load(path.read_text())
    api_version = "client.authentication.k8s.io/v1"
    config["users"][0]["user"] = {
        "exec": {"apiVersion": api_version, "command": str(plugin), "interactiveMode": "Never"}
    }
    path.write_text(yaml.safe_dump(config))
    async with APIServer.connect(path) as api:
        assert await api.get(f"{LEASES}/a") is None


async def test_the_kubeconfigs_proxy_is_used(server: FakeAPIServer, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path)
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"] = {"server": "http://api.invalid", "proxy-url": server.url}
    path.write_text(yaml.safe_dump(config))
    async with APIServer.connect(path) as api:
        assert await api.get(f"{LEASES}/a") is None
    assert server.count("GET", "leases") == 1


async def test_the_environments_proxy_is_used_and_its_exceptions_are_kept(
    server: FakeAPIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    async with APIServer.connect(server.kubeconfig(tmp_path)) as api:
        with pytest.raises(errors.Unavailable, match="cannot reach"):
            await api.get(f"{LEASES}/a")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with APIServer.connect(server.kubeconfig(tmp_path)) as api:
        assert await api.get(f"{LEASES}/a") is None


async def test_no_credentials_is_said_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match=r"no credentials .*nowhere.* kubectl"):
        async with APIServer.connect(tmp_path / "nowhere"):
            pass


async def test_a_kubeconfig_that_is_no_yaml_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("clusters: [\n\tx")
    with pytest.raises(errors.Invalid, match=r"no credentials .*broken.* kubectl"):
        async with APIServer.connect(tmp_path / "broken"):
            pass


async def test_a_watch_gives_lines_until_the_server_ends_it(api: APIServer, server: FakeAPIServer) -> None:
    server.put(f"{LEASES}/a", {"spec": {"text": "x" * 300_000}})
    server.put(f"{LEASES}/b", {})
    async with contextlib.aclosing(api.watch(LEASES, resourceVersion="100", timeoutSeconds=5)) as lines:
        assert [line[:16] async for line in lines] == [b"", b'{"type": "ADDED"', b'{"type": "ADDED"']


async def test_a_cut_watch_is_unavailable(api: APIServer, server: FakeAPIServer) -> None:
    async def read() -> None:
        async with contextlib.aclosing(api.watch(LEASES)) as lines:
            async for _ in lines:
                pass

    reading = asyncio.create_task(read())
    await server.until(lambda: server.watching)
    await server.stop()
    with pytest.raises(errors.Unavailable):
        await reading


REASONS = (
    "Unauthorized Forbidden NotFound AlreadyExists Conflict Gone Invalid ServerTimeout StorageReadError Timeout "
    "TooManyRequests BadRequest MethodNotAllowed NotAcceptable RequestEntityTooLarge UnsupportedMediaType "
    "InternalError Expired ServiceUnavailable"
)


def test_every_reason_of_kubernetes_has_a_meaning() -> None:
    assert set(responses.REASONS) == set(REASONS.split())


def test_every_code_has_a_meaning_without_a_reason() -> None:
    for code in range(400, 600):
        error = responses.failure("GET", "/api/v1/nodes/a", code, b"<html>proxy</html>")
        assert isinstance(error, errors.ElasticGPUError)
        assert "<html>proxy" in str(error)
        if code >= 500:
            assert isinstance(error, errors.Unavailable)


def test_a_refusal_names_the_verb_and_the_resource_to_grant() -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/a/status"
    body = b'{"reason":"Forbidden","message":"User \\"u\\" cannot patch resource"}'
    error = responses.failure("PATCH", path, 403, body)
    assert isinstance(error, errors.Invalid)
    wanted = "grant the verb 'patch' on 'resourceclaims/status' of API group 'resource.k8s.io' in namespace 'ns'"
    assert wanted in str(error)
    core = responses.failure("LIST", "/api/v1/nodes", 403, body)
    assert "grant the verb 'list' on 'nodes' to this account" in str(core)


def test_an_admission_refusal_is_not_taken_for_missing_rights() -> None:
    body = b'{"reason":"Forbidden","message":"ValidatingAdmissionPolicy x denied request: other node"}'
    assert "admission rule" in str(responses.failure("POST", "/apis/resource.k8s.io/v1/resourceslices", 403, body))
