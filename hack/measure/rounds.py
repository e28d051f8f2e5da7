"""The measurements themselves: each asks the same of either plugin and keeps what it took under a name."""

import time
from collections.abc import Callable, Sequence

from hack.measure import kubelet, plugins

CALLS = 16
"""Claims of one block, and devices of a node."""
LEVELS = (1, 64, 256)
SHARES, SHARED = 64, 8
"""So many shares on so many cards."""
_SETTLE_S = 0.25
_PUT_OFF_S = 1.5
"""How long after a Prepare its cost is still counted: a plugin may put work off until the calls are over."""
_PUT_OFF_ALL_S = 5.0
"""The same after many Prepares: what is put off then is no part of being idle."""
_IDLE_S = 6.0


def alternate(sides: Sequence[plugins.Side], count: int, block: Callable[[plugins.Side], None]) -> None:
    """A block for each side, again and again, the first side being the other one each time."""
    for number in range(count):
        for side in sides if number % 2 == 0 else sides[::-1]:
            block(side)


def hold(side: plugins.Side, claims: list[kubelet.Claim], level: int) -> None:
    """Have as many claims prepared as the level says, beside those that are measured."""
    more = side.claims(level - len(claims), admin=True)
    side.kubelet.prepare(kubelet.one_each(more)).good()
    claims.extend(more)
    time.sleep(_PUT_OFF_ALL_S)


def idle(side: plugins.Side, level: int) -> None:
    """CPU time a second while nobody calls, a claim or many being prepared."""
    before = side.program.cpu_ms()
    time.sleep(_IDLE_S)
    side.samples[f"idle cpu {level}"].append((side.program.cpu_ms() - before) / _IDLE_S)


def singles(side: plugins.Side, level: int) -> None:
    """One claim a call, one call after the other: Prepare, the same again, Unprepare.

    The CPU time is the plugin's own, less what it takes when idle.
    """
    calls = kubelet.one_each(side.claims(CALLS))
    for name, act in (
        ("prepare", side.kubelet.prepare),
        ("repeat", side.kubelet.prepare),
        ("unprepare", side.kubelet.unprepare),
    ):
        time.sleep(_SETTLE_S)
        began, before = time.monotonic(), side.program.cpu_ms()
        timing = act(calls).good()
        time.sleep(_PUT_OFF_S if name == "prepare" else _SETTLE_S)
        took_ms, elapsed_s = side.program.cpu_ms() - before, time.monotonic() - began
        side.samples[f"{name} cpu {level}"].append((took_ms - elapsed_s * side.p50(f"idle cpu {level}")) / CALLS)
        side.samples[f"{name} {level}"].extend(timing.each_ms)
        side.samples[f"{name} rate {level}"].append(CALLS * 1000 / timing.wall_ms)


def shares(side: plugins.Side) -> None:
    """Sixty-four shares on eight cards, one claim a call, all prepared and then all given back."""
    part = {"cores": "10", "memory": "1Gi", "shares": "1"}
    calls = kubelet.one_each(side.claims(SHARES, skip=CALLS - SHARED, part=part))
    for name, act in (("prepare share", side.kubelet.prepare), ("unprepare share", side.kubelet.unprepare)):
        time.sleep(_SETTLE_S)
        side.samples[name].extend(act(calls).good().each_ms)


def crowds(side: plugins.Side) -> None:
    """Many claims at once: calls in flight, one call with many, and eight beside eight in a row."""
    _crowd(side, "sixteen in flight", CALLS, in_flight=CALLS)
    _crowd(side, "sixteen in a row", CALLS, in_flight=1)
    _crowd(side, "sixteen in one call", CALLS, in_flight=0)
    _crowd(side, "eight in flight", 8, in_flight=8)
    _crowd(side, "eight in a row", 8, in_flight=1)


def _crowd(side: plugins.Side, name: str, count: int, *, in_flight: int) -> None:
    claims = side.claims(count)
    calls = kubelet.one_each(claims) if in_flight else [claims]
    time.sleep(_SETTLE_S)
    side.samples[name].append(side.kubelet.prepare(calls, in_flight=max(in_flight, 1)).good().wall_ms)
    side.kubelet.unprepare(kubelet.one_each(claims)).good()


def memory(side: plugins.Side, marks: Sequence[int]) -> None:
    """Resident memory after so many claims came and went, since the start of the plugin."""
    done = 0
    for mark in marks:
        while done < mark:
            calls = kubelet.one_each(side.claims(CALLS)[: mark - done])
            side.kubelet.prepare(calls).good()
            side.kubelet.unprepare(calls).good()
            done += len(calls)
        time.sleep(_SETTLE_S)
        side.samples[f"rss {mark}"].append(side.program.rss_mib())


def starts(side: plugins.Side, count: int) -> None:
    """Start to published slice, the node's slices being gone."""
    for _ in range(count):
        side.stop()
        side.api.delete_slices(side.driver)
        side.samples["start"].append(side.start())


def restart(side: plugins.Side) -> None:
    """How many slices are other ones after a restart."""
    before = side.slices()
    side.stop()
    side.start()
    time.sleep(2)
    after = side.slices()
    changed = sum(one != other for one, other in zip(before, after, strict=False)) + abs(len(before) - len(after))
    side.samples["slices changed"].append(changed)


def wipes(side: plugins.Side, delays_s: Sequence[float]) -> None:
    """The slices are deleted, so long after they appeared: seconds until they are back."""
    for delay_s in delays_s:
        time.sleep(delay_s)
        side.api.delete_slices(side.driver)
        side.samples["wiped"].append(side.wait_for_slices())


def hanging(side: plugins.Side, hang: Callable[[], None], release: Callable[[], None]) -> None:
    """What Prepare takes on the other cards while one runs on the first, which answers, and then hangs."""
    for name, before in (("beside a card", release), ("beside a hanging card", hang)):
        first, others = side.claims(1), kubelet.one_each(side.claims(CALLS - 1, skip=1))
        before()
        time.sleep(_PUT_OFF_S)
        try:
            timing = side.kubelet.prepare([first, *others], in_flight=2, timeout_s=10)
        finally:
            release()
        if len(timing.errors) > 1:
            raise RuntimeError(f"claims on other cards failed: {timing.errors}")
        side.samples[name].extend(timing.each_ms[1:])
        side.kubelet.unprepare([first, *others]).good()
