"""The program as it is started: help, bad settings, probes, a stop that hands the lease on."""

import asyncio
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.fakes import ports
from tests.fakes.apiserver import FakeAPIServer

ROOT = Path(__file__).resolve().parents[2]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/elastic-gpu-controller"


async def _started(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("env", *(f"{name}={value}" for name, value in ({"EGPU_PAGE_PORT": "0"} | environment).items())),
        *(sys.executable, "-m", "controller", *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _get(port: int, path: str) -> tuple[int, str]:
    def call() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(call)


async def test_help_lists_every_setting() -> None:
    process = await _started("--help")
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"EGPU_PORT\n" in out


async def test_a_bad_setting_ends_it_with_the_variables_name() -> None:
    process = await _started(EGPU_PORT="http")
    _, err = await process.communicate()
    assert (process.returncode, err) == (
        2,
        b"egpu-controller: EGPU_PORT is 'http'; it must be a port number from 0 to 65535\n",
    )


async def test_a_taken_port_ends_it_with_what_to_do(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        with socket.create_server(("", 0)) as taken:
            port = str(taken.getsockname()[1])
            process = await _started(KUBECONFIG=str(server.kubeconfig(tmp_path)), EGPU_PORT=port)
            _, err = await process.communicate()
    assert process.returncode == 1
    assert f"port {port} cannot be served".encode() in err
    assert b"Traceback" not in err


async def test_it_is_ready_with_the_whole_cluster_in_view_and_gives_the_lease_back(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        hidden = server.fault(method="GET", path="deviceclasses", status=503, times=-1)
        port = ports.free()
        environment = {"KUBECONFIG": str(server.kubeconfig(tmp_path)), "EGPU_PORT": str(port)}
        process = await _started(**environment)
        try:
            await server.until(lambda: server.get(LEASE) and server.count("GET", "deviceclasses"), within_s=60)
            assert await _get(port, "/healthz") == (200, "ok\n")
            status, text = await _get(port, "/readyz")
            assert status == 503
            assert "deviceclasses" in text
            hidden.times = 0
            await server.until(lambda: server.count("GET", "deviceclasses", watch=True), within_s=60)
            async with asyncio.timeout(60):
                while await _get(port, "/readyz") != (200, "ok\n"):  # noqa: ASYNC110  it has asked, and reads the answer
                    await asyncio.sleep(0.05)
            _, text = await _get(port, "/metrics")
            assert 'elasticgpu_controller_writes_total{outcome="done",write="Create"} 0.0' in text
            assert "elasticgpu_controller_leading 1.0" in text
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert not (server.get(LEASE) or {})["spec"].get("holderIdentity")


async def test_a_leader_that_is_killed_loses_the_lease_and_another_goes_on(tmp_path: Path) -> None:
    """SIGKILL: nothing is handed over, the other waits until the lease has run out."""
    async with FakeAPIServer() as server:
        environment = {"KUBECONFIG": str(server.kubeconfig(tmp_path)), "EGPU_PORT": "0"}
        first = await _started(**environment, EGPU_POD_NAME="first")
        await server.until(lambda: server.get(LEASE), within_s=60)
        second = await _started(**environment, EGPU_POD_NAME="second")
        first.kill()
        await first.communicate()
        try:
            await server.until(
                lambda: str((server.get(LEASE) or {})["spec"]["holderIdentity"]).startswith("second"), within_s=120
            )
        finally:
            second.send_signal(signal.SIGTERM)
            _, err = await second.communicate()
        assert second.returncode == 0, err.decode()


async def test_no_way_to_an_api_server_is_said_in_one_line(tmp_path: Path) -> None:
    process = await _started(KUBECONFIG=str(tmp_path / "none"), EGPU_PORT="0")
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b"no credentials for an API server" in err
