"""The floor under every test: warnings fail (pyproject.toml), leftover tasks fail, the environment is clean."""

import asyncio
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

_ENDING_TURNS, _TURN_S = 300, 0.01
hypothesis.settings.register_profile(  # how fast an example is made says nothing of the product
    "default",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",  # the same examples for the same test: what is new is found at a desk
)
hypothesis.settings.load_profile("default")
hypothesis.settings.register_profile("nightly", max_examples=1000, derandomize=False)


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
        loop = runner.get_loop()
        # an aiohttp server keeps a task for each connection; its fixture ends it after this check
        tasks = [task for task in asyncio.all_tasks(loop) if "RequestHandler.start" not in repr(task)]
        for _ in range(
            _ENDING_TURNS
        ):  # what was told to end may need some, as a stream of gRPC does; time alone says nothing
            if all(task.done() for task in tasks):
                break
            loop.run_until_complete(asyncio.wait(tasks, timeout=_TURN_S))
        left = [repr(task) for task in tasks if not task.done()]
        assert not left, f"tasks left running: {left}"
    return outcome
