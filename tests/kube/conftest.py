"""An API server that every test here has for itself, and a way to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.apiserver import APIServer
from tests.fakes.apiserver import FakeAPIServer


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    async with FakeAPIServer() as running:
        yield running


@pytest.fixture
async def api(server: FakeAPIServer, tmp_path: Path) -> AsyncIterator[APIServer]:
    async with APIServer.connect(server.kubeconfig(tmp_path), "test/1") as connected:
        yield connected
