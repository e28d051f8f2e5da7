"""How long a "no" with its reasons takes, by size of the cluster: nine of ten cards held, eight free ones on a node asked.

`python -m hack.measure.explaining` prints the table alone; it needs nothing but Python.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator

from api.reasons import Verdict
from explain import explanation, fitting, world
from hack.measure import figures
from tests.explain import objects

_NODES = (100, 1000, 5000)
_CARDS = 8
_ROUNDS = 7
_CLASS = 'device.driver == "gpu.elasticgpu.io" && device.attributes["gpu.elasticgpu.io"].type == "gpu"'


def measured() -> Iterator[figures.Figure]:
    for count in _NODES:
        now = _world(count)
        big = objects.a_claim("big", objects.a_spec(cores="100", memory="24Gi", count=_CARDS))
        assert explanation.explain(big, now).verdict is Verdict.NO  # warms up what a controller keeps warm
        took = _timed(lambda now=now, big=big: explanation.explain(big, now))  # type: ignore[misc]
        bound = 50 if count == _NODES[-1] else None
        yield figures.Figure(
            name=f"explain a no over {count} nodes x {_CARDS} cards", unit="ms CPU", ours=took, at_most=bound
        )
        small = objects.a_claim("small", objects.a_spec(cores="25", memory="6Gi"))
        fits = fitting.fit(small, now, 100).fits
        took = _timed(lambda now=now, small=small: fitting.fit(small, now, 100))  # type: ignore[misc]
        yield figures.Figure(name=f"fit {fits} copies over {count} nodes", unit="ms CPU", ours=took)


def _timed(call: Callable[[], object]) -> float:
    samples = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(_ROUNDS):
            began = time.process_time()
            call()
            samples.append((time.process_time() - began) * 1000)
    finally:
        gc.enable()
    return statistics.median(samples)


def _world(count: int) -> world.World:
    cards = [(f"node-{node:05d}", f"gpu-{node}-{card}") for node in range(count) for card in range(_CARDS)]
    whole = {"cores": "100", "memory": "24Gi"}
    held = [
        objects.a_claim(f"claim-{number}", on=f"{node}/{card}", takes=whole)
        for number, (node, card) in enumerate(cards)
        if number % 10
    ]
    slices = [
        objects.a_slice(
            f"node-{node:05d}", *(objects.a_device(card) for _, card in cards[node * _CARDS : (node + 1) * _CARDS])
        )
        for node in range(count)
    ]
    nodes = [objects.a_node(f"node-{node:05d}") for node in range(count)]
    return world.build(slices=slices, classes=[objects.a_class(text=_CLASS)], claims=held, nodes_=nodes)


if __name__ == "__main__":
    print(figures.table(list(measured())))
