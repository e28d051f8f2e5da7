"""The picture of the cluster: which card is held by whom, what is left of it, and what is wrong.

Values alone. `join` makes them; command line, objects and metrics render them, so that they cannot disagree. The states
of a card are disjoint and add up to the total. What is not known is None, and never 0.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from view import objects


class State(enum.StrEnum):
    FREE = "Free"
    """Nobody holds it, and a claim may get it."""
    PARTLY = "Partly"
    """Somebody holds a part of it, and another claim may get more."""
    HELD = "Held"
    """Nothing is left for another claim. A held card stays held when it is tainted: it is counted once."""
    BLOCKED = "Blocked"
    """Nobody holds it, and no claim may get it: `reason` says why."""
    UNKNOWN = "Unknown"
    """Whether somebody holds it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """A pod at a claim. `containers` is None where the pod was not read."""

    name: str
    uid: str
    containers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A claim at a card. `amounts`: what it takes of the card. `enforcement`: what the node says holds it to that."""

    namespace: str
    claim: str
    uid: str
    request: str
    class_name: str
    since: str
    amounts: Mapping[str, int]
    share_id: str = ""
    enforcement: str = ""
    pods: tuple[PodUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """`free`: what is left of each capacity; None where that is not known. `observers` hold nothing: admin access."""

    name: str
    uuid: str | None
    model: str | None
    node: str
    pool: str
    bus_id: str | None
    driver_version: str | None
    state: State
    reason: str
    capacity: Mapping[str, int]
    free: Mapping[str, int] | None
    holders: tuple[Holder, ...] = ()
    observers: tuple[Holder, ...] = ()
    taints: tuple[objects.Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Cards by state. `memory_free` is None where a card's is not known."""

    total: int = 0
    free: int = 0
    partly: int = 0
    held: int = 0
    blocked: int = 0
    unknown: int = 0
    memory: int = 0
    memory_free: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`ready` and `driver` are None where they are not known; `driver` is whether one answers for the cards."""

    name: str
    models: tuple[str, ...]
    tally: Tally
    ready: bool | None = None
    driver: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """What a namespace, a workload type or a class holds. Cards are counted once, however many hold a part of them."""

    name: str
    cards: int = 0
    claims: int = 0
    pods: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """`matching` is None while the controller has not counted. `ready` as its condition has it, empty without one."""

    name: str
    backend: str
    workload_types: tuple[str, ...]
    ready: str
    reason: str
    matching: int | None
    created: str
    booked: Booked
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCard:
    """A card that a pod has, and by which request it has it."""

    card: str
    node: str
    model: str | None
    claim: str
    request: str
    containers: tuple[str, ...]
    amounts: Mapping[str, int]
    observes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """`waiting`: why it does not run yet, empty where it does. `evidence`: what the scheduler or the kubelet says."""

    namespace: str
    name: str
    node: str
    phase: str
    workload_type: str
    created: str
    claims: tuple[str, ...]
    cards: tuple[PodCard, ...] = ()
    waiting: str = ""
    evidence: str = ""
    waits_since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`state`: Waiting, Allocated (nobody uses it) or InUse; Deleting goes first."""

    namespace: str
    name: str
    state: str
    classes: tuple[str, ...]
    cards: tuple[str, ...]
    nodes: tuple[str, ...]
    amounts: Mapping[str, int]
    pods: tuple[str, ...]
    created: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong, since when, and the command that clears it or shows more.

    namespace: of the claim or pod that it names; empty where it is about a card, a node, a pool or a class.
    """

    kind: str
    about: str
    message: str
    since: str
    command: str
    namespace: str = ""
