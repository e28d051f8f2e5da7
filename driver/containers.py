"""Which containers use a claim, and which requests of it: read from the pods that hold it.

    pods as the API server has them -> users -> who uses one request

A way of holding a share may have to know this: a limit that is given to a container cannot be told from another one in the
same container. Containers are addressed by name, never by their place (HAMi#592, #3052); init containers and sidecars
count as others do, since each is a container of its own (HAMi#2563).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from api import errors, resource

JSON = Mapping[str, Any]
_LISTS = ("initContainers", "containers", "ephemeralContainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A container that uses the claim. `requests` of it, none named: all. `others`: further claims that it uses.

    `devices`: how many devices of the driver it gets from this claim.
    """

    pod: str
    container: str
    pod_uid: str = ""
    requests: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()
    devices: int = 1

    def __str__(self) -> str:
        return f"container {self.container} of pod {self.pod}"

    def uses(self, request: str) -> bool:
        """`request` without its subrequest."""
        return not self.requests or request in self.requests


def users(claim: resource.Claim, pods: Iterable[JSON], driver: str) -> tuple[User, ...]:
    """Those of `pods` in their order, with their devices of `driver`. Raises Invalid where a pod's shape is not that of one."""
    try:
        found = tuple(user for pod in pods for user in _of_pod(claim, pod))
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.Invalid(f"a pod of claim {claim} has an unexpected shape: {error!r}") from error
    requests = [result.base_request for result in claim.of_driver(driver)]
    return tuple(replace(user, devices=sum(map(user.uses, requests))) for user in found)


def ids(pod: JSON) -> Iterator[tuple[str, str]]:
    """Name and runtime's id of each container that was started."""
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for status in (pod.get("status") or {}).get(key) or ():
            _, _, name = (status.get("containerID") or "").partition("://")
            if name:
                yield status["name"], name


def together(users: tuple[User, ...]) -> str:
    """The uid of the pod whose containers have to be held as one; empty where one container uses this share alone."""
    alone = len(users) <= 1 and all(user.devices == 1 and not user.others for user in users)
    return "" if alone else users[0].pod_uid


def crowded(users: tuple[User, ...]) -> tuple[str, ...]:
    """What a limit that is given to one container lacks here: a container for the share, and no other device in it."""
    several = (
        [f"a container for each share: {', '.join(map(str, users))} use this one together"] if len(users) > 1 else []
    )
    return (
        *several,
        *(
            f"a container with this share alone: {user} uses {', '.join(user.others) or 'more of its claim'} too"
            for user in users
            if user.others or user.devices != 1
        ),
    )


def _of_pod(claim: resource.Claim, pod: JSON) -> Iterator[User]:
    named = _claims(pod)
    for container in (item for key in _LISTS for item in pod["spec"].get(key) or ()):
        uses = (container.get("resources") or {}).get("claims") or ()
        ours = [use for use in uses if named.get(use["name"]) == claim.name]
        if not ours:
            continue
        whole = any(not use.get("request") for use in ours)
        yield User(
            pod=pod["metadata"]["name"],
            pod_uid=pod["metadata"].get("uid") or "",
            container=container["name"],
            requests=frozenset() if whole else frozenset(use["request"] for use in ours),
            others=tuple(sorted({use["name"] for use in uses if use not in ours})),
        )


def _claims(pod: JSON) -> dict[str, str]:
    """The pod's word for a claim -> the claim's name: its own, or of the one that was made from a template."""
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    names = {item["name"]: item.get("resourceClaimName") or "" for item in made}
    for item in pod["spec"].get("resourceClaims") or ():
        if item.get("resourceClaimName"):
            names[item["name"]] = item["resourceClaimName"]
    return names
