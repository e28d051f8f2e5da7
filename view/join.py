"""The only join of slices, claims, pods, classes, nodes and drivers.

    Objects --> cards (with holders) --> totals
                     |               --> pods, claims, remote pools, leases --> problems

What it is given is all that it looks at: the same objects give the same picture, for the controller and for a user's
command line alike. Each part is made when it is first asked for, and kept: who prints cards does not pay for problems.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from view import cards, lenders, objects, picture, problems, totals, twice, users

_Pools = tuple[cards.Pool, ...]


class View:
    """The whole picture of what was `seen`. `made`: parts of it that are there already, by their names here."""

    def __init__(self, seen: objects.Objects, made: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._seen = seen
        self.__dict__.update(made)

    @functools.cached_property
    def cards(self) -> tuple[picture.Card, ...]:
        seen = self._seen
        return cards.build(self.pools, seen.claims, seen.pods, seen.rules.items, seen.leases.items)

    @functools.cached_property
    def pods(self) -> tuple[picture.Pod, ...]:
        return users.pods(self.known)

    @functools.cached_property
    def waiting(self) -> tuple[picture.Pod, ...]:
        """Those of `pods` that wait."""
        return tuple(pod for pod in self.pods if pod.waiting)

    @functools.cached_property
    def listed(self) -> tuple[objects.Pod, ...]:
        """The pods that `pods` has rows of, as they were read: for who looks through all of them and shows few."""
        return users.listed(users.Known.of(self._seen, {}, None))

    def rows(self, of: Iterable[objects.Pod]) -> tuple[picture.Pod, ...]:
        """What `pods` has of these, for who asks of few: all of them are nearly as many as cards."""
        seen, asked = self._seen, tuple(of)
        named = {(pod.namespace, name) for pod in asked for name in pod.claims}
        claims = tuple(claim for claim in seen.claims.items if (claim.namespace, claim.name) in named)
        at = {(result.pool, result.device) for claim in claims for result in claim.results}
        found = {key: card for card in self.cards if (key := (card.pool, card.name)) in at}
        few = replace(seen, pods=replace(seen.pods, items=asked), claims=replace(seen.claims, items=claims))
        return users.pods(users.Known.of(few, found, self._supply))

    def pod(self, namespace: str, name: str) -> picture.Pod | None:
        found = self.rows(one for one in self._seen.pods.items if (one.namespace, one.name) == (namespace, name))
        return found[0] if found else None

    @functools.cached_property
    def claims(self) -> tuple[picture.Claim, ...]:
        return users.claims(self.known)

    @functools.cached_property
    def remote_pools(self) -> tuple[picture.RemotePool, ...]:
        return lenders.pools(self.pools, self.cards, self._seen)

    @functools.cached_property
    def leases(self) -> tuple[picture.Lease, ...]:
        return lenders.leases(self.known)

    @functools.cached_property
    def total(self) -> picture.Tally | None:
        """None where slices could not be read."""
        return None if self._seen.slices.unknown else totals.tally(twice.once(self.cards))

    @functools.cached_property
    def models(self) -> tuple[picture.Model, ...]:
        return totals.models(twice.once(self.cards))

    @functools.cached_property
    def nodes(self) -> tuple[picture.Node, ...]:
        return () if self._seen.slices.unknown else totals.nodes(self.cards, self._seen.nodes, self._seen.drivers)

    @functools.cached_property
    def classes(self) -> tuple[picture.Class, ...]:
        return totals.classes(self.cards, self._seen.claims.items, self._seen.classes.items)

    @functools.cached_property
    def namespaces(self) -> tuple[picture.Booked, ...]:
        return totals.namespaces(self.cards)

    @functools.cached_property
    def workload_types(self) -> tuple[picture.Booked, ...]:
        return totals.workload_types(self.cards, self._seen.pods, self._seen.classes)

    @functools.cached_property
    def cells(self) -> Mapping[str, str]:
        return totals.cells(self.cards)

    @functools.cached_property
    def problems(self) -> tuple[picture.Problem, ...]:
        shared = twice.pairs(lenders.by_pool(self.cards))
        return problems.find(self.pools, self.known, self.waiting, self.remote_pools, self.leases, shared)

    @functools.cached_property
    def unknown(self) -> Mapping[str, str]:
        """Kind -> why it could not be read, or not all of it."""
        found = {name: part.unknown for name, part in self._parts.items()}
        found |= {
            name: f"only those of namespace {part.namespace} could be read"
            for name, part in self._parts.items()
            if part.namespace
        }
        return {name: reason for name, reason in found.items() if reason}

    @functools.cached_property
    def unreadable(self) -> tuple[str, ...]:
        return tuple(text for part in self._parts.values() for text in part.unreadable)

    @functools.cached_property
    def pools(self) -> _Pools:
        return cards.pools(self._seen.slices.items)

    @functools.cached_property
    def known(self) -> users.Known:
        found = {(card.pool, card.name): card for card in self.cards}
        return users.Known.of(self._seen, found, self._supply)

    @property
    def _supply(self) -> tuple[picture.Tally, picture.Tally] | None:
        return None if self._seen.slices.unknown else totals.supply(self.models)

    @property
    def _parts(self) -> Mapping[str, objects.Part[object]]:
        return {field.name: getattr(self._seen, field.name) for field in fields(self._seen)}
