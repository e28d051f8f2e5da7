"""What a rung is: one way of holding a share to its size. Read this before you write one.

    lacking, steps, edits   decide: plain functions of their arguments, asked any number of times
    apply, undo             act, with the promises of a backend's

A node tries its rungs from the strongest to the weakest; a class says which of them will do. The rung that was chosen for
a share is in its record and stays: a node that gets a stronger one later holds older shares as it promised.

What you promise:
- `lacking` is the truth of now: it is empty only where a share of this card would really be held. What it says is shown
  to the pod's owner and to the admin, so each entry names one thing and where it was looked for.
- The kind of a step begins with your word and a slash, `mps/start`: by it the step finds its way back to you.
- What you give to a container by `edits` does not depend on other claims: these may come and go.

Where else a new rung has to be known: `api.v1alpha1.Rung`, and `Share.accept` there with the chart's classes if it is to be
accepted unasked (then `make generate`, for the CRD); `__main__`, which makes the rungs in their order, with a setting and a
value of the chart where an admin has to provide something; the tables of rungs in the READMEs. `plan`, `resizer` and
`backends.share` treat `driver` apart, since it holds a pod as a whole, and `booking` keeps `mps` from meeting others on a card.
"""

from typing import Literal, Protocol, runtime_checkable

from api import v1alpha1
from driver import cdi, containers, inventory, records

Limit = Literal["memory", "cores"]
NONE = "none"
"""The word where nothing holds a limit: it is accounted for, and that is all."""


class Rung(Protocol):
    """One way of holding a share to its size."""

    @property
    def kind(self) -> v1alpha1.Rung: ...

    @property
    def limits(self) -> frozenset[Limit]:
        """What it can hold at all."""
        ...

    def lacking(self, card: inventory.Card, users: tuple[containers.User, ...] = ()) -> tuple[str, ...]:
        """What keeps it from holding a share of this card for these containers here and now; empty where it can."""
        ...

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        """The changes that these shares need, in order. All are held by this rung."""
        ...

    def edits(self, holding: records.Holding) -> cdi.Edits:
        """What a container with this share gets for it. Raises NotReady."""
        ...

    async def look(self) -> None:
        """As a backend's: what `lacking` says is what was seen here last."""
        ...

    async def apply(self, record: records.Record, step: records.Step) -> None: ...

    async def undo(self, record: records.Record, step: records.Step) -> None: ...


@runtime_checkable
class Witness(Protocol):
    """A rung that can be asked whether a limit is in force: for the claim's status and the series."""

    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        """Whether the share of this holding is held to its limit now, in these pods of its claim."""
        ...


@runtime_checkable
class Elastic(Protocol):
    """A rung that takes another memory limit while programs run."""

    @property
    def elastic(self) -> bool:
        """Whether it can here."""
        ...

    async def resize(self, holding: records.Holding, pods: frozenset[str]) -> None:
        """Makes the holding's limit that of its containers in these pods. Repeatable; a pod has one share of the card."""
        ...


def word(kind: v1alpha1.Rung) -> str:
    """As it stands in attributes, records and steps."""
    return kind.value.lower()
