"""Shares of cards on a real cluster: kube-scheduler counts them, the node counts again, and the claims tell."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hack import release
from tests.e2e.manifests import a_claim, a_class, a_container, a_pod, a_request, a_template, opaque
from tests.e2e.stage import Object, Stage, until
from tests.e2e.test_faults import devices

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRAConsumableCapacity")]
EXAMPLE = release.ROOT / "examples/share"
SHARE = "lenient-share.example.com"
MEMORY = 81559
"""MiB of a fake card."""


@pytest.fixture
def shares(stage: Stage) -> Iterator[Stage]:
    """The class of the example, ready."""
    stage("apply", "-f", str(EXAMPLE / "class.yaml"))
    stage.kubectl("wait", "--for=condition=Ready", f"elasticgpuclass/{SHARE}", "--timeout=120s")
    yield stage
    stage("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    stage.kubectl("delete", "-f", str(EXAMPLE / "class.yaml"))


def a_share(name: str = "card", deviceclass: str = SHARE, **amounts: str) -> Object:
    return {"name": name, "exactly": {"deviceClassName": deviceclass, "capacity": {"requests": amounts}}}


def data_of(stage: Stage, pod: str) -> list[Any]:
    claim = stage.claim_of(pod)["metadata"]["name"]
    return [device["data"] for device in stage.status_of_devices(claim)]


def told(stage: Stage, pod: str) -> dict[str, str]:
    """What the container is told that its share is."""
    return dict(re.findall(r"^ELASTIC_GPU_(CORES|MEMORY)_\d+=(\S+)$", stage.inside(pod, "env"), re.MULTILINE))


def consumed(stage: Stage, pod: str) -> Any:
    (result,) = stage.claim_of(pod)["status"]["allocation"]["devices"]["results"]
    return result["consumedCapacity"]


def test_the_two_pods_of_the_example_share_a_card_and_their_claims_say_how(shares: Stage) -> None:
    shares("apply", "-f", str(EXAMPLE / "two-pods.yaml"))
    shares.ready("share-a", "share-b")
    assert shares.cards("share-a") == shares.cards("share-b")
    for pod in ("share-a", "share-b"):
        assert told(shares, pod) == {"CORES": "50", "MEMORY": "8192Mi"}
        (data,) = data_of(shares, pod)
        assert (data["cores"], data["memory"], data["enforcement"]) == (50, "8Gi", {"memory": "none", "cores": "none"})


def test_a_share_of_memory_alone_runs_beside_cores_that_are_all_taken(shares: Stage) -> None:
    shares("apply", "-f", str(EXAMPLE / "two-pods.yaml"))
    shares.ready("share-a", "share-b")
    shares("apply", "-f", str(EXAMPLE / "memory-only.yaml"))
    shares.ready("memory-only")
    assert shares.cards("memory-only") == shares.cards("share-a")
    assert consumed(shares, "memory-only") == {"cores": "0", "memory": "4Gi", "shares": "1"}
    assert told(shares, "memory-only") == {"CORES": "0", "MEMORY": "4096Mi"}


def test_a_share_that_bursts_has_its_cores_booked(shares: Stage) -> None:
    shares("apply", "-f", str(EXAMPLE / "burst.yaml"))
    shares.ready("bursting")
    assert told(shares, "bursting") == {"CORES": "25", "MEMORY": "4096Mi"}
    (data,) = data_of(shares, "bursting")
    assert (data["cores"], data["enforcement"]["cores"]) == (25, "none")
    shares.delete("pod", "bursting")
    shares.kubectl("delete", "elasticgpuclass", "bursting-share.example.com")


def _buses(stage: Stage) -> list[str]:
    """Of the node's cards, in the order in which they are offered."""
    return [one["attributes"]["resource.kubernetes.io/pciBusID"]["string"] for one in devices(stage)]


def test_eight_replicas_are_packed_on_two_cards(shares: Stage) -> None:
    """dra-driver#459: "2 per card, then the next card"."""
    until("no card comes first for a share that is over", lambda: (found := _buses(shares)) and found == sorted(found))
    shares("apply", "-f", str(EXAMPLE / "replicas.yaml"))
    shares("rollout", "status", "deployment/replicas", "--timeout=240s")
    assert not shares.failed_starts()
    pods = [pod["metadata"]["name"] for pod in shares.kubectl.objects("pods", "-n", shares.namespace)]
    cards = [uuid for pod in pods for uuid in shares.cards(pod).values()]
    assert sorted(cards.count(card) for card in set(cards)) == [4, 4]
    assert all(told(shares, pod) == {"CORES": "25", "MEMORY": "4096Mi"} for pod in pods)
    shares("delete", "deployment", "replicas", "--cascade=foreground", "--timeout=120s")


