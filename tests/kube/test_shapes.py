"""What is skipped of an object is what nobody reads."""

from typing import Any

import msgspec
import pytest

from allocation import pods
from controller import gpus, mirror, offers, snapshot
from hack.scale import load, objects
from kube import shapes
from view import reader

_READERS: dict[str, tuple[Any, ...]] = {
    "Node": (reader.node, pods.node),
    "Pod": (reader.pod, reader.driver_pod, pods.pod),
    "ResourceSlice": (snapshot.slice_, offers.slice_),
    "ResourceClaim": (reader.claim, mirror.claim),
    "ElasticGPU": (gpus.gpu,),
}
_MANAGED = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}}}}]


def _decoded(one: dict[str, Any], shape: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(one), type=shape)
    return found


def _told(value: Any) -> Any:
    """Values that are equal by identity alone are compared by what they say."""
    return repr(value) if "object at" not in repr(value) else type(value)


@pytest.mark.parametrize("kind", _READERS)
def test_whoever_reads_an_object_finds_in_it_all_that_it_looks_for(kind: str) -> None:
    shape = shapes.Node if kind == "Node" else shapes.Whole
    for number in range(3):
        for one in load.whole(number, {}):
            if one["kind"] == kind:
                meta = one["metadata"] | {"uid": "u", "resourceVersion": "7", "annotations": {"a": "b"}}
                whole = one | {"metadata": meta | {"managedFields": _MANAGED}}
                for read in _READERS[kind]:
                    assert _told(read(_decoded(whole, shape))) == _told(read(whole))


def test_fields_of_the_server_and_the_images_of_a_node_are_not_even_decoded() -> None:
    whole = objects.node(1)
    whole["metadata"]["managedFields"] = _MANAGED
    found = _decoded(whole, shapes.Node)
    assert found["status"].keys() == {"allocatable", "conditions"}
    assert found["metadata"] == {key: value for key, value in whole["metadata"].items() if key != "managedFields"}


@pytest.mark.parametrize("shape", [shapes.Whole, shapes.Node])
def test_an_object_of_a_strange_form_is_given_to_its_reader_who_can_tell(shape: Any) -> None:
    strange = {"metadata": {"name": 7, "labels": None, "finalizers": "none"}, "spec": None}
    assert _decoded(strange, shape) == strange
