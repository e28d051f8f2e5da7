"""What can be set up wrong in a cluster: raw answers of the API server in, findings out.

Each finding is Ok, Wrong with what to do, Absent (this Kubernetes has it not, which is nobody's mistake), or Unknown with
the reason: what could not be looked at is never Ok.
"""

import datetime
import enum
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api import errors, names, reasons
from cli import tables
from view import join, picture

JSON = Mapping[str, Any]
_OLDEST = 34
_SKEW_S = 30
_LEASE_S = 40
"""A node's lease is renewed every ten seconds; four times that is late."""
_SHARES = re.compile(rf"^{names.METRIC_PREFIX}shares_stored (\S+)", re.MULTILINE)
_CONTAINERD = re.compile(r"containerd://v?(\d+)\.(\d+)")
_CONTAINERD_WITH_CDI, _CONTAINERD_ON = (1, 7), (2, 0)
_OF_DRIVERS = (reasons.Problem.SILENT, reasons.Problem.NODE_GONE, reasons.Problem.INCOMPLETE)
_OF_CLASSES = (reasons.Problem.CLASS_NOT_READY, reasons.Problem.CLASS_EMPTY)
_OF_CLAIMS = (reasons.Problem.UNUSED, reasons.Problem.USER_GONE, reasons.Problem.CARD_GONE, reasons.Problem.OVERBOOKED)


class Verdict(enum.StrEnum):
    OK = "Ok"
    WRONG = "Wrong"
    ABSENT = "Absent"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    verdict: Verdict
    text: str
    remedy: str = ""


def server(version: JSON | None, groups: Mapping[str, str]) -> Iterator[Finding]:
    """`groups`: what is asked of the API -> why it is not there, empty where it is."""
    minor = re.match(r"\d+", str((version or {}).get("minor", "")))
    if version is None or minor is None:
        yield _unknown("server", "the API server's version could not be read")
    elif int(minor[0]) < _OLDEST:
        text = f"Kubernetes 1.{minor[0]}: claims of devices need 1.{_OLDEST}"
        yield wrong("server", text, "upgrade the control plane and the nodes")
    else:
        yield ok("server", f"Kubernetes {version.get('gitVersion', '')}")
    for group, why in groups.items():
        remedy = (
            "kubectl apply --server-side -f charts/elastic-gpu/crds" if names.GROUP in group else "upgrade the server"
        )
        yield (
            ok("server", f"serves {group}") if not why else wrong("server", f"does not serve {group}: {why}", remedy)
        )


def fields(series: Iterable[str], unasked: str) -> Iterator[Finding]:
    """Whether the server stores what shares need, as the drivers have found out by writing."""
    told = [found[1] for text in series if (found := _SHARES.search(text))]
    if not told:
        yield _unknown("fields", unasked or "no driver says whether shares are stored")
    elif any(float(value) == 0 for value in told):
        text = "the API server drops fields that shares need: cards are offered as wholes only"
        yield wrong(
            "fields", text, "Kubernetes 1.36, or the feature gate DRAConsumableCapacity on server and scheduler"
        )
    else:
        yield ok("fields", "the API server stores what shares need")


def drivers(view: join.View) -> Iterator[Finding]:
    yield from of_problems(
        "drivers", view, _OF_DRIVERS, "a driver answers on every node with cards", ("nodes", "drivers")
    )


def classes(view: join.View) -> Iterator[Finding]:
    yield from of_problems("classes", view, _OF_CLASSES, "every class is ready and matches cards", ("classes",))


def claims(view: join.View) -> Iterator[Finding]:
    text = "no card is kept by a claim that nobody uses, or by one whose card is gone"
    yield from of_problems("claims", view, _OF_CLAIMS, text, ("claims", "pods"))


def runtimes(nodes: Sequence[JSON], with_cards: set[str]) -> Iterator[Finding]:
    """As far as a node tells: its runtime's name and version, not its configuration."""
    for name, info in _infos(nodes, with_cards):
        runtime = info.get("containerRuntimeVersion", "")
        found = _CONTAINERD.match(runtime)
        version = (int(found[1]), int(found[2])) if found else None
        if version and version < _CONTAINERD_WITH_CDI:
            yield wrong("runtime", f"node {name}: {runtime} cannot inject devices by CDI", "containerd 2")
        elif version and version < _CONTAINERD_ON:
            text = f"node {name}: {runtime} has CDI off unless enable_cdi = true is in its configuration"
            yield _unknown("runtime", text)
        elif version is None and not runtime.startswith("cri-o://"):
            yield _unknown("runtime", f"node {name}: whether {runtime or 'its runtime'} has CDI is not known here")
    if not with_cards:
        yield _unknown("runtime", "no node publishes a card")


def versions(
    nodes: Sequence[JSON], with_cards: set[str], ours: Iterable[tuple[str, str]], own: str
) -> Iterator[Finding]:
    """`ours`: (pod, version). `own`: the plugin's, empty for a run from the tree."""
    for name, info in _infos(nodes, with_cards):
        kubelet = str(info.get("kubeletVersion", ""))
        minor = re.match(r"v?1\.(\d+)", kubelet)
        if minor and int(minor[1]) < _OLDEST:
            yield wrong(
                "versions", f"node {name}: kubelet {kubelet} prepares no claims", f"kubelet 1.{_OLDEST} or newer"
            )
    found = {version for _, version in ours if version}
    if len(found) > 1:
        text = f"driver and controller run in versions {tables.listed(sorted(found))}"
        yield wrong("versions", text, "wait for the rolling update, or see why it stopped: kubectl get pods -A")
    elif found:
        same = f"version {found.pop()} runs everywhere" + (f"; this plugin is {own}" if own else "")
        yield ok("versions", same)
    else:
        yield _unknown("versions", "no pod of the driver or the controller was found")


