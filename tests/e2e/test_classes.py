"""Classes, CEL, configs and preferences, as the scheduler, the controller and the driver understand them together."""

import functools
import re
from collections.abc import Iterator

import pytest

from tests.e2e.manifests import CLASS, a_claim, a_class, a_pod, a_request, a_template, opaque
from tests.e2e.stage import KubectlError, Object, Stage, becomes, until

pytestmark = pytest.mark.e2e
NOTHING = {"cores": "0", "memory": "0", "shares": "0"}
"""What who only watches asks of a card: kube-scheduler compares amounts also for admin access."""
OURS = 'device.driver == "gpu.elasticgpu.io"'


@pytest.fixture
def classes(stage: Stage) -> Iterator[Stage]:
    """DeviceClasses and ElasticGPUClasses of a test have no namespace: they are removed by their label."""
    yield stage
    for kind in ("deviceclasses", "elasticgpuclasses"):
        stage.kubectl("delete", kind, "-l", "made-by=test-classes")


def labelled(found: dict[str, object]) -> dict[str, object]:
    return {**found, "metadata": {**found["metadata"], "labels": {"made-by": "test-classes"}}}  # type: ignore[dict-item]


def test_a_class_of_ours_becomes_a_device_class_that_pods_use(classes: Stage) -> None:
    made = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": "big.example.com"}}
    classes.create(
        labelled({**made, "spec": {"backend": "Whole", "cards": {"productNames": ["*H100*"], "minMemory": "70Gi"}}})
    )
    classes.kubectl("wait", "--for=condition=Ready", "elasticgpuclass/big.example.com", "--timeout=120s")
    becomes(4, lambda: classes.get("elasticgpuclass", "big.example.com")["status"].get("matchingCards"))
    requests = [{"name": "card", "exactly": {"deviceClassName": "big.example.com"}}]
    classes.start(a_template(requests=requests), a_pod(template="template"))
    assert len(classes.cards("pod")) == 1
    classes.kubectl("delete", "elasticgpuclass", "big.example.com")
    classes.gone("deviceclass", "big.example.com")


def test_a_pod_waits_for_a_class_that_is_made_later(classes: Stage) -> None:
    requests = [{"name": "card", "exactly": {"deviceClassName": "late.example.com"}}]
    classes.create(a_template(requests=requests), a_pod(template="template"))
    classes.pending_because("pod", "late.example.com")
    classes.create(labelled(a_class("late.example.com", OURS)))
    classes.ready("pod")


def test_a_class_that_matches_no_card_keeps_the_pod_waiting_until_it_is_updated(classes: Stage) -> None:
    classes.create(
        labelled(
            a_class("narrow.example.com", f'{OURS} && device.attributes["gpu.elasticgpu.io"].productName == "none"')
        )
    )
    requests = [{"name": "card", "exactly": {"deviceClassName": "narrow.example.com"}}]
    classes.create(a_template(requests=requests), a_pod(template="template"))
    classes.pending_because("pod", "cannot allocate all claims")
    classes.kubectl(
        "patch",
        "deviceclass",
        "narrow.example.com",
        "--type=merge",
        "-p",
        '{"spec":{"selectors":[{"cel":{"expression":"true"}}]}}',
    )
    classes.ready("pod")


BAD_TEXTS = {
    "bomb": ("".join(f"{list(range(10))}.all(x{depth}, " for depth in range(9)) + "true" + ")" * 9, "too complex|cost"),
    "unknown": ("device.driver.nosuch()", "undeclared reference to 'nosuch'"),
    "types": ("device.driver == 1", "no matching overload"),
}


def test_a_text_that_the_api_server_does_not_take_is_told_on_its_class_and_no_other_class_is_touched(
    classes: Stage,
) -> None:
    head: Object = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass"}
    bodies: list[Object] = [
        head
        | {"metadata": {"name": f"{name}.example.com"}, "spec": {"backend": "Whole", "cards": {"expression": text}}}
        for name, (text, _) in BAD_TEXTS.items()
    ]
    good = head | {"metadata": {"name": "good.example.com"}, "spec": {"backend": "Whole"}}
    classes.create(*map(labelled, (*bodies, good)))
    long = {"backend": "Whole", "cards": {"expression": f"device.driver == '{'x' * 10240}'"}}
    with pytest.raises(KubectlError, match="expression: Too long"):
        classes.create(labelled(head | {"metadata": {"name": "long.example.com"}, "spec": long}))
    classes.kubectl("wait", "--for=condition=Ready", "elasticgpuclass/good.example.com", "--timeout=120s")

    def refused(name: str) -> str:
        (found,) = classes.kubectl.objects("elasticgpuclass", f"{name}.example.com")
        conditions = {one["type"]: one for one in found.get("status", {}).get("conditions", ())}
        accepted = conditions.get("Accepted", {"reason": ""})
        return str(accepted["message"]) if accepted["reason"] == "Refused" else ""

    for name, (_, words) in BAD_TEXTS.items():
        assert re.search(words, until(f"{name} is refused", functools.partial(refused, name))), name
        assert not classes.kubectl.objects("deviceclass", f"{name}.example.com")


