"""The floor under every test: warnings fail (pyproject.toml), leftover tasks fail, the environment is clean."""

import asyncio
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("nightly", max_examples=1000, deadline=None)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts its background jobs so, and the programs under test would inherit it and not be interrupted
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("EGPU_", "FAKE_NVML_")) or name == "KUBECONFIG":
            monkeypatch.delenv(name)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """A test that leaves a task behind has not stopped what it started."""
    outcome = yield
    runner = pyfuncitem.funcargs.get("_function_scoped_runner")
    if runner is not None:
        tasks = asyncio.all_tasks(runner.get_loop())
        # an aiohttp server keeps a task for each connection; its fixture ends it after this check
        left = [task.get_name() for task in tasks if "RequestHandler.start" not in repr(task)]
        assert not left, f"tasks left running: {left}"
    return outcome
