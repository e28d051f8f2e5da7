"""Every right that the chart gives is needed: what needs it fails without it, and says which is missing.

`test_least_rights.py` does so with the programs in their pods; here parts of them run in the test's process, each as an account
of the chart's that lacks one right. The API server, its roles, the cluster and what the parts do are real.
"""

import asyncio
import contextlib
import datetime
import functools
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from api import names, resource
from api import remote as kinds
from controller import __main__ as controller
from controller import metrics, remotes, remotewatcher, reviewer, settings, translator
from controller import release as chores
from driver.remote import records, remoteleases
from hack import release as hack
from hack.kubectl import Kubectl
from kube import apiserver, publisher, slices
from kubeletplugin import claims, contract, statuses
from pool import identity
from tests.e2e import accounts
from tests.e2e.accounts import NAMESPACE, Accounts, Right
from tests.e2e.manifests import IMAGE
from tests.e2e.stage import Object, Stage, until
from tests.fakes.authority import Authority
from tests.fakes.pool import FakePool
from translate import asks, shape
from webhook import keeper, watcher

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.needs(
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAResourceClaimGranularStatusAuthorization",
        "GenericWorkload",
    ),
]
CLASS, WEBHOOK, POOL = "cut.example.com", "cut-elastic-gpu-webhook", "cut-pool"
DRA, OURS, SCHEDULING, CORE = "resource.k8s.io", "elasticgpu.io", "scheduling.k8s.io", ""
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
SHARE = shape.Shape(device_class=CLASS, cores=5, memory_mib=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`api` is the cluster as the account sees it."""

    api: apiserver.APIServer
    admin: apiserver.APIServer
    made: Accounts
    stage: Stage
    folder: Path

    def path(self, kind: str, name: str = "", group: str = "/apis/resource.k8s.io/v1") -> str:
        return f"{group}/namespaces/{self.stage.namespace}/{kind}" + (f"/{name}" if name else "")


Need = Callable[[World], Coroutine[Any, Any, object]]


def clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


# The controller.


async def the_controller(world: World) -> None:
    await controller.serve(world.api, settings.Settings(namespace=NAMESPACE, port=0, page="none"))


def a_claim(name: str, memory: str = "1Gi") -> Object:
    request = {"deviceClassName": CLASS, "capacity": {"requests": {"cores": "5", "memory": memory}}}
    devices = {"requests": [{"name": "card", "exactly": request}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


async def a_claim_waits(world: World) -> None:
    await world.admin.create(world.path("resourceclaims"), a_claim("waits"))
    await the_controller(world)


async def a_claim_fits_nowhere(world: World) -> None:
    await world.admin.create(world.path("resourceclaims"), a_claim("huge", "900Gi"))
    await the_controller(world)


async def a_card_was_released(world: World) -> None:
    """Its rule stands and has to come into force."""
    await asyncio.to_thread(world.stage.kubectl, "-n", NAMESPACE, "delete", "resourceclaim", "first", "--timeout=120s")
    await the_controller(world)


async def the_rule_of_a_held_card_is_gone(world: World) -> None:
    world.stage.kubectl("delete", "devicetaintrules", "--all")
    await the_controller(world)


def translating(world: World, later: datetime.timedelta = datetime.timedelta()) -> translator.Translator:
    return translator.Translator(world.api, metrics.Metrics(), lambda: clock() + later)


async def the_translator(world: World) -> None:
    await translating(world).run()


async def a_translated_pod(world: World) -> None:
    world.stage.kubectl("label", "namespace", world.stage.namespace, f"{names.TRANSLATE_LABEL}=true")
    claim = {"name": "card", "resourceClaimTemplateName": shape.name(SHARE)}
    container = {"name": "main", "image": IMAGE, "resources": {"claims": [{"name": "card"}]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "old", "labels": {names.TRANSLATED_LABEL: "true"}},
        "spec": {
            "containers": [container],
            "resourceClaims": [claim],
            "schedulingGates": [{"name": "x.example.com/y"}],
        },
    }
    await world.admin.create(world.path("pods", group="/api/v1"), pod)
    await the_translator(world)


async def a_template_that_nobody_names(world: World) -> None:
    body = shape.template(SHARE, world.stage.namespace)
    body["metadata"]["labels"] = {"app.kubernetes.io/managed-by": names.FIELD_MANAGER}
    await world.admin.create(world.path("resourceclaimtemplates"), body)
    await translating(world, datetime.timedelta(hours=1)).run()


async def who_it_is(world: World) -> None:
    await reviewer.Reviewer(world.api).person("a token")


async def what_they_may(world: World) -> None:
    person = reviewer.Person(name="somebody", uid="", groups=(), extra=())
    await reviewer.Reviewer(world.api).scope(person, ())


# The controller's part of remote cards.


@contextlib.asynccontextmanager
async def a_pool(world: World) -> AsyncIterator[FakePool]:
    """A pool that lends two cards, its RemotePool, and the controller's part."""
    (cluster,) = world.stage.kubectl.objects("namespace", "kube-system")
    authority = Authority()
    uri = f"urn:elasticgpu:cluster:{cluster['metadata']['uid']}"
    credentials = authority.write(world.folder / "credentials", "controller", uris=(uri,))
    async with FakePool(authority) as pool:
        spec = {"endpoint": pool.endpoint, "caBundle": authority.pem}
        body = {"apiVersion": names.API_VERSION, "kind": "RemotePool", "metadata": {"name": POOL}, "spec": spec}
        await world.admin.create(f"/apis/{names.API_VERSION}/remotepools", body)
        given = settings.Settings(remote=True, remote_credentials=str(credentials))
        watch = remotewatcher.RemoteWatcher(world.api)
        part = remotes.Remotes(world.api, watch, metrics.Metrics(), clock, given, 1)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch.run()), group.create_task(part.run())]
            try:
                yield pool
            finally:
                for task in tasks:
                    task.cancel()


