"""Keeps one remote pool: what it has, who holds it, and that both end together.

    pool --list, watch--> devices, leases --+
    API server --watch--> claims, RemoteLeases, nodes --+--> leases.turn --> actions --> pool, API server
                                            +--> pools.wanted --> the offer, published by whoever owns the slices

Each action is a task of its own, one at a time for an object; so a call that hangs delays its own claim and nobody
else's, and another pool is another keeper. What must stay true: nothing is decided before the pool was listed once and
the watches are complete; what failed rests for a growing while; a pool that is not heard of for long is tainted.
"""

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Mapping

import msgspec
import structlog

from api import errors, lease, names, resource
from api import remote as kinds
from controller import leases, metrics, poolapi, pools, remote, remotewatcher
from kube import apiserver, backoff, status
from poolclient import connection

_RENEW_S = 60.0
_FIRST_REST_S = 0.2
_LONGEST_REST_S = 10.0
_LOOKS = 8
"""At how many claims and their pods at once: after a change of the leader all are looked at."""
_IDLE_S = 5.0
"""Without news things are looked at all the same: deadlines pass silently."""
_log = structlog.get_logger("poolkeeper")


class PoolKeeper:
    """`inherited`: the devices that were published before this process began; `changed` is called when the offer is."""

    def __init__(
        self,
        *,
        api: apiserver.APIServer,
        pool_api: poolapi.PoolAPI,
        watch: remotewatcher.RemoteWatcher,
        name: str,
        cluster_uid: str,
        labels: tuple[tuple[str, str], ...],
        binding_s: float,
        fresh_s: float,
        inherited: tuple[resource.Device, ...],
        series: metrics.Metrics,
        clock: Callable[[], datetime.datetime],
        changed: Callable[[], None],
    ) -> None:
        self._api, self._pool, self._watch, self._name = api, pool_api, watch, name
        self._cluster_uid, self._labels, self._binding_s = cluster_uid, labels, binding_s
        self._fresh_s = fresh_s
        self._series, self._clock, self._changed = series, clock, changed
        self._devices = {device.name: device for device in inherited}
        self._states: Mapping[str, str] | None = None
        self._leases: dict[str, remote.Lease] | None = None
        self._refused: dict[str, str] = {}
        self._asked: set[str] = set()
        self._over: set[str] = set()
        self._borne: dict[str, str] = {}
        self._looking = asyncio.Semaphore(_LOOKS)
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._rests: dict[str, tuple[float, float]] = {}
        self._listings = 0
        self._basis: tuple[object, ...] = ()
        self._wake = asyncio.Event()
        self._heard_at = asyncio.get_running_loop().time()
        self._trouble = ""
        self._pool_id = self._version = ""
        self._deposed = False
        self.taints_stored = True
        self.offer: resource.Pool | None = None

    @property
    def heard(self) -> bool:
        """Whether the pool has answered, or failed to."""
        return self._states is not None or bool(self._trouble)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        self._watch.listen(self._wake)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(), name=f"listen to pool {self._name}")
                group.create_task(self._renew(), name=f"renew leases of pool {self._name}")
                while True:
                    self._turn(group)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._pause_s()):
                            await self._wake.wait()
                    self._wake.clear()
        finally:
            self._watch.unlisten(self._wake)
            self._series.reached(self._name, answers=None)
            await self._pool.close()

    # What the pool says.

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                revision = await self._list()
                failures = 0
                self._heard("")
                with contextlib.suppress(TimeoutError):
                    async with (
                        asyncio.timeout(self._fresh_s / 3),
                        contextlib.aclosing(self._pool.changes(revision)) as changes,
                    ):
                        async for held in changes:
                            self._take(held)
                        # a pool that ends each watch at once is not asked without end
                        await asyncio.sleep(_FIRST_REST_S)
            except errors.ElasticGPUError as error:
                failures += 1
                self._heard(str(error))
                await asyncio.sleep(backoff.pause_s(_FIRST_REST_S, _LONGEST_REST_S, failures))

    async def _list(self) -> int:
        info = await self._pool.info()
        self._pool_id, self._version = info.pool_id, info.version
        found, _ = await self._pool.devices()
        held, revision = await self._pool.leases()
        self._states = {device.name: device.state for device in found}
        self._devices |= {device.name: pools.device(device) for device in found}
        self._listings += 1
        newer = {key: one for key, one in (self._leases or {}).items() if one.revision > revision or one.state.ended}
        self._leases = newer | {one.key: one for one in held}
        self._over |= {key for key in self._asked if key not in self._leases}
        self._heard_at = asyncio.get_running_loop().time()
        self._wake.set()
        return revision

    def _take(self, held: remote.Lease) -> None:
        """One that is older than what is known says nothing."""
        assert self._leases is not None
        known = self._leases.get(held.key)
        if known is None or known.revision <= held.revision:
            self._leases[held.key] = held
            self._heard_at = asyncio.get_running_loop().time()
            self._wake.set()

    def _heard(self, trouble: str) -> None:
        if bool(trouble) != bool(self._trouble):
            _log.warning("pool does not answer" if trouble else "pool answers", pool=self._name, reason=trouble)
        self._trouble = trouble
        self._series.reached(self._name, answers=not trouble)
        self._wake.set()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            scene = self._scene()
            if scene is None or not (wanted := leases.renewable(scene)):
                continue
            try:
                await self._pool.renew(wanted)
            except errors.ElasticGPUError as error:
                _log.warning("leases not renewed", pool=self._name, leases=len(wanted), reason=str(error))

    # What to do about it.

    def _scene(self) -> remote.Scene | None:
        if self._deposed:
            return None
        picture = self._watch.picture
        return remote.Scene(
            pool=self._name,
            cluster_uid=self._cluster_uid,
            claims=picture.claims.get(self._name, ()),
            intents=picture.intents.get(self._name, ()),
            meant=picture.meant,
            leases=self._leases,
            nodes=self._watch.nodes.objects,
            refused=self._refused,
            over=frozenset(self._over),
            borne=self._borne,
            served=self._watch.served,
            binding_s=self._binding_s,
            now=self._clock(),
        )

    def _turn(self, group: asyncio.TaskGroup) -> None:
        scene = self._scene()
        if scene is None:
            return
        self._prune(scene)
        now = asyncio.get_running_loop().time()
        for action in leases.turn(scene):
            key = _key(action)
            if key not in self._flying and self._rests.get(key, (0.0, 0.0))[0] <= now:
                self._flying[key] = group.create_task(self._perform(key, action), name=f"{self._name} {key}")
        self._offer(scene)

    def _prune(self, scene: remote.Scene) -> None:
        """What is remembered of keys goes with their intents; how long something rests, when nobody has tried it since."""
        past = asyncio.get_running_loop().time() - _LONGEST_REST_S
        self._rests = {key: rest for key, rest in self._rests.items() if rest[0] > past or key in self._flying}
        known = {intent.spec.key for intent in scene.intents}
        self._over &= known
        self._asked &= known
        self._refused = {key: words for key, words in self._refused.items() if key in known}
        self._borne = {key: words for key, words in self._borne.items() if key in known}
        self._leases = self._leases and {
            key: held for key, held in self._leases.items() if key in known or not held.state.ended
        }

    def _pause_s(self) -> float:
        now = asyncio.get_running_loop().time()
        waits = [until - now for until, _ in self._rests.values() if until > now]
        return max(min([_IDLE_S, self._fresh_s / 3, *waits]), 0.01)

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
            self._wake.set()
        self._series.acted(name, outcome)

    def _refusal(self, key: str, action: leases.Action, error: connection.Refused) -> str:
        _log.warning("refused", pool=self._name, action=type(action).__name__, of=key, reason=str(error))
        if error.meaning is lease.Meaning.DEPOSED:
            self._deposed = True
            _log.error("a newer controller works; this one touches the pool no more", pool=self._name)
        elif isinstance(action, leases.Attach) and not (error.meaning is lease.Meaning.HELD and error.ours):
            self._refused[key] = str(error)
        elif isinstance(action, leases.Detach) and error.meaning is not lease.Meaning.HELD:
            self._over.add(action.key)  # another token, or not ours: what this key stood for is over
        else:
            self._rest(key)
        return "refused"

    def _rest(self, key: str) -> None:
        _, last = self._rests.get(key, (0.0, 0.0))
        pause = min(max(2 * last, _FIRST_REST_S), _LONGEST_REST_S)
        self._rests[key] = asyncio.get_running_loop().time() + pause, pause

    async def _act(self, action: leases.Action) -> None:
        match action:
            case leases.Intend(lease=wanted):
                self._watch.intents.adopt(await self._api.create(remote.LEASES, kinds.encode_lease(wanted)))
            case leases.Attach(intent=intent, within_s=within_s):
                self._take(await self._pool.attach(intent.spec, within_s))
            case leases.Move(intent=intent, status=wanted_status):
                await self._patch(intent, {"status": whole(wanted_status)})
            case leases.Tell():
                await self._tell(action)
            case leases.Detach():
                await self._detach(action)
            case leases.Verify(intent=intent, claim=claim):
                async with self._looking:
                    self._borne[intent.spec.key] = await self._unbelievable(intent, claim)
            case leases.Forget(intent=intent):
                await self._patch(intent, {"metadata": {"finalizers": None}})
                await self._api.delete(f"{remote.LEASES}/{intent.name}", uid=intent.uid)
                self._watch.intents.discard(intent.name)

    async def _detach(self, action: leases.Detach) -> None:
        self._asked.add(action.key)
        held = await self._pool.detach(
            key=action.key, lease_id=action.lease_id, token=action.token, reason=action.reason
        )
        if held.state.ended:
            self._over.add(action.key)
            if self._leases is not None:
                self._leases.pop(action.key, None)
        elif held.key:
            self._take(held)

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

    # What is offered of it.

    def _offer(self, scene: remote.Scene) -> None:
        found = self._watch.pools.objects.get(self._name)
        if found is None:
            return
        fresh = asyncio.get_running_loop().time() - self._heard_at <= self._fresh_s
        held = frozenset(result.device for claim in scene.claims for result in claim.results(self._name))
        tainting = leases.tainting(scene)
        basis = (found, tainting, held, self._listings, fresh, self.taints_stored)
        if basis == self._basis:  # most changes are another pool's
            return
        self._basis = basis
        offer = pools.wanted(
            found,
            self._labels,
            self._devices.values(),
            self._states,
            tainting,
            held,
            fresh=fresh,
            taints_stored=self.taints_stored,
        )
        if offer != self.offer:
            self.offer = offer
            self._changed()

    def report(self, found: remote.Pool) -> kinds.PoolStatus:
        """The RemotePool's status as it should be."""
        return pools.report(
            found,
            devices=len(self._devices if self._states is None else self._states),
            leases=sum(not held.state.ended for held in (self._leases or {}).values()),
            pool_id=self._pool_id,
            version=self._version,
            trouble=self._trouble or ("" if self._states is not None else "it has not answered yet"),
            at=resource.timestamp(self._clock()),
        )


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


def whole(wanted: kinds.LeaseStatus | kinds.PoolStatus) -> dict[str, object]:
    """Every field, so that a merge patch leaves nothing of what was."""
    fields = msgspec.structs.fields(type(wanted))
    told = msgspec.to_builtins(wanted)
    return {field.encode_name: told.get(field.encode_name) for field in fields}
