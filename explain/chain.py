"""From a pod to what it asks: pod, template, claim, request, class, and the first link that is not there."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allocation import nodes, requests
from api import names
from api.reasons import Missing
from explain import world

JSON = Mapping[str, Any]
NUMBERS = "Numbers"
"""The kind of a claim that nobody has made: plain numbers."""
_CARDS = ("gpu", "GPU", "vcuda")
_CONTROLLED = re.compile(
    rf'(?<!!\()"{names.ALLOCATED_BY}" in \S+ && \S+\.{names.ALLOCATED_BY} == "{names.BY_CONTROLLER}"'
)
"""In the texts of classes that the controller allocates for; those of the others have it negated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """`missing` where the chain ends here; `note` for what a reader should know of it."""

    kind: str
    name: str
    note: str = ""
    missing: Missing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`wishes`: of the claims that wait, in the pod's order. `places`: from where allocated claims can be used."""

    subject: str
    links: tuple[Link, ...]
    wishes: tuple[requests.Wish, ...] = ()
    places: tuple[tuple[nodes.Term, ...], ...] = ()

    @property
    def broken(self) -> Link | None:
        return next((link for link in self.links if link.missing is not None), None)


def of_pod(pod: JSON, now: world.World) -> Chain:
    meta, spec = pod["metadata"], pod["spec"]
    namespace = meta.get("namespace") or "default"
    links = [Link(kind="Pod", name=f"{namespace}/{meta['name']}", note=_phase(pod))]
    wishes: list[requests.Wish] = []
    places: list[tuple[nodes.Term, ...]] = []
    wanted = spec.get("resourceClaims") or ()
    if not wanted:
        links.append(_without_claims(pod))
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in wanted:
        links += _entry(entry, namespace, made, now, wishes, places)
    return Chain(
        subject=f"pod {namespace}/{meta['name']}", links=tuple(links), wishes=tuple(wishes), places=tuple(places)
    )


def of_claim(claim: JSON, now: world.World) -> Chain:
    """A ResourceClaim, or a ResourceClaimTemplate as the claim that it would make."""
    meta, kind = claim["metadata"], claim.get("kind") or "ResourceClaim"
    if kind == NUMBERS:
        asked: list[requests.Wish] = []
        return Chain(subject=meta["name"], links=tuple(_requests(claim["spec"], now, asked)), wishes=tuple(asked))
    name = f"{meta.get('namespace') or 'default'}/{meta['name']}"
    spec = claim["spec"].get("spec") or {} if kind == "ResourceClaimTemplate" else claim["spec"]
    wishes: list[requests.Wish] = []
    links = tuple(_claim(kind, name, spec, claim.get("status") or {}, now, wishes, []))
    word = "template" if kind == "ResourceClaimTemplate" else "claim"
    return Chain(subject=f"{word} {name}", links=links, wishes=tuple(wishes))


def _entry(
    entry: JSON,
    namespace: str,
    made: Mapping[str, str | None],
    now: world.World,
    wishes: list[requests.Wish],
    places: list[tuple[nodes.Term, ...]],
) -> Iterator[Link]:
    template, name = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName") or made.get(entry["name"])
    if template and not name:
        if entry["name"] in made:
            return  # the controller found that no claim is needed
        found = now.templates.get((namespace, template))
        if found is None and "templates" not in now.unknown:
            yield Link(
                kind="ResourceClaimTemplate",
                name=f"{namespace}/{template}",
                note="it does not exist; the pod starts when somebody makes it",
                missing=Missing.TEMPLATE,
            )
            return
        yield Link(kind="ResourceClaimTemplate", name=f"{namespace}/{template}", note="its claim is not made yet")
        if found is not None:
            yield from _requests(found["spec"].get("spec") or {}, now, wishes)
        return
    claim = now.claims.get((namespace, name or ""))
    if claim is None:
        hidden = now.unknown.get("claims", "")
        yield Link(
            kind="ResourceClaim",
            name=f"{namespace}/{name}",
            note=hidden or "it does not exist; the pod starts when somebody makes it",
            missing=None if hidden else Missing.CLAIM,
        )
        return
    yield from _claim(
        "ResourceClaim", f"{namespace}/{name}", claim["spec"], claim.get("status") or {}, now, wishes, places
    )


def _claim(
    kind: str,
    name: str,
    spec: JSON,
    status: JSON,
    now: world.World,
    wishes: list[requests.Wish],
    places: list[tuple[nodes.Term, ...]],
) -> Iterator[Link]:
    allocation = status.get("allocation")
    if allocation is None:
        yield Link(kind=kind, name=name)
        yield from _requests(spec, now, wishes)
        return
    results = (allocation.get("devices") or {}).get("results") or ()
    cards = ", ".join(sorted({one["device"] for one in results})) or "nothing"
    yield Link(kind=kind, name=name, note=f"has {cards}")
    if allocation.get("nodeSelector"):
        places.append(nodes.terms(allocation["nodeSelector"]))


def _requests(spec: JSON, now: world.World, wishes: list[requests.Wish]) -> Iterator[Link]:
    wish = _given(requests.wish(spec), now)
    wishes.append(wish)
    for request in wish.requests:
        for option in request.options:
            yield Link(kind="Request", name=option.name, note=f"{option.count} of class {option.class_name}")
        absent = [option for option in request.options if option.class_name not in now.cluster.classes]
        if absent and len(absent) == len(request.options) and "device_classes" not in now.unknown:
            yield Link(
                kind="DeviceClass",
                name=absent[0].class_name,
                note="it does not exist; kubectl egpu classes lists those that do",
                missing=Missing.CLASS,
            )


def controlled(option: requests.Option, now: world.World) -> bool:
    """Whether the controller allocates for its class: its cards bear a taint that keeps kube-scheduler away, and nobody else."""
    class_ = now.cluster.classes.get(option.class_name)
    return class_ is not None and any(_CONTROLLED.search(text or "") for text in class_.selectors)


def _given(wish: requests.Wish, now: world.World) -> requests.Wish:
    """As who allocates it sees it."""
    if not any(controlled(option, now) for request in wish.requests for option in request.options):
        return wish
    tolerated = requests.Toleration(key=names.ALLOCATED_BY_TAINT, operator="Exists")

    def given(option: requests.Option) -> requests.Option:
        if not controlled(option, now):
            return option
        return dataclasses.replace(option, tolerations=(*option.tolerations, tolerated))

    asked = (dataclasses.replace(one, options=tuple(map(given, one.options))) for one in wish.requests)
    return dataclasses.replace(wish, requests=tuple(asked))


def _phase(pod: JSON) -> str:
    node = pod["spec"].get("nodeName")
    return f"on node {node}" if node else str((pod.get("status") or {}).get("phase") or "")


def _without_claims(pod: JSON) -> Link:
    asked = sorted(
        {
            name
            for container in pod["spec"].get("containers") or ()
            for kind in ("limits", "requests")
            for name in (container.get("resources") or {}).get(kind) or ()
            if any(word in name for word in _CARDS)
        }
    )
    if asked:
        note = (
            f"it asks for {', '.join(asked)}, which nothing has turned into a claim; delete the pod and make it again"
        )
        return Link(kind="ResourceClaim", name="", note=note, missing=Missing.UNTRANSLATED)
    return Link(kind="ResourceClaim", name="", note="the pod names no claim", missing=Missing.NO_CLAIM)
