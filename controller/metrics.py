"""What the controller tells Prometheus: the classes, the writes, and who leads.

Series a class, never a card: the node drivers have those. All series exist with zero from the start.
"""

import prometheus_client

from api import names
from controller import snapshot

_WRITES = ("Create", "Change", "Delete", "Report")
_OUTCOMES = ("done", "conflict", "refused", "failed")
_PREFIX = names.METRIC_PREFIX + "controller_"


class Metrics:
    """The series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
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

    def wrote(self, write: str, outcome: str) -> None:
        self._writes.labels(write, outcome).inc()
