"""Blocking calls with a limit: each runs in a thread of its own, and nobody waits longer than the limit.

A call that does not come back keeps its thread and closes its lane: further calls on that lane are refused at once, until
it does come back. So a card that hangs costs one thread and its own callers the first wait, and no other card anything.
The threads are daemons, since a thread stuck in the kernel must not keep the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

T = TypeVar("T")


class Lanes:
    """`run` raises TimeoutError for a call that does not come back, or whose lane is closed."""

    def __init__(self, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stuck: dict[str, futures.Future[object]] = {}

    async def run(self, lane: str, call: Callable[[], T]) -> T:
        stuck = self._stuck.get(lane)
        if stuck is not None and not stuck.done():
            raise TimeoutError(f"{lane}: an earlier call has not come back")
        self._stuck.pop(lane, None)
        future: futures.Future[T] = futures.Future()
        threading.Thread(target=_fulfil, args=(future, call), name=lane, daemon=True).start()
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            self._stuck[lane] = future  # type: ignore[assignment]
            raise TimeoutError(f"{lane}: no answer within {self._limit_s:g} s") from None


def _fulfil(future: futures.Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 the waiting side gets it, whatever it is
        future.set_exception(error)
    else:
        future.set_result(result)
