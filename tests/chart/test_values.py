"""What the chart accepts and refuses, and that it says why."""

import json
import re
from collections.abc import Callable
from typing import Any

import helm_python
import pytest

from tests.chart.conftest import CHART, IMAGE, NAMESPACE

WRONG = {
    "unknown setting": ({"nodes": {}}, "nodes"),
    "unknown setting further in": ({"node": {"tolerationss": []}}, "tolerationss"),
    "wrong type": ({"controller": {"replicas": "2"}}, "/controller/replicas"),
    "no replica at all": ({"controller": {"replicas": 0}}, "/controller/replicas"),
    "no patience at all": ({"controller": {"patienceSeconds": 0}}, "/controller/patienceSeconds"),
    "unknown fill": ({"node": {"fill": "Random"}}, "/node/fill"),
    "the page open to all": ({"page": {"listen": "open"}}, "/page/listen"),
    "unknown log level": ({"logLevel": "trace"}, "/logLevel"),
    "relative path": ({"driverRoot": "run/nvidia/driver"}, "/driverRoot"),
    "path with a slash at its end": ({"kubeletRoot": "/var/lib/kubelet/"}, "/kubeletRoot"),
    "root as a directory of its own": ({"cdiDir": "/"}, "/cdiDir"),
    "image with its tag in the repository": (
        {"image": {"repository": "registry.example/elastic-gpu:1"}},
        "/image/repository",
    ),
    "unknown unit": ({"webhook": {"gpushareUnit": "GB"}}, "/webhook/gpushareUnit"),
    "unknown kind of certificate": ({"webhook": {"certificates": "none"}}, "/webhook/certificates"),
    "unknown pull policy": ({"image": {"repository": "elastic-gpu", "pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
}


@pytest.mark.parametrize(("values", "where"), WRONG.values(), ids=WRONG)
def test_the_schema_refuses(chart: helm_python.Chart, values: dict[str, Any], where: str) -> None:
    with pytest.raises(helm_python.HelmError, match=where):
        chart.render({**IMAGE, **values}, name="r", namespace=NAMESPACE)


def test_an_image_has_to_be_named_and_the_text_says_how(chart: helm_python.Chart) -> None:
    with pytest.raises(
        helm_python.HelmError, match=r"image\.repository is not set: build the image from the repository's Dockerfile"
    ):
        chart.render({}, name="r", namespace=NAMESPACE)


def test_the_page_with_tls_needs_a_certificate_and_the_text_says_how(render: Callable[..., object]) -> None:
    with pytest.raises(
        helm_python.HelmError, match=r"page\.tlsSecret names no Secret: make one of type kubernetes.io/tls"
    ):
        render({"page": {"listen": "tls"}})


def test_a_kubelet_root_that_makes_the_socket_path_too_long_is_refused(render: Callable[..., object]) -> None:
    longest = "/" + "k" * (107 - len("//plugins/gpu.elasticgpu.io/dra-00000000-0000-0000-0000-000000000000.sock"))
    render({"kubeletRoot": longest})
    with pytest.raises(
        helm_python.HelmError,
        match=r"path of 108 characters, and Linux allows 107; use .* at least 1 characters shorter",
    ):
        render({"kubeletRoot": longest + "k"})


def test_every_default_is_in_the_schema_and_every_setting_has_a_default(chart: helm_python.Chart) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        properties = schema.get("properties", {})
        assert set(values) == set(properties) - {"global"}, path
        for key, value in values.items():
            if "properties" in properties[key]:
                compare(value, properties[key], f"{path}.{key}")

    compare(chart.values, schema, "")


def test_no_setting_is_without_use(chart: helm_python.Chart) -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    where_a_pod_runs = ("priorityClassName", "nodeSelector", "affinity", "tolerations")

    def used(values: dict[str, Any], path: str) -> None:
        for key, value in values.items():
            if f"{path}.{key}" in (
                ".Values.image",
                ".Values.node",
                ".Values.page",
                ".Values.monitoring",
                ".Values.controller",
                ".Values.webhook",
                ".Values.hooks",
            ):
                used(value, f"{path}.{key}")
            elif path in (".Values.controller", ".Values.webhook") and key in where_a_pod_runs:
                assert re.search(rf'include "elastic-gpu.pod" \(dict "root" \S+ "of" .*{re.escape(path)}\b', templates)
                assert f".of.{key}" in templates
            else:
                assert f"{path}.{key}" in templates

    used(chart.values, ".Values")


def test_lint_finds_nothing_but_the_missing_icon() -> None:
    found = helm_python.lint(CHART, IMAGE)
    assert [message["error"] for message in found["messages"]] == ["icon is recommended"]


CONTRADICTIONS = {
    "two names for one image": (
        {"image": {**IMAGE["image"], "digest": f"sha256:{'a' * 64}", "tag": "1"}},
        "leave tag empty",
    ),
    "a checksum of nothing": ({"node": {"hamiSHA256": "ab" * 32}}, "node.hamiLibrary, which is not set"),
    "held but not shared": ({"node": {"sharesPerCard": 0, "mps": True}}, "so no card is shared"),
    "one directory for two": ({"cdiDir": "/var/lib/kubelet"}, "cdiDir and kubeletRoot are both"),
    "an issuer without a name": ({"webhook": {"enabled": True, "certificates": "cert-manager"}}, "names no issuer"),
}


@pytest.mark.parametrize(("values", "words"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused_with_what_to_do(
    chart: helm_python.Chart, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(helm_python.HelmError, match=words):
        chart.render({**IMAGE, **values}, name="r", namespace=NAMESPACE)
