"""Why something is not, or is, as somebody wants it: the one list of words for command line, page, conditions, events and series.

One thing has one word, wherever it is told; the sentences beside it are made where it is found. A word that is read by alerts or
scripts does not change. `tests/guards/test_reasons.py` looks for words that are not from here.
"""

import enum


class Reason(enum.StrEnum):
    """Why a card does not do for a request. In the order of the funnel: a card is ruled out by the first that applies, so what
    comes later came closer.
    """

    POOL = "PoolNotUsable"
    CLASS = "NotOfTheClass"
    SELECTOR = "NotSelected"
    UNJUDGED = "ExpressionFails"
    NODE = "NodeExcluded"
    TAINT = "CardTainted"
    SHAPE = "NoSuchShare"
    SIZE = "TooSmall"
    HELD = "Held"
    CAPACITY = "NotEnoughLeft"
    COUNTERS = "CountersUsedUp"
    TOGETHER = "NotTogether"


class Missing(enum.StrEnum):
    """The first link of the chain from a pod to its cards that is not there."""

    NO_CLAIM = "NoClaim"
    UNTRANSLATED = "UntranslatedRequest"
    TEMPLATE = "TemplateMissing"
    CLAIM = "ClaimMissing"
    CLASS = "ClassMissing"


class Verdict(enum.StrEnum):
    NO = "DoesNotFit"
    NOW = "FitsNow"
    """Waiting for the scheduler's next attempt."""
    DISAGREES = "SchedulerDisagrees"
    """It should fit, and the scheduler has had the time to try."""
    UNKNOWN = "CannotTell"
    SETTLED = "HasItsCards"


class Problem(enum.StrEnum):
    """What is wrong, in the order in which it is told."""

    UNUSED = "ClaimUnused"
    CARD_GONE = "CardGone"
    USER_GONE = "UserGone"
    OVERBOOKED = "Overbooked"
    TAINTED = Reason.TAINT.value
    RETAINED = "CardRetained"
    INCOMPLETE = "PoolIncomplete"
    SILENT = "DriverSilent"
    NODE_GONE = "NodeGone"
    CLASS_NOT_READY = "ClassNotReady"
    CLASS_EMPTY = "ClassMatchesNothing"
    PENDING = "PodPending"
    UNREACHABLE = "PoolUnreachable"
    POOL_GONE = "PoolGone"
    DRAINING = "PoolDraining"
    CARDS_LOST = "PoolCardsLost"
    TWICE = "PoolCardsTwice"
    RELEASING = "LeaseReleasing"
    LEASE_LOST = "LeaseLost"
    UNCLAIMED = "LeaseUnclaimed"


class Event(enum.StrEnum):
    """What events say on pods and claims."""

    WAITS = "WaitsForCard"
    GOT = "CardsAssigned"
    TAINTED = Reason.TAINT.value
    REFUSED = "NotAllocated"
    NEVER = "NeverFits"
    ATTACHED = "CardAttached"
    NOT_ATTACHED = "CardNotAttached"
    LOST = "CardLost"
    UNUSED = Problem.UNUSED.value
    USER_GONE = Problem.USER_GONE.value
    CARD_GONE = Problem.CARD_GONE.value


class Wait(enum.StrEnum):
    """Why a pod does not run yet, as far as the picture tells: what rules cards out is for `explain` to say."""

    TEMPLATE = Missing.TEMPLATE.value
    CLAIM = Missing.CLAIM.value
    CLASS = Missing.CLASS.value
    CARD = Event.WAITS.value
    ATTACHING = "CardAttaching"
    PREPARING = "NodePreparing"
    SILENT = Problem.SILENT.value
    SETTLED = Verdict.SETTLED.value


class Class(enum.StrEnum):
    """The conditions of an ElasticGPUClass. One that is not accepted has no DeviceClass made or changed."""

    ACCEPTED = "Accepted"
    INVALID = "Invalid"
    NOT_IMPLEMENTED = "NotImplemented"
    WORKLOAD_TYPE_TAKEN = "WorkloadTypeTaken"
    NAME_TAKEN = "NameTaken"
    EXPRESSION_FAILS = Reason.UNJUDGED.value
    REFUSED = "Refused"
    IN_PLACE = "DeviceClassInPlace"
    FOUND = "CardsFound"
    NO_CARD = "NoMatchingCard"
    NO_SHARES = "NoShares"
    NO_ENFORCEMENT = "NoEnforcement"


class Card(enum.StrEnum):
    """The conditions of an ElasticGPU."""

    NO_TAINT = "NoTaint"
    TAINTED = Reason.TAINT.value
    WITHIN = "WithinBooking"
    BEYOND = "UsedBeyondBooking"
    RETAINED = Problem.RETAINED.value
    IN_SLICE = "InSlice"
    GONE = Problem.CARD_GONE.value


class Remote(enum.StrEnum):
    """The conditions of a claim's remote cards, and of a RemotePool."""

    ATTACHED = Event.ATTACHED.value
    NOT_ATTACHED = Event.NOT_ATTACHED.value
    LOST = Event.LOST.value
    NODE_GONE = Problem.NODE_GONE.value
    ANSWERS = "Answers"
    NO_ANSWER = Problem.UNREACHABLE.value
    INVALID = Class.INVALID.value