def test_a_monitoring_pod_sees_all_cards_beside_their_shares(shares: Stage) -> None:
    shares.kubectl("label", "namespace", shares.namespace, "resource.kubernetes.io/admin-access=true")
    cards = len(until("cards", lambda: devices(shares)))
    shares("apply", "-f", str(EXAMPLE / "two-pods.yaml"))
    shares.ready("share-a", "share-b")
    shares.start(a_template("whole"), *(a_pod(f"whole-{number}", template="whole") for number in range(cards - 1)))
    shares("apply", "-f", str(EXAMPLE / "monitoring.yaml"))
    shares.ready("monitoring")
    assert len(shares.cards("monitoring")) == cards
    assert told(shares, "monitoring") == {}, "who only watches has no part of any"
    shares.delete("pod", "whole-0")
    shares.start(a_pod("again", template="whole"))


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ({"cores": "33.3", "memory": "8G"}, {"cores": "34", "memory": "7630Mi"}),
        ({"cores": "0", "memory": "1"}, {"cores": "0", "memory": "1Mi"}),
        ({"cores": "1", "memory": "1"}, {"cores": "1", "memory": "1Mi"}),
        ({"cores": "100", "memory": "8Gi"}, {"cores": "100", "memory": "8Gi"}),
        ({"cores": "50"}, {"cores": "50", "memory": f"{MEMORY}Mi"}),
    ],
)
def test_odd_amounts_are_rounded_up_to_what_can_be_counted(
    shares: Stage, asked: dict[str, str], taken: dict[str, str]
) -> None:
    shares.start(a_template(requests=[a_share(**asked)]), a_pod(template="template"))
    assert consumed(shares, "pod") == {**taken, "shares": "1"}


@pytest.mark.parametrize("asked", [{"cores": "101", "memory": "1Gi"}, {"cores": "1", "memory": f"{MEMORY + 1}Mi"}])
def test_more_than_a_card_has_waits_for_ever(shares: Stage, asked: dict[str, str]) -> None:
    shares.create(a_template(requests=[a_share(**asked)]), a_pod(template="template"))
    shares.pending_because("pod", "cannot allocate all claims")


def test_what_a_share_leaves_is_taken_to_the_last_mib_and_no_further(shares: Stage) -> None:
    """Of every card one share is held, so that one MiB more than is left has no place on any of them."""
    cards = len(until("cards", lambda: devices(shares)))
    shares.create(
        a_template("first", requests=[a_share(cores="60", memory="8Gi")]),
        a_template("fits", requests=[a_share(cores="40", memory=f"{MEMORY - 8192}Mi")]),
        a_template("over", requests=[a_share(cores="40", memory=f"{MEMORY - 8192 + 1}Mi")]),
    )
    for number in range(cards):
        shares.start(a_pod(f"first-{number}", template="first"))
    shares.create(a_pod("over", template="over"))
    shares.pending_because("over", "cannot allocate all claims")
    shares.start(a_pod("fits", template="fits"))


def test_a_whole_card_and_a_share_never_meet(shares: Stage) -> None:
    cards = len(until("cards", lambda: devices(shares)))
    shares.create(a_template("whole"), a_template("share", requests=[a_share(cores="1", memory="1Mi")]))
    shares.start(a_pod("share", template="share"), *(a_pod(f"whole-{n}", template="whole") for n in range(cards - 1)))
    shares.create(a_pod("last", template="whole"))
    shares.pending_because("last", "cannot allocate all claims")
    shares.delete("pod", "share")
    shares.ready("last")


