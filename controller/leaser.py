"""Does what was decided about one pool's leases: each action a call to the pool or a write to the API server.

    leases.Action --a task of its own, one at a time for an object--> pool, API server --> reader, watch, or a rest

So a call that hangs delays its own claim and nobody else's. What must stay true: what failed rests for a growing while; what
was written is in the watch's picture before the next decision; a controller that was deposed touches the pool no more.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable

import structlog

from api import errors, lease, names, resource
from api import remote as kinds
from controller import leases, metrics, poolapi, poolreader, remote, remotewatcher
from kube import apiserver, backoff, status
from poolclient import connection

_FIRST_REST_S = 0.2
_LONGEST_REST_S = 10.0
_LOOKS = 8
"""At how many leases at once, by their claims and pods or by the pool: after a change of the leader, or where a pool has
forgotten them, all are looked at."""
_log = structlog.get_logger("leaser")


class Leaser:
    """`refused`: by key what the pool will never attach, with its words; `borne`: why a node's intent is not to be believed;
    `asked`: keys of attached intents that the pool, when asked, did not lend.
    """

    def __init__(
        self,
        api: apiserver.APIServer,
        pool_api: poolapi.PoolAPI,
        watch: remotewatcher.RemoteWatcher,
        reader: poolreader.PoolReader,
        *,
        name: str,
        series: metrics.Metrics,
        done: Callable[[], None],
    ) -> None:
        self._api, self._pool, self._watch, self._reader = api, pool_api, watch, reader
        self._name, self._series, self._done = name, series, done
        self.refused: dict[str, str] = {}
        self.borne: dict[str, str] = {}
        self.asked: set[str] = set()
        self.deposed = False
        self._looking = asyncio.Semaphore(_LOOKS)
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._rests: dict[str, tuple[float, int]] = {}
        """Until when, and after how many failures in a row."""

    def begin(self, group: asyncio.TaskGroup, actions: Iterable[leases.Action]) -> None:
        """Those whose object is neither under way nor at rest."""
        now = asyncio.get_running_loop().time()
        for action in actions:
            key = _key(action)
            if key not in self._flying and self._rests.get(key, (0.0, 0))[0] <= now:
                self._flying[key] = group.create_task(self._perform(key, action), name=f"{self._name} {key}")

    def prune(self, known: Collection[str]) -> None:
        """What is remembered of keys goes with their intents; how long something rests, when nobody has tried it since."""
        past = asyncio.get_running_loop().time() - _LONGEST_REST_S
        self._rests = {key: rest for key, rest in self._rests.items() if rest[0] > past or key in self._flying}
        self.refused = {key: words for key, words in self.refused.items() if key in known}
        self.borne = {key: words for key, words in self.borne.items() if key in known}
        self.asked.intersection_update(known)

    def rests_s(self) -> tuple[float, ...]:
        """In how many seconds each of those that rest may be tried again."""
        now = asyncio.get_running_loop().time()
        return tuple(until - now for until, _ in self._rests.values() if until > now)

    async def renew(self, wanted: tuple[remote.Lease, ...]) -> None:
        try:
            await self._pool.renew(wanted)
        except errors.ElasticGPUError as error:
            _log.warning("leases not renewed", pool=self._name, leases=len(wanted), reason=str(error))

    async def _perform(self, key: str, action: leases.Action) -> None:
        name = type(action).__name__
        try:
            await self._act(action)
            outcome = "done"
            self._rests.pop(key, None)
            _log.info("done", pool=self._name, action=name, of=key)
        except connection.Refused as error:
            outcome = self._refusal(key, action, error)
        except errors.Conflict as error:  # overtaken: the watch brings what is there now
            outcome = "conflict"
            self._rest(key)
            _log.info("overtaken", pool=self._name, action=name, of=key, reason=str(error))
        except errors.ElasticGPUError as error:
            outcome = "failed"
            self._rest(key)
            _log.warning("failed", pool=self._name, action=name, of=key, reason=str(error))
        finally:
            del self._flying[key]
            self._done()
        self._series.acted(name, outcome)

    def _refusal(self, key: str, action: leases.Action, error: connection.Refused) -> str:
        _log.warning("refused", pool=self._name, action=type(action).__name__, of=key, reason=str(error))
        if error.meaning is lease.Meaning.DEPOSED:
            self.deposed = True
            _log.error("a newer controller works; this one touches the pool no more", pool=self._name)
        elif isinstance(action, leases.Attach) and not (error.meaning is lease.Meaning.HELD and error.ours):
            self.refused[key] = str(error)
        elif isinstance(action, leases.Detach) and error.meaning is not lease.Meaning.HELD:
            self._reader.over.add(action.key)  # another token, or not ours: what this key stood for is over
        else:
            self._rest(key)
        return "refused"

    def _rest(self, key: str) -> None:
        _, failures = self._rests.get(key, (0.0, 0))
        pause_s = backoff.pause_s(_FIRST_REST_S, _LONGEST_REST_S, failures)
        self._rests[key] = asyncio.get_running_loop().time() + pause_s, failures + 1

    async def _act(self, action: leases.Action) -> None:
        match action:
            case leases.Intend(lease=wanted):
                self._watch.intents.adopt(await self._api.create(remote.LEASES, kinds.encode_lease(wanted)))
            case leases.Attach(intent=intent, within_s=within_s):
                self._reader.take(await self._pool.attach(intent.spec, within_s))
            case leases.Move(intent=intent, status=wanted_status):
                await self._patch(intent, {"status": remote.whole(wanted_status)})
            case leases.Tell():
                await self._tell(action)
            case leases.Detach():
                await self._detach(action)
            case leases.Ask(intent=intent):
                await self._ask(intent.spec.key)
            case leases.Verify(intent=intent, claim=claim):
                async with self._looking:
                    self.borne[intent.spec.key] = await self._unbelievable(intent, claim)
            case leases.Forget(intent=intent):
                await self._patch(intent, {"metadata": {"finalizers": None}})
                await self._api.delete(f"{remote.LEASES}/{intent.name}", uid=intent.uid)
                self._watch.intents.discard(intent.name)

    async def _ask(self, key: str) -> None:
        async with self._looking:
            held = await self._pool.lease(key)
        if held is not None:
            self._reader.take(held)
        if held is None or held.state is not lease.State.ATTACHED:
            self.asked.add(key)

    async def _detach(self, action: leases.Detach) -> None:
        self._reader.asked_to_end(action.key)
        held = await self._pool.detach(
            key=action.key, lease_id=action.lease_id, token=action.token, reason=action.reason
        )
        if held.state.ended:
            self._reader.ended(action.key)
        elif held.key:
            self._reader.take(held)

    async def _unbelievable(self, intent: remote.Intent, claim: resource.Claim) -> str:
        """Why an intent that a node has written is not to be believed; empty where a pod on it has the claim, which is read
        anew: the watch may be behind.
        """
        current = await self._api.get(status.path(claim).removesuffix("/status"))
        if current is None or current["metadata"]["uid"] != claim.uid:
            return f"claim {claim} is gone"
        users = (current.get("status") or {}).get("reservedFor") or ()
        path, node = f"/api/v1/namespaces/{claim.namespace}/pods", intent.spec.node.name
        there = {pod["metadata"]["uid"] async for pod in self._api.each(path, fieldSelector=f"spec.nodeName={node}")}
        used = any(user["uid"] in there for user in users)
        return "" if used else f"no pod on node {node} has claim {claim}"

    async def _patch(self, intent: remote.Intent, body: dict[str, dict[str, object]]) -> None:
        meta = {"uid": intent.uid, "resourceVersion": intent.resource_version} | body.get("metadata", {})
        stored = await self._api.patch(f"{remote.LEASES}/{intent.name}", body | {"metadata": meta})
        if stored is None:
            self._watch.intents.discard(intent.name)
        else:
            self._watch.intents.adopt(stored)

    async def _tell(self, action: leases.Tell) -> None:
        """A manager a pool: each pool's entries of a claim are its keeper's alone."""
        claim, manager = action.claim.claim, f"{names.FIELD_MANAGER}/{self._name}"
        path = status.path(claim)
        try:
            body = status.patch(claim, names.REMOTE_DRIVER, action.entries)
            kind = apiserver.Patch.APPLY
            stored = await self._api.patch(path, body, kind=kind, fieldManager=manager, force=True)
        except errors.Invalid:  # a claim that takes no apply, see kube/status
            found = await self._api.get(path.removesuffix("/status"))
            if found is None:
                return
            body = status.merged_entries(
                claim, names.REMOTE_DRIVER, action.entries, found["status"].get("devices") or ()
            )
            stored = await self._api.patch(path, body, fieldManager=manager)
        if stored is not None:
            self._watch.claims.adopt(stored)


def _key(action: leases.Action) -> str:
    """What the action is about: one at a time of these."""
    match action:
        case leases.Intend(lease=wanted):
            return wanted.spec.key
        case leases.Tell(claim=claim):
            return f"claim {claim.claim.uid}"
        case leases.Detach(key=key):
            return key
        case _:
            return action.intent.spec.key