def clocks(
    leases: Sequence[JSON] | None, alive: set[str], server_time: str, here: datetime.datetime
) -> Iterator[Finding]:
    """By the leases that nodes renew, and by the time that the server puts on an object."""
    now = _moment(server_time)
    if now is None:
        yield _unknown("clocks", "the API server's time could not be told")
        now = here
    elif abs((now - here).total_seconds()) > _SKEW_S:
        text = f"this machine is {abs((now - here).total_seconds()):.0f} s apart from the API server"
        yield wrong("clocks", text, "set its clock (chrony); certificates and ages are judged by it")
    if leases is None:
        yield _unknown("clocks", "the nodes' leases in kube-node-lease may not be read")
        return
    late = []
    for lease in leases:
        renewed = _moment((lease.get("spec") or {}).get("renewTime", ""))
        name = lease["metadata"]["name"]
        if renewed and name in alive and not -_SKEW_S < (now - renewed).total_seconds() < _LEASE_S + _SKEW_S:
            late.append(f"{name} by {abs((now - renewed).total_seconds()):.0f} s")
    if late:
        text = f"clocks differ from the API server's: {tables.listed(late, 5)}"
        yield wrong("clocks", text, "set their clocks (chrony)")
    else:
        yield ok("clocks", f"{len(alive)} nodes and the API server agree to half a minute")


def rights(answers: Iterable[tuple[str, str, bool | None]], unread: Mapping[str, str]) -> Iterator[Finding]:
    """`answers`: (account, what, whether it may; None where that could not be asked). `unread`: what you may not read."""
    asked, missing, untold = 0, False, False
    for account, what, may in answers:
        asked += 1
        untold = untold or may is None
        if may is False:
            missing = True
            yield wrong("rights", f"{account} may not {what}", "helm upgrade: the chart brings its rights")
    if untold or not asked:
        yield _unknown("rights", "what driver and controller may do could not be asked (create subjectaccessreviews)")
    elif not missing:
        yield ok("rights", "driver and controller have theirs")
    for kind, why in unread.items():
        yield _unknown("rights", f"{kind.replace('_', ' ')}: {why}")


def selectors(device_classes: Sequence[JSON] | None, slices: Sequence[JSON]) -> Iterator[Finding]:
    """Every text of every class on every kind of device in the cluster, of all drivers: one that fails stops pods."""
    import cel  # noqa: PLC0415  for this check alone

    if device_classes is None:
        yield _unknown("selectors", "you may not list deviceclasses")
        return
    # of whole devices: what tells two of a kind apart may be what a text fails on
    shapes = {
        cel.device(one, item["spec"]["driver"]): one["name"]
        for item in slices
        for one in item["spec"].get("devices") or ()
    }
    bad = 0
    for found in device_classes:
        for text in _texts(found):
            try:
                program = cel.compile(text, stored=True)
            except errors.Invalid as error:
                bad += 1
                yield _unknown(
                    "selectors", f"class {found['metadata']['name']}: a text of it cannot be judged here: {error}"
                )
                continue
            for shape, example in shapes.items():
                try:
                    program.matches(shape)
                except cel.Failed as error:
                    bad += 1
                    said = f"class {found['metadata']['name']} fails on device {example} of {shape.driver}: {error}"
                    remedy = "test the driver first, and has() or the ? operator before reading an attribute"
                    yield wrong("selectors", f"{said}; pods of that class stay pending", remedy)
                    break
    if not bad:
        yield ok("selectors", f"the selectors of {len(device_classes)} classes can be judged on every device")


def _texts(device_class: JSON) -> Iterator[str]:
    for selector in (device_class.get("spec") or {}).get("selectors") or ():
        if text := (selector.get("cel") or {}).get("expression"):
            yield text


def of_problems(
    check: str,
    view: join.View,
    kinds: Sequence[reasons.Problem],
    well: str,
    needs: Sequence[str],
    passing: Collection[picture.Problem] = (),
) -> Iterator[Finding]:
    """`passing`: those that are none yet."""
    found: list[picture.Problem] = [one for one in view.problems if one.kind in kinds and one not in passing]
    for one in found:
        yield wrong(check, f"{one.about}: {one.message}", one.command)
    hidden = [f"{kind}: {view.unknown[kind]}" for kind in ("slices", *needs) if kind in view.unknown]
    if hidden:
        yield _unknown(check, "; ".join(hidden))
    elif not found:
        yield ok(check, well)


def _infos(nodes: Sequence[JSON], wanted: set[str]) -> Iterator[tuple[str, JSON]]:
    for node in nodes:
        if node["metadata"]["name"] in wanted:
            yield node["metadata"]["name"], (node.get("status") or {}).get("nodeInfo") or {}


def _moment(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def ok(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, text=text)


def wrong(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WRONG, text=text, remedy=remedy)


def _unknown(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.UNKNOWN, text=text)