def test_a_cel_error_keeps_the_pod_waiting_and_is_told(stage: Stage) -> None:
    selector = {"cel": {"expression": 'device.attributes["gpu.elasticgpu.io"].nothing == "x"'}}
    stage.create(a_template(requests=[a_request(selectors=[selector])]), a_pod(template="template"))
    stage.event("no such key: nothing")


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["gpu.elasticgpu.io"].type == "gpu"',
        'device.attributes["gpu.elasticgpu.io"].productName.contains("H100")',
        'device.attributes["gpu.elasticgpu.io"].driverVersion.isGreaterThan(semver("570.0.0"))',
        'device.attributes["resource.kubernetes.io"].pciBusID == "0000:2a:00.0"',
        'device.capacity["gpu.elasticgpu.io"].memory.compareTo(quantity("40Gi")) > 0',
    ],
)
def test_a_card_is_chosen_by_its_attributes(stage: Stage, expression: str) -> None:
    stage.start(
        a_template(requests=[a_request(selectors=[{"cel": {"expression": expression}}])]), a_pod(template="template")
    )
    assert len(stage.cards("pod")) == 1


def test_the_first_request_that_can_be_met_is_taken(stage: Stage) -> None:
    never = {"cel": {"expression": 'device.attributes["gpu.elasticgpu.io"].productName == "none"'}}
    choices = [
        {"name": "best", "deviceClassName": CLASS, "selectors": [never]},
        {"name": "four", "deviceClassName": CLASS, "count": 5},
        {"name": "good", "deviceClassName": CLASS, "count": 2},
        {"name": "poor", "deviceClassName": CLASS},
    ]
    stage.start(a_template(requests=[{"name": "card", "firstAvailable": choices}]), a_pod(template="template"))
    assert len(stage.cards("pod")) == 2
    results = stage.claim_of("pod")["status"]["allocation"]["devices"]["results"]
    assert {result["request"] for result in results} == {"card/good"}


def test_only_the_config_of_the_chosen_request_counts(stage: Stage) -> None:
    choices = [{"name": "best", "deviceClassName": CLASS, "count": 5}, {"name": "good", "deviceClassName": CLASS}]
    configs = [{"requests": ["card/best"], **opaque(kind="Nonsense")}, {"requests": ["card/good"], **opaque()}]
    stage.start(
        a_template(requests=[{"name": "card", "firstAvailable": choices}], config=configs), a_pod(template="template")
    )
    assert len(stage.cards("pod")) == 1


def test_configs_of_class_and_claim_are_read_together(classes: Stage) -> None:
    classes.create(labelled(a_class("configured.example.com", OURS, kind="CardConfig")))
    requests = [{"name": "card", "exactly": {"deviceClassName": "configured.example.com"}}]
    classes.start(a_template(requests=requests, config=[opaque()]), a_pod(template="template"))
    assert len(classes.cards("pod")) == 1


def test_the_config_of_another_driver_is_none_of_our_business(stage: Stage) -> None:
    foreign = opaque(driver="gpu.example.com", kind="Whatever", field=1)
    stage.start(a_template(config=[foreign]), a_pod(template="template"))
    assert len(stage.cards("pod")) == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"memry": "1Gi"}, r'unknown field "memry"'),
        ({"kind": "ShareConfigg"}, r"kind is 'ShareConfigg' at \$\.kind; known: CardConfig"),
        ({"apiVersion": "elasticgpu.io/v9"}, r"apiVersion is 'elasticgpu\.io/v9'"),
    ],
    ids=["unknown field", "unknown kind", "unknown version"],
)
def test_a_config_that_cannot_be_understood_is_told_in_the_pods_events(
    stage: Stage, config: dict[str, str], words: str
) -> None:
    stage.create(a_template(config=[opaque(**config)]), a_pod(template="template"))
    stage.event(words)
    assert stage.get("pod", "pod")["status"]["phase"] == "Pending"
    uid = stage.claim_of("pod")["metadata"]["uid"]
    assert not any(uid in name for name in stage.cdi_files())


def test_a_bad_config_of_a_class_names_the_class(classes: Stage) -> None:
    classes.create(labelled(a_class("bad.example.com", OURS, kind="CardConfig", memry="1Gi")))
    requests = [{"name": "card", "exactly": {"deviceClassName": "bad.example.com"}}]
    classes.create(a_template(requests=requests), a_pod(template="template"))
    classes.event(r'class.*unknown field "memry"')


def test_a_pod_whose_config_is_refused_can_be_deleted(stage: Stage) -> None:
    stage.create(a_template(config=[opaque(kind="Nonsense")]), a_pod(template="template"))
    stage.event("kind is 'Nonsense'")
    stage.delete("pod", "pod")
    until("no claim left", lambda: not stage.kubectl.objects("resourceclaims", "-n", stage.namespace))


def test_admin_access_needs_the_label_of_the_namespace(stage: Stage) -> None:
    with pytest.raises(Exception, match="admin-access"):
        stage.create(a_claim(requests=[a_request(adminAccess=True)]))


def test_admin_access_looks_on_and_takes_no_card_from_anybody(stage: Stage) -> None:
    stage.kubectl("label", "namespace", stage.namespace, "resource.kubernetes.io/admin-access=true")
    everything = a_template(
        "everything", requests=[a_request(adminAccess=True, allocationMode="All", capacity={"requests": NOTHING})]
    )
    stage.start(a_template(), everything, a_pod("user", template="template"), a_pod("admin", template="everything"))
    assert stage.cards("user").items() < stage.cards("admin").items()
    assert len(stage.cards("admin")) == 4
    rest = [a_pod(f"other-{number}", template="template") for number in range(3)]
    stage.start(*rest)
    stage.delete("pod", "admin")
    assert len(stage.cards("user")) == 1


def test_cards_of_one_claim_can_be_asked_to_match(stage: Stage) -> None:
    constraint = {"requests": ["card"], "matchAttribute": "gpu.elasticgpu.io/productName"}
    stage.start(a_template(requests=[a_request(count=2)], constraints=[constraint]), a_pod(template="template"))
    assert len(stage.cards("pod")) == 2
