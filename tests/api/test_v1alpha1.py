"""The opaque configs, the class, and the CRD files."""

from typing import Any

import pytest

from api import errors, v1alpha1
from hack import generate

CARD = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "CardConfig"}


SHARE = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ShareConfig"}


@pytest.mark.parametrize(
    ("parameters", "config"),
    [
        (CARD, v1alpha1.CardConfig()),
        (SHARE, v1alpha1.ShareConfig()),
        (
            SHARE | {"memory": "Required", "accept": ["MPS", "Driver"]},
            v1alpha1.ShareConfig(
                memory=v1alpha1.Enforcement.REQUIRED, accept=(v1alpha1.Rung.MPS, v1alpha1.Rung.DRIVER)
            ),
        ),
    ],
)
def test_a_config_is_chosen_by_version_and_kind(parameters: dict[str, Any], config: v1alpha1.Config) -> None:
    assert v1alpha1.decode_config(parameters, "w") == config
    written = v1alpha1.encode_config(config)
    assert written == parameters
    assert list(written) == sorted(written)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"kind": "CardConfig"}, "w: apiVersion is None at $.apiVersion; known: elasticgpu.io/v1alpha1"),
        (CARD | {"apiVersion": "elasticgpu.io/v1"}, "w: apiVersion is 'elasticgpu.io/v1' at $.apiVersion; known:"),
        (CARD | {"kind": "GpuConfig"}, "w: kind is 'GpuConfig' at $.kind; known: CardConfig, ShareConfig"),
        (CARD | {"kind": ["CardConfig"]}, "w: kind is ['CardConfig'] at $.kind; known: CardConfig, ShareConfig"),
        (CARD | {"sharing": {}}, 'w: unknown field "sharing" at $; known: none'),
        (SHARE | {"memory": "Maybe"}, "w: Invalid enum value 'Maybe' at $.memory"),
        (SHARE | {"accept": []}, "w: Expected `array` of length >= 1 at $.accept"),
        ([CARD], "w: parameters must be an object with apiVersion and kind"),
        (None, "w: parameters must be an object with apiVersion and kind"),
    ],
)
def test_a_config_that_is_not_known_is_refused(parameters: Any, text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        v1alpha1.decode_config(parameters, "w")
    assert str(caught.value).startswith(text)


def test_a_class_has_the_defaults_of_its_crd() -> None:
    spec = v1alpha1.decode_class({"spec": {"backend": "Share", "share": {}}}, "class c")
    assert spec.allocation == v1alpha1.Allocation()
    assert spec.share == v1alpha1.Share()
    assert spec.share.accept == (v1alpha1.Rung.DRIVER, v1alpha1.Rung.MPS, v1alpha1.Rung.HAMI)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, 'class c: field "backend" is missing at $.spec'),
        (None, "class c: Expected `object`, got `null` at $.spec"),
        ({"backend": "Half"}, "class c: Invalid enum value 'Half' at $.spec.backend; known: Whole, Share, Remote"),
        (
            {"backend": "Share", "share": {"memry": 1}},
            'unknown field "memry" at $.spec.share; known: accept, cores, fallback, memory',
        ),
        ({"backend": "Whole", "cards": {"minMemory": "24GB"}}, "at $.spec.cards.minMemory"),
        ({"backend": "Whole", "workloadTypes": ["a b"]}, "at $.spec.workloadTypes[0]"),
    ],
)
def test_a_class_that_cannot_be_read_is_refused_with_the_path(spec: Any, text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        v1alpha1.decode_class({"spec": spec}, "class c")
    assert text in str(caught.value)


def test_the_crd_files_are_fresh() -> None:
    for path, text in generate.crds().items():
        assert path.read_text() == text, f"{path} is stale: make generate"
