"""Credentials as a cluster hands them out: an authority of its own, and the service account that is mounted into a pod."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api import errors
from kube.apiserver import APIServer
from tests.fakes.apiserver import FakeAPIServer

ROOT = Path(__file__).parents[2]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
MOUNT = """
set -e
mount -t tmpfs tmpfs "$(readlink -f /var/run)"
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
cd /var/run/secrets/kubernetes.io/serviceaccount
echo -n "$1" > token
cp "$2" ca.crt
echo -n default > namespace
cd "$3"
exec "$4" -c "$5"
"""
POD = f"""
import asyncio, sys
from pathlib import Path
from kube import apiserver

async def main():
    async with apiserver.APIServer.connect() as api:
        for line in sys.stdin:
            Path("/var/run/secrets/kubernetes.io/serviceaccount/token").write_text(line.strip())
            print((await api.get("{LEASES}/a"))["spec"]["n"], file=sys.stderr, flush=True)

asyncio.run(main())
"""


def certified(path: Path) -> Path:
    """A certificate of 127.0.0.1 that is its own authority, with its key beside it."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(path.with_suffix(".key")), "-out", str(path), "-days", "2", "-subj", "/CN=fake"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    subprocess.run(command, check=True, capture_output=True)
    return path


async def test_a_replaced_authority_is_taken_up_without_a_restart(tmp_path: Path) -> None:
    async with (
        FakeAPIServer(certificate=certified(tmp_path / "tls.crt")) as server,
        APIServer.connect(server.kubeconfig(tmp_path)) as api,
    ):
        assert await api.get(f"{LEASES}/a") is None
        await server.stop()
        certified(tmp_path / "tls.crt")
        await server.start()
        assert await api.get(f"{LEASES}/a") is None


async def test_a_server_of_another_authority_is_not_spoken_to(tmp_path: Path) -> None:
    async with FakeAPIServer(certificate=certified(tmp_path / "tls.crt")) as server:
        path = server.kubeconfig(tmp_path)
        path.write_text(path.read_text().replace("tls.crt", "other.crt"))
        certified(tmp_path / "other.crt")
        async with APIServer.connect(path) as api:
            with pytest.raises(errors.Unavailable, match=r"cannot reach the API server: .*certificate verify failed"):
                await api.get(f"{LEASES}/a")
    assert not server.requests


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a service account into a namespace of its own: needs root")
async def test_a_pods_service_account_is_used_and_a_new_token_is_taken_up(tmp_path: Path) -> None:
    async with FakeAPIServer(certificate=certified(tmp_path / "tls.crt"), token="first") as server:
        server.put(f"{LEASES}/a", {"spec": {"n": 1}})
        pod = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "sh", "-c", MOUNT, "sh", "first", str(tmp_path / "tls.crt"), str(ROOT)),
            *(sys.executable, POD),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
            | {"KUBERNETES_SERVICE_PORT": str(server.port)},
        )
        assert pod.stdin is not None
        assert pod.stderr is not None
        for token in ("first", "second"):
            server.token = token
            pod.stdin.write(f"{token}\n".encode())
            assert await asyncio.wait_for(pod.stderr.readline(), 60) == b"1\n"
        pod.stdin.close()
        assert await pod.wait() == 0
