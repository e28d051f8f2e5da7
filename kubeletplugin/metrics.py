"""What a plugin counts, one series a driver name; all of them exist with zero from the start."""

from prometheus_client import Counter, Gauge, Histogram

from api import errors

METHODS = ("prepare", "unprepare")
_REFUSALS = {
    errors.Invalid: "invalid",
    errors.Conflict: "conflict",
    errors.NotReady: "not-ready",
    errors.Unavailable: "unavailable",
    errors.Corrupt: "corrupt",
}
OUTCOMES = ("ok", *_REFUSALS.values(), "defect")

_CLAIMS = Counter("dra_plugin_claims", "Claims handled, by method and outcome", ("driver", "method", "outcome"))
_DURATION = Histogram(
    "dra_plugin_claim_seconds",
    "Seconds from a claim's request to its answer",
    ("driver", "method"),
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 45, 90),
)
_IN_FLIGHT = Gauge("dra_plugin_claims_in_flight", "Claims being handled", ("driver", "method"))
_REGISTERED = Gauge("dra_plugin_registered", "1 while the kubelet's last word was that it registered us", ("driver",))
_DROPPED = Gauge("dra_plugin_dropped_fields", "Fields of slices that the API server does not store", ("driver",))
_SWEPT = Counter("dra_plugin_swept_claims", "Claims unprepared since they are gone from the API server", ("driver",))


class Metrics:
    """The series of one driver, looked up once."""

    def __init__(self, driver: str) -> None:
        self.claims = {(m, o): _CLAIMS.labels(driver, m, o) for m in METHODS for o in OUTCOMES}
        self.duration = {method: _DURATION.labels(driver, method) for method in METHODS}
        self.in_flight = {method: _IN_FLIGHT.labels(driver, method) for method in METHODS}
        self.registered = _REGISTERED.labels(driver)
        self.dropped_fields = _DROPPED.labels(driver)
        self.swept = _SWEPT.labels(driver)


def outcome(error: Exception) -> str:
    """What an error counts as: the family's classes by name, everything else is a defect."""
    return next((text for kind, text in _REFUSALS.items() if isinstance(error, kind)), "defect")
