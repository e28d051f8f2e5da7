"""What differs from the picture before, and whom it touches.

    Objects, those that did not change the very same as before --> which came, went or are others --> Touched

It remembers the objects of each kind and who names whom, and nothing of what is made of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from view import objects, registers


@dataclass(slots=True, kw_only=True)
class Touched:
    """Of whom something was heard. `pods` by uid. `lenders`: remote pools."""

    pools: set[str] = field(default_factory=set)
    claims: set[objects.Reference] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    leases: set[str] = field(default_factory=set)
    lenders: set[str] = field(default_factory=set)


class Record:
    """The objects as they were seen last, with who names whom."""

    def __init__(self) -> None:
        self.slices: registers.Kept[str, objects.Slice] = registers.Kept("name")
        self.claims: registers.Kept[objects.Reference, objects.Claim] = registers.Kept("namespace", "name")
        self.pods: registers.Kept[str, objects.Pod] = registers.Kept("uid")
        self.pending: set[str] = set()
        """Those of the pods that wait."""
        self.nodes: registers.Kept[str, objects.Node] = registers.Kept("name")
        self.drivers: registers.Kept[objects.Reference, objects.DriverPod] = registers.Kept("namespace", "name")
        self.rules: registers.Kept[str, objects.TaintRule] = registers.Kept("name")
        self.remote_pools: registers.Kept[str, objects.RemotePool] = registers.Kept("name")
        self.leases: registers.Kept[str, objects.Lease] = registers.Kept("name")
        self.leases_of_pool: registers.Index[str, str] = registers.Index()
        self.leases_of_claim: registers.Index[objects.Reference, str] = registers.Index()
        self.rules_of: registers.Index[str, str] = registers.Index()
        self.slices_of: registers.Index[str, str] = registers.Index()
        self.claims_of_pool: registers.Index[str, objects.Reference] = registers.Index()
        self.claims_of_pod: registers.Index[str, objects.Reference] = registers.Index()
        self.drivers_of: registers.Index[str, objects.Reference] = registers.Index()

    def differing(self, seen: objects.Objects, everywhere: Iterable[str]) -> Touched:
        """`everywhere`: all pools, for what touches each of them."""
        pools: set[str] = set()
        for name, (was, item) in self.slices.take(seen.slices.items).items():
            pools |= self.slices_of.put(name, _pool(was), _pool(item))
        for name, (was_rule, rule) in self.rules.take(seen.rules.items).items():
            touched_by = self.rules_of.put(name, _pool(was_rule), _pool(rule))
            pools |= set(everywhere) if "" in touched_by else touched_by
        claims = self.claims.take(seen.claims.items)
        for claim, (known, found) in claims.items():
            pools |= self.claims_of_pool.put(claim, _pools(known), _pools(found))
            self.claims_of_pod.put(claim, _users(known), _users(found))
        pods = self.pods.take(seen.pods.items)
        touched = set(claims)
        for uid, (_, pod) in pods.items():
            self.pending.discard(uid)
            if pod and not pod.settled:
                self.pending.add(uid)
            held_by = self.claims_of_pod.of(uid)
            touched |= held_by
            pools |= {result.pool for name in held_by for result in self.claims.now[name].results}
        nodes = set(self.nodes.take(seen.nodes.items))
        for ref, (before, driver) in self.drivers.take(seen.drivers.items).items():
            nodes |= self.drivers_of.put(ref, _node(before), _node(driver))
        leases = self.leases.take(seen.leases.items)
        for name, (ended, lease) in leases.items():
            pools |= self.leases_of_pool.put(name, _pool(ended), _pool(lease))
            self.leases_of_claim.put(name, _claim(ended), _claim(lease))
        lenders = set(self.remote_pools.take(seen.remote_pools.items))
        return Touched(pools=pools, claims=touched, pods=set(pods), nodes=nodes, leases=set(leases), lenders=lenders)


class _OfPool(Protocol):
    @property
    def pool(self) -> str: ...


def _pool(one: _OfPool | None) -> tuple[str, ...]:
    return (one.pool,) if one else ()


def _pools(claim: objects.Claim | None) -> Iterable[str]:
    return (one.pool for one in claim.results) if claim else ()


def _users(claim: objects.Claim | None) -> Iterable[str]:
    return (uid for _, uid in claim.reserved_for) if claim else ()


def _node(driver: objects.DriverPod | None) -> tuple[str, ...]:
    return (driver.node,) if driver else ()


def _claim(lease: objects.Lease | None) -> tuple[objects.Reference, ...]:
    return ((lease.namespace, lease.claim),) if lease else ()
