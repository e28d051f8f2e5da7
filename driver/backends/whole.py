"""Whole cards: a claim gets all of a card, and nothing on the card has to be changed for it."""

from api import errors, names
from driver import backend, booking, cdi, inventory, records


class Whole:
    """No steps: the card's device nodes and the driver's files are all there is to give."""

    def offer(self, card: inventory.Card) -> backend.Offer:
        del card
        return backend.Offer(
            attributes=(
                (names.BACKEND, "local"),
                (names.MEMORY_ENFORCEMENT, "none"),
                (names.CORES_ENFORCEMENT, "none"),
                (names.ALLOCATED_BY, "scheduler"),
            )
        )

    def holding(self, ask: backend.Ask) -> records.Holding:
        result, card = ask.result, ask.card
        if not result.admin_access:
            _refuse_part(ask)
        return records.Holding(
            request=result.request,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            admin_access=result.admin_access,
            card=card.uuid,
            minor=card.minor,
            model=card.product_name or "",
            enforcement="none" if result.admin_access else "whole",
            cores=0 if result.admin_access else booking.CORES,
            memory_mib=0 if result.admin_access else booking.memory_mib(card),
        )

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        del holdings
        return ()

    def edits(self, holding: records.Holding, host: cdi.HostEdits) -> cdi.Edits:
        return host.of_card(holding.card).without_hook(cdi.MEMORY_LIMITS_HOOK)

    async def look(self) -> None:
        """A whole card depends on nothing that the watcher does not look at already."""

    async def apply(self, record: records.Record, step: records.Step) -> None:
        raise AssertionError(f"{record}: a whole card has no step {step.kind}")

    async def undo(self, record: records.Record, step: records.Step) -> None:
        """A record of a later version may name steps; they are not ours to undo."""
        raise errors.Invalid(
            f"{record}: step {step.kind} is unknown to this version of the driver; run the one that made it"
        )


def _refuse_part(ask: backend.Ask) -> None:
    result, card = ask.result, ask.card
    if card.mig_enabled:
        raise errors.Invalid(
            f"card {card.name} is in MIG mode: it cannot be used as a whole; switch MIG off on the node or ask for another"
        )
    amount = booking.consumed(result)
    if amount is not None and not booking.is_all(amount, card):
        raise errors.Invalid(
            f"request {result.request} asks for a part of card {card.name} ({amount}), but its class gives whole cards: "
            "take capacity.requests out of the claim, or name a class of backend Share"
        )