async def the_pools(world: World) -> None:
    async with a_pool(world):
        await asyncio.Event().wait()


async def remote_slices(world: World) -> list[Object]:
    selector = f"spec.driver={names.REMOTE_DRIVER}"
    page = await world.admin.list_page(slices.PATH, fieldSelector=selector)
    return [item for item in page.objects if item["spec"]["pool"]["name"] == POOL]


async def published(world: World) -> Object:
    async with asyncio.timeout(120):
        while not (  # noqa: ASYNC110  the other side is a cluster
            found := [one for one in await remote_slices(world) if one["spec"].get("devices")]
        ):
            await asyncio.sleep(0.1)
    return found[0]


async def a_remote_slice_was_altered(world: World) -> None:
    async with a_pool(world):
        found = await published(world)
        found["spec"]["devices"] = found["spec"]["devices"][1:]
        await world.admin.update(f"{slices.PATH}/{found['metadata']['name']}", found)
        await asyncio.Event().wait()


async def a_slice_of_no_pool_stands(world: World) -> None:
    """Nobody owns it, so that no garbage collector is faster."""
    spec = {
        "driver": names.REMOTE_DRIVER,
        "allNodes": True,
        "pool": {"name": "gone", "generation": 1, "resourceSliceCount": 1},
    }
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "cut-gone"}}
    await world.admin.create(slices.PATH, head | {"spec": spec})
    await the_pools(world)


async def a_waiting_pod(world: World, name: str) -> Object:
    """It never starts; as a user of a claim."""
    gate = {"containers": [{"name": "main", "image": IMAGE}], "schedulingGates": [{"name": "x.example.com/y"}]}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    pod = await world.admin.create(world.path("pods", group="/api/v1"), head | {"spec": gate})
    return {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}


