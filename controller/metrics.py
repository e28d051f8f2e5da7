"""What the controller tells Prometheus: the classes, the cards in sums, what is wrong, the writes, and who leads.

Series a class, a model, a node, a remote pool, a namespace, never a card: the node drivers have those. Counters exist with zero from
the start; sums exist once they are known, for unknown is not 0. Series that name namespaces are in a registry apart,
for those who may know the names.
"""

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api import names, reasons
from controller import observer, snapshot
from view import join, picture, totals

_WRITES = ("Create", "Change", "Delete", "Report", "Apply", "Remove", "Event", "TemplateCreate", "TemplateDelete")
_ACTIONS = ("Intend", "Attach", "Move", "Tell", "Detach", "Verify", "Forget")
_OUTCOMES = ("done", "conflict", "refused", "failed")
_PREFIX = names.METRIC_PREFIX + "controller_"
_SEEN = tuple(
    kind for kind in reasons.Problem if kind not in (reasons.Problem.CLASS_NOT_READY, reasons.Problem.CLASS_EMPTY)
)
"""Problems of classes have series of their own."""
_VIEW = names.METRIC_PREFIX
_STATES = tuple((state.value, state.value.lower()) for state in picture.State)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """The series, in registries of their own: `registry` for everybody, `named` with the names of namespaces."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.named = prometheus_client.CollectorRegistry()
        self.leading = prometheus_client.Gauge(
            _PREFIX + "leading", "1 while this replica is the one that writes.", registry=self.registry
        )
        self._snapshot = prometheus_client.Gauge(
            _PREFIX + "snapshot", "Number of the newest picture of the cluster.", registry=self.registry
        )
        self._ready = prometheus_client.Gauge(
            _PREFIX + "class_ready", "1 where claims can use the class.", ["class"], registry=self.registry
        )
        self._cards = prometheus_client.Gauge(
            _PREFIX + "class_cards", "Cards that match the class.", ["class"], registry=self.registry
        )
        self._writes = prometheus_client.Counter(
            _PREFIX + "writes", "Writes to the API server.", ["write", "outcome"], registry=self.registry
        )
        self._waiting = prometheus_client.Gauge(
            _PREFIX + "allocation_waiting",
            "Pods and claims of classes by: Controller that have no allocation yet.",
            registry=self.registry,
        )
        self._refused = prometheus_client.Gauge(
            _PREFIX + "allocation_refused",
            "The same by what came closest to doing, in the words of kubectl egpu explain.",
            ["reason"],
            registry=self.registry,
        )
        self.waiting({})
        self._actions = prometheus_client.Counter(
            _PREFIX + "remote_actions",
            "What was done for remote cards, with pools and the API server.",
            ["action", "outcome"],
            registry=self.registry,
        )
        self._reachable = prometheus_client.Gauge(
            _PREFIX + "remote_pool_reachable", "1 while the pool answers.", ["pool"], registry=self.registry
        )
        self.remote_dropped = prometheus_client.Gauge(
            _PREFIX + "remote_dropped_fields",
            "Fields of remote slices that the API server does not store; without bindingConditions the node attaches.",
            registry=self.registry,
        )
        self._sums = _Sums()
        self._spaces = _Spaces()
        self.registry.register(self._sums)
        self.named.register(self._spaces)
        for action in _ACTIONS:
            for outcome in _OUTCOMES:
                self._actions.labels(action, outcome)
        for write in _WRITES:
            for outcome in _OUTCOMES:
                self._writes.labels(write, outcome)

    def show(self, now: snapshot.Snapshot) -> None:
        """The classes as their status has them."""
        self._snapshot.set(now.number)
        self._ready.clear()
        self._cards.clear()
        for item in now.classes:
            ready = any(found.type == names.READY and found.status == "True" for found in item.status.conditions)
            self._ready.labels(item.name).set(ready)
            self._cards.labels(item.name).set(item.status.matching_cards)

    def see(self, now: observer.Scene) -> None:
        """The cards as they are held. The series are made when they are asked for."""
        self._sums.view = self._spaces.view = now.view
        self._sums.complete = not now.view.unknown

    def waiting(self, counted: Mapping[reasons.Reason | None, int]) -> None:
        """How many pods and claims were looked at and not allocated, by what came closest."""
        self._waiting.set(sum(counted.values()))
        for reason in reasons.Reason:
            self._refused.labels(reason.value).set(counted.get(reason, 0))
        self._refused.labels("Other").set(counted.get(None, 0))

    def nodes(self) -> bytes:
        """The series of nodes, as Prometheus reads them: 25,000 in a large cluster, for which the library takes too long."""
        view = self._sums.view
        if view is None or view.total is None:
            return b""
        name = _VIEW + "node_cards"
        lines = [f"# HELP {name} Cards by state; the states add up to all cards.", f"# TYPE {name} gauge"]
        for node in view.nodes:
            label = node.name.translate(_ESCAPES)
            lines += [
                f'{name}{{node="{label}",state="{state}"}} {getattr(node.tally, field)}.0' for state, field in _STATES
            ]
        return "\n".join([*lines, ""]).encode()

    def wrote(self, write: str, outcome: str) -> None:
        self._writes.labels(write, outcome).inc()

    def acted(self, action: str, outcome: str) -> None:
        self._actions.labels(action, outcome).inc()

    def reached(self, pool: str, *, answers: bool | None) -> None:
        """None: the pool is no more."""
        if answers is not None:
            self._reachable.labels(pool).set(answers)
        else:
            with contextlib.suppress(KeyError):
                self._reachable.remove(pool)


class _Sums(Collector):
    """The newest picture as series, made anew for each scrape: what is gone is gone here too."""

    view: join.View | None = None
    complete: bool = False
    """Whether all was read that problems are found in: one that could not be seen is not 0."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self.view is None or self.view.total is None:
            return
        states = "Cards by state; the states add up to all cards."
        models = list(_models(self.view.models))
        yield _by_state("cards", states, "model", iter(models))
        size = GaugeMetricFamily(_VIEW + "memory_bytes", "Memory of all cards.", labels=["model"])
        free = GaugeMetricFamily(_VIEW + "memory_free_bytes", "Memory that claims can still get.", labels=["model"])
        for name, tally in models:
            size.add_metric([name], tally.memory)
            if tally.memory_free is not None:
                free.add_metric([name], tally.memory_free)
        yield size
        yield free
        pools = ((one.name, one.tally) for one in self.view.remote_pools)
        yield _by_state(
            "pool_cards", "Remote cards by state; they are in elasticgpu_cards too, each once.", "pool", pools
        )
        yield from self._classes(self.view.classes)
        wrong = GaugeMetricFamily(
            _VIEW + "problems", "Things that are wrong, as kubectl egpu lists them.", labels=["kind"]
        )
        for kind in _SEEN if self.complete else ():
            wrong.add_metric([kind.value], sum(one.kind == kind.value for one in self.view.problems))
        yield wrong
        if "pods" not in self.view.unknown:
            waiting = GaugeMetricFamily(
                _VIEW + "waiting_pods", "Pods that wait for cards or their node, by why.", labels=["reason"]
            )
            counted = Counter(pod.reason for pod in self.view.waiting)
            for reason in reasons.Wait:
                waiting.add_metric([reason.value], counted[reason.value])
            yield waiting

    @staticmethod
    def _classes(found: Iterable[picture.Class]) -> Iterator[GaugeMetricFamily]:
        """Demand beside supply."""
        held = GaugeMetricFamily(
            _VIEW + "class_cards", "Cards that claims of a class have, or a part of.", labels=["class"]
        )
        booked = GaugeMetricFamily(
            _VIEW + "class_memory_bytes", "Memory that claims of a class have.", labels=["class"]
        )
        waiting = GaugeMetricFamily(
            _VIEW + "class_waiting_claims", "Claims of a class that have no card yet.", labels=["class"]
        )
        for one in found:
            held.add_metric([one.name], one.booked.cards)
            booked.add_metric([one.name], one.booked.memory)
            waiting.add_metric([one.name], one.waiting)
        yield from (held, booked, waiting)


class _Spaces(Collector):
    """What each namespace has."""

    view: join.View | None = None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self.view is None or self.view.total is None:
            return
        held = GaugeMetricFamily(
            _VIEW + "namespace_cards", "Cards that a namespace has, or a part of.", labels=["namespace"]
        )
        booked = GaugeMetricFamily(
            _VIEW + "namespace_memory_bytes", "Memory that a namespace has.", labels=["namespace"]
        )
        for space in self.view.namespaces:
            held.add_metric([space.name], space.cards)
            booked.add_metric([space.name], space.memory)
        yield held
        yield booked


def _models(found: Iterable[picture.Model]) -> Iterator[tuple[str, picture.Tally]]:
    """Those in nodes and those of pools together; by state they add up."""
    for name, of in itertools.groupby(found, key=lambda one: one.name):
        yield name, functools.reduce(totals.together, (one.tally for one in of))


def _by_state(name: str, text: str, label: str, tallies: Iterator[tuple[str, picture.Tally]]) -> GaugeMetricFamily:
    found = GaugeMetricFamily(_VIEW + name, text, labels=[label, "state"])
    for key, tally in tallies:
        for state in picture.State:
            found.add_metric([key, state.value], getattr(tally, state.value.lower()))
    return found
