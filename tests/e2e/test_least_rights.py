"""Every right that an account has is needed: each verb is taken away, and what needs it fails and says which is missing."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator

import pytest

from hack import release
from hack.kubectl import Kubectl
from tests.e2e.manifests import a_pod, a_template
from tests.e2e.stage import NODE_PODS, Object, Stage, until

pytestmark = pytest.mark.e2e
CLASS = "least-rights.example.com"
NODE, CONTROLLER = "node", "controller"
Need = Callable[[Stage], None]


def nothing(stage: Stage) -> None:
    """What is needed at the start needs no more."""


def a_class_is_made(stage: Stage, **spec: object) -> None:
    body = {"backend": "Whole", **spec}
    meta = {"name": CLASS}
    made = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": meta, "spec": body}
    stage.kubectl("apply", "-f", "-", text=json.dumps(made))


def a_class_is_in_place(stage: Stage) -> None:
    a_class_is_made(stage)
    stage.kubectl("wait", "--for=create", f"deviceclass/{CLASS}", "--timeout=120s")


def a_class_is_changed(stage: Stage) -> None:
    a_class_is_in_place(stage)
    a_class_is_made(stage, cards={"minMemory": "1Gi"})


def a_class_is_no_longer_honoured(stage: Stage) -> None:
    a_class_is_in_place(stage)
    a_class_is_made(stage, workloadTypes=["training"])


def cards_objects_are_gone(stage: Stage) -> None:
    stage.kubectl("delete", "elasticgpus", "--all")


def an_object_of_a_card_that_is_none(stage: Stage) -> None:
    (found, *_) = until("an object a card", lambda: stage.kubectl.objects("elasticgpus"))
    stage.kubectl("create", "-f", "-", text=json.dumps({**found, "metadata": {"name": "gpu-none"}}))


def the_lease_is_gone(stage: Stage) -> None:
    stage.kubectl("-n", release.NAMESPACE, "delete", "lease", "elastic-gpu-controller", "--ignore-not-found")


def slice_of(stage: Stage) -> Object:
    return until("a slice", lambda: stage.slice_of("node1"))


def a_slice_is_deleted(stage: Stage) -> None:
    stage.kubectl("delete", "resourceslice", slice_of(stage)["metadata"]["name"])


def a_slice_is_changed(stage: Stage) -> None:
    found = slice_of(stage)
    found["spec"]["devices"] = found["spec"]["devices"][1:]
    stage.kubectl("replace", "-f", "-", text=json.dumps(found))


def a_slice_is_put_beside_it(stage: Stage) -> None:
    found = slice_of(stage)
    meta = {"name": "beside", "ownerReferences": found["metadata"]["ownerReferences"]}
    pool = {**found["spec"]["pool"], "generation": found["spec"]["pool"]["generation"] + 1}
    stage.kubectl(
        "create", "-f", "-", text=json.dumps({**found, "metadata": meta, "spec": {**found["spec"], "pool": pool}})
    )


def the_driver_is_registered(stage: Stage) -> None:
    """Else the kubelet fails without it, and tries again after a minute and a half."""
    stage.kubectl("-n", release.NAMESPACE, "wait", "--for=condition=Ready", "pods", "-l", NODE_PODS, "--timeout=120s")


def a_pod_is_started(stage: Stage) -> None:
    the_driver_is_registered(stage)
    stage.create(a_template(), a_pod(template="template"))


def a_share_is_started(stage: Stage) -> None:
    """By a class that takes a node on which nothing holds it; which containers use it is asked all the same."""
    spec = {"backend": "Share", "share": {"memory": "BestEffort", "cores": "BestEffort"}}
    made = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClass",
        "metadata": {"name": CLASS},
        "spec": spec,
    }
    stage.kubectl("apply", "-f", "-", text=json.dumps(made))
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{CLASS}", "--timeout=120s")
    the_driver_is_registered(stage)
    amounts = {"capacity": {"requests": {"cores": "10", "memory": "1Gi"}}}
    request = {"name": "card", "exactly": {"deviceClassName": CLASS, **amounts}}
    stage.create(a_template(requests=[request]), a_pod(template="template"))


READ = ("list", "watch")
CASES: list[tuple[str, str, str, Need]] = [
    *(
        (CONTROLLER, kind, verb, nothing)
        for kind in ("elasticgpuclasses", "deviceclasses", "resourceslices")
        for verb in READ
    ),
    *(
        (CONTROLLER, kind, verb, nothing)
        for kind in ("resourceclaims", "pods", "nodes", "elasticgpus", "devicetaintrules")
        for verb in READ
    ),
    (CONTROLLER, "deviceclasses", "create", a_class_is_made),
    (CONTROLLER, "elasticgpuclasses/status", "patch", a_class_is_made),
    (CONTROLLER, "deviceclasses", "patch", a_class_is_changed),
    (CONTROLLER, "deviceclasses", "delete", a_class_is_no_longer_honoured),
    (CONTROLLER, "elasticgpus", "create", cards_objects_are_gone),
    (CONTROLLER, "elasticgpus", "patch", cards_objects_are_gone),
    (CONTROLLER, "elasticgpus", "delete", an_object_of_a_card_that_is_none),
    (CONTROLLER, "leases", "get", nothing),
    (CONTROLLER, "leases", "create", the_lease_is_gone),
    (CONTROLLER, "leases", "update", nothing),
    (NODE, "resourceslices", "list", nothing),
    (NODE, "resourceslices", "watch", nothing),
    (NODE, "resourceslices", "create", a_slice_is_deleted),
    (NODE, "resourceslices", "update", a_slice_is_changed),
    (NODE, "resourceslices", "delete", a_slice_is_put_beside_it),
    *((NODE, "nodes", verb, nothing) for verb in ("get", *READ)),
    (NODE, "pods", "get", a_share_is_started),
    (NODE, "resourceclaims", "get", a_pod_is_started),
    (NODE, "resourceclaims/status", "patch", a_pod_is_started),
    (NODE, "resourceclaims/driver", "associated-node:patch", a_pod_is_started),
]


@contextlib.contextmanager
def without(admin: Kubectl, account: str, resource: str, verb: str) -> Iterator[None]:
    """The account's role as the chart makes it, less one verb on one resource. A fresh process, so that it starts like that."""
    kind, name = ("role" if resource == "leases" else "clusterrole"), f"{release.NAME}-{account}"
    role = admin.objects(kind, name, "-n", release.NAMESPACE)[0]
    rules = []
    for rule in role["rules"]:
        if resource not in rule["resources"]:
            rules.append(rule)
            continue
        if rest := [one for one in rule["resources"] if one != resource]:
            rules.append({**rule, "resources": rest})
        if verbs := [one for one in rule["verbs"] if one != verb]:
            rules.append({**rule, "resources": [resource], "verbs": verbs})
    assert rules != role["rules"], f"{account} has no {verb} on {resource}"
    try:
        _apply(admin, role, rules)
        yield
    finally:
        _apply(admin, role, role["rules"])