def test_two_requests_of_one_claim_may_share_a_card_and_one_request_for_two_does_not(shares: Stage) -> None:
    two = [a_share("one", cores="10", memory="1Gi"), a_share("two", cores="10", memory="1Gi")]
    pair = a_share(cores="10", memory="1Gi")
    pair["exactly"]["count"] = 2
    shares.start(
        a_template("two", requests=two),
        a_template("pair", requests=[pair]),
        a_pod("two", template="two"),
        a_pod("pair", template="pair"),
    )
    assert len(shares.cards("two")) == 1
    assert len(shares.cards("pair")) == 2


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (a_request(capacity={"requests": {"cores": "50"}}), "asks for a part of card .* its class gives whole cards"),
        ({"name": "card", "exactly": {"deviceClassName": SHARE}}, "is of a class of shares, but takes all of card"),
        (a_share(cores="10", memory="0"), "asks for nothing of card"),
    ],
)
def test_a_part_of_a_class_of_whole_cards_is_refused_and_the_reverse(
    shares: Stage, request_: Object, text: str
) -> None:
    shares.create(a_template(requests=[request_]), a_pod(template="template"))
    shares.event(text)


def test_a_limit_that_has_to_be_held_gets_no_pod_where_nothing_holds_it(shares: Stage) -> None:
    """The ready-made class is refused by the scheduler; a claim that insists, by the node, with what is missing."""
    strict = a_share("card", "inference.elasticgpu.io", cores="10", memory="1Gi")
    shares.create(a_template("strict", requests=[strict]), a_pod("strict", template="strict"))
    shares.pending_because("strict", "cannot allocate all claims")
    own = {**opaque(kind="ShareConfig", memory="Required"), "requests": ["card"]}
    shares.create(a_template("own", requests=[a_share(cores="10", memory="1Gi")], config=[own]))
    shares.create(a_pod("own", template="own"))
    shares.event("cannot hold a share to its memory, which the class requires. What is missing: Driver: ")
    found = shares.get("elasticgpuclass", "inference.elasticgpu.io")["status"]["conditions"]
    assert next(one for one in found if one["type"] == "Matching")["reason"] == "NoEnforcement"


def test_a_class_made_by_hand_gives_shares_where_its_claim_says_so(shares: Stage) -> None:
    shares.create(a_class("by-hand.example.com", 'device.driver == "gpu.elasticgpu.io"'))
    try:
        own = opaque(kind="ShareConfig", memory="BestEffort")
        request = a_share("card", "by-hand.example.com", cores="10", memory="1Gi")
        shares.start(a_claim(requests=[request], config=[own]), a_pod(claim="claim"))
        (device,) = shares.status_of_devices("claim")
        assert device["data"]["memory"] == "1Gi"
        shares.delete("pod", "pod")
    finally:
        shares.kubectl("delete", "deviceclass", "by-hand.example.com")


def test_shares_outlive_a_restart_of_the_driver(shares: Stage) -> None:
    shares("apply", "-f", str(EXAMPLE / "two-pods.yaml"))
    shares.ready("share-a", "share-b")
    cards = shares.cards("share-a")
    for pod in shares.driver_pods():
        shares.kubectl("-n", release.NAMESPACE, "delete", "pod", pod["metadata"]["name"], "--wait=true")
    shares.rollout()
    shares("apply", "-f", str(EXAMPLE / "memory-only.yaml"))
    shares.ready("memory-only")
    assert shares.cards("share-b") == cards


def test_sixty_shares_started_at_once_all_run(shares: Stage) -> None:
    """KAI#2153, HAMi#1662: bulk submits that lock each other out."""
    room = 16 * len(until("cards", lambda: devices(shares)))
    count = min(room, 60)
    pods = [a_pod(f"pod-{number}", template="small") for number in range(count)]
    shares.create(a_template("small", requests=[a_share(cores="6", memory="1Gi")]), *pods)
    shares("wait", "--for=condition=Ready", "pods", "--all", "--timeout=280s")
    claims = shares.kubectl.objects("resourceclaims", "-n", shares.namespace)
    held = [claim["status"]["allocation"]["devices"]["results"][0]["device"] for claim in claims]
    assert max(held.count(device) for device in held) <= 16
    shares("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    until(
        "no CDI file left",
        lambda: not any(claim["metadata"]["uid"] in n for n in shares.cdi_files() for claim in claims),
    )


LIBRARY = "/var/lib/vgpu/libvgpu.so"
STRICT = "inference.elasticgpu.io"


READER = "e2e-reads-pods"


