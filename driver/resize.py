"""Another limit for the memory of a share that is in use: what its claim's annotation asks, and whether that can be.

    annotation + record -> asked -> limit per holding, or why not -> the record as it shall be

A claim's booking is fixed when it is allocated, so its limit can be lowered below that and raised again up to it. Only
what takes a limit while programs run can be asked, `elastic`: the card's own driver, and HAMi-core where its file is known.
"""

from collections.abc import Mapping
from dataclasses import replace

from api import errors, names, quantity, resource
from driver import booking, records, rung


def asked(
    claim: resource.Claim, holdings: tuple[records.Holding, ...], elastic: frozenset[str]
) -> tuple[records.Holding, ...]:
    """The holdings with the limits that the claim's annotation asks for; with those of their booking where it asks nothing.

    Raises Invalid, in words for the claim's owner.
    """
    text = dict(claim.annotations).get(names.MEMORY_LIMIT_ANNOTATION, "")
    shares = {holding.request.partition("/")[0] for holding in holdings if _is_share(holding)}
    limits = _read(text, shares) if text.strip() else {}
    return tuple(
        replace(holding, limit_mib=_limit(holding, limits.get(holding.request.partition("/")[0]), elastic))
        if _is_share(holding)
        else holding
        for holding in holdings
    )


def _is_share(holding: records.Holding) -> bool:
    return holding.backend != "whole" and not holding.admin_access


def _read(text: str, shares: set[str]) -> Mapping[str, int]:
    """`6Gi` where the claim has one request for shares, else `left=6Gi,right=2Gi`. In MiB, rounded down."""
    limits = {}
    for part in text.split(","):
        request, equals, amount = part.strip().rpartition("=")
        if not equals and len(shares) == 1:
            (request,) = shares
        if request not in shares:
            raise errors.Invalid(
                f"{names.MEMORY_LIMIT_ANNOTATION}: {part.strip()!r} names no request of this claim for a share of a card "
                f"({', '.join(sorted(shares)) or 'it has none'}); write <request>=<amount>, with commas between"
            )
        try:
            limits[request] = int(quantity.parse(amount) // booking.MIB)
        except errors.Invalid as error:
            raise errors.Invalid(f"{names.MEMORY_LIMIT_ANNOTATION}: {error}") from error
    return limits


def _limit(holding: records.Holding, wanted: int | None, elastic: frozenset[str]) -> int:
    if wanted is None:
        return 0
    what = f"{names.MEMORY_LIMIT_ANNOTATION}: request {holding.request}"
    if holding.enforcement not in elastic:
        held = "nothing" if holding.enforcement == rung.NONE else holding.enforcement
        raise errors.Invalid(
            f"{what} is held by {held}, which takes no other limit while programs run. The card's own driver does; "
            "elsewhere make a new claim of the size that is wanted"
        )
    if not 1 <= wanted <= holding.memory_mib:
        raise errors.Invalid(
            f"{what} may have 1 to {holding.memory_mib} MiB, which is what the claim has booked, and not {wanted} MiB. "
            "A booking cannot grow: make a new claim for more"
        )
    return wanted
