"""Every contract of the layers bites: one forbidden import, one failure that names the contract."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "api",
    "cel",
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
)
VIOLATIONS = {
    "way-allocation": ("allocation/amounts.py", "import allocation.devices"),
    "allocator": ("allocation/cluster.py", "import api.v1alpha1"),
    "folders": ("api/errors.py", "import kube.slices"),
    "controller": ("controller/snapshot.py", "import driver.inventory"),
    "pool": ("pool/leases.py", "import driver.plan"),
    "webhook": ("webhook/known.py", "import controller.classes"),
    "pool-grpc": ("pool/agent.py", "import grpc"),
    "way-pool": ("pool/leases.py", "import pool.agent"),
    "cli": ("cli/queries.py", "import asyncio"),
    "cel": ("cel/values.py", "import api.v1alpha1"),
    "picture": ("view/picture.py", "import api.v1alpha1"),
    "translation": ("translate/pods.py", "import api.resource"),
    "agnostic": ("kubeletplugin/contract.py", "import api.names"),
    "doors": ("driver/offer.py", "import kube.slices"),
    "pure": ("driver/plan.py", "import time"),
    "gate-pynvml": ("driver/inventory.py", "import pynvml"),
    "gate-kubernetes": ("kube/slices.py", "import kubernetes"),
    "gate-aiohttp": ("kube/slices.py", "import aiohttp"),
    "gate-grpc": ("controller/classes.py", "import grpc"),
    "way-api": ("api/errors.py", "import api.resource"),
    "way-translate": ("translate/shape.py", "import translate.pods"),
    "way-cel": ("cel/tree.py", "import cel.program"),
    "way-webhook": ("webhook/known.py", "import webhook.checks"),
    "explanations": ("explain/funnel.py", "import view.join"),
    "way-explain": ("explain/reasons.py", "import explain.text"),
    "way-view": ("view/objects.py", "import view.join"),
    "way-cli": ("cli/queries.py", "import cli.commands"),
    "way-kube": ("kube/slices.py", "import kube.publisher"),
    "way-kubeletplugin": ("kubeletplugin/contract.py", "import kubeletplugin.sockets"),
    "way-driver": ("driver/inventory.py", "import driver.records\nimport driver.offer"),
    "way-remote": ("driver/remote/records.py", "import driver.remote.node"),
    "way-controller": ("controller/snapshot.py", "import controller.classes"),
}
HIDDEN = ("if TYPE_CHECKING:\n    import {}", "def later():\n    import {}")


def _contracts() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["id"] for contract in settings["tool"]["importlinter"]["contracts"]]


def _lint(tree: Path, contract: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [program, "--no-cache", "--contract", contract], cwd=tree, capture_output=True, text=True, check=False
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "build"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_has_a_violation() -> None:
    assert sorted(_contracts()) == sorted(VIOLATIONS)


@pytest.mark.parametrize("contract", sorted(VIOLATIONS))
def test_a_forbidden_import_is_caught(tree: Path, contract: str) -> None:
    where, line = VIOLATIONS[contract]
    with (tree / where).open("a") as module:
        module.write(f"\n{line}\n")
    done = _lint(tree, contract)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


@pytest.mark.parametrize("form", HIDDEN)
def test_a_hidden_import_is_caught_too(tree: Path, form: str) -> None:
    with (tree / "driver/plan.py").open("a") as module:
        module.write("\nTYPE_CHECKING = False\n" + form.format("subprocess") + "\n")
    assert _lint(tree, "pure").returncode == 1
