"""Old requests on a real cluster: each runs as its hand-written equal does, and an outage of admission touches nobody else."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hack import release
from hack.cluster import Cluster, cards, cgroups
from hack.kubectl import Kubectl, KubectlError
from tests.e2e.manifests import STAY, a_claim, a_container, a_pod, a_template, opaque
from tests.e2e.stage import Object, Stage, until
from tests.translate import page

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRAConsumableCapacity")]
SHARE = "translated-share.example.com"
WEBHOOK = f"{release.NAME}-webhook"
PAIRS = page.pairs()
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
CLASS = {
    "apiVersion": "elasticgpu.io/v1alpha1",
    "kind": "ElasticGPUClass",
    "metadata": {"name": SHARE},
    "spec": {
        "backend": "Share",
        "workloadTypes": ["lenient"],
        "share": {"memory": "BestEffort", "cores": "BestEffort"},
    },
}


@pytest.fixture(scope="module")
def admission(installed: None, admin: Kubectl, cluster: Cluster) -> Iterator[None]:
    """The release with its webhook, and a class of shares that this cluster can give. The API server waits longer than the
    chart says, for a busy machine: that nobody answers it is told at once, or never."""
    wanted = release.values(release.image()[0], cards.DRIVER_ROOT, str(cgroups.unified()))
    release.install(admin, {**wanted, "webhook": {"enabled": True}})
    admin("create", "-f", "-", text=json.dumps(CLASS))
    try:
        release.wait(admin)
        admin("-n", release.NAMESPACE, "rollout", "status", f"deployment/{WEBHOOK}", "--timeout=240s")
        admin("wait", "--for=condition=Ready", f"elasticgpuclass/{SHARE}", "--timeout=120s")
        until("the API server trusts the webhook", lambda: _trusts(admin))
        patient = json.dumps([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}])
        admin("patch", CONFIGURATIONS[0], WEBHOOK, "--type=json", "-p", patient)
        yield
    finally:
        admin("delete", "elasticgpuclass", SHARE)
        release.install(admin, wanted)
        release.wait(admin)


@pytest.fixture
def old(admission: None, stage: Stage) -> Stage:
    """A namespace where old requests are translated, its shares to the lenient class."""
    stage.kubectl(
        "label", "namespace", stage.namespace, "elasticgpu.io/translate=true", "elasticgpu.io/workload-type=lenient"
    )
    until("admission is told of the namespace", lambda: _asked(stage))
    return stage


def _trusts(admin: Kubectl) -> bool:
    found = [hook for kind in CONFIGURATIONS for one in admin.objects(kind, WEBHOOK) for hook in one["webhooks"]]
    return bool(found) and all(hook["clientConfig"].get("caBundle") for hook in found)


def _asked(stage: Stage) -> bool:
    """Whether a pod by an old name would be translated now."""
    try:
        made = stage(
            "create",
            "-f",
            "-",
            "-o",
            "json",
            "--dry-run=server",
            text=json.dumps(a_plain_pod("probe", {"nvidia.com/gpu": "1"})),
        )
    except KubectlError:
        return False
    return "resourceClaims" in json.loads(made)["spec"]


def refused(stage: Stage, found: Object, words: str) -> None:
    """Waits until it is refused in these words. Where admission does not answer within two seconds, claims are let through."""

    def tried() -> bool:
        try:
            stage("create", "-f", "-", "--dry-run=server", text=json.dumps(found))
        except KubectlError as no:
            if not re.search(words, str(no)):
                raise
            return True
        return False

    until(f"refused: {words}", tried)


def a_plain_pod(name: str, limits: dict[str, str], **spec: Any) -> Object:
    container = a_container(command=STAY, claims=())
    container["resources"] = {"limits": limits} if limits else {}
    pod = a_pod(name, containers=[container], **spec)
    del pod["spec"]["resourceClaims"]
    return pod


def a_share(cores: str | None = None, memory: str | None = None, count: int = 1) -> Object:
    amounts = {name: text for name, text in (("cores", cores), ("memory", memory)) if text is not None}
    request = {"deviceClassName": SHARE, "capacity": {"requests": amounts}} | ({"count": count} if count > 1 else {})
    return {"name": "card", "exactly": request}


def seen_from_inside(stage: Stage, pod: str) -> tuple[list[str], list[str], list[Object]]:
    """What the container has, without which card it is: names of variables, devices, amounts."""
    env = [line.partition("=")[0].rpartition("_")[0] for line in stage.inside(pod, "env").splitlines() if "GPU" in line]
    devices = [line.rstrip("0123456789") for line in stage.inside(pod, "ls /dev").splitlines()]
    results = stage.claim_of(pod)["status"]["allocation"]["devices"]["results"]
    return (
        sorted(env),
        sorted(devices),
        [{key: one.get(key) for key in ("driver", "consumedCapacity")} for one in results],
    )


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.title for pair in PAIRS])
def test_an_old_request_runs_as_the_claim_that_stands_beside_it_on_the_page(old: Stage, pair: page.Pair) -> None:
    (pod,) = pair.documents(pair.old)
    *templates, new = pair.documents(pair.new.replace("inference.elasticgpu.io", SHARE))
    for one, name in ((pod, "old"), (new, "new")):
        one["metadata"]["name"] = name
        one["spec"]["terminationGracePeriodSeconds"] = 5
        one["spec"]["containers"][0] |= {"command": ["sh", "-c", STAY], "imagePullPolicy": "Never"}
    old.start(pod)
    if old.kubectl.objects("resourceclaimtemplates", "-n", old.namespace):
        templates = []  # the controller made the very same one
    old.start(*templates, new)
    assert seen_from_inside(old, "old") == seen_from_inside(old, "new")
    assert len(old.cards("old")) == len(old.cards("new"))


def test_an_odd_amount_takes_what_the_words_say(old: Stage) -> None:
    old.start(a_plain_pod("old", {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "8192"}))
    old.start(a_template(requests=[a_share("0", "8Gi", 2)]), a_pod("new", template="template"))
    assert seen_from_inside(old, "old") == seen_from_inside(old, "new")


@pytest.mark.needs("DRAExtendedResource")
def test_whole_cards_by_a_resource_name_need_no_admission(stage: Stage) -> None:
    made = page.by_name()
    name = made["metadata"]["name"]
    stage.create(made)
    try:
        stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{name}", "--timeout=120s")
        stage.start(a_plain_pod("pod", {"nvidia.com/gpu": "2"}))
        assert len(stage.cards("pod")) == 2
        stage.delete("pod", "pod")
    finally:
        stage.kubectl("delete", "elasticgpuclass", name)


def test_a_deployments_pods_are_translated_and_the_deployment_is_not_touched(old: Stage) -> None:  # argo-cd#4326
    pod = a_plain_pod("unused", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"})
    spec = {key: value for key, value in pod["spec"].items() if key != "restartPolicy"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    old.create(deployment)
    old("rollout", "status", "deployment/web", "--timeout=240s")
    assert not old.failed_starts()
    assert "nvidia.com/gpumem" in old("get", "deployment", "web", "-o", "json")
    (made,) = old.kubectl.objects("resourceclaimtemplates", "-n", old.namespace)
    assert made["metadata"]["name"] == f"translated.n1.c0.m1000mi.{SHARE}"
    (pod, *_) = old.kubectl.objects("pods", "-n", old.namespace, "-l", "app=web")
    assert "1000Mi of memory and no cores" in pod["metadata"]["annotations"]["elasticgpu.io/translation"]
    old("delete", "deployment", "web", "--cascade=foreground", "--timeout=120s")


def test_init_containers_and_sidecars_follow_the_rules(old: Stage) -> None:  # HAMi#2558
    pod = a_plain_pod("pod", {"nvidia.com/gpu": "1"})
    sidecar = {
        **a_container("side", claims=()),
        "restartPolicy": "Always",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    step = {**a_container("step", "true", ()), "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod["spec"]["initContainers"] = [sidecar, step]
    old.start(pod)
    assert not set(old.cards("pod", "main")) & set(old.cards("pod", "side"))
    assert len(old.kubectl.objects("resourceclaims", "-n", old.namespace)) == 2


def test_a_pod_with_both_old_and_new_requests_has_both(old: Stage) -> None:
    pod = a_plain_pod("pod", {"nvidia.com/gpu": "1"})
    pod["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": "template"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "own"}]
    old.start(a_template(), pod)
    assert len(old.cards("pod")) == 2


def test_the_old_systems_scheduler_is_not_waited_for(old: Stage) -> None:
    old.start(a_plain_pod("pod", {"nvidia.com/gpu": "1"}, schedulerName="hami-scheduler"))


def test_a_dry_run_leaves_nothing_behind(old: Stage) -> None:  # gatekeeper#1353, HAMi-DRA#21
    made = old(
        "create",
        "-f",
        "-",
        "-o",
        "json",
        "--dry-run=server",
        text=json.dumps(a_plain_pod("dry", {"nvidia.com/gpu": "1"})),
    )
    assert json.loads(made)["spec"]["resourceClaims"]
    assert not old.kubectl.objects("resourceclaimtemplates,resourceclaims,pods", "-n", old.namespace)


def test_a_long_name_is_no_trouble(old: Stage) -> None:  # HAMi-DRA PR#130
    name = "p" * 63
    old.start(a_plain_pod(name, {"nvidia.com/gpu": "1"}))
    assert old.cards(name)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16Gi"}, "asks for 17179869184 MiB"),  # HAMi website PR#714
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}, "write nvidia.com/gpumem in MiB"),
        ({"elasticgpu.io/gpu-core": "150", "elasticgpu.io/gpu-memory": "1"}, "use a multiple of 100"),
    ],
)
def test_what_has_no_equal_is_refused_when_it_is_made(old: Stage, limits: dict[str, str], words: str) -> None:
    refused(old, a_plain_pod("pod", limits), words)


def test_a_namespace_that_does_not_ask_is_left_alone(admission: None, stage: Stage) -> None:
    stage.create(a_plain_pod("pod", {"nvidia.com/gpu": "1"}))
    assert "resourceClaims" not in stage.get("pod", "pod")["spec"]
    stage.pending_because("pod", "Insufficient nvidia.com/gpu")


def test_an_outage_touches_old_requests_alone(old: Stage) -> None:  # HAMi#83, slurm-operator#189, volcano#3734
    scale = ("-n", release.NAMESPACE, "scale", f"deployment/{WEBHOOK}")
    replicas = ("pods", "-n", release.NAMESPACE, "-l", "app.kubernetes.io/component=webhook")
    old.kubectl(*scale, "--replicas=0")
    try:
        # each replica answers on for a while: that one does not says nothing of the other
        until("the webhook is gone", lambda: not old.kubectl.objects(*replicas) and not _asked(old))
        with pytest.raises(KubectlError, match="failed calling webhook"):
            old.create(a_plain_pod("old", {"nvidia.com/gpu": "1"}))
        old.start(a_plain_pod("other", {}))
        old.start(a_template(), a_pod("new", template="template"))
        old.kubectl(
            "-n",
            "kube-system",
            "create",
            "-f",
            "-",
            "--dry-run=server",
            text=json.dumps(a_plain_pod("p", {"nvidia.com/gpu": "1"})),
        )
    finally:
        old.kubectl(*scale, "--replicas=2")
        old.kubectl("-n", release.NAMESPACE, "rollout", "status", f"deployment/{WEBHOOK}", "--timeout=240s")
    until("old requests are translated again", lambda: _asked(old))
    old.start(a_plain_pod("old", {"nvidia.com/gpu": "1"}))


def test_a_rolling_update_of_the_webhook_fails_no_pod(old: Stage) -> None:
    """One leaves when the other is ready, and answers on until the API server knows."""
    name = f"deployment/{WEBHOOK}"
    old.kubectl("-n", release.NAMESPACE, "rollout", "restart", name)
    asked = 0
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert _asked(old), f"pod {asked} was refused"
        asked += 1
        found = old.kubectl.objects("deployment", WEBHOOK, "-n", release.NAMESPACE)[0]
        status = found["status"]
        if status.get("observedGeneration") == found["metadata"]["generation"] and (
            status.get("updatedReplicas") == status.get("replicas") == status.get("availableReplicas") == 2
        ):
            break
    else:
        raise AssertionError("the update did not end")
    assert asked > 1


def test_a_lost_certificate_is_made_anew_and_trusted(old: Stage) -> None:  # HAMi#1572
    before = old.kubectl.objects("mutatingwebhookconfiguration", WEBHOOK)[0]["webhooks"][0]["clientConfig"]["caBundle"]
    patch = json.dumps({"data": None})
    old.kubectl("-n", release.NAMESPACE, "patch", "secret", f"{WEBHOOK}-tls", "--type=merge", "-p", patch)

    def renewed() -> bool:
        found = old.kubectl.objects("mutatingwebhookconfiguration", WEBHOOK)[0]["webhooks"][0]["clientConfig"]
        return found.get("caBundle", before) != before and _asked(old)

    until("a new certificate is trusted", renewed)


def test_a_trust_that_was_taken_out_is_put_back(old: Stage) -> None:
    for kind in CONFIGURATIONS:
        hooks = old.kubectl.objects(kind, WEBHOOK)[0]["webhooks"]
        for hook in hooks:
            hook["clientConfig"].pop("caBundle")
        old.kubectl("patch", kind, WEBHOOK, "--type=merge", "-p", json.dumps({"webhooks": hooks}))
    until("the trust is back", lambda: _trusts(old.kubectl) and _asked(old))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (a_claim(requests=[{"name": "card", "exactly": {"deviceClassName": SHARE}}]), "names neither cores nor memory"),
        (
            a_template(requests=[{"name": "card", "exactly": {"deviceClassName": SHARE}}]),
            r"add for example capacity: \{requests:",
        ),
        (a_claim(config=[opaque(kind="ShareConfig", memry="Required")]), 'unknown field "memry"'),
        (a_claim(config=[opaque(kind="MigConfig")]), "kind is 'MigConfig'.*known: CardConfig"),
    ],
    ids=["a claim without amounts", "a template without amounts", "an unknown field", "an unknown kind"],
)
def test_a_mistake_is_told_when_it_is_made(old: Stage, found: Object, words: str) -> None:
    refused(old, found, words)


def test_a_mistake_is_told_in_older_versions_of_the_api_too(old: Stage) -> None:  # NV PR#475
    claim = a_claim(version="v1beta2", requests=[{"name": "card", "exactly": {"deviceClassName": SHARE}}])
    refused(old, claim, "names neither cores nor memory")


def test_configs_of_other_drivers_are_nobodys_business_here(old: Stage) -> None:
    old.create(a_claim(config=[opaque(driver="gpu.example.com", kind="Anything", x=1)]))
