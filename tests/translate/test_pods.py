"""Pods by old names and the pods with claims that they become."""

import copy
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as some

from api import errors, names
from translate import asks, pods, shape

LABEL = names.WORKLOAD_LABEL
SETTING = pods.Setting()
WHOLE, SHARE = "training.elasticgpu.io", "inference.elasticgpu.io"


def container(name: str = "main", sidecar: bool = False, **limits: Any) -> dict[str, Any]:
    resources = {"resources": {"limits": {f"nvidia.com/{key}": amount for key, amount in limits.items()}}}
    return {"name": name, "image": "i", **resources} | ({"restartPolicy": "Always"} if sidecar else {})


def a_pod(*containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = (), **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), **({"initContainers": list(inits)} if inits else {}), **spec},
    }


def templates_of(pod: dict[str, Any]) -> dict[str, list[str]]:
    """Container -> the templates that it uses."""
    named = {item["name"]: item["resourceClaimTemplateName"] for item in pod["spec"]["resourceClaims"]}
    found = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return {
        one["name"]: [f"{use['name']}={named[use['name']]}" for use in one["resources"].get("claims", ())]
        for one in found
    }


def test_a_whole_card_becomes_a_claim_that_the_container_uses() -> None:
    done = pods.translated(a_pod(container(gpu=1)), SETTING)
    assert done.pod["spec"] == {
        "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "translated-0"}]}}],
        "resourceClaims": [{"name": "translated-0", "resourceClaimTemplateName": f"translated.n1.{WHOLE}"}],
    }
    assert done.pod["metadata"]["labels"] == {names.TRANSLATED_LABEL: "true"}
    assert done.shapes == (shape.Shape(device_class=WHOLE),)
    assert done.notes == (f"container main: nvidia.com/gpu: 1 -> 1 whole card of class {WHOLE}",)


def test_what_was_read_is_spelled_out() -> None:
    (note,) = pods.translated(a_pod(container(gpu=1, gpumem="8k")), SETTING).notes
    assert note == (
        f"container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 8k -> 8000Mi of memory and no cores of a card of class {SHARE}"
    )


def test_each_container_and_sidecar_has_its_own() -> None:
    pod = a_pod(container("a", gpu=1), container("b", gpu=1), container("c"), inits=(container("s", True, gpu=1),))
    found = templates_of(pods.translated(pod, SETTING).pod)
    assert found == {
        "s": [f"translated-0=translated.n1.{WHOLE}"],
        "a": [f"translated-1=translated.n1.{WHOLE}"],
        "b": [f"translated-2=translated.n1.{WHOLE}"],
        "c": [],
    }


def test_an_init_container_uses_the_cards_of_a_container_that_has_enough() -> None:  # k8s#134880, HAMi#2558
    pod = a_pod(container("a", gpu=1), container("b", gpu=2), inits=(container("one", gpu=1), container("two", gpu=2)))
    found = templates_of(pods.translated(pod, SETTING).pod)
    assert (found["one"], found["two"]) == (found["a"], found["b"])


def test_init_containers_that_find_none_share_the_largest() -> None:  # k8s#134880
    pod = a_pod(container("a"), inits=(container("one", gpu=1), container("two", gpu=2)))
    done = pods.translated(pod, SETTING)
    found = templates_of(done.pod)
    assert found["one"] == found["two"] == [f"translated-2=translated.n2.{WHOLE}"]
    assert len(done.shapes) == 1


def test_a_share_of_an_init_container_is_its_own() -> None:
    pod = a_pod(container("a", gpu=1, gpumem=10), inits=(container("one", gpu=1, gpumem=10),))
    found = templates_of(pods.translated(pod, SETTING).pod)
    assert found["one"] != found["a"]


def test_other_claims_and_resources_stay() -> None:
    pod = a_pod(container(gpu=1), resourceClaims=[{"name": "translated-0", "resourceClaimName": "mine"}])
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "translated-0"}]
    pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = 1
    changed = pods.translated(pod, SETTING).pod["spec"]
    assert [item["name"] for item in changed["resourceClaims"]] == ["translated-0", "translated-0-1"]
    assert changed["containers"][0]["resources"] == {
        "limits": {"cpu": 1},
        "claims": [{"name": "translated-0"}, {"name": "translated-0-1"}],
    }


def test_the_pods_type_goes_before_the_namespaces_and_that_before_the_usual_one() -> None:
    other = pods.Class(name="batch.example.com", whole=True, workload_types=("batch",))
    setting = pods.Setting(classes=(*pods.READY_MADE, other), workload_type="batch")
    labelled = a_pod(container(gpu=1))
    labelled["metadata"]["labels"] = {LABEL: "training"}
    assert pods.translated(labelled, setting).shapes[0].device_class == WHOLE
    assert pods.translated(a_pod(container(gpu=1)), setting).shapes[0].device_class == other.name
    assert pods.translated(a_pod(container(gpu=1, gpumem=1)), setting).shapes[0].device_class == SHARE


