"""The `kubernetes` package past its `__init__` files: what is loaded, and that the whole can still be had."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_none_of_the_packages_heavy_parts_is_loaded() -> None:
    code = "import sys, kube.apiserver; print([name for name in {} if name in sys.modules])"
    heavy = ("pydantic", "requests", "oauthlib", "websocket", "kubernetes.client", "kubernetes.aio.client.models")
    assert _fresh(code.format(heavy)).strip() == "[]"


@pytest.mark.parametrize("order", ["kube.credentials, kubernetes", "kubernetes, kube.credentials"])
def test_whoever_imports_the_package_gets_the_whole(order: str) -> None:
    code = f"import {order}; from kubernetes import client; print(client.CoreV1Api.__name__, kube.credentials.Configuration.__name__)"
    assert _fresh(code).strip() == "CoreV1Api Configuration"


def test_a_package_that_was_loaded_before_is_left_as_it_is() -> None:
    code = "import kubernetes.aio.client as client, kube.credentials; print(client.ApiClient.__name__)"
    assert _fresh(code).strip() == "ApiClient"
