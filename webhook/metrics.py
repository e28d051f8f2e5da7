"""What the webhook tells Prometheus: answers by path and outcome, and how long they took."""

import prometheus_client

from api import names

PATHS = ("mutate", "validate")
OUTCOMES = ("unchanged", "changed", "refused")
_PREFIX = names.METRIC_PREFIX + "webhook_"
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.5, 1.0)


class Metrics:
    """The series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._answers = prometheus_client.Counter(
            _PREFIX + "answers", "Answers to the API server.", ["path", "outcome"], registry=self.registry
        )
        self._seconds = prometheus_client.Histogram(
            _PREFIX + "answer_seconds",
            "From a question to its answer.",
            ["path"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        for path in PATHS:
            self._seconds.labels(path)
            for outcome in OUTCOMES:
                self._answers.labels(path, outcome)

    def answered(self, path: str, outcome: str, took_s: float) -> None:
        self._answers.labels(path, outcome).inc()
        self._seconds.labels(path).observe(took_s)
