"""`kubectl egpu translate` on files, with no cluster anywhere."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.terminal import Done, User

OLD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ml}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: i
        resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8000}}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"""
SHARE = "translated.n1.c0.m8000mi.inference.elasticgpu.io"


@pytest.fixture
def nobody(tmp_path: Path) -> User:
    """Someone without kubectl and without a cluster."""
    return User(tmp_path, tmp_path / "none", sys.executable)


async def translate(user: User, text: str, *arguments: str) -> Done:
    (user.home / "old.yaml").write_text(text)
    return await user.egpu("translate", "-f", str(user.home / "old.yaml"), *arguments)


async def test_a_file_is_shown_as_what_it_becomes_with_what_was_read(nobody: User) -> None:
    done = await translate(nobody, OLD)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == (
        "# Deployment web, container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 8000 -> "
        "8000Mi of memory and no cores of a card of class inference.elasticgpu.io"
    )
    template, web, other = yaml.safe_load_all(done.out)
    assert (template["metadata"], other["kind"]) == ({"name": SHARE, "namespace": "ml"}, "ConfigMap")
    assert web["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == SHARE


async def test_what_it_prints_is_not_translated_again(nobody: User) -> None:
    once = await translate(nobody, OLD)
    twice = await translate(nobody, once.out)
    assert list(yaml.safe_load_all(twice.out)) == list(yaml.safe_load_all(once.out))
    assert twice.out.startswith("# Nothing asks for a card by an old name.\n")


async def test_json_is_one_list_and_the_admins_settings_are_flags(nobody: User) -> None:
    text = OLD.replace("gpumem: 8000", "gpumem-percentage: 50")
    flags = ("--card-memory", "80Gi", "--share-class", "s.example.com", "-o", "json")
    made = json.loads((await translate(nobody, text, *flags)).out)
    assert made["items"][0]["metadata"]["name"] == "translated.n1.c0.m40960mi.s.example.com"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OLD.replace("8000", "8Gi"), "Deployment web: container main: it asks for 8589934592 MiB"),
        (OLD.replace("8000}}", "8000"), "is no YAML: "),
        ("just text", "holds str where a Kubernetes object should be"),
    ],
)
async def test_what_cannot_be_translated_is_exit_code_2_and_one_line(nobody: User, text: str, words: str) -> None:
    done = await translate(nobody, text)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1


async def test_a_file_that_is_not_there_is_named(nobody: User) -> None:
    assert "/none cannot be read" in (await nobody.egpu("translate", "-f", "/none")).err
