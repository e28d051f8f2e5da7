"""The templates that translated pods name, from the pods to the API server and away again."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller import metrics, templates, translator
from kube import apiserver
from tests.fakes.apiserver import FakeAPIServer
from translate import shape

CLASS = "share.example.com"
NAME = f"translated.n1.c30.m8000mi.{CLASS}"
LATER = "2026-06-01T00:00:00Z"


def a_pod(*names: str, namespace: str = "ns", **more: Any) -> templates.Pod | None:
    claims = [{"name": f"c{number}", "resourceClaimTemplateName": name} for number, name in enumerate(names)]
    meta = {"name": "p", "namespace": namespace, "labels": {"elasticgpu.io/translated": "true"}}
    return templates.pod({"metadata": meta, "spec": {"resourceClaims": claims}, **more})


def a_template(name: str = NAME, managed_by: str = "elastic-gpu") -> templates.Template:
    labels = {"app.kubernetes.io/managed-by": managed_by}
    created = "2026-01-01T00:00:00Z"
    return templates.template(
        {"metadata": {"namespace": "ns", "name": name, "uid": "u", "creationTimestamp": created, "labels": labels}}
    )


def turn(
    pod: templates.Pod | None = None, *there: templates.Template, old_before: str = LATER
) -> list[templates.Write]:
    return list(templates.turn([pod] if pod else [], there, {"ns"}, {CLASS}, old_before))


def test_a_missing_template_is_made_as_its_name_says() -> None:
    (write,) = turn(a_pod(NAME, NAME, "users-own"))
    assert isinstance(write, templates.Create)
    of = shape.Shape(device_class=CLASS, cores=30, memory_mib=8000)
    assert write.body["spec"] == shape.template(of)["spec"]
    assert write.body["metadata"]["name"] == NAME
    assert turn(a_pod(NAME), a_template()) == []


def test_nothing_is_made_where_nobody_asked_for_it_or_of_a_foreign_class() -> None:
    """A label is no right: a pod's author could have set it."""
    assert turn(a_pod(NAME, namespace="other")) == []
    assert turn(a_pod("translated.n1.foreign.example.com")) == []
    assert turn(a_pod(NAME, status={"phase": "Succeeded"})) == []


def test_what_nobody_names_any_more_goes_after_a_while_and_only_if_it_is_ours() -> None:
    assert turn(None, a_template()) == [templates.Delete(namespace="ns", name=NAME, uid="u")]
    assert turn(None, a_template(), old_before="2025-01-01T00:00:00Z") == []
    assert turn(None, a_template(managed_by="Helm"), a_template("users-own")) == []


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as server:
        server.put("/api/v1/namespaces/ns", {"metadata": {"labels": {"elasticgpu.io/translate": "true"}}})
        server.put(f"/apis/elasticgpu.io/v1alpha1/elasticgpuclasses/{CLASS}", {"spec": {}})
        yield server


@contextlib.asynccontextmanager
async def translating(server: FakeAPIServer, folder: Path) -> AsyncIterator[None]:
    async with apiserver.APIServer.connect(server.kubeconfig(folder)) as api:
        now = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
        task = asyncio.create_task(translator.Translator(api, metrics.Metrics(), lambda: now).run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def put_pod(server: FakeAPIServer, name: str = "p") -> None:
    claims = [{"name": "c", "resourceClaimTemplateName": NAME}]
    labels = {"elasticgpu.io/translated": "true"}
    server.put(
        f"/api/v1/namespaces/ns/pods/{name}", {"metadata": {"labels": labels}, "spec": {"resourceClaims": claims}}
    )


def made(server: FakeAPIServer) -> list[str]:
    return [item["metadata"]["name"] for item in server.list("resourceclaimtemplates")]


async def test_the_template_is_there_as_soon_as_the_pod_is_and_goes_with_it(
    server: FakeAPIServer, tmp_path: Path
) -> None:
    async with translating(server, tmp_path):
        await server.until(lambda: server.count("GET", "elasticgpuclasses", watch=True), within_s=60)
        put_pod(server)
        await server.until(lambda: made(server) == [NAME], within_s=60)
        server.remove("/api/v1/namespaces/ns/pods/p")
        await server.until(lambda: made(server) == [], within_s=60)


async def test_a_write_that_failed_is_made_again(server: FakeAPIServer, tmp_path: Path) -> None:
    server.fault(method="POST", path="resourceclaimtemplates", status=500, times=2)
    put_pod(server)
    async with translating(server, tmp_path):
        await server.until(lambda: made(server) == [NAME], within_s=60)


async def test_a_template_that_somebody_else_made_is_left_as_it_is(server: FakeAPIServer, tmp_path: Path) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates/{NAME}"
    server.put(path, {"spec": {"of": "somebody else"}})
    put_pod(server)
    async with translating(server, tmp_path):
        await server.until(lambda: server.count("GET", "/pods", watch=True), within_s=60)
        put_pod(server, "q")
        await server.until(lambda: server.count("GET", "templates", watch=True), within_s=60)
    assert (server.get(path) or {})["spec"] == {"of": "somebody else"}
    assert server.count("POST") == 0
