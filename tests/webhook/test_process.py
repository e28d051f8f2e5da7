"""The whole webhook over TLS, all of it real but the API server."""

import asyncio
import base64
import contextlib
import datetime
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube import apiserver
from tests.fakes.apiserver import FakeAPIServer
from tests.webhook.objects import JSON, a_claim, a_class, a_pod, a_request, a_review, patch_of
from webhook import __main__ as webhook
from webhook import certificates, keeper, rotation, settings

ROOT = Path(__file__).resolve().parents[2]
SECRET = "/api/v1/namespaces/egpu/secrets/elastic-gpu-webhook-tls"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/elastic-gpu-webhook"
KINDS = ("mutating", "validating")
HOST = "elastic-gpu-webhook.egpu.svc"
SHARE, WHOLE = "share.example.com", "whole.example.com"


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    """As the chart leaves it: an empty Secret, configurations without trust; two classes, two namespaces."""
    async with FakeAPIServer() as server:
        server.put(SECRET, {"kind": "Secret"})
        for kind in KINDS:
            hooks = [{"name": f"{number}.x", "clientConfig": {"service": {"name": "w"}}} for number in range(2)]
            server.put(CONFIGURATION.format(kind), {"webhooks": hooks})
        for item in (a_class(WHOLE, "Whole", workloadTypes=["training"]), a_class(SHARE, workloadTypes=["inference"])):
            server.put(f"/apis/elasticgpu.io/v1alpha1/elasticgpuclasses/{item['metadata']['name']}", item)
        server.put("/api/v1/namespaces/ns", {"metadata": {"labels": {"elasticgpu.io/translate": "true"}}})
        yield server


def data(server: FakeAPIServer) -> dict[str, str]:
    found = (server.get(SECRET) or {}).get("data") or {}
    return {name: base64.b64decode(text).decode() for name, text in found.items()}


def bundles(server: FakeAPIServer) -> set[str]:
    hooks = [hook for kind in KINDS for hook in (server.get(CONFIGURATION.format(kind)) or {})["webhooks"]]
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")).decode() for hook in hooks}


@contextlib.asynccontextmanager
async def running(
    server: FakeAPIServer, folder: Path, **environment: str
) -> AsyncIterator[tuple[int, int, asyncio.subprocess.Process]]:
    """The program; gives its two ports and the process. Ended by SIGTERM, as the kubelet does."""
    process = await asyncio.create_subprocess_exec(
        *(
            "env",
            f"KUBECONFIG={server.kubeconfig(folder)}",
            "EGPU_NAMESPACE=egpu",
            "EGPU_PORT=0",
            "EGPU_WEBHOOK_PORT=0",
        ),
        *(f"{name}={value}" for name, value in environment.items()),
        *(sys.executable, "-m", "webhook"),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    try:
        started = json.loads(await process.stderr.readline())
        yield started["webhook_port"], started["port"], process
    finally:
        process.send_signal(signal.SIGTERM)
        line = b"-"
        while line and b'"stopping"' not in line and b'"stopped"' not in line:
            line = await process.stderr.readline()
        if b'"stopping"' in line:  # else a test has told it before
            process.send_signal(signal.SIGTERM)  # it would answer on for a while
        _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert b"Traceback" not in err


async def ready(port: int) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)


async def ask(port: int, path: str, body: bytes, trusted: str) -> tuple[int, Any]:
    """As the API server asks: by the service's name, with the trust of the configuration."""
    context = ssl.create_default_context(cadata=trusted)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"https://127.0.0.1:{port}{path}", data=body, ssl=context, server_hostname=HOST) as answer,
    ):
        text = await answer.read()
        return answer.status, json.loads(text)["response"] if answer.status == 200 else text.decode()


async def answered(server: FakeAPIServer, folder: Path, path: str, *bodies: bytes, **environment: str) -> list[JSON]:
    async with running(server, folder, **environment) as (tls_port, port, _):
        await ready(port)
        await server.until(lambda: "" not in bundles(server), within_s=60)
        (trusted,) = bundles(server)
        return [(await ask(tls_port, path, body, trusted))[1] for body in bodies]


