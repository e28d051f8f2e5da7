"""What is done around a release: CRDs before an upgrade, a look at the claims before a removal."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from api import crds
from tests.fakes.apiserver import FakeAPIServer

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"


async def run(server: FakeAPIServer, folder: Path, verb: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *("env", f"KUBECONFIG={server.kubeconfig(folder)}", sys.executable, "-m", "controller.release", verb),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


def a_claim(driver: str | None) -> dict[str, Any]:
    results = [{"request": "card", "driver": driver, "pool": "p", "device": "d"}]
    return {"spec": {}, "status": {"allocation": {"devices": {"results": results}}} if driver else {}}


async def test_crds_are_applied_as_this_version_has_them(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        old = crds.crds()[0]
        server.put(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{old['metadata']['name']}",
            {**old, "spec": {"old": True}},
        )
        code, words = await run(server, tmp_path, "crds")
        stored = {found["metadata"]["name"]: found["spec"] for found in server.list("customresourcedefinitions")}
    assert code == 0, words
    for crd in crds.crds():
        assert crd["spec"].items() <= stored[crd["metadata"]["name"]].items()


async def test_a_refusal_is_one_line_that_names_the_right_that_is_missing(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        server.fault(path="customresourcedefinitions", status=403, reason="Forbidden", message="user cannot patch")
        code, words = await run(server, tmp_path, "crds")
    assert code == 1
    assert "grant the verb 'patch' on 'customresourcedefinitions'" in words
    assert "Traceback" not in words


async def test_nobody_leaves_while_claims_hold_our_cards(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        for name, driver in (("free", None), ("other", "gpu.example.com")):
            server.put(f"{CLAIMS}/{name}", a_claim(driver))
        assert await run(server, tmp_path, "leave") == (0, "no claim holds a card\n")
        server.put(f"{CLAIMS}/held", a_claim("gpu.elasticgpu.io"))
        server.put(f"{CLAIMS}/far", a_claim("remote.gpu.elasticgpu.io"))
        code, words = await run(server, tmp_path, "leave")
    assert code == 1
    assert "2 claims still hold cards: ns/far, ns/held" in words
