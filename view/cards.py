"""Each card with its holders, and what they leave of it.

    slices -> the current devices of each pool --+
    claims -> who has a result on a device ------+--> Card: state, holders, what is free
    leases -> how a remote card is attached -----+

What must stay true: only a pool's newest generation counts, as for the scheduler; a claim whose server stored no
consumed capacity holds the whole card; claims with admin access hold nothing.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from api import names
from view import lent, objects, picture

Key = tuple[str, str]
"""(pool, device)"""
_Sizes = tuple[tuple[str, int], ...]
_Held = tuple[objects.Claim, objects.Result]
_BLOCKING = ("NoSchedule", "NoExecute")
_EXHAUSTIBLE = ("memory", "shares")
"""Without these a card takes nobody in; without cores it still takes shares of memory alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool as its newest slices have it. `incomplete`: what is missing, in words; empty where the pool is whole."""

    name: str
    node: str
    generation: int
    slices: tuple[objects.Slice, ...]
    remote: bool
    incomplete: str

    @property
    def order(self) -> tuple[bool, str, str]:
        """By node; remote pools after all nodes."""
        return self.remote, self.node, self.name


def pools(slices: Iterable[objects.Slice]) -> tuple[Pool, ...]:
    by_name: defaultdict[str, list[objects.Slice]] = defaultdict(list)
    for item in slices:
        by_name[item.pool].append(item)
    found = []
    for name, members in sorted(by_name.items()):
        newest = max(item.generation for item in members)
        current = tuple(sorted((item for item in members if item.generation == newest), key=lambda item: item.name))
        node = next((item.node for item in current if item.node), "")
        wanted = max(item.of for item in current)
        missing = f"pool {name} has {len(current)} of {wanted} slices of generation {newest}"
        found.append(
            Pool(
                name=name,
                node=node,
                generation=newest,
                slices=current,
                remote=any(item.remote for item in current),
                incomplete="" if len(current) == wanted else missing,
            )
        )
    return tuple(found)


def build(
    found: Iterable[Pool],
    claims: objects.Part[objects.Claim],
    pods: objects.Part[objects.Pod],
    rules: Iterable[objects.TaintRule] = (),
    leases: Iterable[objects.Lease] = (),
) -> tuple[picture.Card, ...]:
    """All cards in the order of nodes and slices, those of remote pools at the end."""
    of_pool = rules_by_pool(rules)
    results = _results(claims.items)
    by_uid = {pod.uid: pod for pod in pods.items}
    unknown = _not_known(claims)
    lending = lent.by_card(leases)
    made: list[picture.Card] = []
    for pool in sorted(found, key=lambda pool: pool.order):
        mine = _of_driver(pool, (*of_pool.get("", ()), *of_pool.get(pool.name, ())))
        for device in itertools.chain.from_iterable(item.devices for item in pool.slices):
            key = (pool.name, device.name)
            at = results.get(key, ())
            what = _tainted(device, mine, at, unknown) if mine else device
            made.append(_card(what, pool, at, by_uid, unknown, lending.get(key, ())))
    return tuple(made)


def _of_driver(pool: Pool, rules: tuple[objects.TaintRule, ...]) -> tuple[objects.TaintRule, ...]:
    driver = names.REMOTE_DRIVER if pool.remote else names.LOCAL_DRIVER
    return tuple(rule for rule in rules if rule.concerns(driver))


def amounts(result: objects.Result, capacity: Mapping[str, int]) -> Mapping[str, int]:
    """What a result takes of its card: all of it where nothing else is said."""
    return sizes(result.consumed) if result.consumed else capacity


@functools.lru_cache(maxsize=8192)
def sizes(of: _Sizes) -> Mapping[str, int]:
    """One for all cards and holders that are alike: most of a cluster's are."""
    return dict(of)


def class_of(claim: objects.Claim, request: str) -> str:
    for named, found in claim.classes:
        if named == request:
            return found
    return ""


def containers(pod: objects.Pod, claim: str, request: str) -> tuple[str, ...]:
    """Those of the pod that use this request, or all of the claim."""
    wanted = ("", request.partition("/")[0])
    words = [word for word, name in zip(pod.words, pod.claims, strict=True) if name == claim]
    named = dict.fromkeys(use.container for use in pod.uses if use.word in words and use.request in wanted)
    found: tuple[str, ...] = objects.alike(tuple(named))
    return found


_Pods = Mapping[str, objects.Pod]
"""By uid; a pod that was not read is not in it."""


def _not_known(claims: objects.Part[objects.Claim]) -> str:
    """Why a card without a holder may have one."""
    if claims.unknown:
        return claims.unknown
    if claims.namespace:
        return f"only claims of namespace {claims.namespace} could be read"
    return "not all claims were asked for" if claims.partial else ""


def _results(claims: Iterable[objects.Claim]) -> Mapping[Key, list[_Held]]:
    found: defaultdict[Key, list[_Held]] = defaultdict(list)
    for claim in claims:
        for result in claim.results:
            found[result.pool, result.device].append((claim, result))
    return found


