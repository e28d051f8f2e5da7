"""What to do about the certificate next, by the Secret as it is, the trust as it is, and the time.

    nothing to serve, or nothing valid --> REPLACE   a new pair is served at once; the old trust stays beside the new
    a third of the lifetime is left    --> STAGE     a new pair is laid beside; its CA is trusted from now on
    staged, and trusted for long enough --> SWITCH   the new pair is served
    else                               --> KEEP

So at every moment the API server trusts what is served, also while its own view of the trust lags behind. All replicas
decide alike; who comes second finds the Secret changed and decides anew.
"""

import datetime
import enum
from dataclasses import dataclass

SETTLED = datetime.timedelta(seconds=30)
"""After so long every API server has seen a change of the webhook configurations."""
LIFETIME = datetime.timedelta(days=90)
_RENEW = 3


class Step(enum.Enum):
    KEEP = "keep"
    REPLACE = "replace"
    STAGE = "stage"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`start` and `end` of the certificate that is served; None where there is none that can be read.

    staged: another pair lies beside. trusted_since: since when every configuration has carried the whole bundle; None
    while one does not.
    """

    start: datetime.datetime | None
    end: datetime.datetime | None
    staged: bool
    trusted_since: datetime.datetime | None


def step(state: State, now: datetime.datetime) -> Step:
    if state.start is None or state.end is None or not state.start <= now < state.end:
        return Step.REPLACE
    if state.staged:
        settled = state.trusted_since is not None and now - state.trusted_since >= SETTLED
        return Step.SWITCH if settled else Step.KEEP
    if now >= state.end - (state.end - state.start) / _RENEW:
        return Step.STAGE
    return Step.KEEP
