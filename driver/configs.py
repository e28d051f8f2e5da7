"""Which config speaks for a result: whether it is a share, and how firmly that share is to be held.

    configs of class and claim, opaque -> read strictly -> chosen -> Share, or None for a whole card

The class, which an admin wrote, decides between whole cards and shares; only where it says nothing, the claim does. What a
claim says beside a class of shares can make its own share stricter, never laxer. Of several configs of one author the
last one counts.
"""

from collections.abc import Iterable

from api import errors, resource, v1alpha1


def chosen(claim: resource.Claim, driver: str) -> tuple[v1alpha1.Share | None, ...]:
    """For each of the claim's results of `driver`, in their order. Raises Invalid."""
    read = [
        (config, v1alpha1.decode_config(config.parameters, _where(claim, config)))
        for config in claim.configs
        if config.driver == driver
    ]
    return tuple(_of(claim, result, read) for result in claim.of_driver(driver))


def _of(
    claim: resource.Claim, result: resource.Result, read: Iterable[tuple[resource.Config, v1alpha1.Config]]
) -> v1alpha1.Share | None:
    last: dict[bool, v1alpha1.Config] = {}
    for config, what in read:
        if config.covers(result):
            last[config.from_class] = what
    of_class, of_claim = last.get(True), last.get(False)
    if of_class is not None and of_claim is not None and type(of_class) is not type(of_claim):
        raise errors.Invalid(
            f"request {result.request} of claim {claim}: the claim's own config is a {type(of_claim).__name__}, its "
            f"class gives {'shares' if isinstance(of_class, v1alpha1.ShareConfig) else 'whole cards'}; name another class"
        )
    share = None
    for stated in (of_class, of_claim):
        if isinstance(stated, v1alpha1.ShareConfig):
            place = f"{result.request} of claim {claim}"
            share = _resolved(stated) if share is None else _stricter(share, stated, place)
    return share


_FIRMNESS = (v1alpha1.Enforcement.BURST, v1alpha1.Enforcement.BEST_EFFORT, v1alpha1.Enforcement.REQUIRED)
"""From the laxest to the strictest."""


def _resolved(config: v1alpha1.ShareConfig) -> v1alpha1.Share:
    usual = v1alpha1.Share()
    if config.memory is v1alpha1.Enforcement.BURST:
        raise errors.Invalid(
            "a share's memory cannot burst: what it takes beyond its own, another one lacks; say so of cores alone"
        )
    return v1alpha1.Share(
        memory=config.memory or usual.memory,
        cores=config.cores or usual.cores,
        accept=config.accept or usual.accept,
        fallback=config.fallback or usual.fallback,
    )


def _stricter(share: v1alpha1.Share, config: v1alpha1.ShareConfig, request: str) -> v1alpha1.Share:
    accept = tuple(rung for rung in share.accept if rung in (config.accept or share.accept))
    if not accept:
        raise errors.Invalid(
            f"request {request}: the claim accepts {_listed(config.accept or ())}, its class {_listed(share.accept)}: "
            "no way of holding the share is left"
        )
    return v1alpha1.Share(
        memory=max(share.memory, config.memory or share.memory, key=_FIRMNESS.index),
        cores=max(share.cores, config.cores or share.cores, key=_FIRMNESS.index),
        accept=accept,
        fallback=v1alpha1.Fallback.NOTHING if config.fallback is v1alpha1.Fallback.NOTHING else share.fallback,
    )


def _listed(rungs: Iterable[v1alpha1.Rung]) -> str:
    return ", ".join(rung.value for rung in rungs)


def _where(claim: resource.Claim, config: resource.Config) -> str:
    owner = f"the device class, in claim {claim}" if config.from_class else f"claim {claim}"
    requests = f", for request {', '.join(config.requests)}" if config.requests else ""
    return f"config of {owner}{requests}"