async def far(world: World, config: Object | None = None, device: str = "") -> Object:
    """A claim that is allocated to a card of the pool, as kube-scheduler leaves it before its pod is bound."""
    user = await a_waiting_pod(world, "far")
    made = a_claim("far")
    made["spec"]["devices"] = {"requests": [{"name": "card", "exactly": {"deviceClassName": CLASS}}]}
    if config:
        made["spec"]["devices"]["config"] = [config]
    stored = await world.admin.create(world.path("resourceclaims"), made)
    device = device or (await published(world))["spec"]["devices"][0]["name"]
    result = {
        "request": "card",
        "driver": names.REMOTE_DRIVER,
        "pool": POOL,
        "device": device,
        "bindingConditions": [names.ATTACHED],
        "bindingFailureConditions": [names.ATTACH_FAILED],
    }
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}
    allocation = {
        "devices": {"results": [result]} | ({"config": [{"source": "FromClaim"} | config]} if config else {}),
        "nodeSelector": {"nodeSelectorTerms": [node]},
        "allocationTimestamp": resource.timestamp(clock()),
    }
    meta = {"uid": stored["metadata"]["uid"], "finalizers": ["resource.kubernetes.io/delete-protection"]}
    path = world.path("resourceclaims", "far")
    bare = await world.admin.patch(path, {"metadata": meta})
    assert bare
    # no patch: that would put the keys of the config in Go's order
    done = await world.admin.update(
        f"{path}/status", bare | {"status": {"allocation": allocation, "reservedFor": [user]}}
    )
    assert done
    return done


async def a_remote_card_is_wanted(world: World) -> None:
    async with a_pool(world):
        await far(world)
        await asyncio.Event().wait()


async def a_remote_card_is_wanted_by_a_claim_that_takes_no_apply(world: World) -> None:
    """Its config has its keys in another order than Go writes them."""
    parameters = {"kind": "RemoteConfig", "apiVersion": names.API_VERSION}
    async with a_pool(world):
        await far(world, {"opaque": {"driver": names.REMOTE_DRIVER, "parameters": parameters}})
        await asyncio.Event().wait()


async def a_remote_card_is_given_back(world: World) -> None:
    async with a_pool(world) as pool:
        await far(world)
        await pool.until(pool.live, within_s=120)
        await asyncio.to_thread(world.stage, "delete", "pod", "far", "--grace-period=0", "--force")
        await asyncio.to_thread(world.stage, "delete", "resourceclaim", "far", "--timeout=120s")
        await asyncio.Event().wait()


# The driver of remote cards.


def on_node(world: World) -> remoteleases.RemoteLeases:
    (pod,) = world.stage.kubectl.objects("pod", "driver", "-n", NAMESPACE)
    account = remoteleases.Account(
        namespace=NAMESPACE,
        service_account="cut-elastic-gpu-remote",
        pod_name="driver",
        pod_uid=pod["metadata"]["uid"],
    )
    return remoteleases.RemoteLeases(world.api, "node1", account, lambda: resource.timestamp(clock()))


HOLDING = records.Holding(request="card", pool=POOL, device="gpu-1", key="cut-key", epoch="1", protocol="fake")


async def far_on_node(world: World) -> resource.Claim:
    """A claim with a remote card on node1, without a pool behind it."""
    return resource.claim(await far(world, device="gpu-1"))


async def its_identity(world: World) -> None:
    await on_node(world).identity()


async def its_pool(world: World) -> None:
    await on_node(world).pool(POOL)


async def its_token(world: World) -> None:
    await on_node(world).token("a-pool")


async def its_lease(world: World) -> None:
    leases = on_node(world)
    await leases.intend(await far_on_node(world), HOLDING)
    await leases.move(HOLDING, kinds.Phase.ATTACHED)


async def its_claim(world: World) -> None:
    claim = await far_on_node(world)
    await claims.Claims(world.api).get(contract.ClaimRef(uid=claim.uid, namespace=claim.namespace, name=claim.name))


async def its_claims_other_pods(world: World) -> None:
    claim = await far_on_node(world)
    another = await a_waiting_pod(world, "another")
    users = [{"resource": "pods", "name": name, "uid": uid} for name, uid in claim.reserved_for]
    path = world.path("resourceclaims", "far")
    await world.admin.patch(f"{path}/status", {"status": {"reservedFor": [*users, another]}})
    record = records.Record(
        uid=claim.uid, namespace=claim.namespace, name=claim.name, phase=records.Phase.PREPARED, holdings=()
    )
    await on_node(world).used_by_others(record)