async def test_a_pod_by_an_old_name_gets_a_patch_over_tls_that_was_made_from_nothing(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    share = a_pod(gpu=1, gpumem=1000)
    responses = await answered(server, tmp_path, "/mutate", a_review(a_pod(gpu=1)), a_review(share), a_review(a_pod()))
    assert [response["allowed"] for response in responses] == [True, True, True]
    names = [
        step["value"][0]["resourceClaimTemplateName"]
        for response in responses
        for step in patch_of(response)
        if step["path"] == "/spec/resourceClaims"
    ]
    assert names == [f"translated.n1.{WHOLE}", f"translated.n1.c0.m1000mi.{SHARE}"]
    assert responses[0]["warnings"] == [f"container main: nvidia.com/gpu: 1 -> 1 whole card of class {WHOLE}"]
    assert patch_of(responses[2]) == []
    assert server.count("POST") == 0


async def test_a_refusal_is_an_answer_with_the_reason(server: FakeAPIServer, tmp_path: Path) -> None:
    (response,) = await answered(server, tmp_path, "/mutate", a_review(a_pod(gpu=1, gpumem="16Gi")))
    assert not response["allowed"]
    assert "old request for a card: container main: it asks for 17179869184 MiB" in response["status"]["message"]


async def test_claims_are_checked(server: FakeAPIServer, tmp_path: Path) -> None:
    bad, deleted = a_review(a_claim(a_request(SHARE))), a_review(a_claim(), "DELETE", object=None)
    responses = await answered(server, tmp_path, "/validate", bad, deleted)
    assert [response["allowed"] for response in responses] == [False, True]


async def test_the_admins_settings_and_the_namespaces_type_count(server: FakeAPIServer, tmp_path: Path) -> None:
    labels = {"elasticgpu.io/translate": "true", "elasticgpu.io/workload-type": "batch"}
    server.put("/api/v1/namespaces/late", {"metadata": {"labels": labels}})
    other = a_class("batch.example.com", workloadTypes=["batch"])
    server.put("/apis/elasticgpu.io/v1alpha1/elasticgpuclasses/batch.example.com", other)
    pod = a_review(a_pod(gpu=1, **{"gpumem-percentage": 50}), namespace="late")
    (response,) = await answered(server, tmp_path, "/mutate", pod, EGPU_CARD_MEMORY="80Gi")
    (claims,) = [step["value"] for step in patch_of(response) if step["path"] == "/spec/resourceClaims"]
    assert claims[0]["resourceClaimTemplateName"] == "translated.n1.c0.m40960mi.batch.example.com"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u","kind":{"kind":"Pod"}}}']
)
async def test_what_is_no_review_is_answered_400(server: FakeAPIServer, tmp_path: Path, body: bytes) -> None:
    async with running(server, tmp_path) as (tls_port, port, _):
        await ready(port)
        await server.until(lambda: "" not in bundles(server), within_s=60)
        (trusted,) = bundles(server)
        status, words = await ask(tls_port, "/mutate", body, trusted)
    assert status == 400
    assert "AdmissionReview" in words


async def test_who_leaves_says_so_and_answers_on(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (tls_port, port, process):
        await ready(port)
        await server.until(lambda: "" not in bundles(server), within_s=60)
        (trusted,) = bundles(server)
        context = ssl.create_default_context(cadata=trusted)
        url = f"https://127.0.0.1:{tls_port}/validate"
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=a_review(a_claim()), ssl=context, server_hostname=HOST) as answer:
                assert "Connection" not in answer.headers
            process.send_signal(signal.SIGTERM)
            assert process.stderr
            while b"stopping" not in await process.stderr.readline():
                pass
            async with session.post(url, data=a_review(a_claim()), ssl=context, server_hostname=HOST) as answer:
                assert (answer.status, answer.headers["Connection"]) == (200, "close")
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "stopping\n")


async def test_two_replicas_serve_one_certificate(server: FakeAPIServer, tmp_path: Path) -> None:
    async with running(server, tmp_path) as (first, probe_a, _), running(server, tmp_path) as (second, probe_b, _):
        await asyncio.gather(ready(probe_a), ready(probe_b))
        await server.until(lambda: "" not in bundles(server), within_s=60)
        (trusted,) = bundles(server)
        assert (await ask(first, "/validate", a_review(a_claim()), trusted))[0] == 200
        assert (await ask(second, "/validate", a_review(a_claim()), trusted))[0] == 200


async def test_a_certificate_of_somebody_else_is_served_and_nothing_written(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    pair = certificates.issue((HOST,), datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1))
    texts = {"tls.crt": pair.certificate, "tls.key": pair.key}
    server.put(SECRET, {"data": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}})
    async with running(server, tmp_path, EGPU_CERTIFICATES="external") as (tls_port, port, _):
        await ready(port)
        assert (await ask(tls_port, "/validate", a_review(a_claim()), pair.authority))[0] == 200
    assert server.count("PATCH") == 0


class Clock:
    def __init__(self) -> None:
        self.now = datetime.datetime.now(datetime.UTC)
        self.asked = 0

    def __call__(self) -> datetime.datetime:
        self.asked += 1
        return self.now