def rules_by_pool(rules: Iterable[objects.TaintRule]) -> dict[str, list[objects.TaintRule]]:
    """Those for all pools have none as their key. In the order of their names."""
    found: dict[str, list[objects.TaintRule]] = {}
    for rule in sorted(rules, key=lambda rule: rule.name):
        found.setdefault(rule.pool, []).append(rule)
    return found


def _tainted(
    device: objects.Device, rules: tuple[objects.TaintRule, ...], at: Iterable[_Held], unknown: str
) -> objects.Device:
    """With the taints that rules put on it. Kept back for claims it is only when one of them has released it."""
    mine = [rule for rule in rules if rule.device in ("", device.name)]
    uids = {claim.uid for claim, _ in at}
    more = tuple(
        rule.taint for rule in mine if not rule.retained_for or not (unknown or uids.issuperset(rule.retained_for))
    )
    return structs.replace(device, taints=(*device.taints, *more)) if more else device


def _card(
    device: objects.Device,
    pool: Pool,
    at: Sequence[_Held],
    pods: _Pods,
    unknown: str,
    leases: tuple[objects.Lease, ...],
) -> picture.Card:
    capacity = sizes(device.capacity)
    if len(at) > 1:
        at = sorted(at, key=lambda pair: (pair[0].since or pair[0].created, pair[0].namespace, pair[0].name))
    holding = [pair for pair in at if not pair[1].admin]
    holders = tuple([_holder(claim, result, capacity, pods, leases) for claim, result in holding])
    attached = {holder.attachment.lease for holder in holders if holder.attachment} if leases else ()
    taken = tuple([result.consumed for _, result in holding])
    free: Mapping[str, int] | None
    free, some = _left(device.capacity, taken, device.shared)
    state, reason = _state(device, pool, held=bool(holders), some=some)
    if unknown and state is not picture.State.HELD:
        state, reason, free = picture.State.UNKNOWN, unknown, None
    return picture.Card(
        name=device.name,
        uuid=device.uuid,
        model=device.model,
        node="" if pool.remote else pool.node or pool.name.removeprefix(names.POOL_PREFIX),
        pool=pool.name,
        bus_id=device.bus_id,
        driver_version=device.driver_version,
        state=state,
        reason=reason,
        capacity=capacity,
        free=free,
        holders=holders,
        observers=tuple([_holder(claim, result, {}, pods, ()) for claim, result in at if result.admin])
        if len(at) > len(holding)
        else (),
        taints=device.taints,
        remote=pool.remote,
        ending=tuple([lent.attachment(one) for one in leases if one.name not in attached]),
    )


def _holder(
    claim: objects.Claim,
    result: objects.Result,
    capacity: Mapping[str, int],
    pods: _Pods,
    leases: tuple[objects.Lease, ...],
) -> picture.Holder:
    lease = lent.own(leases, claim.uid) if leases else None
    return picture.Holder(
        namespace=claim.namespace,
        claim=claim.name,
        uid=claim.uid,
        request=result.request,
        class_name=class_of(claim, result.request),
        since=claim.since or claim.created,
        amounts={} if result.admin else amounts(result, capacity),
        share_id=result.share_id,
        enforcement=result.enforcement,
        pods=tuple([_pod(pod, claim, result.request, pods) for pod in claim.reserved_for]),
        node=claim.node or (lease.node if lease else "") if result.remote else "",
        attachment=lent.attachment(lease) if lease else None,
    )


def _pod(pod: tuple[str, str], claim: objects.Claim, request: str, pods: _Pods) -> picture.PodUse:
    name, uid = pod
    inside = containers(pods[uid], claim.name, request) if uid in pods else None
    return picture.PodUse(name=name, uid=uid, containers=inside)


@functools.lru_cache(maxsize=8192)
def _left(
    capacity: _Sizes,
    taken: tuple[_Sizes, ...],
    shared: bool,  # noqa: FBT001  a value, not a switch
) -> tuple[Mapping[str, int], bool]:
    """Of all cards that are alike and held alike; where it is not said what of it is taken, all is. And whether it takes one more."""
    if taken and not shared:
        return sizes(tuple((name, 0) for name, _ in capacity)), False
    sums: defaultdict[str, int] = defaultdict(int)
    for name, amount in itertools.chain.from_iterable(one or capacity for one in taken):
        sums[name] += amount
    free = sizes(tuple((name, max(0, total - sums[name])) for name, total in capacity))
    limits = [free[name] for name in _EXHAUSTIBLE if name in free]
    return free, shared and bool(limits) and min(limits) > 0


def _state(device: objects.Device, pool: Pool, *, held: bool, some: bool) -> tuple[picture.State, str]:
    blocked = (
        next((f"taint {_said(one)}" for one in device.taints if one.effect in _BLOCKING), "") if device.taints else ""
    )
    why = blocked or pool.incomplete
    if not held:
        return (picture.State.BLOCKED, why) if why else (picture.State.FREE, "")
    if why or not some:
        return picture.State.HELD, why
    return picture.State.PARTLY, ""


def _said(taint: objects.Taint) -> str:
    return f"{taint.key}={taint.value}" if taint.value else taint.key