def _apply(admin: Kubectl, role: Object, rules: list[Object]) -> None:
    """In Helm's own name, or Helm would find its role in somebody else's hands at the next upgrade."""
    meta = {
        key: value for key, value in role["metadata"].items() if key in ("name", "namespace", "labels", "annotations")
    }
    body = {"apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": meta, "rules": rules}
    shown = ("-n", release.NAMESPACE, "get", role["kind"], meta["name"], "--show-managed-fields", "-o", "json")
    managers = json.loads(admin(*shown))["metadata"]["managedFields"]
    manager = next(one["manager"] for one in managers if one["operation"] == "Apply")
    admin("apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", "-", text=json.dumps(body))


def pods(admin: Kubectl, account: str) -> list[str]:
    labels = f"app.kubernetes.io/name=elastic-gpu,app.kubernetes.io/component={account}"
    where = ("--field-selector=spec.nodeName=node1",) if account == NODE else ()
    found = admin.objects("pods", "-n", release.NAMESPACE, "-l", labels, *where)
    return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]


def said(stage: Stage, account: str, words: str) -> bool:
    """In the account's logs, or by the kubelet, which is told by the driver."""
    admin = stage.kubectl
    events = "\n".join(one.get("message", "") for one in admin.objects("events", "-n", stage.namespace))
    logs = (
        admin("-n", release.NAMESPACE, "logs", "--tail=-1", name, "--ignore-errors") for name in pods(admin, account)
    )
    return any(re.search(words, line) for text in (*logs, events) for line in text.splitlines())


@pytest.mark.parametrize(("account", "resource", "verb", "need"), CASES, ids=[f"{a}-{r}-{v}" for a, r, v, _ in CASES])
def test_without_this_verb_something_fails_and_names_it(
    stage: Stage, account: str, resource: str, verb: str, need: Need
) -> None:
    admin = stage.kubectl
    with without(admin, account, resource, verb):
        for pod in pods(admin, account):
            admin("-n", release.NAMESPACE, "delete", "pod", pod, "--grace-period=1", "--wait=true")
        until("a fresh process", lambda: bool(pods(admin, account)))
        need(stage)
        plain = resource.partition("/")[0] if verb == "associated-node:patch" else resource
        until(
            f"a word about {verb} on {resource}",
            lambda: said(stage, account, rf"{re.escape(verb)}\W.*{plain}|{plain}.*{re.escape(verb)}"),
            180,  # one that ended for want of a right is started again after a while
        )
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    if account == CONTROLLER or need is a_share_is_started:
        admin("delete", "elasticgpuclass", CLASS, "--ignore-not-found")
    admin("-n", release.NAMESPACE, "rollout", "status", f"deployment/{release.NAME}-controller", "--timeout=240s")
    stage.rollout()


@pytest.fixture(autouse=True, scope="module")
def whole_again(admin: Kubectl) -> Iterator[None]:
    """What the cases leave is put right, and the processes have all their rights again."""
    yield
    admin("delete", "elasticgpuclass", CLASS, "--ignore-not-found")
    admin("delete", "elasticgpu", "gpu-none", "--ignore-not-found")
    admin("delete", "resourceslice", "beside", "--ignore-not-found")
    for what in (f"deployment/{release.NAME}-controller", f"daemonset/{release.NAME}-node"):
        admin("-n", release.NAMESPACE, "rollout", "restart", what)
        admin("-n", release.NAMESPACE, "rollout", "status", what, "--timeout=240s")
