"""What the two accounts may do: exactly what they need, and nothing beside it."""

from collections import Counter
from collections.abc import Callable

from api import names
from tests.chart.conftest import NAMESPACE, Object
from tests.e2e import accounts, test_each_right, test_least_rights

NODE = "elastic-gpu-node"
CONTROLLER = "elastic-gpu-controller"
CRDS = "elastic-gpu-crds"
POLICY = "elastic-gpu-node-slices"
Objects = dict[tuple[str, str], Object]

NODE_RIGHTS = {
    "resourceclaims": {"get"},
    "resourceclaims/status": {"patch"},
    "resourceclaims/driver": {"associated-node:patch"},
    "resourceslices": {"list", "watch", "create", "update", "delete"},
    "nodes": {"get", "list", "watch"},
    "pods": {"get"},
}
CONTROLLER_RIGHTS = {
    "elasticgpuclasses": {"list", "watch"},
    "elasticgpuclasses/status": {"patch"},
    "deviceclasses": {"list", "watch", "create", "patch", "delete"},
    "resourceslices": {"list", "watch"},
    "resourceclaims": {"list", "watch", "patch"},
    "resourceclaims/status": {"patch"},
    "resourceclaims/binding": {"patch"},
    "devicetaintrules": {"list", "watch", "create", "patch"},
    "pods": {"list", "watch"},
    "nodes": {"list", "watch"},
    "podgroups": {"list", "watch"},
    "elasticgpus": {"list", "watch", "create", "patch", "delete"},
    "events": {"create", "patch"},
}
REVIEWS = {"tokenreviews": {"create"}, "subjectaccessreviews": {"create"}}


def test_the_node_driver_has_exactly_these_rights(objects: Objects) -> None:
    assert _rights(objects["ClusterRole", NODE]) == NODE_RIGHTS


def test_the_controller_has_exactly_these_rights(objects: Objects) -> None:
    assert _rights(objects["ClusterRole", CONTROLLER]) == CONTROLLER_RIGHTS | REVIEWS
    assert _rights(objects["Role", CONTROLLER]) == {"leases": {"get", "create", "update"}}


def test_without_the_page_nobody_is_asked_who_they_are(render: Callable[..., list[Object]]) -> None:
    (role,) = [
        found
        for found in render({"page": {"listen": "none"}})
        if (found["kind"], found["metadata"]["name"]) == ("ClusterRole", CONTROLLER)
    ]
    assert _rights(role) == CONTROLLER_RIGHTS


def test_the_node_driver_writes_status_of_its_own_devices_only(objects: Objects) -> None:
    (rule,) = [rule for rule in objects["ClusterRole", NODE]["rules"] if "resourceclaims/driver" in rule["resources"]]
    assert rule["resourceNames"] == [names.LOCAL_DRIVER]


def test_roles_are_given_to_the_accounts_of_the_pods_and_to_nobody_else(objects: Objects) -> None:
    accounts = {
        NODE: objects["DaemonSet", NODE]["spec"]["template"]["spec"]["serviceAccountName"],
        CONTROLLER: objects["Deployment", CONTROLLER]["spec"]["template"]["spec"]["serviceAccountName"],
        CRDS: objects["Job", CRDS]["spec"]["template"]["spec"]["serviceAccountName"],
    }
    bindings = [found for (kind, _), found in objects.items() if kind.endswith("RoleBinding") or kind == "RoleBinding"]
    assert len(bindings) == 4
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert subject == {
            "kind": "ServiceAccount",
            "name": accounts[binding["roleRef"]["name"]],
            "namespace": NAMESPACE,
        }
        assert ("ServiceAccount", subject["name"]) in objects


def test_the_policy_names_the_account_of_the_node_drivers_pods(objects: Objects) -> None:  # NV#1317
    account = objects["DaemonSet", NODE]["spec"]["template"]["spec"]["serviceAccountName"]
    (condition,) = objects["ValidatingAdmissionPolicy", POLICY]["spec"]["matchConditions"]
    assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:{NAMESPACE}:{account}"'


def test_the_policy_is_bound_and_denies(objects: Objects) -> None:
    spec = objects["ValidatingAdmissionPolicyBinding", POLICY]["spec"]
    assert spec == {"policyName": POLICY, "validationActions": ["Deny"]}
    assert objects["ValidatingAdmissionPolicy", POLICY]["spec"]["failurePolicy"] == "Fail"


def test_the_policy_sees_every_write_in_every_served_version(objects: Objects) -> None:  # NV PR#475
    (rule,) = objects["ValidatingAdmissionPolicy", POLICY]["spec"]["matchConstraints"]["resourceRules"]
    assert set(rule["apiVersions"]) == {"v1", "v1beta1", "v1beta2"}
    assert set(rule["operations"]) == {"CREATE", "UPDATE", "DELETE"}
    assert rule["resources"] == ["resourceslices"]


def test_the_policy_and_the_driver_agree_on_names(objects: Objects) -> None:
    text = " ".join(rule["expression"] for rule in objects["ValidatingAdmissionPolicy", POLICY]["spec"]["validations"])
    assert f'"{names.LOCAL_DRIVER}"' in text
    assert f'"{names.POOL_PREFIX}"' in text


def _rights(role: Object) -> dict[str, set[str]]:
    rights: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            rights.setdefault(resource, set()).update(rule["verbs"])
    assert not any("*" in word for rule in role["rules"] for words in rule.values() for word in words)
    return rights


