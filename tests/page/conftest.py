"""A controller as it is started, an API server that knows people, and Debian's Chromium.

The API server has a loop in a thread of its own, since playwright's plain interface wants none in the test's.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tests.cli.conftest import put
from tests.fakes import ports
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import JSON

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = os.environ.get("EGPU_SCREENSHOTS", "")
ADMIN, TENANT, STRANGER = "admin-token", "tenant-token", "stranger-token"
INVENTORY = "list resourceslices"
NAMES = ("list pods", "list resourceclaims")
sync_api.expect.set_options(timeout=60_000)  # nothing here is about how fast a page is drawn


class Stage:
    """The cluster behind the page, and the controller in front of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = FakeAPIServer()
        self.server.people = {ADMIN: "admin", TENANT: "tenant", STRANGER: "stranger"}
        self.server.rights = {("admin", right, "") for right in (INVENTORY, *NAMES, "get /metrics")}
        self.server.rights |= {("tenant", INVENTORY, ""), *(("tenant", right, "ml") for right in NAMES)}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="API server")
        self._thread.start()
        self._controller: subprocess.Popen[bytes] | None = None
        self.port, self.open_port = ports.free(), ports.free()
        self.do(self.server.start())

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def call(self, act: Callable[[], Any]) -> Any:
        async def acted() -> Any:
            return act()

        return self.do(acted())

    def put(self, *given: JSON) -> None:
        self.call(lambda: put(self.server, *given))

    def start(self, **environment: str) -> str:
        """The page's address, once the controller has seen everything."""
        kubeconfig = str(self.server.kubeconfig(self.folder))
        ports = {"EGPU_PORT": str(self.open_port), "EGPU_PAGE_PORT": str(self.port)}
        self._controller = subprocess.Popen(
            [sys.executable, "-m", "controller"],
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": kubeconfig, "EGPU_LOG_LEVEL": "warning", **ports, **environment},
            stderr=subprocess.DEVNULL,
        )
        until(
            lambda: (
                self.get("/api/overview", ADMIN)[0] == 200 and b'"unknown":{}' in self.get("/api/overview", ADMIN)[1]
            ),
            within_s=120,
        )
        return f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, token: str = "", port: int = 0, header: str = "X-Elastic-GPU-Token") -> tuple[int, bytes]:
        headers = {header: token} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return 0, b""

    def stop_controller(self) -> None:
        if self._controller:
            self._controller.terminate()
            self._controller.wait(60)

    def close(self) -> None:
        self.stop_controller()
        self.do(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def until(true: Callable[[], Any], within_s: float = 60) -> None:
    """For what another process comes to in its own time."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.close()


@pytest.fixture(
    scope="module"
)  # while it is open there is a loop in this thread: other modules have loops of their own
def browser() -> Iterator[sync_api.Browser]:
    program = shutil.which("chromium")
    if program is None:
        assert os.environ.get("CI") != "true", "chromium is missing"
        pytest.skip("the page was NOT TRIED in a browser: chromium is missing (apt-get install chromium)")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: sync_api.Browser) -> Iterator[Callable[..., sync_api.Page]]:
    """Opens an address, signed in; every error in the page's console fails the test."""
    contexts, faults = [], []

    def opened(address: str, token: str = ADMIN, **options: Any) -> sync_api.Page:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        context.add_init_script(f"if (!sessionStorage.token && '{token}') sessionStorage.token = '{token}'")
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security" in said.text else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults, faults


def picture(page: sync_api.Page, name: str) -> None:
    """A screenshot for whoever wants to look: EGPU_SCREENSHOTS names the folder."""
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=False)
