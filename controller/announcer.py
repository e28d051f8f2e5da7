"""Says on pods and claims what concerns them, as events, while this replica leads.

    observer --> Scene -----+
    allocator --> refusals -+
    RemoteLeases -----------+--> notices.wanted --> due --> events --> API server

What must stay true: no more than `_PER_S` events a second whatever happens to the cluster, and of many that wait alike the
first few are told and remembered, in each namespace; one object an event of its own name, so that a repeat counts up
instead of adding one. An event that cannot be written is not important enough
to be tried at once: the next picture says it again.
"""

import asyncio
import datetime
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import structlog

from api import errors, names, reasons, resource
from controller import allotment, metrics, notices, observer, remote
from kube import apiserver

_PER_S = 10
_MOST = 100
"""By one picture."""
_LOOK_AGAIN_S = 10.0
_NAME = 230
_log = structlog.get_logger("announcer")


class Announcer:
    """The only writer of events."""

    def __init__(
        self,
        api: apiserver.APIServer,
        watch: observer.Observer,
        leases: Callable[[], Iterable[remote.Intent]],
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._api = api
        self._watch = watch
        self._leases = leases
        self._series = series
        self._clock = clock
        self._said: dict[tuple[str, reasons.Event], notices.Said] = {}
        self._refused: Sequence[allotment.Refused] = ()

    def hear(self, refused: Sequence[allotment.Refused]) -> None:
        """All whom the allocator refuses at present, in place of what it said before."""
        self._refused = refused

    async def run(self) -> None:
        """Works until it is cancelled."""
        seen = 0
        while True:
            now = await self._watch.newer(seen, within_s=_LOOK_AGAIN_S)
            seen = now.number
            said, at = dict(self._said), self._clock()
            leases = tuple(self._leases())
            found, still = await asyncio.to_thread(_decided, now, self._refused, leases, said, at)
            self._said = {key: last for key, last in self._said.items() if key in still}
            for notice in found:
                await asyncio.gather(self._say(notice), asyncio.sleep(1 / _PER_S))

    async def _say(self, notice: notices.Notice) -> None:
        at = self._clock()
        last = self._said.get(notice.key)
        first, count = (last.first, last.count + 1) if last and last.stem == notice.stem else (at, 1)
        said = notices.Said(stem=notice.stem, first=first, at=at, count=count)
        name, body = _event(notice, said)
        path = f"/api/v1/namespaces/{notice.namespace}/events/{name}"
        try:
            kind = apiserver.Patch.APPLY
            await self._api.patch(path, body, kind=kind, fieldManager=names.FIELD_MANAGER, force=True)
            outcome = "done"
            self._said[notice.key] = said
        except errors.ElasticGPUError as error:
            outcome = "refused" if isinstance(error, errors.Invalid) else "failed"
            _log.warning("not said", about=f"{notice.namespace}/{notice.name}", error=str(error))
        self._series.wrote("Event", outcome)


def _decided(
    now: observer.Scene,
    refused: Sequence[allotment.Refused],
    leases: Iterable[remote.Intent],
    said: notices.Known,
    at: datetime.datetime,
) -> tuple[list[notices.Notice], set[tuple[str, reasons.Event]]]:
    """What to say, and of what was said that which still holds."""
    told = [notice for one in refused if one.refusal is not allotment.LATER for notice in _of_refused(one)]
    told += notices.of_leases(leases, now.seen)
    answers = notices.Answers(notices=told, uids=frozenset().union(*(one.keys for one in refused)))
    held = tuple(notices.wanted(now.view, now.seen, at, answers))
    still = {notice.key for notice in held if notice.key in said}
    return list(itertools.islice(notices.due(held, now.seen, said, at), _MOST)), still


def _of_refused(refused: allotment.Refused) -> Iterator[notices.Notice]:
    """For the claims of the first and their pods. It has no time, so that it is said at once."""
    refusal = refused.refusal
    reason = reasons.Event.NEVER if refusal.never else reasons.Event.REFUSED
    about = [("ResourceClaim", one.namespace, one.name, one.uid) for want in refused.wants for one in want.claims]
    users = (want.pod for want in refused.wants if want.pod is not None)
    about += [("Pod", pod.namespace, pod.name, pod.uid) for pod in users]
    for kind, namespace, name, uid in about:
        yield notices.Notice(
            kind=kind, namespace=namespace, name=name, uid=uid, reason=reason,
            message=refusal.message, stem=refusal.reason or re.sub(r"\d+", "", refusal.message), since="",
        )  # fmt: skip


def _event(notice: notices.Notice, said: notices.Said) -> tuple[str, dict[str, Any]]:
    digest = hashlib.sha256(f"{notice.uid} {notice.reason} {notice.stem}".encode()).hexdigest()[:12]
    name = f"{notice.name[:_NAME].rstrip('.-')}.{digest}"
    about = {"kind": notice.kind, "namespace": notice.namespace, "name": notice.name, "uid": notice.uid}
    version = "v1" if notice.kind == "Pod" else "resource.k8s.io/v1"
    return name, {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": notice.namespace},
        "involvedObject": about | {"apiVersion": version},
        "reason": notice.reason.value,
        "message": notice.message[:1000],
        "type": "Normal" if notice.normal else "Warning",
        "source": {"component": "elastic-gpu-controller"},
        "reportingComponent": "elastic-gpu-controller",
        "firstTimestamp": resource.timestamp(said.first),
        "lastTimestamp": resource.timestamp(said.at),
        "count": said.count,
    }
