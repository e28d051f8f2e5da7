"""Many claim events: values that are there are put into etcd again, and the API server tells its watchers of each."""

import threading
import time
from collections.abc import Iterator

from hack.measure import apiserver, figures
from hack.scale import etcd, load, objects, stage

_PER_S = 1000
_PATIENCE_S = 300
_THREADS = 4
_CLAIMS = 6000
"""So many have events, in turn."""


def measured(
    api: apiserver.APIServer, controller: stage.Controller, nodes: int, *, seconds: int
) -> Iterator[figures.Figure]:
    before = controller.cards().get("Held", 0)
    cpu = controller.program.cpu_ms()
    put, took = _put_again(api.etcd_port, nodes, seconds), seconds
    _mark(api.client, nodes)
    ended = time.monotonic()
    while controller.cards().get("Held", 0) == before:
        if time.monotonic() - ended > _PATIENCE_S:
            raise RuntimeError(f"the controller has not seen the last event after {_PATIENCE_S} s")
        time.sleep(0.05)
    lag = time.monotonic() - ended
    spent = controller.program.cpu_ms() - cpu
    yield figures.Figure(
        name=f"claim events a second, {seconds} s", unit="1/s", ours=put / took, at_least=_PER_S * 0.95
    )
    yield figures.Figure(name="the last one is in the picture after", unit="s", ours=lag, at_most=10)
    yield figures.Figure(name="CPU an event", unit="ms", ours=spent / put)
    yield figures.Figure(name="cores while they come", unit="", ours=spent / 1000 / (took + lag), at_most=1)
    yield figures.Figure(name="RSS after them", unit="MiB", ours=controller.program.rss_mib(), at_most=130)


def _put_again(port: int, nodes: int, seconds: int) -> int:
    """How many, at most `_PER_S` a second."""
    done = [0] * _THREADS
    start = threading.Barrier(_THREADS, timeout=60)

    def work(which: int) -> None:
        store = etcd.Etcd(port)
        numbers = range(which, min(nodes, _CLAIMS // objects.CLAIMS_A_NODE), _THREADS)
        keys = [load.key("ResourceClaim", of.name) for number in numbers for of in objects.holdings(number)]
        values = [(key, store.get(key)) for key in keys]
        start.wait()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            store.put(*values[done[which] % len(values)])
            done[which] += 1
            time.sleep(max(0.0, done[which] * _THREADS / _PER_S - passed))
        store.close()

    threads = [threading.Thread(target=work, args=(which,)) for which in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


def _mark(client: apiserver.Client, nodes: int) -> None:
    """One more card is held."""
    node, place = objects.free_card(nodes)
    of = objects.Holding(node=node, place=objects.CLAIMS_A_NODE, cards=(place,), quarters=4)
    name = of.name
    pod = client.request("POST", load.PODS, objects.pod(name, claim_name=name, node_=objects.node_name(node)))
    claim = objects.claim(name, objects.BY_SCHEDULER, quarters=4)
    claim["metadata"]["finalizers"] = [objects.FINALIZER]
    made = client.request("POST", load.CLAIMS, claim)
    made["status"] = objects.status(of, pod["metadata"]["uid"])
    client.request("PUT", f"{load.CLAIMS}/{name}/status", made)