async def its_status(world: World) -> None:
    claim = await far_on_node(world)
    writer = statuses.Statuses(world.api, names.REMOTE_DRIVER, claims.Claims(world.api))
    device = contract.PreparedDevice(
        requests=("card",), pool=POOL, device="gpu-1", cdi_ids=(), data={"enforcement": "remote"}
    )
    writer.want(claims.Found(claim=claim, statuses=()), (device,))
    await writer.run()


async def its_slices(world: World) -> None:
    async def dropped(_: frozenset[str]) -> None:
        """None are sent."""

    scope = slices.Scope(driver=names.REMOTE_DRIVER, node_name="node1", node_uid="")
    await publisher.Publisher(world.api, scope, dropped).run()


# A pool.


async def the_caller_of_a_pool(world: World) -> None:
    url, trust = world.made.server()
    (user,) = yaml.safe_load((world.folder / "kubeconfig").read_text())["users"]
    token = world.folder / "token"
    token.write_text(user["user"]["token"])
    cluster = identity.Cluster(url=url, ca_file=trust, token_file=token, account="cut:x")
    await identity.Identity(cluster, "a-pool", time.monotonic).node("a token")


# Admission.


async def the_watches_of_admission(world: World) -> None:
    await watcher.Watcher(world.api, asks.Units()).run()


async def a_namespace_that_is_new(world: World) -> None:
    await watcher.Watcher(world.api, asks.Units()).setting(world.stage.namespace)


async def a_certificate_is_lost(world: World) -> None:
    await world.admin.patch(f"/api/v1/namespaces/{NAMESPACE}/secrets/{WEBHOOK}-tls", {"data": None})
    await the_certificate(world)


async def the_certificate(world: World) -> None:
    await keeper.Keeper(world.api, NAMESPACE, WEBHOOK, f"{WEBHOOK}-tls", WEBHOOK, clock).run()


# Others.


async def crds(world: World) -> None:
    await chores.apply_crds(world.api)