def _template(**patch: str) -> Object:
    """What `node.hamiLibrary` of the chart adds to the node driver, or takes away again."""
    directory = LIBRARY.rpartition("/")[0]
    driver = {
        "name": "driver",
        "env": [{"name": "EGPU_HAMI_LIBRARY", "value": LIBRARY, **patch}],
        "volumeMounts": [{"name": "hami", "mountPath": directory, **patch}],
    }
    volume = {"name": "hami", "hostPath": {"path": directory, "type": "DirectoryOrCreate"}, **patch}
    return {"spec": {"containers": [driver], "volumes": [volume]}}


@pytest.fixture
def held(shares: Stage) -> Iterator[Stage]:
    """The node has a library, and its driver knows of it. The file is no real one: nothing here could load it."""
    path = shares.cluster.host_path("node1", LIBRARY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("stands for HAMi-core")
    account = f"--serviceaccount={release.NAMESPACE}:{release.NAME}-node"
    shares.kubectl("create", "clusterrole", READER, "--verb=get", "--resource=pods")
    shares.kubectl("create", "clusterrolebinding", READER, f"--clusterrole={READER}", account)
    shares.patch_driver(_template())
    shares.rollout()
    until("the card says so", lambda: "hami" in str(shares.slice_of("node1")))
    yield shares
    shares("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    shares.patch_driver(_template(**{"$patch": "delete"}))
    shares.rollout()
    until("the cards say so no more", lambda: (found := shares.slice_of("node1")) and "hami" not in str(found))
    shares.kubectl("delete", f"clusterrole/{READER}", f"clusterrolebinding/{READER}")
    path.unlink()


def test_every_container_sees_its_own_limits_from_inside(held: Stage) -> None:
    for name, cores, memory in (("small", "10", "1Gi"), ("large", "60", "40Gi")):
        request = a_share("card", STRICT, cores=cores, memory=memory)
        held.start(a_template(name, requests=[request]), a_pod(name, template=name))
    assert held.cards("small") == held.cards("large")
    for name, limits in (("small", ("10", "1024m")), ("large", ("60", "40960m"))):
        env = held.inside(name, "env").splitlines()
        assert f"CUDA_DEVICE_SM_LIMIT_0={limits[0]}" in env
        assert f"CUDA_DEVICE_MEMORY_LIMIT_0={limits[1]}" in env
        assert held.inside(name, "cat /etc/ld.so.preload /usr/local/vgpu/libvgpu.so").split("\n") == [
            "/usr/local/vgpu/libvgpu.so",
            "stands for HAMi-core",
        ]
        held.inside(name, f"echo {name} > /var/lib/elastic-gpu/share.cache; touch /tmp/vgpulock/lock")
        (data,) = data_of(held, name)
        assert data["enforcement"] == {"memory": "hami", "cores": "hami"}
    assert held.inside("small", "cat /var/lib/elastic-gpu/share.cache").strip() == "small"


def test_a_share_that_bursts_has_no_limit_of_cores_inside(held: Stage) -> None:
    held("apply", "-f", str(EXAMPLE / "burst.yaml"))
    held.ready("bursting")
    env = held.inside("bursting", "env")
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=4096m" in env
    assert "SM_LIMIT" not in env
    held.delete("pod", "bursting")
    held.kubectl("delete", "elasticgpuclass", "bursting-share.example.com")


def test_containers_that_one_account_cannot_hold_are_refused_in_words(held: Stage) -> None:
    """HAMi#592, #863: two containers on one share."""
    both = [a_container("main"), a_container("second")]
    request = a_share("card", STRICT, cores="10", memory="1Gi")
    held.create(a_template(requests=[request]), a_pod(template="template", containers=both))
    held.event("container main of pod pod, container second of pod pod use this one together")


def test_each_container_with_a_claim_of_its_own_has_limits_of_its_own(held: Stage) -> None:
    claims = [{"name": name, "resourceClaimTemplateName": name} for name in ("left", "right")]
    containers = [a_container(name, claims=[{"name": name}]) for name in ("left", "right")]
    templates = [a_template("left", requests=[a_share("card", STRICT, cores="10", memory="1Gi")])]
    templates.append(a_template("right", requests=[a_share("card", STRICT, cores="20", memory="2Gi")]))
    held.start(*templates, a_pod(claims=claims, containers=containers))
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=1024m" in held.inside("pod", "env", "left").splitlines()
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=2048m" in held.inside("pod", "env", "right").splitlines()
