"""The patch gives the very pod that translation gives, with the words of it."""

import pytest

from api import errors, names
from tests.webhook.objects import a_class, a_pod, patched
from translate import pods
from webhook import known, mutation

SETTING = pods.Setting()


def test_the_patched_pod_is_the_translated_one_and_says_what_was_read() -> None:
    pod = a_pod(gpu=1, gpumem=1000)
    pod["spec"]["schedulerName"] = "hami-scheduler"
    change = mutation.change(pod, SETTING)
    done = patched(pod, change.patch)
    assert done["metadata"]["annotations"] == {names.TRANSLATION_ANNOTATION: change.notes[0]}
    del done["metadata"]["annotations"]
    assert done == pods.translated(pod, SETTING).pod


def test_labels_and_annotations_that_were_there_stay() -> None:
    pod = a_pod(gpu=1)
    pod["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    done = patched(pod, mutation.change(pod, SETTING).patch)["metadata"]
    assert (done["labels"]["a"], done["annotations"]["c"]) == ("b", "d")


def test_the_second_time_there_is_no_patch() -> None:
    pod = a_pod(gpu=1)
    once = patched(pod, mutation.change(pod, SETTING).patch)
    assert mutation.change(once, SETTING) == mutation.Change()


def test_zeros_are_taken_out_and_nothing_put_in() -> None:
    done = patched(pod := a_pod(gpu=0), mutation.change(pod, SETTING).patch)
    assert done["spec"]["containers"][0]["resources"] == {}
    assert "labels" not in done["metadata"]


def test_a_refusal_is_raised() -> None:
    with pytest.raises(errors.Invalid, match="container main"):
        mutation.change(a_pod(gpu=-1), SETTING)


def test_a_workload_type_is_of_the_oldest_class() -> None:
    young = known.gpu_class(a_class("a.example.com", workloadTypes=["t", "u"], created="2026-02-01T00:00:00Z"))
    old = known.gpu_class(a_class("b.example.com", "Whole", workloadTypes=["t"]))
    bad = known.gpu_class(a_class("c.example.com", "Nothing", workloadTypes=["v"]))
    found = {of.name: (of.whole, of.workload_types) for of in known.offered([young, old, bad])}
    assert found == {"b.example.com": (True, ("t",)), "a.example.com": (False, ("u",))}
