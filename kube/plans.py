"""The plans of all pools of a scope, each made anew only when there is a reason to.

    wanted pools + slices seen -> pools that are not settled -> slices.planned -> writes

A pool is settled when there was nothing to write for it; from then on neither its slices are read nor its devices
compared, until it is wanted otherwise or one of its slices is another one. Of ten thousand cards, one changes at a time.
"""

from collections.abc import Iterable, Iterator

from api import resource
from kube import slices

_Reasons = tuple[resource.Pool, tuple[slices.SeenSlice, ...], slices.Scope, frozenset[str]]


class Plans:
    def __init__(self) -> None:
        self._settled: dict[str, _Reasons] = {}

    def writes(
        self,
        wanted: tuple[resource.Pool, ...],
        present: Iterable[slices.SeenSlice],
        scope: slices.Scope,
        dropped: frozenset[str],
    ) -> Iterator[slices.Write]:
        """As `slices.plan`, write by write: the plan of many large pools need not be in memory at once."""
        rest = slices.by_pool(present)
        for pool in wanted:
            reasons = pool, rest.pop(pool.name, ()), scope, dropped
            if self._settled.get(pool.name) == reasons:
                continue
            self._settled.pop(pool.name, None)
            idle = True
            for write in slices.planned(*reasons):
                idle = False
                yield write
            if idle:
                self._settled[pool.name] = reasons
        for name in self._settled.keys() - {pool.name for pool in wanted}:
            del self._settled[name]
        yield from slices.gone(rest)
