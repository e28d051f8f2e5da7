"""What a backend is: one way of giving a card to a claim. Read this before you write one.

    offer, holding, steps, edits   decide: plain functions of their arguments, asked any number of times
    look                           sees what the decisions depend on
    apply, undo                    act: one step each, the only calls that may touch the world

The life of one claim:

    holding(ask)            what the record says of this result: which card, how much of it, what is enforced
    steps(record)           the changes to make, in order; an empty tuple where nothing has to be changed
    apply(step)  ...        each one recorded after it was made
    edits(...)              what the containers get; asked before the first step, so it names what the steps will make
    undo(step)   ...        backwards, after Unprepare or where a step was refused

What you promise:
- `apply` may be repeated: a process may die between the act and its record, then the same step comes again.
- `undo` may be repeated, and may come for a step that was never made or only half. Nothing to undo is success.
- What you undo belonged to this claim. You never touch what another claim has.
- NotReady or Unavailable from `apply`: the claim stays half-prepared and the kubelet's next call resumes at this step.
  Any other error: the steps so far are undone. An error from `undo` keeps the record as Stuck, its cards withheld.
- Both come back within seconds, or say Unavailable: other claims wait for the same card.
"""

from dataclasses import dataclass
from typing import Protocol

from api import resource, v1alpha1
from driver import cdi, containers, inventory, records


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a backend adds to a card in the slice. `amounts`: capacities, each with what one share takes of it."""

    attributes: tuple[tuple[str, resource.Attribute], ...] = ()
    amounts: tuple[tuple[str, int, resource.RequestPolicy], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One result of a claim, the card that shall answer it, and how firmly; no `share`: the whole card.

    `users`: the containers that use it, as far as they are known.
    """

    result: resource.Result
    card: inventory.Card
    share: v1alpha1.Share | None = None
    users: tuple[containers.User, ...] = ()


class Backend(Protocol):
    """One way of giving a card to a claim."""

    def offer(self, card: inventory.Card) -> Offer:
        """What a claim may count on where it gets this card here."""
        ...

    def holding(self, ask: Ask) -> records.Holding:
        """The record's words for one result. Raises Invalid or NotReady where this card cannot answer it."""
        ...

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        """The changes that these holdings need, in order."""
        ...

    def edits(self, holding: records.Holding, host: cdi.HostEdits) -> cdi.Edits:
        """What a container with this holding gets beside the host's common edits. Raises NotReady."""
        ...

    async def look(self) -> None:
        """Looks anew at what it depends on, beside every look at the cards: quick, and without an error."""
        ...

    async def apply(self, record: records.Record, step: records.Step) -> None: ...

    async def undo(self, record: records.Record, step: records.Step) -> None: ...
