"""The picture kept up to date: after an event only what it touches is made anew.

    Objects, those that did not change the very same as before --> which differ --> the pools, claims, pods, nodes,
        leases that these touch --> their cards, rows and problems --> the next View

What must stay true: it gives what `join.View` gives of the same objects, whatever came before; tests/view/test_ledger.py
compares. A View that was given out never changes. Where a kind becomes known or unknown, or device classes change,
all is made anew. Of pods only those that wait are kept as rows, and all of these are made anew each time: what they wait
for may be anything. The others are made by the View, for who asks.
"""

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from api import names
from view import books, cards, changes, join, lenders, objects, picture, problems, registers, totals, twice, users

_COMPARED = ("device_classes",)


class Ledger:
    """Makes one View after another; one caller at a time."""

    def __init__(self) -> None:
        self._basis: object = None
        self._made_for: Mapping[str, str] = {}
        self._moved = True
        self._reset()

    def view(self, seen: objects.Objects) -> join.View:
        basis = _basis(seen)
        if basis != self._basis:
            self._reset()
            self._basis = basis
            self._made_for = totals.made_for(seen.classes.items)
        touched = self._record.differing(seen, self._pools)
        pools, claims, pods, nodes = touched.pools, touched.claims, touched.pods, touched.nodes
        leases = touched.leases | self._record.leases_of_claim.of(*claims)
        nodes |= self._renew_pools(pools, seen)
        if self._moved:
            self._order[:] = sorted(self._pools, key=lambda name: self._pools[name].order)
            self._names[:] = sorted(self._pools)
            self._moved = False
        for node in nodes:
            self._renew_node(node, seen)
        known = self._known(seen)
        about = pools | self._pools_of_node.of(*nodes)
        claims |= self._record.claims_of_pool.of(*about, *(names.POOL_PREFIX + node for node in nodes))
        pods |= self._record.pending
        for pod in pods:
            self._renew_pod(pod, known)
        self._renew_problems(about, claims, pods, known)
        self._renew_lent(pools | touched.lenders, leases, seen)
        return self._made(seen, None if seen.slices.unknown else self._tallies.total())

    def _reset(self) -> None:
        self._record = changes.Record()
        self._lenders: dict[str, picture.RemotePool] = {}
        self._twice: Mapping[tuple[str, str], int] = {}
        self._sharing: Iterable[str] = ()
        self._spare: tuple[picture.Card, ...] = ()
        """Listings of remote cards that are not in the tallies, since another one is."""
        self._pools_of_node: registers.Index[str, str] = registers.Index()
        self._pools: dict[str, cards.Pool] = {}
        self._order: list[str] = []
        self._names: list[str] = []
        self._moved = True
        self._cards = registers.Cards()
        self._tallies = books.Tallies()
        self._holdings = books.Holdings(lambda holder: totals.types(holder, self._label, self._made_for))
        self._made_for = {}
        self._cells: dict[str, str] = {}
        self._drivers_at: dict[str, tuple[objects.DriverPod, ...]] = {}
        self._node_rows: dict[str, picture.Node] = {}
        self._waiting: dict[str, picture.Pod] = {}
        self._wrong: dict[tuple[str, Any], tuple[picture.Problem, ...]] = {}

    def _renew_pools(self, pools: Iterable[str], seen: objects.Objects) -> set[str]:
        """Gives the nodes that they are of, and were."""
        listed = {pool: self._far(pool) for pool in pools}
        self._tallies.put(self._spare, 1)
        nodes = {node for pool in pools for node in self._renew_pool(pool, seen)}
        if any(self._far(pool) != before for pool, before in listed.items()):
            self._renew_twice()
        self._spare = twice.spare([card for pool in self._sharing for card in self._cards.of[pool]])
        self._tallies.put(self._spare, -1)
        return nodes

    def _renew_pool(self, name: str, seen: objects.Objects) -> set[str]:
        before = self._cards.of.pop(name, ())
        made: tuple[picture.Card, ...] = ()
        was = self._pools.pop(name, None)
        for pool in cards.pools(self._record.slices.now[one] for one in self._record.slices_of.of(name)):
            holding = [self._record.claims.now[claim] for claim in sorted(self._record.claims_of_pool.of(name))]
            uids = dict.fromkeys(uid for claim in holding for _, uid in claim.reserved_for)
            pods = tuple(self._record.pods.now[uid] for uid in uids if uid in self._record.pods.now)
            claims = replace(seen.claims, items=tuple(holding))
            rules = [self._record.rules.now[one] for one in sorted(self._record.rules_of.of("", name))]
            leases = [self._record.leases.now[one] for one in self._record.leases_of_pool.of(name)]
            made = _same(before, cards.build((pool,), claims, replace(seen.pods, items=pods), rules, leases))
            self._pools[name], self._cards.of[name] = pool, made
        self._tallies.put(before, -1)
        self._tallies.put(made, 1)
        self._holdings.change(name, before, made)
        now = self._pools.get(name)
        if (was and was.order) != (now and now.order):
            self._moved = True
        return set(self._pools_of_node.put(name, _nodes(was, before), _nodes(now, made)))

    def _far(self, pool: str) -> list[str]:
        """The remote cards that it lists."""
        return [card.name for card in self._cards.of.get(pool, ()) if card.remote]

    def _renew_twice(self) -> None:
        for pair in self._twice:
            self._found("twice", pair, ())
        self._twice, self._sharing = twice.pairs(self._cards.of), twice.sharing(self._cards.of)
        for pair, count in self._twice.items():
            self._found("twice", pair, (problems.of_twice(pair, count),))

    def _label(self, uid: str) -> str:
        return self._record.pods.now[uid].workload_type if uid in self._record.pods.now else ""

    def _renew_node(self, name: str, seen: objects.Objects) -> None:
        pools = sorted(self._pools_of_node.of(name), key=lambda pool: (self._pools[pool].node, pool))
        found = [card for pool in pools for card in self._cards.of[pool] if card.node == name]
        self._cells.pop(name, None)
        self._cells |= totals.cells(found)
        drivers = tuple(self._record.drivers.now[driver] for driver in self._record.drivers_of.of(name))
        nodes = (self._record.nodes.now[name],) if name in self._record.nodes.now else ()
        self._drivers_at[name] = drivers
        self._node_rows.pop(name, None)
        for row in totals.nodes(found, replace(seen.nodes, items=nodes), replace(seen.drivers, items=drivers)):
            self._node_rows[name] = row

    def _known(self, seen: objects.Objects) -> users.Known:
        """For now: a View makes one of its own when it is asked for what is not made here."""
        classes = seen.device_classes.items
        return users.Known(
            seen=seen,
            claims=self._record.claims.now,
            cards=self._cards,
            supply=None if seen.slices.unknown else totals.supply(self._tallies.models()),
            alive=self._record.pods.now.keys(),
            drivers=self._drivers_at,
            class_names=frozenset(item.name for item in classes),
            foreign=frozenset(item.name for item in classes if not item.ours),
        )

    def _renew_pod(self, uid: str, known: users.Known) -> None:
        self._waiting.pop(uid, None)
        row = users.pod(self._record.pods.now[uid], known) if uid in self._record.pending else None
        if row is not None:
            self._waiting[uid] = row

    def _renew_problems(
        self,
        pools: Iterable[str],
        claims: Iterable[objects.Reference],
        pods: Iterable[str],
        known: users.Known,
    ) -> None:
        for name in pools:
            pool = self._pools.get(name)
            node = self._record.nodes.now.get(pool.node) if pool else None
            each = {card.name: card for card in self._cards.of.get(name, ())}
            of_cards = itertools.chain.from_iterable(map(problems.of_card, each.values()))
            self._found("pool", name, (*of_cards, *(problems.of_pool(pool, node, known) if pool else ())))
        for ref in claims:
            claim = self._record.claims.now.get(ref)
            self._found("claim", ref, problems.of_claim(claim, known) if claim else ())
        for uid in pods:
            pod = self._waiting.get(uid)
            self._found("pod", uid, problems.of_pod(pod) if pod else ())

    def _renew_lent(self, pools: Iterable[str], leases: Iterable[str], seen: objects.Objects) -> None:
        for name in pools:
            self._lenders.pop(name, None)
            self._cells.pop(picture.POOL + name, None)
            self._found("lender", name, ())
            known, pool = self._record.remote_pools.now.get(name), self._pools.get(name)
            if known or (pool and pool.remote):
                of = self._cards.of.get(name, ()) if pool and pool.remote else ()
                row = self._lenders[name] = lenders.pool(name, of, known, seen)
                self._cells |= totals.cells(of)
                self._found("lender", name, problems.of_lender(row))
        for name in leases:
            lease = self._record.leases.now.get(name)
            told = problems.of_lease(lenders.lease(lease, self._record.claims.now, seen)) if lease else ()
            self._found("lease", name, told)

    def _found(self, kind: str, key: Hashable, found: Iterable[picture.Problem]) -> None:
        self._wrong.pop((kind, key), None)
        if told := tuple(found):
            self._wrong[kind, key] = told

    def _made(self, seen: objects.Objects, total: picture.Tally | None) -> join.View:
        wrong = itertools.chain(*self._wrong.values(), problems.of_classes(seen.classes))
        made = {
            "pools": tuple(map(self._pools.__getitem__, self._names)),
            "cards": tuple(itertools.chain.from_iterable(map(self._cards.of.__getitem__, self._order))),
            "total": total,
            "models": self._tallies.models(),
            "nodes": () if seen.slices.unknown else tuple(map(self._node_rows.__getitem__, sorted(self._node_rows))),
            "namespaces": self._holdings.booked(books.Kind.NAMESPACE),
            "workload_types": self._holdings.booked(books.Kind.TYPE),
            "cells": dict(self._cells),
            "classes": totals.classes_of(
                self._holdings.booked(books.Kind.CLASS), seen.claims.items, seen.classes.items
            ),
            "waiting": tuple(sorted(self._waiting.values(), key=lambda pod: (pod.namespace, pod.name))),
            "remote_pools": tuple(map(self._lenders.__getitem__, sorted(self._lenders))),
            "problems": problems.ordered(wrong),
        }
        return join.View(seen, made)


def _nodes(pool: cards.Pool | None, of: Iterable[picture.Card]) -> set[str]:
    """Where a pool is: what depends on it there."""
    own = {pool.node} - {""} if pool and not pool.remote else set[str]()
    return own | {card.node for card in of if not card.remote}


def _same(before: Iterable[picture.Card], now: Iterable[picture.Card]) -> tuple[picture.Card, ...]:
    """Cards that are as they were are the ones that were: a pool may have hundreds, and an event touches one of them."""
    known = {card.name: card for card in before}
    return tuple(was if (was := known.get(card.name)) == card else card for card in now)


def _basis(seen: objects.Objects) -> object:
    """What all depends on."""
    parts = {field.name: getattr(seen, field.name) for field in fields(seen)}
    limits = [(part.unknown, part.namespace, part.partial, part.unreadable) for part in parts.values()]
    return limits, [parts[name].items for name in _COMPARED], dict(totals.made_for(seen.classes.items))
