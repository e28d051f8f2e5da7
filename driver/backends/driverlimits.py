"""The rung Driver: the card's own driver refuses memory beyond a limit that is set on a control group (r615 and newer).

    one container uses the share       NVIDIA's hook sets the limit on that container's group, each time it starts
    several do, or one with more       we set it on the group of their pod, once, through NVML: they share one account
    several pods do                    nothing can hold them together: refused; one that comes later is held by itself

The hook takes its limit from the container's environment, one for all cards of the container; what a pod sets there
itself is replaced by what CDI sets. A hook that is missing or fails keeps the container from starting, so a share is
never without its limit. The reserve (NVML's soft limit) stays 0: what it kept would be lost to the card when a container's
group is removed with it, and the booking keeps the sum of a card's shares within the card already.

What must stay true: a group has one limit a card, so a pod that is held as a whole has one share of that card (`plan`
refuses a second one); and what is undone is only ours, on a group that may be gone, which takes its limit with it.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import structlog

from api import errors, names, v1alpha1
from driver import booking, cdi, cgroups, containers, inventory, records, rung

_STEP = "driver/limit"
_log = structlog.get_logger()


class Limiter(Protocol):
    """The card's driver: limits in bytes, None for none."""

    async def memory_limit(self, card: inventory.CardUUID, group: Path) -> int | None: ...

    async def limit_memory(self, card: inventory.CardUUID, group: Path, limit: int | None) -> None: ...


Hook = Callable[[], Awaitable[tuple[str, str]]]
"""NVIDIA's hook: its path on the host, and why it is of no use for this; one of both is empty."""


class DriverLimits:
    """`driver_root`: that of NVIDIA's driver as the host names it, where the hook finds NVML."""

    kind = v1alpha1.Rung.DRIVER
    limits: frozenset[rung.Limit] = frozenset({"memory"})
    elastic = True

    def __init__(self, limiter: Limiter, groups: cgroups.Cgroups, hook: Hook, driver_root: str) -> None:
        self._limiter = limiter
        self._groups = groups
        self._find_hook = hook
        self._driver_root = driver_root
        self._hook = ""
        self._problems: tuple[str, ...] = ("a look at this node, which has not been taken yet",)

    async def look(self) -> None:
        self._hook, hook_problem = await self._find_hook()
        problems = tuple(filter(None, (await self._groups.problem(), hook_problem)))
        if problems != self._problems:
            _log.info("driver limits looked at", hook=self._hook, missing=problems)
        self._problems = problems

    def lacking(self, card: inventory.Card, users: tuple[containers.User, ...] = ()) -> tuple[str, ...]:
        missing = list(self._problems)
        if not card.memory_limits:
            missing.insert(0, "a driver with memory limits for control groups, which NVIDIA's has from r615 on")
        if len({user.pod for user in users}) > 1:
            missing.append(f"a pod for each share: {', '.join(map(str, users))} use this one together")
        return tuple(missing)

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        return tuple(
            records.Step(kind=_STEP, device=holding.device, backend="share") for holding in holdings if holding.group
        )

    def edits(self, holding: records.Holding) -> cdi.Edits:
        if holding.group:
            return cdi.Edits()
        if not self._hook:
            raise errors.NotReady(f"card {holding.card}: NVIDIA's hook that limits its memory is not known yet")
        arguments = (cdi.MEMORY_LIMITS_HOOK, "--driver-root", self._driver_root, "--gpu-id", holding.card)
        return cdi.Edits(
            env=(f"{names.MEMORY_REQUEST_ENV}=0", f"{names.MEMORY_LIMIT_ENV}={holding.memory_limit_mib}"),
            hooks=({"hookName": "createRuntime", "path": self._hook, "args": [Path(self._hook).name, *arguments]},),
        )

    async def apply(self, record: records.Record, step: records.Step) -> None:
        """Sets the limit, and asks for it again: what the driver does not tell, it does not hold."""
        holding = _meant(record, step)
        group = await self._groups.of_pod(holding.group)
        if group is None:
            raise errors.NotReady(f"{record}: pod {holding.group} has no control group here yet; it is tried again")
        limit = holding.memory_limit_mib * booking.MIB
        await self._limiter.limit_memory(inventory.CardUUID(holding.card), group, limit)
        told = await self._limiter.memory_limit(inventory.CardUUID(holding.card), group)
        if told != limit:
            raise errors.Unavailable(
                f"{record}: card {holding.card} was told to limit {group} to {limit} bytes and says {told}"
            )

    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        """What the driver says of the pod's group, or of one of its containers': which of them it is, is not known here."""
        limit = holding.memory_limit_mib * booking.MIB
        for pod in sorted(pods):
            group = await self._groups.of_pod(pod)
            if group is None:
                continue
            for one in (group,) if holding.group else await self._groups.within(group):
                if await self._limiter.memory_limit(inventory.CardUUID(holding.card), one) == limit:
                    return True
        return False

    async def resize(self, holding: records.Holding, pods: frozenset[str]) -> None:
        """In hook's place: what a container was given when it started is set anew. A pod with a second share of the card is
        no case for this: whose limit is whose, its groups do not tell.
        """
        card, limit = inventory.CardUUID(holding.card), holding.memory_limit_mib * booking.MIB
        for pod in sorted(pods):
            group = await self._groups.of_pod(pod)
            if group is None:
                continue
            for one in (group,) if holding.group else await self._groups.within(group):
                now = await self._limiter.memory_limit(card, one)
                if now != limit and (holding.group or now is not None):  # the hook has its containers still to come
                    await self._limiter.limit_memory(card, one, limit)

    async def undo(self, record: records.Record, step: records.Step) -> None:
        """A card that does not answer is no reason to keep the claim: the limit goes with the pod's group, which goes now."""
        holding = _meant(record, step)
        group = await self._groups.of_pod(holding.group)
        if group is None:
            return
        try:
            await self._limiter.limit_memory(inventory.CardUUID(holding.card), group, None)
        except errors.ElasticGPUError as error:
            _log.warning("limit left to go with its group", claim=str(record), card=holding.card, error=str(error))


def _meant(record: records.Record, step: records.Step) -> records.Holding:
    """No two shares of one card are held by a pod's group."""
    return next(holding for holding in record.holdings if holding.device == step.device and holding.group)
