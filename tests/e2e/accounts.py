"""The accounts of a second release with everything switched on, made of the chart's own roles and of nothing else of it.

Programs of ours run in the test's process as one of them, against the real API server, and a role can lose one right.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

from api import errors
from hack import release
from hack.kubectl import Kubectl
from kube import apiserver
from tests.e2e.stage import Object

NAME = NAMESPACE = "cut"
_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_EVERYTHING = {
    "image": {"repository": "registry.local/none"},
    "webhook": {"enabled": True},
    "remote": {"enabled": True, "credentialsSecret": "pools"},
    "hooks": {"leave": True},
    "pool": {
        "enabled": True,
        "nodeSelector": {"lends": "yes"},
        "profiles": ["fake"],
        "cards": [{"uuid": "GPU-1", "productName": "a card", "memory": 1}],
    },
}
_LIMIT_S = 120
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource; `group` of the API."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}"


def rendered() -> list[Object]:
    with helm_python.Chart.load(release.CHART) as chart:
        texts = chart.render(_EVERYTHING, name=NAME, namespace=NAMESPACE)
    files = (text for file, text in texts.items() if file.endswith(".yaml"))
    found = [one for text in files for one in yaml.safe_load_all(text) if one]
    return [one for one in found if one["kind"] in _KINDS]


def roles(objects: list[Object]) -> dict[str, list[Object]]:
    """The roles of each account, by the account's part of the chart."""
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    found: dict[str, list[Object]] = {}
    for binding in (one for one in objects if one["kind"].endswith("RoleBinding")):
        reference = binding["roleRef"]
        for subject in binding["subjects"]:
            part = subject["name"].removeprefix(f"{NAME}-elastic-gpu-")
            found.setdefault(part, []).append(by_name[reference["kind"], reference["name"]])
    return found


def rights() -> set[Right]:
    """Every right that the chart gives to a program."""
    return {
        Right(account=account, group=group, resource=resource, verb=verb)
        for account, owned in roles(rendered()).items()
        for role in owned
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    kubectl: Kubectl
    folder: Path
    roles: dict[str, list[Object]]

    @classmethod
    @contextlib.contextmanager
    def made(cls, kubectl: Kubectl, folder: Path) -> Iterator["Accounts"]:
        objects = rendered()
        kubectl("create", "namespace", NAMESPACE)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        kubectl("create", "-f", "-", text=text)
        try:
            yield cls(kubectl=kubectl, folder=folder, roles=roles(objects))
        finally:
            kubectl("delete", "-f", "-", "--wait=false", text=text)
            kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    @contextlib.asynccontextmanager
    async def without(
        self, right: Right, admin: apiserver.APIServer, bound: Object | None = None
    ) -> AsyncIterator[apiserver.APIServer]:
        """The API server as the account sees it that lacks this right alone. `bound`: to which pod its token is."""
        owned = [(role, _less(role["rules"], right)) for role in self.roles[right.account]]
        assert any(rules != role["rules"] for role, rules in owned), f"the chart gives no {right}"
        for role, rules in owned:
            await _have(admin, role, rules)
        try:
            async with apiserver.APIServer.connect(await self.kubeconfig(right.account, admin, bound)) as api:
                await _settled(api, right)
                yield api
        finally:
            for role, _ in owned:
                await _have(admin, role, role["rules"])

    async def kubeconfig(self, account: str, admin: apiserver.APIServer, bound: Object | None = None) -> Path:
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}-elastic-gpu-{account}/token"
        spec: Object = {"expirationSeconds": 3600} | ({"boundObjectRef": bound} if bound else {})
        head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}}
        token = (await admin.create(path, head | {"spec": spec}))["status"]["token"]
        config = yaml.safe_load(self.kubectl.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": token}
        written = self.folder / "kubeconfig"
        written.write_text(yaml.safe_dump(config))
        return written

    def server(self) -> tuple[str, Path]:
        """Where the API server is, and a file with whom to trust there."""
        (one,) = yaml.safe_load(self.kubectl.kubeconfig.read_text())["clusters"]
        trust = self.folder / "ca.crt"
        trust.write_bytes(base64.b64decode(one["cluster"]["certificate-authority-data"]))
        return str(one["cluster"]["server"]), trust


def _less(rules: list[Object], right: Right) -> list[Object]:
    kept = []
    for rule in rules:
        if right.resource not in rule["resources"] or right.group not in rule["apiGroups"]:
            kept.append(rule)
            continue
        if rest := [one for one in rule["resources"] if one != right.resource]:
            kept.append({**rule, "resources": rest})
        if verbs := [one for one in rule["verbs"] if one != right.verb]:
            kept.append({**rule, "resources": [right.resource], "verbs": verbs})
    return kept


async def _have(admin: apiserver.APIServer, role: Object, rules: list[Object]) -> None:
    place = f"/namespaces/{NAMESPACE}/roles" if role["kind"] == "Role" else "/clusterroles"
    await admin.patch(f"{_RBAC}{place}/{role['metadata']['name']}", {"rules": rules})


async def _settled(api: apiserver.APIServer, right: Right) -> None:
    """The API server keeps roles in a cache: until it is told."""
    resource, _, part = right.resource.partition("/")
    spec = {
        "resourceAttributes": {
            "group": right.group,
            "resource": resource,
            "subresource": part,
            "verb": right.verb,
            **({"namespace": NAMESPACE} if right.resource in ("secrets", "leases", "serviceaccounts/token") else {}),
            **({"name": name} if (name := _named(right)) else {}),
        }
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    async with asyncio.timeout(_LIMIT_S):
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        while (await api.create(path, body))["status"]["allowed"]:  # noqa: ASYNC110  a cache tells nobody
            await asyncio.sleep(0.02)


def _named(right: Right) -> str:
    """The one object that a rule names, where it does."""
    for role in roles(rendered()).get(right.account, ()):
        for rule in role["rules"]:
            if right.resource in rule["resources"] and right.verb in rule["verbs"]:
                return str(next(iter(rule.get("resourceNames") or ()), ""))
    return ""


async def fails(run: Callable[[], Coroutine[Any, Any, object]], logs: list[Any], words: str) -> None:
    """Runs what needs the right until it ends with these words, or a line of its log has them."""

    def said() -> bool:
        return any(words in str(line) for line in logs)

    task = asyncio.create_task(run())
    ended = ""
    try:
        async with asyncio.timeout(_LIMIT_S):
            while not said() and not task.done():
                await asyncio.wait([task], timeout=0.05)
            if task.done():
                await task
                ended = "it went well"
    except errors.ElasticGPUError as error:
        ended = str(error)
    except TimeoutError:
        ended = f"it went on for {_LIMIT_S} s"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, errors.ElasticGPUError):
            await task
    assert said() or words in ended, f"not said: {words}; but {ended}; {[str(line) for line in logs][-20:]}"