async def test_a_certificate_that_grows_old_is_renewed_without_a_moment_of_distrust(
    server: FakeAPIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # HAMi#1572
    clock = Clock()

    def touched() -> None:
        """The keeper looks at the clock again when something changes."""
        held = server.get(SECRET) or {}
        held["metadata"]["annotations"] = {"touched": str(clock.now)}
        server.put(SECRET, held)

    async with apiserver.APIServer.connect(server.kubeconfig(tmp_path)) as api:
        keep = keeper.Keeper(
            api, "egpu", "elastic-gpu-webhook", "elastic-gpu-webhook-tls", "elastic-gpu-webhook", clock
        )
        task = asyncio.create_task(keep.run())
        try:
            await server.until(
                lambda: "tls.crt" in data(server) and bundles(server) == {data(server)["ca.crt"]}, within_s=60
            )
            first, old_trust = data(server)["tls.crt"], data(server)["ca.crt"]
            clock.now += rotation.LIFETIME * 0.7
            touched()
            await server.until(
                lambda: "next.crt" in data(server) and bundles(server) == {data(server)["ca.crt"]}, within_s=60
            )
            assert data(server)["tls.crt"] == first
            assert data(server)["ca.crt"].endswith(old_trust)
            staged = data(server)["next.crt"]
            async with asyncio.timeout(60):
                while data(server)["tls.crt"] != staged:  # time passes while the trust settles
                    clock.now += rotation.SETTLED
                    touched()
                    await asyncio.sleep(0.02)
            assert "next.crt" not in data(server)
            assert bundles(server) == {data(server)["ca.crt"]}
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_bundle_that_another_replica_put_in_first_settles_too_before_the_switch(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    clock = Clock()

    async def touch() -> None:
        """The keeper looks again when something changes, and asks the clock then."""
        held = server.get(SECRET) or {}
        held["metadata"]["annotations"] = {"touched": f"{clock.now} {clock.asked}"}
        server.put(SECRET, held)
        await asyncio.sleep(0.02)

    async with apiserver.APIServer.connect(server.kubeconfig(tmp_path)) as api:
        keep = keeper.Keeper(
            api, "egpu", "elastic-gpu-webhook", "elastic-gpu-webhook-tls", "elastic-gpu-webhook", clock
        )
        task = asyncio.create_task(keep.run())
        try:
            await server.until(
                lambda: "tls.crt" in data(server) and bundles(server) == {data(server)["ca.crt"]}, within_s=60
            )
            async with asyncio.timeout(60):
                enough = clock.asked + 3
                while clock.asked < enough:  # so that it has seen the first bundle everywhere
                    await touch()
            clock.now += datetime.timedelta(days=1)
            server.fault(method="PATCH", path="webhookconfigurations", status=409, reason="Conflict", times=-1)
            tried = server.count("PATCH", "webhookconfigurations")
            staged = certificates.issue((HOST,), clock.now, rotation.LIFETIME)
            held, bundle = server.get(SECRET) or {}, staged.authority + data(server)["ca.crt"]
            laid = {"ca.crt": bundle, "next.crt": staged.certificate, "next.key": staged.key}
            coded = {name: base64.b64encode(text.encode()).decode() for name, text in laid.items()}
            server.put(SECRET, held | {"data": held["data"] | coded})
            await server.until(lambda: server.count("PATCH", "webhookconfigurations") > tried)
            for kind in KINDS:
                found = server.get(CONFIGURATION.format(kind)) or {}
                for hook in found["webhooks"]:
                    hook["clientConfig"]["caBundle"] = coded["ca.crt"]
                server.put(CONFIGURATION.format(kind), found)
            since = clock.now
            async with asyncio.timeout(60):
                while data(server)["tls.crt"] != staged.certificate:
                    await touch()
                    clock.now += datetime.timedelta(seconds=1)
            assert clock.now - since >= rotation.SETTLED
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize("broken", [{"tls.crt": "bm9uc2Vuc2U="}, {"tls.key": "bm9uc2Vuc2U="}, {"tls.crt": None}])
async def test_a_secret_that_was_broken_is_written_anew(
    server: FakeAPIServer, tmp_path: Path, broken: dict[str, str | None]
) -> None:
    async with running(server, tmp_path) as (_, port, _):
        await ready(port)
        before = data(server)
        held = server.get(SECRET) or {}
        server.put(SECRET, held | {"data": {k: v for k, v in {**held["data"], **broken}.items() if v}})
        await server.until(
            lambda: (
                data(server).get("tls.crt") not in (None, before["tls.crt"], "nonsense")
                and bundles(server) == {data(server)["ca.crt"]}
            ),
            within_s=60,
        )


async def test_a_bad_setting_ends_it_with_the_variables_name() -> None:
    process = await asyncio.create_subprocess_exec(
        *("env", "EGPU_CARD_MEMORY=much", sys.executable, "-m", "webhook"),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.startswith(b"egpu-webhook: EGPU_CARD_MEMORY: quantity 'much' is not a number")


def test_every_setting_is_in_the_manual() -> None:
    assert all(f"EGPU_{name.upper()}\n" in settings.manual() for name in settings.Settings.__dataclass_fields__)
    assert webhook.__doc__
