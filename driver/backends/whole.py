"""Whole cards: a claim gets all of a card, and nothing on the card has to be changed for it."""

from dataclasses import replace

from api import errors, names, resource
from driver import backend, cdi, inventory, records

_MEMORY_LIMITS_HOOK = "apply-cuda-memory-limits"
"""The toolkit's hook that holds a share to its memory. A whole card has no limit to apply, and the hook would need NVML
on the host for every container start."""


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

    def holding(self, result: resource.Result, card: inventory.Card) -> records.Holding:
        if card.mig_enabled and not result.admin_access:
            raise errors.Invalid(
                f"card {card.name} is in MIG mode: it cannot be used as a whole; switch MIG off on the node or ask for another"
            )
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
        )

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        del holdings
        return ()

    def edits(self, holding: records.Holding, host: cdi.HostEdits) -> cdi.Edits:
        card = host.of_card(holding.card)
        return replace(
            card, hooks=tuple(hook for hook in card.hooks if _MEMORY_LIMITS_HOOK not in (hook.get("args") or ()))
        )

    async def apply(self, record: records.Record, step: records.Step) -> None:
        raise AssertionError(f"{record}: a whole card has no step {step.kind}")

    async def undo(self, record: records.Record, step: records.Step) -> None:
        """A record of a later version may name steps; they are not ours to undo."""
        raise errors.Invalid(
            f"{record}: step {step.kind} is unknown to this version of the driver; run the one that made it"
        )
