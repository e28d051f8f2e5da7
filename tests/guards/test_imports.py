"""What a fresh interpreter loads: pure modules stay light, and our names are ours."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("asyncio", "grpc", "kubernetes", "aiohttp", "pynvml")


def _fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "module",
    [
        "driver.plan",
        "driver.offer",
        "kubeletplugin.contract",
        "controller.classes",
        "kube.slices",
        "view.join",
        "allocation.cluster",
        "cel",
        "explain.text",
        "pool.leases",
    ],
)
def test_a_module_that_decides_loads_nothing_that_acts(module: str) -> None:
    loaded = _fresh(f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.parametrize(
    "package",
    [
        "api",
        "cel",
        "explain.text",
        "translate",
        "allocation",
        "explain",
        "view",
        "kube",
        "poolclient",
        "kubeletplugin",
        "driver",
        "controller",
        "webhook",
        "cli",
        "pool",
    ],
)
def test_a_package_of_ours_is_not_shadowed(package: str) -> None:
    assert Path(_fresh(f"import {package}; print({package}.__file__)").strip()).is_relative_to(ROOT)


def test_the_contract_re_exports_exactly_its_public_names() -> None:
    code = (
        "import kubeletplugin, kubeletplugin.contract as c; "
        "print(sorted(kubeletplugin.__all__) == sorted(n for n, v in vars(c).items() "
        "if isinstance(v, type) and v.__module__ == c.__name__))"
    )
    assert _fresh(code).strip() == "True"


def test_the_command_line_loads_nothing_that_is_slow_to_start() -> None:
    slow = (*HEAVY, "structlog", "yaml", "prometheus_client", "unittest", "email")
    assert (
        _fresh(f"import sys, cli.__main__, cli.commands; print([n for n in {slow} if n in sys.modules])").strip()
        == "[]"
    )


def test_a_controller_that_asks_no_pools_loads_no_grpc() -> None:
    """It would be a fifth of what an idle one needs."""
    assert _fresh("import sys, controller.__main__; print('grpc' in sys.modules)").strip() == "False"
