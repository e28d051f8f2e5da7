"""How many copies of a pod or a claim still fit, where the first ones would land, and what one more would need.

    pod, claim or numbers + World --> fit --> Fit

Copies are booked one after the other, as the allocator would, and unbooked at the end: the World is as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocation import bookings, search
from api import errors, names
from api.reasons import Verdict
from explain import chain, explanation, places, world

JSON = Mapping[str, Any]
MOST = 1000
"""Copies that are counted; there may be room for more."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    node: str
    cards: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`fits`: how many copies, of `wanted`. `more`: it was not counted further. `next`: why there is no room for one more."""

    subject: str
    verdict: Verdict
    sentence: str
    fits: int = 0
    wanted: int = 1
    more: bool = False
    first: tuple[Landing, ...] = ()
    nodes: tuple[tuple[str, int], ...] = ()
    """Copies by node."""
    next: explanation.Explanation | None = None
    notes: tuple[str, ...] = ()


def numbers(class_name: str, *, count: int = 1, cores: int | None = None, memory: str | None = None) -> dict[str, Any]:
    """A claim for plain numbers. Raises Invalid for those that make no claim."""
    if count < 1 or (cores is not None and not 0 <= cores <= 100):  # noqa: PLR2004  percent
        raise errors.Invalid("count is 1 or more, cores are 0 to 100 percent of a card")
    amounts: dict[str, Any] = {} if cores is None else {names.CORES: str(cores)}
    amounts |= {} if memory is None else {names.MEMORY: memory}
    exactly: dict[str, Any] = {"deviceClassName": class_name, "count": count}
    exactly |= {"capacity": {"requests": amounts}} if amounts else {}
    size = ", ".join(([] if cores is None else [f"cores {cores}%"]) + ([] if memory is None else [f"memory {memory}"]))
    cards = f"{count} card{'s' if count != 1 else ''} of class {class_name}" + (f" ({size})" if size else "")
    return {
        "kind": chain.NUMBERS,
        "metadata": {"name": cards},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}},
    }


def fit(item: JSON, now: world.World, wanted: int = 0) -> Fit:
    """`wanted` copies, or as many as there is room for. Claims that have their cards already count as asked anew."""
    item = _anew(item)
    pod = item if "containers" in (item.get("spec") or {}) else None
    of = chain.of_pod(_unmade(item), now) if pod is not None else chain.of_claim(item, now)
    told = explanation.explain(_unmade(item) if pod is not None else item, now)
    if told.verdict in (Verdict.SETTLED, Verdict.UNKNOWN) or of.broken is not None or not of.wishes:
        fits = told.verdict is Verdict.SETTLED
        return Fit(
            subject=of.subject,
            verdict=told.verdict,
            sentence=told.sentence,
            fits=int(fits),
            next=told,
            notes=told.notes,
        )
    booked: list[str] = []
    try:
        landings = _landed(pod, of, now, wanted or MOST, booked)
        after = (
            explanation.explain(_unmade(item) if pod is not None else item, now)
            if len(landings) < (wanted or MOST)
            else None
        )
    finally:
        for uid in booked:
            now.cluster.booked.drop(uid)
    return _told(of, landings, wanted, after, told)


def _landed(pod: JSON | None, of: chain.Chain, now: world.World, limit: int, booked: list[str]) -> list[Landing]:
    """Node after node is filled; what a full one refuses it refuses the next copy too."""
    landings: list[Landing] = []
    funnels, why = explanation.funnels_of(of.wishes, pod, of, now), places.excluded(pod, of, now)
    among = places.promising(funnels, now)
    while len(landings) < limit:
        found = places.first(of.wishes, among, now, why)
        if not found.node:
            break
        node = found.node
        among = among[among.index(node) :]
        uid = f"copy {len(landings)} of {of.subject}"
        booked.append(uid)
        now.cluster.booked.put(
            uid, tuple(_piece(pick) for picks in found.picks for pick in picks if not pick.option.admin)
        )
        landings.append(Landing(node=node, cards=tuple(pick.device.key[2] for picks in found.picks for pick in picks)))
    return landings


def _piece(pick: search.Pick) -> bookings.Piece:
    return bookings.Piece(key=pick.device.key, share=pick.share, taken=pick.taken)


def _told(
    of: chain.Chain,
    landings: Sequence[Landing],
    wanted: int,
    after: explanation.Explanation | None,
    told: explanation.Explanation,
) -> Fit:
    fits, more = len(landings), len(landings) >= (wanted or MOST)
    by_node: dict[str, int] = {}
    for landing in landings:
        by_node[landing.node] = by_node.get(landing.node, 0) + 1
    if not fits:
        return Fit(
            subject=of.subject,
            verdict=told.verdict,
            sentence=told.sentence,
            wanted=wanted or 1,
            next=told,
            notes=told.notes,
        )
    enough = not wanted or fits >= wanted
    room = f"{fits} cop{'y' if fits == 1 else 'ies'} of {of.subject} fit{'s' if fits == 1 else ''}"
    room += f" of {wanted} wanted" if wanted and not enough else ", and maybe more" if more and not wanted else ""
    return Fit(
        subject=of.subject,
        verdict=Verdict.NOW if enough else Verdict.NO,
        sentence=f"{room}, on {len(by_node)} node{'s' if len(by_node) != 1 else ''}.",
        fits=fits,
        wanted=wanted or 1,
        more=more and not wanted,
        first=tuple(landings[:_SHOWN]),
        nodes=tuple(by_node.items()),
        next=after,
        notes=told.notes,
    )


def _anew(item: JSON) -> JSON:
    return (
        {key: value for key, value in item.items() if key != "status"}
        if "containers" not in (item.get("spec") or {})
        else item
    )


def _unmade(pod: JSON) -> JSON:
    """The pod as one that is made now: on no node, with the claims of its templates still to be made."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**{key: value for key, value in pod.items() if key != "status"}, "spec": spec}
