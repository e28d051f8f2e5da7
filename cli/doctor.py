"""`kubectl egpu doctor`: everything that can be looked at from here, with what to do.

    lists, versions, leases, series, access reviews --> checks --> findings --> a list, or JSON

It writes nothing: reviews and dry runs, all that it posts, are questions. Exit codes: 0 nothing is wrong, 1 something is, 2 nothing is
seen to be wrong, and not all could be looked at.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from api import names
from cli import checks, commands, features, gatherer, lendingchecks, queries, tables
from view import document, join, objects

JSON = dict[str, Any]
_GROUPS = {"resource.k8s.io/v1": "/apis/resource.k8s.io/v1", names.API_VERSION: f"/apis/{names.API_VERSION}"}
_CONTROLLERS = (
    "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Delastic-gpu%2Capp.kubernetes.io%2Fcomponent%3Dcontroller"
)
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ASKED_DRIVERS = 3

_NEEDS = {
    "controller": (
        ("list", names.GROUP, "elasticgpuclasses"), ("create", "resource.k8s.io", "deviceclasses"), ("list", "", "pods"),
        ("list", "resource.k8s.io", "resourceclaims"), ("patch", names.GROUP, "elasticgpus"), ("list", "", "nodes"),
    ),
    "node": (("get", "resource.k8s.io", "resourceclaims"), ("create", "resource.k8s.io", "resourceslices")),
}  # fmt: skip
_MARKS = {
    checks.Verdict.OK: ("ok", "green"),
    checks.Verdict.WRONG: ("WRONG", "red"),
    checks.Verdict.ABSENT: ("-", "yellow"),
    checks.Verdict.UNKNOWN: ("?", "yellow"),
}


def run(asked: commands.Asked) -> int:
    found = list(_findings(asked))
    verdicts = {one.verdict for one in found}
    if asked.form in ("json", "yaml"):
        content = {"apiVersion": document.API_VERSION, "kind": "FindingList", "items": document.plain(found)}
        commands.print_document(content, asked)
    else:
        for one in found:
            mark, colour = _MARKS[one.verdict]
            asked.out.write(
                f"{tables.painted(f'{mark:5}', colour, on=asked.output.colour)}  {one.check}: {tables.clean(one.text)}\n"
            )
            if one.remedy:
                asked.out.write(f"         {tables.clean(one.remedy)}\n")
    if checks.Verdict.WRONG in verdicts:
        return commands.MISSING
    return commands.UNTOLD if checks.Verdict.UNKNOWN in verdicts else commands.FOUND


def _findings(asked: commands.Asked) -> Iterator[checks.Finding]:
    lists = (queries.classes(), queries.device_classes(), queries.nodes(), queries.drivers(), queries.pods())
    lending = (queries.remote_pools(), queries.leases())
    wanted = (*queries.slices(), queries.claims(), queries.rules(), *lists, *lending)
    seen = gatherer.gather(asked.way, wanted, asked.namespace)
    view = join.View(seen)
    with_cards = {node.name for node in view.nodes if node.tally.total}
    every_slice = "/apis/resource.k8s.io/v1/resourceslices"
    paths = (
        "/version",
        *_GROUPS.values(),
        queries.device_classes().path,
        every_slice,
        "/api/v1/nodes",
        _LEASES,
        _CONTROLLERS,
    )
    version, *answers = asked.way.ask(paths)
    groups, (classes, slices, nodes, leases, controllers) = answers[: len(_GROUPS)], answers[len(_GROUPS) :]
    yield from checks.server(version.data, {name: one.words for name, one in zip(_GROUPS, groups, strict=True)})
    texts, unasked = _series(asked, seen.drivers)
    yield from checks.fields(texts, unasked)
    yield from features.found(asked.way.create(*features.trials()), None if groups[0].reason else groups[0].data)
    unread = {kind: why for kind, why in view.unknown.items() if view.remote_pools or kind not in commands.OF_LENDING}
    yield from checks.rights(_reviewed(asked, controllers, seen.drivers), unread)
    yield from checks.drivers(view)
    yield from checks.runtimes(_items(nodes) or (), with_cards)
    versions = [(pod.name, pod.version) for pod in seen.drivers.items]
    told = [(one["metadata"]["name"], _label(one)) for one in _items(controllers) or ()]
    versions += told
    yield from checks.versions(_items(nodes) or (), with_cards, versions, commands.version())
    alive = {node.name for node in seen.nodes.items if node.ready}
    yield from checks.clocks(_items(leases), alive, _server_time(asked), asked.now)
    yield from checks.classes(view)
    yield from checks.selectors(_items(classes), _items(slices) or ())
    yield from checks.claims(view)
    yield from lendingchecks.look(view, _items(slices) or (), [version for _, version in told if version], asked.now)


def _series(asked: commands.Asked, drivers: objects.Part[objects.DriverPod]) -> tuple[list[str], str]:
    """What a few drivers tell, or why none does."""
    pods = [pod for pod in drivers.items if pod.ready and pod.port][:_ASKED_DRIVERS]
    answers = asked.way.texts(queries.series(pod) for pod in pods)
    refused = next((one.words for one in answers if one.reason), "")
    return [one.data for one in answers if not one.reason], drivers.unknown or refused or "no driver is ready"


def _reviewed(
    asked: commands.Asked, controllers: Any, drivers: objects.Part[objects.DriverPod]
) -> list[tuple[str, str, bool | None]]:
    accounts = {("controller", _account(one)) for one in _items(controllers) or ()}
    accounts |= {
        ("node", f"system:serviceaccount:{pod.namespace}:{pod.account}") for pod in drivers.items if pod.account
    }
    wanted = [(user, *what) for kind, user in sorted(accounts) for what in _NEEDS[kind]]
    answers = asked.way.create(*((_ACCESS, _review(*one)) for one in wanted)) if wanted else []
    return [
        (user, f"{verb} {resource}", None if one.reason else bool(one.data["status"].get("allowed")))
        for (user, verb, _, resource), one in zip(wanted, answers, strict=True)
    ]


def _review(user: str, verb: str, group: str, resource: str) -> JSON:
    what = {"verb": verb, "group": group, "resource": resource}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]
    spec = {"user": user, "groups": groups, "resourceAttributes": what}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _server_time(asked: commands.Asked) -> str:
    """The server puts its time on what it answers about whoever asks."""
    (answer,) = asked.way.create((_WHOAMI, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}))
    return "" if answer.reason else str(answer.data["metadata"].get("creationTimestamp") or "")


def _items(answer: Any) -> Sequence[JSON] | None:
    """None where it was refused."""
    return None if answer.reason else answer.data.get("items") or ()


def _account(pod: JSON) -> str:
    return f"system:serviceaccount:{pod['metadata']['namespace']}:{pod['spec'].get('serviceAccountName', 'default')}"


def _label(pod: JSON) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/version", ""))