async def crds_that_are_not_there(world: World) -> None:
    """Asked of the API server as it would be where one is missing; none is taken away from under the other tests."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/remotepools.elasticgpu.io"
    body = json.loads(world.stage.kubectl("get", "--raw", path))
    body["metadata"] = {"name": "remotepools.elasticgpu.io"}
    del body["status"]
    await world.api.create(path.rpartition("/")[0], body, dryRun="All")


async def claims_before_leaving(world: World) -> None:
    await chores.check_claims(world.api)


def right(account: str, group: str, kind: str, verb: str) -> Right:
    return Right(account=account, group=group, resource=kind, verb=verb)


def reading(account: str, group: str, kinds: tuple[str, ...], need: Need) -> list[tuple[Right, Need]]:
    return [(right(account, group, kind, verb), need) for kind in kinds for verb in ("list", "watch")]


HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
ADMISSION = "admissionregistration.k8s.io"
CASES: list[tuple[Right, Need]] = [
    # the rule of a card is patched before the other case deletes it
    (right("controller", DRA, "devicetaintrules", "patch"), a_card_was_released),
    (right("controller", DRA, "devicetaintrules", "create"), the_rule_of_a_held_card_is_gone),
    (right("controller", DRA, "resourceclaims", "patch"), a_claim_waits),
    (right("controller", DRA, "resourceclaims/status", "patch"), a_claim_waits),
    (right("controller", DRA, "resourceclaims/binding", "patch"), a_claim_waits),
    *reading("controller", SCHEDULING, ("podgroups",), the_controller),
    (right("controller", CORE, "events", "create"), a_claim_fits_nowhere),
    (right("controller", CORE, "events", "patch"), a_claim_fits_nowhere),
    (right("controller", "authentication.k8s.io", "tokenreviews", "create"), who_it_is),
    (right("controller", "authorization.k8s.io", "subjectaccessreviews", "create"), what_they_may),
    *reading("controller", DRA, ("resourceclaimtemplates",), the_translator),
    *reading("controller", CORE, ("namespaces",), the_translator),
    (right("controller", DRA, "resourceclaimtemplates", "create"), a_translated_pod),
    (right("controller", DRA, "resourceclaimtemplates", "delete"), a_template_that_nobody_names),
    *reading("controller", OURS, ("remotepools", "remoteleases"), the_pools),
    (right("controller", CORE, "namespaces", "get"), the_pools),
    (right("controller", OURS, "remotepools/status", "patch"), the_pools),
    (right("controller", DRA, "resourceslices", "create"), the_pools),
    (right("controller", DRA, "resourceslices", "update"), a_remote_slice_was_altered),
    (right("controller", DRA, "resourceslices", "delete"), a_slice_of_no_pool_stands),
    (right("controller", OURS, "remoteleases", "create"), a_remote_card_is_wanted),
    (right("controller", OURS, "remoteleases", "patch"), a_remote_card_is_wanted),
    (right("controller", DRA, "resourceclaims/driver", "arbitrary-node:patch"), a_remote_card_is_wanted),
    (right("controller", DRA, "resourceclaims", "get"), a_remote_card_is_wanted_by_a_claim_that_takes_no_apply),
    (right("controller", OURS, "remoteleases", "delete"), a_remote_card_is_given_back),
    *reading("webhook", OURS, ("elasticgpuclasses",), the_watches_of_admission),
    *reading("webhook", CORE, ("namespaces",), the_watches_of_admission),
    (right("webhook", CORE, "namespaces", "get"), a_namespace_that_is_new),
    *reading("webhook", CORE, ("secrets",), the_certificate),
    *reading("webhook", ADMISSION, HOOKS, the_certificate),
    (right("webhook", CORE, "secrets", "patch"), a_certificate_is_lost),
    *((right("webhook", ADMISSION, kind, "patch"), a_certificate_is_lost) for kind in HOOKS),
    *reading("remote", DRA, ("resourceslices",), its_slices),
    *((right("remote", CORE, kind, "get"), its_identity) for kind in ("nodes", "namespaces")),
    (right("remote", OURS, "remotepools", "get"), its_pool),
    (right("remote", CORE, "serviceaccounts/token", "create"), its_token),
    *((right("remote", OURS, "remoteleases", verb), its_lease) for verb in ("create", "patch")),
    (right("remote", DRA, "resourceclaims", "get"), its_claim),
    (right("remote", CORE, "pods", "get"), its_claims_other_pods),
    (right("remote", DRA, "resourceclaims/status", "patch"), its_status),
    (right("remote", DRA, "resourceclaims/driver", "associated-node:patch"), its_status),
    (right("pool", "authentication.k8s.io", "tokenreviews", "create"), the_caller_of_a_pool),
    (right("pool", CORE, "namespaces", "get"), the_caller_of_a_pool),
    (right("crds", "apiextensions.k8s.io", "customresourcedefinitions", "patch"), crds),
    (right("crds", "apiextensions.k8s.io", "customresourcedefinitions", "create"), crds_that_are_not_there),
    (right("leave", DRA, "resourceclaims", "list"), claims_before_leaving),
]


def said(missing: Right) -> str:
    """In the API server's own words; a pool has words of its own, for it asks without our client."""
    if missing.account == "pool":
        return f"{missing.resource.replace('namespaces', 'namespaces/kube-system')} at https"
    return f'cannot {missing.verb} resource "{missing.resource}"'


@pytest.fixture(scope="module")
def made(installed: None, admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """The accounts, and a cluster whose own controller rests: two claims of a class that keeps cards back hold one card."""
    with Accounts.made(admin, tmp_path_factory.mktemp("cut")) as accounts_:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects()})
        admin("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}=controller")
        admin("create", "-f", "-", text=text)
        try:
            admin("wait", "--for=condition=Ready", f"elasticgpuclass/{CLASS}", "--timeout=120s")
            two = json.dumps({"apiVersion": "v1", "kind": "List", "items": [a_claim("first"), a_claim("second")]})
            admin("-n", NAMESPACE, "create", "-f", "-", text=two)
            until("a rule for the card of both", lambda: len(_kept_for(admin)) == 2)
            admin("-n", hack.NAMESPACE, "scale", CONTROLLER, "--replicas=0")
            admin("-n", hack.NAMESPACE, "wait", "--for=delete", "pod", "-l", COMPONENT, "--timeout=120s")
            yield accounts_
        finally:
            admin("-n", NAMESPACE, "delete", "resourceclaims", "--all", "--timeout=120s")
            admin("delete", "-f", "-", "--ignore-not-found", text=text)
            admin("delete", "devicetaintrules", "--all")
            admin("label", "node", "node1", f"{names.ALLOCATED_BY_LABEL}-")
            admin("-n", hack.NAMESPACE, "scale", CONTROLLER, "--replicas=1")
            admin("-n", hack.NAMESPACE, "rollout", "status", CONTROLLER, "--timeout=240s")
            until("the cards are kube-scheduler's again", lambda: names.ALLOCATED_BY_TAINT not in _slices(admin))


