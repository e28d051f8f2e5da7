"""The page's port as HTTP: who is let in, what is sent along, what is kept while the API server is away."""

import asyncio
import contextlib
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller import __main__ as controller
from controller import settings
from kube import apiserver
from tests.cli.conftest import CLUSTER, put
from tests.fakes import ports
from tests.fakes.apiserver import FakeAPIServer

TOKEN = "X-Elastic-GPU-Token"
REVIEWS = "tokenreviews"


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        put(server, *CLUSTER)
        server.people = {"good": "ada", "poor": "bob", "own": "system:serviceaccount:web:job"}
        everything = ("list resourceslices", "list pods", "list resourceclaims", "get /metrics")
        server.rights = {("ada", right, "") for right in everything}
        server.rights |= {("system:serviceaccount:web:job", "list resourceslices", "")}
        server.rights |= {("system:serviceaccount:web:job", right, "web") for right in everything[1:3]}
        yield server


@contextlib.asynccontextmanager
async def running(server: FakeAPIServer, folder: Path, **given: str) -> AsyncIterator[tuple[int, int]]:
    """The open port and the page's."""
    pair = ports.free(), ports.free()
    async with apiserver.APIServer.connect(server.kubeconfig(folder)) as api:
        told = settings.Settings(namespace="egpu", pod_name="one", port=pair[0], page_port=pair[1], **given)
        task = asyncio.create_task(controller.serve(api, told), name="controller")
        try:
            await server.until(lambda: len(server.list("elasticgpus")) == 4, within_s=60)
            yield pair
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def get(url: str, **headers: str) -> tuple[int, dict[str, str], str]:
    def call() -> tuple[int, dict[str, str], str]:
        request = urllib.request.Request(url, headers={name.replace("_", "-"): text for name, text in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    return await asyncio.to_thread(call)


async def test_only_whom_the_api_server_knows_is_answered(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port):
        api = f"http://127.0.0.1:{port}/api/overview"
        assert (await get(api))[0] == 401
        assert (await get(api, Authorization="Bearer bad"))[0] == 401
        status, _, text = await get(api, Authorization="Bearer poor")
        assert (status, "bob may not list resourceslices of resource.k8s.io" in text) == (403, True)
        status, _, text = await get(api, Authorization="Bearer good")
        assert (status, json.loads(text)["as"]["you"]) == (200, "ada")
        status, _, text = await get(api, X_Elastic_GPU_Token="good")
        assert (status, json.loads(text)["data"]["total"]["total"]) == (200, 4)


async def test_a_service_account_sees_the_names_of_its_own_namespace(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port):
        status, _, text = await get(f"http://127.0.0.1:{port}/api/pods?namespace=ml,old", X_Elastic_GPU_Token="own")
    found = json.loads(text)
    assert (status, found["as"]["namespaces"]) == (200, ["web"])
    assert [one["name"] for one in found["data"]["items"]] == ["one", "two"]


async def test_every_answer_forbids_scripts_of_others_and_frames(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port):
        for path in ("", "page.js", "draw.js", "page.css", "api/overview"):
            _, headers, _ = await get(f"http://127.0.0.1:{port}/{path}")
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"


async def test_the_page_asks_nobody_outside_and_works_below_any_path(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port):
        texts = [(await get(f"http://127.0.0.1:{port}/{path}"))[2] for path in ("", "page.js", "draw.js", "page.css")]
    for text in texts:
        assert "http://" not in text
        assert "https://" not in text
        assert not any(f'{attribute}="/' in text for attribute in ("src", "href", "action"))


async def test_nothing_is_written_through_it(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port), aiohttp.ClientSession() as client:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            async with client.request(
                method, f"http://127.0.0.1:{port}/api/overview", headers={TOKEN: "good"}
            ) as answer:
                assert answer.status == 405


async def test_the_api_server_is_asked_once_a_minute_not_once_a_click(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port):
        for _ in range(5):
            await get(f"http://127.0.0.1:{port}/api/overview", X_Elastic_GPU_Token="good")
    assert server.count("POST", REVIEWS) == 1


async def test_who_was_let_in_may_go_on_while_the_api_server_is_away_and_nobody_new(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with running(server, tmp_path) as (_, port):
        api = f"http://127.0.0.1:{port}/api/overview"
        assert (await get(api, X_Elastic_GPU_Token="good"))[0] == 200
        server.fault(path="reviews", status=503, reason="ServiceUnavailable", times=-1)
        assert (await get(api, X_Elastic_GPU_Token="good"))[0] == 200
        status, _, text = await get(api, X_Elastic_GPU_Token="own")
        assert status == 503
        assert "the API server could not be asked who you are" in text


async def test_news_come_as_a_stream_and_say_when_the_api_server_fell_silent(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with running(server, tmp_path) as (_, port), aiohttp.ClientSession() as client:
        async with client.get(f"http://127.0.0.1:{port}/api/news", headers={TOKEN: "good"}) as stream:
            first = json.loads((await stream.content.readuntil(b"\n\n"))[6:])
            assert first["silentSince"] is None
            await server.stop()
            async with asyncio.timeout(60):
                while json.loads((await stream.content.readuntil(b"\n\n"))[6:])["silentSince"] is None:
                    pass
        await server.start()


async def test_series_that_name_namespaces_are_for_who_may_get_metrics(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (port, _):
        url = f"http://127.0.0.1:{port}/metrics"
        status, _, text = await get(url)
        assert (status, "elasticgpu_cards{" in text, "namespace=" in text) == (200, True, False)
        status, _, text = await get(url, Authorization="Bearer good")
        assert (status, 'elasticgpu_namespace_cards{namespace="ml"} 1.0' in text) == (200, True)
        assert (await get(url, Authorization="Bearer own"))[0] == 403
        assert (await get(url, Authorization="Bearer bad"))[0] == 401


async def test_it_speaks_tls_and_takes_up_a_renewed_certificate(server: FakeAPIServer, tmp_path: Path) -> None:
    await asyncio.to_thread(_certificate, tmp_path, "first")
    async with running(server, tmp_path, page="tls", page_tls=str(tmp_path)) as (_, port):
        assert await _served_name(port) == "first"
        await asyncio.to_thread(_certificate, tmp_path, "second")
        async with asyncio.timeout(60):
            while await _served_name(port) != "second":  # noqa: ASYNC110  another's clock
                await asyncio.sleep(0.2)


async def test_a_certificate_that_is_not_there_ends_it_with_the_setting(server: FakeAPIServer, tmp_path: Path) -> None:
    async with apiserver.APIServer.connect(server.kubeconfig(tmp_path)) as api:
        told = settings.Settings(port=0, page_port=0, page="tls", page_tls=str(tmp_path / "none"))
        with pytest.raises(Exception, match=r"EGPU_PAGE_TLS .*none: no certificate with its key there"):
            await controller.serve(api, told)


def _certificate(folder: Path, name: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
    subprocess.run(
        [*command, "-keyout", folder / "tls.key", "-out", folder / "tls.crt"], check=True, capture_output=True
    )


async def _served_name(port: int) -> str:
    def read() -> str:
        certificate = ssl.get_server_certificate(("127.0.0.1", port))
        told = subprocess.run(
            ["openssl", "x509", "-noout", "-subject"], input=certificate, capture_output=True, text=True, check=True
        )
        return told.stdout.rpartition("=")[2].strip()

    return await asyncio.to_thread(read)


async def test_why_not_and_room_are_answered_with_names_for_who_may_see_them(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with running(server, tmp_path) as (_, port):
        api = f"http://127.0.0.1:{port}/api"
        status, _, text = await get(f"{api}/explain/pod/ml/late", Authorization="Bearer good")
        told = json.loads(text)
        assert (status, told["verdict"], told["reason"]) == (200, "DoesNotFit", "NotEnoughLeft")
        assert told["text"].startswith("Pod ml/late does not fit: 1 card: 25% of cores short, closest ")
        assert any("when claim web/half ends" in change for change in told["changes"])
        assert (await get(f"{api}/explain/pod/ml/nobody", Authorization="Bearer good"))[0] == 404
        assert (await get(f"{api}/explain/node/ml/late", Authorization="Bearer good"))[0] == 404
        status, _, text = await get(f"{api}/fit?class=training.elasticgpu.io", Authorization="Bearer good")
        assert (status, json.loads(text)["fits"]) == (200, 0)
        assert (await get(f"{api}/fit?class=training.elasticgpu.io&cores=x", Authorization="Bearer good"))[0] == 400
        assert (await get(f"{api}/fit?class=x", Authorization="Bearer poor"))[0] == 403
        asked = f"{api}/explain/pod/ml/late?namespace=web", f"{api}/fit?class=training.elasticgpu.io&namespace=web"
        assert (await get(asked[0], Authorization="Bearer own"))[0] == 404
        status, _, text = await get(asked[1], Authorization="Bearer own")
        assert (status, json.loads(text)["fits"]) == (200, 0)
        assert "ml/train" not in text
        assert "web/half" in text


POD = """
kind: ResourceClaimTemplate
metadata: {name: small}
spec: {spec: {devices: {requests: [{name: card, exactly: {deviceClassName: training.elasticgpu.io, capacity: {requests: {cores: "10", memory: 1Gi, shares: "1"}}}}]}}}
---
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers: [{name: main}]
      resourceClaims: [{name: card, resourceClaimTemplateName: small}]
"""


async def post(url: str, body: str | bytes, token: str = "good") -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as client, client.post(url, data=body, headers={TOKEN: token}) as answer:
        return answer.status, json.loads(await answer.text())


async def test_room_is_asked_with_the_manifests_that_the_command_line_takes(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with running(server, tmp_path) as (_, port):
        api = f"http://127.0.0.1:{port}/api/fit"
        status, told = await post(f"{api}?in=web&replicas=2", POD)
        assert (status, told["kind"], told["fits"], told["wanted"]) == (200, "Fit", 2, 2), told["text"]
        assert told["text"].startswith("2 copies of pod web/web fit, on ")
        pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
        status, told = await post(api, json.dumps(pod))
        assert (status, told["sentence"]) == (200, "Pod default/p gets no card: the pod names no claim.")
        assert (await post(f"{api}?in=ml", POD, token="own"))[0] == 404
        assert (await post(f"{api}?in=web", POD.replace("name: web}", "name: web, namespace: ml}"), token="own"))[
            0
        ] == 404
        assert (await post(api, POD, token="bad"))[0] == 401


SENSELESS: tuple[tuple[str | bytes, int, str], ...] = (
    ("kind: [", 400, "the body is neither YAML nor JSON"),
    (b"\xff\xfe", 400, "the body is no text"),
    ("a: &a [x]\nb: *a", 400, "aliases (*name) are not read here"),
    ("[" * 20_000, 400, "nested too deep"),
    ("kind: Service", 400, "there is no pod, workload, claim or template of one in it"),
    ("kind: Pod\nspec: {containers: [], resourceClaims: [{}]}", 400, "it is not as the API has it: KeyError"),
    ("kind: ResourceClaim\nmetadata: [x]", 400, "it is not as the API has it"),
    ("kind: List\nitems: 7", 400, "there is no pod"),
    (" " * (64 * 1024 + 1), 413, "more than 64 KiB"),
)


async def test_a_body_that_makes_no_sense_is_refused_with_the_reason(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (_, port):
        for body, status, why in SENSELESS:
            found, told = await post(f"http://127.0.0.1:{port}/api/fit", body)
            assert (found, why in told["error"]) == (status, True), (body[:40], told)
