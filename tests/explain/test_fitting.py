"""How many copies fit, where, and what stops the next one."""

import pytest

from api import errors
from api.reasons import Verdict
from explain import explanation, fitting, text
from tests.explain import objects


def test_copies_are_counted_card_by_card_and_the_world_is_as_before() -> None:
    now = objects.a_world(objects.a_claim("c1", on="node-1/gpu-1"))
    told = fitting.fit(fitting.numbers(objects.CLASS, cores=25, memory="10Gi"), now)
    assert (told.verdict, told.fits, told.more) == (Verdict.NOW, 6, False)
    assert told.nodes == (("node-1", 2), ("node-2", 4))
    assert told.first[0] == fitting.Landing(node="node-1", cards=("gpu-2",))
    assert told.next is not None
    assert told.next.verdict is Verdict.NO
    assert told == fitting.fit(fitting.numbers(objects.CLASS, cores=25, memory="10Gi"), now)


def test_what_stops_the_next_copy_is_told() -> None:
    told = fitting.fit(fitting.numbers(objects.CLASS, memory="10Gi"), objects.a_world())
    assert told.fits == 4
    assert told.sentence == f"4 copies of 1 card of class {objects.CLASS} (memory 10Gi) fit, on 2 nodes."
    assert told.next is not None
    assert "100% of cores short" in told.next.sentence
    assert "One more: " in text.of_fit(told)


def test_fewer_than_wanted_is_a_no() -> None:
    told = fitting.fit(fitting.numbers(objects.CLASS, cores=50, memory="12Gi"), objects.a_world(), 9)
    assert (told.verdict, told.fits, told.wanted) == (Verdict.NO, 8, 9)
    assert "8 copies of" in told.sentence
    assert "of 9 wanted" in told.sentence
    assert (
        fitting.fit(fitting.numbers(objects.CLASS, cores=50, memory="12Gi"), objects.a_world(), 8).verdict
        is Verdict.NOW
    )


def test_four_cards_on_three_nodes_are_not_four_cards_for_one_pod() -> None:
    # volcano#3948
    told = fitting.fit(fitting.numbers(objects.CLASS, count=3, cores=100, memory="24Gi"), objects.a_world())
    assert (told.verdict, told.fits) == (Verdict.NO, 0)
    assert "wants 3 cards on one node; node-1 has most, with 2" in told.sentence


def test_a_pod_counts_with_all_its_claims_whether_they_are_made_or_not() -> None:
    pod = objects.a_pod(template="t")
    pod["spec"]["resourceClaims"].append({"name": "two", "resourceClaimTemplateName": "t"})
    now = objects.a_world(templates=(objects.a_template("t"),))
    told = fitting.fit(pod, now)
    assert told.fits == 2
    assert told.first[0].cards == ("gpu-1", "gpu-2")


def test_a_template_is_what_it_would_make() -> None:
    assert fitting.fit(objects.a_template(), objects.a_world()).fits == 4


def test_a_class_that_does_not_exist_fits_nowhere() -> None:
    told = fitting.fit(fitting.numbers("nobody"), objects.a_world())
    assert (told.verdict, told.fits) == (Verdict.NO, 0)
    assert "DeviceClass nobody: it does not exist" in told.sentence


@pytest.mark.parametrize("given", [{"count": 0}, {"cores": 101}, {"cores": -1}])
def test_numbers_that_make_no_claim_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(errors.Invalid, match="0 to 100 percent"):
        fitting.numbers(objects.CLASS, **given)  # type: ignore[arg-type]


def test_whoever_fits_by_explain_fits_by_fit() -> None:
    now = objects.a_world(objects.a_claim("mine"))
    assert explanation.explain(objects.a_claim("mine"), now).verdict is Verdict.NOW
    assert fitting.fit(objects.a_claim("mine"), now).fits == 4
