"""The picture's cards -> the ElasticGPU objects that show them.

    View + objects as they are --> turn --> writes     a card that differs from its object: apply the whole object
                                                       an object without a card: delete it, unless a claim still
                                                       holds the card; then it says that it is no longer published

Nothing is written where nothing changed, and nothing while slices or claims are not known. While a pool is rewritten
the objects of its cards stay. An object is bounded: holders beyond the limit are counted.
"""

import contextlib
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api import elasticgpu, names, quantity, v1alpha1
from api.reasons import Card
from view import join, objects, picture, twice

PATH = f"/apis/{names.API_VERSION}/{elasticgpu.PLURAL}"
JSON = Mapping[str, Any]
_NAMES_SHOWN = 3
_RAW: Final = -15
"""zlib without a header."""


_Told = tuple[str, elasticgpu.Status | None]


class GPU(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """An ElasticGPU as it is. `told`: uid and status, packed, for there are as many as cards."""

    name: str
    told: bytes

    @property
    def uid(self) -> str:
        return self._unpacked[0]

    @property
    def status(self) -> elasticgpu.Status | None:
        """None where it cannot be read: it is written anew."""
        return self._unpacked[1]

    @property
    def _unpacked(self) -> _Told:
        packed = zlib.decompressobj(_RAW, zdict=_like(self.name))
        return msgspec.msgpack.decode(packed.decompress(self.told), type=_Told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """The object `of` brought to what is wanted; made where it is not there. `card`: what it shows, if that is there."""

    of: str
    body: dict[str, Any]
    card: picture.Card | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """The object `of` a card that is gone."""

    of: str
    uid: str


Write = Apply | Remove
Agreed = MutableMapping[GPU, picture.Card]
"""Objects that show their cards as they are; looked at by identity."""


def gpu(data: JSON) -> GPU:
    status: elasticgpu.Status | None = None
    with contextlib.suppress(msgspec.ValidationError):
        status = msgspec.convert(data.get("status"), elasticgpu.Status)
    name = sys.intern(data["metadata"]["name"])
    return GPU(name=name, told=_packed(name, (data["metadata"]["uid"], status)))


def _packed(name: str, told: _Told) -> bytes:
    """A tenth of a struct's size, in a few microseconds."""
    packing = zlib.compressobj(1, wbits=_RAW, zdict=_like(name))
    return packing.compress(msgspec.msgpack.encode(told)) + packing.flush()


def _like(name: str) -> bytes:
    """Its own name is in it as well: as most of its UUID."""
    return _LIKE + name.encode()


def turn(
    seen: objects.Objects, view: join.View, found: Mapping[str, GPU], at: str, agreed: Agreed | None = None
) -> Iterator[Write]:
    """What to write; `at` is the time as the API writes it. Lazy: who stops early has not paid for the rest.

    `agreed`: kept between turns, so that only what changed is compared; it is brought up to date.
    """
    if seen.slices.unknown or seen.claims.unknown:
        return
    agreed = {} if agreed is None else agreed
    current = twice.by_name(view.cards)
    for name, card in current.items():
        shown = found.get(name)
        if shown is not None and agreed.get(shown) is card:
            continue
        before = shown.status if shown is not None else None
        if (wanted := _status(card, before, at)) != before:
            yield Apply(of=name, body=_body(name, wanted), card=card)
        elif shown is not None:
            agreed[shown] = card
    if len(agreed) > len(found):
        for old in agreed.keys() - set(found.values()):
            del agreed[old]
    yield from _without_card(seen, view, found, found.keys() - current.keys(), at)


def _without_card(
    seen: objects.Objects, view: join.View, found: Mapping[str, GPU], gone: Iterable[str], at: str
) -> Iterator[Write]:
    held = _held(seen.claims.items)
    in_rewrite = {pool.name for pool in view.pools if pool.incomplete}
    for name in gone:
        status = found[name].status
        if status is not None and status.pool in in_rewrite:
            continue
        if status is None or name not in held:
            yield Remove(of=name, uid=found[name].uid)
        elif (wanted := _unpublished(status, held[name], at)) != status:
            yield Apply(of=name, body=_body(name, wanted))


def _held(claims: Iterable[objects.Claim]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for claim in claims:
        for result in claim.results:
            if not result.admin:
                found.setdefault(result.device, []).append(f"{claim.namespace}/{claim.name}")
    return found


def _body(name: str, status: elasticgpu.Status) -> dict[str, Any]:
    meta = {"name": name, "labels": {"app.kubernetes.io/managed-by": names.FIELD_MANAGER}}
    kind = {"apiVersion": names.API_VERSION, "kind": elasticgpu.KIND}
    return kind | {"metadata": meta, "status": msgspec.to_builtins(status)}


def _status(card: picture.Card, before: elasticgpu.Status | None, at: str) -> elasticgpu.Status:
    pods = [f"{holder.namespace}/{pod.name}" for holder in card.holders for pod in holder.pods]
    more = f" and {len(pods) - _NAMES_SHOWN} more" if len(pods) > _NAMES_SHOWN else ""
    shown = card.holders[: elasticgpu.MOST_HOLDERS]
    return elasticgpu.Status(
        place=card.place,
        node=card.node,
        pool=card.pool,
        uuid=card.uuid or "",
        model=card.model or "",
        state=card.state.value,
        reason=card.reason,
        held_by=", ".join(pods[:_NAMES_SHOWN]) + more,
        capacity=_amounts(card.capacity),
        free=_amounts(card.free or {}),
        holders=tuple(map(_holder, shown)),
        more_holders=len(card.holders) - len(shown),
        observers=len(card.observers),
        conditions=_conditions(card, before, at),
    )


def _holder(holder: picture.Holder) -> elasticgpu.Holder:
    shown = holder.pods[: elasticgpu.MOST_PODS]
    return elasticgpu.Holder(
        namespace=holder.namespace,
        claim=holder.claim,
        request=holder.request,
        class_name=holder.class_name,
        amounts=_amounts(holder.amounts),
        since=holder.since,
        enforcement=holder.enforcement,
        node=holder.node,
        lease=f"{holder.attachment.lease}: {holder.attachment.phase}" if holder.attachment else "",
        pods=tuple(elasticgpu.Pod(name=pod.name, containers=pod.containers or ()) for pod in shown),
        more_pods=len(holder.pods) - len(shown),
    )


def _amounts(found: Mapping[str, int]) -> elasticgpu.Amounts:
    memory = found.get(names.MEMORY)
    return elasticgpu.Amounts(
        cores=found.get("cores"),
        memory=None if memory is None else quantity.text(memory),
        shares=found.get("shares"),
    )


def _conditions(card: picture.Card, before: elasticgpu.Status | None, at: str) -> tuple[v1alpha1.Condition, ...]:
    unbooked = [one for one in card.taints if one.key == names.UNBOOKED_TAINT]
    retained = [one for one in card.taints if one.key == names.RETAINED_TAINT]
    taints = "; ".join(
        f"{one.key}{'=' if one.value else ''}{one.value}:{one.effect} since {one.since}"
        for one in card.taints
        if one not in unbooked and one not in retained
    )
    healthy = ("False", Card.TAINTED.value, taints) if taints else ("True", Card.NO_TAINT.value, "")
    booked = ("True", Card.WITHIN.value, "")
    for one in unbooked:
        words = f"processes use {one.value} or more of its memory that no claim has booked, since {one.since}"
        booked = ("False", Card.BEYOND.value, words)
    freed = f"kubectl egpu release {card.name}, or kubectl delete devicetaintrule {names.RETAINED_RULE}{card.name}"
    kept = [
        ("True", Card.RETAINED.value, f"a claim has released it, and its class keeps it back; {freed}")
        for _ in retained[:1]
    ]
    return (
        *(_condition("Retained", *one, before, at) for one in kept),
        _condition("Healthy", *healthy, before, at),
        _condition("Published", "True", Card.IN_SLICE.value, "", before, at),
        _condition("UsedAsBooked", *booked, before, at),
    )


def _unpublished(status: elasticgpu.Status, claims: list[str], at: str) -> elasticgpu.Status:
    shown = ", ".join(sorted(claims)[:_NAMES_SHOWN])
    who = "node" if status.node else "pool"
    message = f"no {who} publishes it any more, and claim {shown} still holds it; delete the claim's pods"
    kept = tuple(one for one in status.conditions if one.type != "Published")
    return msgspec.structs.replace(
        status,
        state=picture.State.UNKNOWN.value,
        reason="no longer published",
        conditions=(*kept, _condition("Published", "False", Card.GONE.value, message, status, at)),
    )


def _condition(
    type_: str, status: str, reason: str, message: str, before: elasticgpu.Status | None, at: str
) -> v1alpha1.Condition:
    last = next((one for one in before.conditions if one.type == type_), None) if before else None
    return v1alpha1.Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=last.last_transition_time if last and last.status == status else at,
    )


def _usual() -> bytes:
    """What most of them have in common: names of fields, and words."""
    amounts = elasticgpu.Amounts(cores=100, memory="80Gi", shares=16)
    conditions = (
        ("Healthy", Card.NO_TAINT.value),
        ("Published", Card.IN_SLICE.value),
        ("UsedAsBooked", Card.WITHIN.value),
    )
    one = elasticgpu.Holder(
        namespace="default", claim="c", request="card", class_name="training.elasticgpu.io", amounts=amounts,
        since="2026-01-01T00:00:00Z", enforcement="none", pods=(elasticgpu.Pod(name="pod", containers=("main",)),),
    )  # fmt: skip
    many = elasticgpu.Status(
        node="node", pool=names.POOL_PREFIX, uuid="GPU-", model="NVIDIA H100 80GB HBM3", state="Held", held_by="default/",
        capacity=amounts, free=amounts, holders=(one, one),
        conditions=tuple(_condition(type_, "True", reason, "", None, "2026-01-01T00:00:00Z") for type_, reason in conditions),
    )  # fmt: skip
    return msgspec.msgpack.encode(many)


_LIKE: Final = _usual()