CONTROLLER, COMPONENT = f"deployment/{hack.NAME}-controller", "app.kubernetes.io/component=controller"


def _objects() -> list[Object]:
    share = {"memory": "BestEffort", "cores": "BestEffort"}
    allocation = {"by": "Controller", "mode": "Immediate"}
    spec: Object = {"backend": "Share", "share": share, "reclaimPolicy": "Retain", "allocation": allocation}
    rule = {"apiGroups": ["x.example.com"], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"]}
    hook = {
        "name": "none.example.com",
        "clientConfig": {"service": {"name": WEBHOOK, "namespace": NAMESPACE}},
        "rules": [rule],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    version = "admissionregistration.k8s.io/v1"
    meta = {"metadata": {"name": WEBHOOK}, "webhooks": [hook]}
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]}
    driver = {
        "nodeName": "node1",
        "serviceAccountName": "cut-elastic-gpu-remote",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return [
        {"apiVersion": names.API_VERSION, "kind": "ElasticGPUClass", "metadata": {"name": CLASS}, "spec": spec},
        {"apiVersion": version, "kind": "MutatingWebhookConfiguration", **meta},
        {"apiVersion": version, "kind": "ValidatingWebhookConfiguration", **meta},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{WEBHOOK}-tls", "namespace": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "namespace": NAMESPACE}, "spec": driver},
    ]


def _slices(admin: Kubectl) -> str:
    return admin("get", "resourceslices", "-o", "json")


def _kept_for(admin: Kubectl) -> list[str]:
    found = [one["metadata"].get("annotations") or {} for one in admin.objects("devicetaintrules")]
    return [uid for one in found for uid in one.get(names.RETAINED_FOR, "").split(",")]


@pytest.fixture
async def admin_api(admin: Kubectl) -> AsyncIterator[apiserver.APIServer]:
    async with apiserver.APIServer.connect(admin.kubeconfig) as api:
        yield api
        await _forget_the_pool(api)


async def _forget_the_pool(api: apiserver.APIServer) -> None:
    """What a pool's part leaves when it ends in the middle."""
    ours = f"/apis/{names.API_VERSION}"
    for path in (f"{ours}/remotepools", f"{ours}/remoteleases"):
        for one in (await api.list_page(path)).objects:
            await api.patch(f"{path}/{one['metadata']['name']}", {"metadata": {"finalizers": None}})
            await api.delete(f"{path}/{one['metadata']['name']}", uid=one["metadata"]["uid"])
    for one in (await api.list_page(slices.PATH, fieldSelector=f"spec.driver={names.REMOTE_DRIVER}")).objects:
        await api.delete(f"{slices.PATH}/{one['metadata']['name']}", uid=one["metadata"]["uid"])


@pytest.mark.parametrize(("missing", "need"), CASES, ids=[str(missing) for missing, _ in CASES])
async def test_without_this_right_something_fails_and_names_it(
    made: Accounts, stage: Stage, admin_api: apiserver.APIServer, missing: Right, need: Need
) -> None:
    bound = None
    if missing.account == "remote":
        (pod,) = stage.kubectl.objects("pod", "driver", "-n", NAMESPACE)
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": pod["metadata"]["uid"]}
    async with made.without(missing, admin_api, bound) as api:
        world = World(api=api, admin=admin_api, made=made, stage=stage, folder=made.folder)
        with structlog.testing.capture_logs() as logs:
            await accounts.fails(functools.partial(need, world), logs, said(missing))
