"""Who uses a claim, as tables of pods."""

from typing import Any

import pytest

from api import errors, resource
from driver import containers

CLAIM = resource.Claim(
    uid=resource.ClaimUID("a"),
    namespace="ns",
    name="claim-a",
    results=tuple(
        resource.Result(request=request, driver="d", pool="p", device="x") for request in ("1/big", "2", "2")
    ),
)


def _pod(*uses: tuple[str, str, list[dict[str, str]]], name: str = "pod") -> dict[str, Any]:
    """`uses`: the list that a container is in, its name, its claims. `card` is the claim, `nic` is another one."""
    spec: dict[str, Any] = {
        "resourceClaims": [
            {"name": "card", "resourceClaimTemplateName": "t"},
            {"name": "nic", "resourceClaimName": "claim-b"},
        ]
    }
    for where, container, claims in uses:
        spec.setdefault(where, []).append({"name": container, "resources": {"claims": claims}})
    status = {"resourceClaimStatuses": [{"name": "card", "resourceClaimName": "claim-a"}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def _users(*pods: dict[str, Any]) -> list[str]:
    return [
        f"{user} ({user.devices}): {','.join(sorted(user.requests)) or 'all'}{' beside ' if user.others else ''}{','.join(user.others)}"
        for user in containers.users(CLAIM, pods, "d")
    ]


CARD, FIRST, SECOND, NIC = (
    {"name": "card"},
    {"name": "card", "request": "1"},
    {"name": "card", "request": "2"},
    {"name": "nic"},
)


@pytest.mark.parametrize(
    ("pods", "users"),
    [
        ([_pod(("containers", "main", [CARD]))], ["container main of pod pod (3): all"]),
        ([_pod(("containers", "main", [FIRST]), ("containers", "log", []))], ["container main of pod pod (1): 1"]),
        ([_pod(("containers", "main", [FIRST, SECOND]))], ["container main of pod pod (3): 1,2"]),
        ([_pod(("containers", "main", [FIRST, CARD]))], ["container main of pod pod (3): all"]),
        ([_pod(("containers", "main", [CARD, NIC]))], ["container main of pod pod (3): all beside nic"]),
        ([_pod(("containers", "main", [NIC]))], []),
        (
            [_pod(("initContainers", "before", [CARD]), ("containers", "main", [CARD]))],
            ["container before of pod pod (3): all", "container main of pod pod (3): all"],
        ),
        (
            [_pod(("containers", "main", [CARD])), _pod(("containers", "main", [SECOND]), name="two")],
            ["container main of pod pod (3): all", "container main of pod two (2): 2"],
        ),
        ([{"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "main"}]}}], []),
    ],
)
def test_every_container_that_uses_the_claim_is_found_by_its_name(pods: list[dict[str, Any]], users: list[str]) -> None:
    """HAMi#3052, #2563: an init container without a card shifted the others; a sidecar was taken for one."""
    assert _users(*pods) == users


def test_a_claim_named_by_itself_and_one_made_from_a_template_are_both_known() -> None:
    pod = _pod(("containers", "main", [NIC]))
    pod["spec"]["resourceClaims"][1]["resourceClaimName"] = "claim-a"
    assert _users(pod) == ["container main of pod pod (3): all"]


def test_a_container_that_names_no_request_uses_them_all() -> None:
    user = containers.User(pod="p", container="c")
    assert user.uses("1")
    assert not containers.User(pod="p", container="c", requests=frozenset({"2"})).uses("1")


def test_what_is_no_pod_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="a pod of claim ns/claim-a has an unexpected shape"):
        _users(
            {
                "metadata": {},
                "spec": {"containers": [{"resources": {"claims": [CARD]}}]},
                "status": {"resourceClaimStatuses": [{"name": "card", "resourceClaimName": "claim-a"}]},
            }
        )