@pytest.mark.parametrize(
    ("kind", "limits", "words"),
    [
        (
            "training",
            {"gpu": 1, "gpumem": 1},
            "asks for shares of cards, but class training.elasticgpu.io .* gives whole",
        ),
        ("inference", {"gpu": 1}, "asks for whole cards, but class inference.elasticgpu.io .* gives shares"),
        ("unknown", {"gpu": 1}, "no class is made for .* unknown; there are: inference, simulation, training"),
    ],
)
def test_a_type_that_does_not_fit_is_refused(kind: str, limits: dict[str, int], words: str) -> None:
    pod = a_pod(container(**limits))
    pod["metadata"]["labels"] = {LABEL: kind}
    with pytest.raises(errors.Invalid, match=words):
        pods.translated(pod, SETTING)


def test_no_class_of_that_kind_is_refused_with_the_type() -> None:
    with pytest.raises(errors.Invalid, match="no class gives whole cards to workload type training"):
        pods.translated(a_pod(container(gpu=1)), pods.Setting(classes=()))


def test_a_pod_that_names_its_node_is_told_what_to_write() -> None:  # HAMi#960
    with pytest.raises(errors.Invalid, match=r"nodeSelector \{kubernetes.io/hostname: n1\}"):
        pods.translated(a_pod(container(gpu=1), nodeName="n1"), SETTING)
    assert not pods.translated(a_pod(container(), nodeName="n1"), SETTING).shapes


def test_an_annotation_that_chooses_cards_is_not_passed_over() -> None:
    pod = a_pod(container(gpu=1))
    pod["metadata"]["annotations"] = {"nvidia.com/use-gputype": "A10"}
    with pytest.raises(errors.Invalid, match=r"nvidia.com/use-gputype chooses cards"):
        pods.translated(pod, SETTING)


def test_the_old_systems_scheduler_is_left_out() -> None:
    assert (
        "schedulerName"
        not in pods.translated(a_pod(container(gpu=1), schedulerName="hami-scheduler"), SETTING).pod["spec"]
    )
    kept = pods.translated(a_pod(container(gpu=1), schedulerName="volcano"), SETTING).pod["spec"]
    assert kept["schedulerName"] == "volcano"


AMOUNTS = some.fixed_dictionaries(
    {},
    optional={
        **{name: some.integers(0, 300) for name in asks.NAMES if name not in (asks.NVIDIA_PRIORITY, asks.QGPU_GREEDY)},
        "cpu": some.integers(1, 9),
    },
)
CONTAINERS = some.builds(
    lambda amounts, place, sidecar: (amounts, place, sidecar),
    AMOUNTS,
    some.sampled_from(["limits", "requests"]),
    some.booleans(),
)


@given(some.lists(CONTAINERS, min_size=1, max_size=4), some.lists(CONTAINERS, max_size=3))
def test_translating_twice_changes_nothing_and_nothing_is_lost(apps: Any, inits: Any) -> None:
    def made(found: Any, prefix: str) -> tuple[dict[str, Any], ...]:
        return tuple(
            {"name": f"{prefix}{number}", "image": "i", "resources": {place: dict(amounts)}}
            | ({"restartPolicy": "Always"} if sidecar and prefix == "i" else {})
            for number, (amounts, place, sidecar) in enumerate(found)
        )

    pod = a_pod(*made(apps, "c"), inits=made(inits, "i"))
    before = copy.deepcopy(pod)
    try:
        once = pods.translated(pod, pods.Setting(units=asks.Units(card_memory_mib=81559)))
    except errors.Invalid:
        return
    assert pod == before
    twice = pods.translated(once.pod, SETTING)
    assert (twice.pod, twice.shapes) == (once.pod, ())
    for of in once.shapes:
        assert shape.read(shape.name(of)) == of
    claims = once.pod["spec"].get("resourceClaims", [])
    assert len({item["name"] for item in claims}) == len(claims)
    used = [
        use["name"]
        for key in ("containers", "initContainers")
        for one in once.pod["spec"].get(key, ())
        for use in one["resources"].get("claims", ())
    ]
    assert set(used) == {item["name"] for item in claims}
    apps_used = [use["name"] for one in once.pod["spec"]["containers"] for use in one["resources"].get("claims", ())]
    assert len(set(apps_used)) == len(apps_used)


@pytest.mark.parametrize(
    "of",
    [
        shape.Shape(device_class=WHOLE, count=32),
        shape.Shape(device_class=SHARE, cores=0, memory_mib=1),
        shape.Shape(device_class=SHARE, cores=30),
        shape.Shape(device_class="c1.m2mi.example.com", memory_mib=7),
        shape.Shape(device_class="x" * 63, count=32, cores=100, memory_mib=4 * 2**20),
    ],
)
def test_a_shapes_template_is_valid_and_its_name_says_all(of: shape.Shape) -> None:  # HAMi-DRA PR#130
    made = shape.template(of, "ns")
    kubernetes_validate.validate(made, "1.37", strict=True)
    assert shape.read(made["metadata"]["name"]) == of
    assert len(made["metadata"]["name"]) <= 253


@pytest.mark.parametrize(
    "text", ["translated.n0.c", "translated.n1", "translated.n1.c01.x", "other", "translated.n1.m0mi.x.y"]
)
def test_a_name_that_is_not_ours_stands_for_nothing(text: str) -> None:
    found = shape.read(text)
    assert found is None or shape.name(found) == text
