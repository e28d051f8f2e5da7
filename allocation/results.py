"""What a search found -> `status.allocation` of a claim, as kube-scheduler 1.37 writes it.

Configs of classes come first, each class once, then the claim's own that concern what was chosen. A device of one node
binds the claim to that node; others to what their slices say.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from allocation import amounts, nodes, requests, search

JSON = Mapping[str, Any]


def allocation(
    claim: requests.Claim,
    picks: Sequence[search.Pick],
    classes: Mapping[str, requests.Class],
    node: str,
    share_id: Callable[[], str],
) -> dict[str, Any]:
    """`share_id` makes a new one for each share. Without the time of the allocation: that is the writer's to say."""
    devices: dict[str, Any] = {"results": [_result(pick, share_id) for pick in picks]}
    if configs := _configs(claim, picks, classes):
        devices["config"] = configs
    out: dict[str, Any] = {"devices": devices}
    if selector := _selector(picks, node):
        out["nodeSelector"] = selector
    return out


def _result(pick: search.Pick, share_id: Callable[[], str]) -> dict[str, Any]:
    driver, pool, device = pick.device.key
    out: dict[str, Any] = {"request": pick.option.name, "driver": driver, "pool": pool, "device": device}
    if pick.option.admin:
        out["adminAccess"] = True
    if pick.option.tolerations:
        out["tolerations"] = [one.to_json() for one in pick.option.tolerations]
    if pick.device.conditions:
        out["bindingConditions"] = list(pick.device.conditions)
        out["bindingFailureConditions"] = list(pick.device.failures)
    if pick.share:
        out["shareID"] = share_id()
        if pick.taken:
            out["consumedCapacity"] = {name: amounts.text(value) for name, value in pick.taken}
    return out


def _configs(
    claim: requests.Claim, picks: Sequence[search.Pick], classes: Mapping[str, requests.Class]
) -> list[dict[str, Any]]:
    chosen = _chosen(claim, picks)
    by_class: dict[str, list[str]] = {}
    for option in chosen:
        by_class.setdefault(option.class_name, []).append(option.name)
    out = [
        {**config, "source": "FromClass", "requests": named}
        for name, named in by_class.items()
        for config in classes[name].configs
    ]
    for config in claim.configs:
        named = list(config.get("requests") or ())
        if not named or any(_covers(named, option) for option in chosen):
            out.append({**config, "source": "FromClaim", "requests": named})
    for one in out:
        if all(_covers(one["requests"], option) for option in chosen):
            one["requests"] = []
    return [{key: value for key, value in one.items() if value != []} for one in out]


def _chosen(claim: requests.Claim, picks: Sequence[search.Pick]) -> list[requests.Option]:
    """The option of each request: of alternatives, the one that was picked."""
    picked = {pick.option.name for pick in picks}
    return [
        next((option for option in request.options if option.name in picked), request.options[0])
        for request in claim.wish.requests
    ]


def _covers(named: Iterable[str], option: requests.Option) -> bool:
    return option.name in named or option.name.partition("/")[0] in named


def _selector(picks: Sequence[search.Pick], node: str) -> dict[str, Any] | None:
    fields: list[nodes.Requirement] = []
    expressions: list[nodes.Requirement] = []
    for pick in picks:
        place = pick.device.place if pick.device.place is not None else pick.device.slice_place
        if place.node or pick.device.binds:
            only = {"key": nodes.NAME, "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        for term in place.terms or ():
            _add(term.fields, fields)
            _add(term.expressions, expressions)
    told = {"matchFields": fields, "matchExpressions": expressions}
    term_ = {name: [_written(one) for one in found] for name, found in told.items() if found}
    return {"nodeSelectorTerms": [term_]} if term_ else None


def _add(new: Iterable[nodes.Requirement], onto: list[nodes.Requirement]) -> None:
    for key, operator, values in new:
        if not any((key, operator, set(values)) == (one[0], one[1], set(one[2])) for one in onto):
            onto.append((key, operator, values))


def _written(requirement: nodes.Requirement) -> dict[str, Any]:
    key, operator, values = requirement
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
