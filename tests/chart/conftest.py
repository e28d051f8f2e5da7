"""The chart as Helm renders it: offline, by the library that also installs it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "elastic-gpu"
NAMESPACE = "gpu-system"
RELEASE = "elastic-gpu"
IMAGE = {"image": {"repository": "registry.example/elastic-gpu"}}

Object = dict[str, Any]


@pytest.fixture(scope="session")
def chart() -> Iterator[helm_python.Chart]:
    with helm_python.Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def render(chart: helm_python.Chart) -> Callable[..., list[Object]]:
    """Objects for these values; every one of the chart's defaults stays as it is but the required image."""

    def rendered(values: Object | None = None, name: str = RELEASE) -> list[Object]:
        texts = chart.render({**IMAGE, **(values or {})}, name=name, namespace=NAMESPACE)
        return [
            found
            for file, text in texts.items()
            if file.endswith(".yaml")
            for found in yaml.safe_load_all(text)
            if found
        ]

    return rendered


@pytest.fixture(scope="session")
def objects(render: Callable[..., list[Object]]) -> dict[tuple[str, str], Object]:
    """With default values, by kind and name."""
    return {(found["kind"], found["metadata"]["name"]): found for found in render()}
