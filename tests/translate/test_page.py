"""The page about moving here shows what translation does."""

import pytest

from api import v1alpha1
from tests.translate import page
from translate import asks, manifests, pods

PAIRS = page.pairs()


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.title for pair in PAIRS])
def test_the_right_side_is_what_the_left_one_becomes(pair: page.Pair) -> None:
    done = manifests.translated(pair.documents(pair.old), pods.Setting())
    assert [*done.templates, *done.documents] == pair.documents(pair.new)


def test_every_system_has_its_pair() -> None:
    text = "".join(pair.old for pair in PAIRS)
    assert len(PAIRS) == 6
    for system in {name.partition("/")[0] for name in asks.NAMES}:
        assert f"{system}/" in text


def test_the_class_that_needs_no_admission_can_be_read() -> None:
    spec = v1alpha1.decode_class(page.by_name(), "page")
    assert spec.extended_resource_name == "nvidia.com/gpu"