def test_names_of_pods_and_claims_are_for_those_who_view_the_whole_cluster(objects: Objects) -> None:  # k8s#130679
    """`view` in one namespace gives no kind without a namespace; the inventory has no names and is bound to nobody."""
    view, inventory = objects["ClusterRole", "elastic-gpu-view"], objects["ClusterRole", "elastic-gpu-inventory"]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    reading = {"get", "list", "watch"}
    open_ = ("elasticgpuclasses", "remotepools", "resourceslices", "deviceclasses", "devicetaintrules")
    kinds = dict.fromkeys(open_, reading)
    assert _rights(inventory) == kinds
    assert _rights(view) == {"elasticgpus": reading, "remoteleases": reading, **kinds}
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in inventory["metadata"]["labels"]


def test_every_right_of_every_program_is_taken_away_by_an_end_to_end_test() -> None:
    """A rule that nobody would miss goes from the chart."""
    taken = {(one.account, one.resource, one.verb) for one, _ in test_each_right.CASES}
    taken |= {(account, kind, verb) for account, kind, verb, _ in test_least_rights.CASES}
    assert taken == {(one.account, one.resource, one.verb) for one in accounts.rights()}


def test_no_account_is_given_a_right_twice() -> None:
    for account, owned in accounts.roles(accounts.rendered()).items():
        given = Counter(
            (kind, verb)
            for role in owned
            for rule in role["rules"]
            if not rule.get("resourceNames")
            for kind in rule["resources"]
            for verb in rule["verbs"]
        )
        assert not [what for what, times in given.items() if times > 1], account


WEBHOOK = "elastic-gpu-webhook"
CONFIGURATIONS = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}


def test_the_webhook_has_exactly_these_rights_and_writes_by_name_alone(render: Callable[..., list[Object]]) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in render({"webhook": {"enabled": True}})}
    cluster, own = found["ClusterRole", WEBHOOK], found["Role", WEBHOOK]
    assert _rights(cluster) == {
        "elasticgpuclasses": {"list", "watch"},
        "namespaces": {"get", "list", "watch"},
        **{kind: {"list", "watch", "patch"} for kind in CONFIGURATIONS},
    }
    assert _rights(own) == {"secrets": {"list", "watch", "patch"}}
    for rule in (*cluster["rules"], *own["rules"]):
        if "patch" in rule["verbs"]:
            assert rule["resourceNames"] in ([WEBHOOK], [f"{WEBHOOK}-tls"])
    assert _rights(found["ClusterRole", CONTROLLER]) == CONTROLLER_RIGHTS | REVIEWS | {
        "resourceclaimtemplates": {"list", "watch", "create", "delete"},
        "namespaces": {"list", "watch"},
    }


def test_with_a_certificate_of_somebody_else_the_webhook_writes_nothing(render: Callable[..., list[Object]]) -> None:
    given = {"enabled": True, "certificates": "cert-manager", "issuerRef": {"kind": "ClusterIssuer", "name": "x"}}
    found = {(one["kind"], one["metadata"]["name"]): one for one in render({"webhook": given})}
    rights = (_rights(found["ClusterRole", WEBHOOK]), _rights(found["Role", WEBHOOK]))
    assert not {verb for of in rights for verbs in of.values() for verb in verbs} - {"get", "list", "watch"}
    assert ("Secret", f"{WEBHOOK}-tls") not in found
    annotations = found["MutatingWebhookConfiguration", WEBHOOK]["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{WEBHOOK}"}
    assert found["Certificate", WEBHOOK]["spec"]["secretName"] == f"{WEBHOOK}-tls"


def test_each_policy_is_bound_denies_and_fails_closed(render: Callable[..., list[Object]]) -> None:
    remote = {"remote": {"enabled": True, "credentialsSecret": "pool"}}
    found = render(remote)
    policies = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "ValidatingAdmissionPolicy"}
    bound = {
        one["spec"]["policyName"]: one["spec"] for one in found if one["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert (
        set(policies)
        == set(bound)
        == {
            "elastic-gpu-node-slices",
            "elastic-gpu-controller-slices",
            "elastic-gpu-remote-leases",
            "elastic-gpu-remote-tokens",
            "elastic-gpu-taint-rules",
        }
    )
    assert {spec["failurePolicy"] for spec in policies.values()} == {"Fail"}
    assert all(spec["validationActions"] == ["Deny"] for spec in bound.values())
    (condition,) = policies["elastic-gpu-controller-slices"]["matchConditions"]
    assert condition["expression"].endswith(f'"system:serviceaccount:{NAMESPACE}:{CONTROLLER}"')  # NV#1317
    (rule,) = policies["elastic-gpu-taint-rules"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["apiVersions"]) == (["devicetaintrules"], ["*"])


def test_no_account_but_the_controller_may_write_taint_rules_and_none_may_read_secrets_of_others(
    render: Callable[..., list[Object]],
) -> None:
    everything = {
        "remote": {"enabled": True, "credentialsSecret": "pool"},
        "webhook": {"enabled": True},
        "hooks": {"leave": True},
    }
    for role in render(everything):
        for rule in role.get("rules", ()) if role["kind"] in ("ClusterRole", "Role") else ():
            verbs = set(rule["verbs"])
            may = {"create", "patch"} if role["metadata"]["name"] == CONTROLLER else {"get", "list", "watch"}
            assert "devicetaintrules" not in rule["resources"] or verbs <= may | {"get", "list", "watch"}
            assert "secrets" not in rule["resources"] or rule.get("resourceNames")
            assert not verbs & {"*", "escalate", "bind", "impersonate", "deletecollection"}
