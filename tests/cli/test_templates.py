"""A workload type and a size -> a ResourceClaimTemplate."""

import kubernetes_validate
import pytest
import yaml

from api import errors
from cli import templates
from cli.templates import Size
from tests.cli.conftest import put
from tests.cli.terminal import User
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import a_class, view
from view import picture

SHARES = a_class("inference.elasticgpu.io", backend="Share", workloadTypes=["inference"])


def class_of(wanted: str) -> picture.Class:
    return templates.chosen(view(a_class(), SHARES).classes, wanted)


def exactly(wanted: str, size: Size) -> dict[str, object]:
    made = templates.template("t", "", class_of(wanted), size)
    kubernetes_validate.validate(made, "1.37", strict=True)
    (request,) = made["spec"]["spec"]["devices"]["requests"]
    found: dict[str, object] = request["exactly"]
    return found


def test_a_class_is_found_by_workload_type_and_by_name() -> None:
    assert class_of("training").name == class_of("training.elasticgpu.io").name == "training.elasticgpu.io"


def test_an_unknown_type_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        errors.Invalid, match=r"inference \(inference.elasticgpu.io\), training \(training.elasticgpu.io\)"
    ):
        class_of("simulation")


def test_whole_cards_are_counted_and_shares_have_amounts() -> None:
    assert exactly("training", Size(count=2)) == {"deviceClassName": "training.elasticgpu.io", "count": 2}
    assert exactly("inference", Size(cores=30, memory="20Gi")) == {
        "deviceClassName": "inference.elasticgpu.io",
        "capacity": {"requests": {"cores": "30", "memory": "20Gi"}},
    }


@pytest.mark.parametrize(
    ("wanted", "size", "words"),
    [
        ("training", Size(memory="20Gi"), "gives whole cards"),
        ("training", Size(count=0), "--count is 0"),
        ("inference", Size(), "give --cores and --memory both"),
        ("inference", Size(memory="20Gi"), "give --cores and --memory both"),
        ("inference", Size(cores=101, memory="20Gi"), "--cores is 101"),
        ("inference", Size(cores=1, memory="20"), "must be 1Mi or more"),
        ("inference", Size(cores=1, memory="20 gigs"), "is not a number"),
    ],
)
def test_what_a_class_cannot_give_is_refused(wanted: str, size: Size, words: str) -> None:  # HAMi website PR#714
    with pytest.raises(errors.Invalid, match=words):
        templates.template("t", "", class_of(wanted), size)


async def test_the_command_writes_what_kubectl_applies_and_says_how_a_pod_uses_it(user: User) -> None:
    done = await user.egpu("claim", "training", "--title", "mine")
    made = yaml.safe_load(done.out)
    assert (done.code, made["kind"], made["metadata"]["name"]) == (0, "ResourceClaimTemplate", "mine")
    assert "namespace" not in made["metadata"]
    assert yaml.safe_load((await user.egpu("claim", "training", "-n", "ml")).out)["metadata"]["namespace"] == "ml"
    assert "#     resourceClaims: [{name: card, resourceClaimTemplateName: mine}]\n" in done.out


async def test_a_class_that_is_not_ready_is_warned_of(server: FakeAPIServer, user: User) -> None:
    put(server, a_class("debug.example.com", ready="False", workloadTypes=["debugging"]))
    done = await user.egpu("claim", "debugging")
    assert (done.code, done.err) == (0, "Warning: class debug.example.com is not ready: NameTaken\n")
    assert (await user.egpu("claim", "nothing")).code == 1
