"""Decisions about leases that no flow shows: what is renewed, deadlines, and any order of events."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api import lease, names, resource
from api import remote as kinds
from controller import leases, remote

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NODE = remote.Node(name="node1", uid="n1", ready=True, gone=False)


def a_claim(uid: str = "a", device: str = "gpu-1", at: datetime.datetime = NOW) -> remote.Claim:
    result = resource.Result(
        request="card", driver=names.REMOTE_DRIVER, pool="lab", device=device, conditions=(names.ATTACHED,)
    )
    claim = resource.Claim(
        uid=resource.ClaimUID(uid),
        namespace="default",
        name=uid,
        results=(result,),
        reserved_for=(("pod", "p"),),
        allocated_at=resource.timestamp(at),
        node="node1",
    )
    return remote.Claim(claim=claim, told={})


def a_scene(**more: Any) -> remote.Scene:
    facts: dict[str, Any] = {
        "pool": "lab",
        "cluster_uid": "c",
        "claims": (),
        "intents": (),
        "leases": {},
        "nodes": {"node1": NODE},
        "refused": {},
        "over": frozenset(),
        "binding_s": 600.0,
        "now": NOW,
    }
    facts |= more
    return remote.Scene(**{"meant": frozenset(intent.spec.key for intent in facts["intents"])} | facts)


def an_intent(of: kinds.RemoteLease, **status: Any) -> remote.Intent:
    return remote.Intent(
        name=kinds.lease_name(of.spec.key),
        uid="u",
        resource_version="1",
        deleting=False,
        spec=of.spec,
        status=_with(of.status, status),
    )


def _with(status: kinds.LeaseStatus, more: Mapping[str, Any]) -> kinds.LeaseStatus:
    facts = {name: getattr(status, name) for name in status.__struct_fields__}
    return kinds.LeaseStatus(**facts | dict(more))


def a_lease(key: str, *, device: str = "gpu-1", state: lease.State = lease.State.ATTACHED, **more: Any) -> remote.Lease:
    facts: dict[str, Any] = {"id": f"id-{key[:8]}", "token": 1, "age_s": 0.0, "revision": 1}
    return remote.Lease(key=key, device=device, state=state, **facts | more)


def intended(claim: remote.Claim) -> kinds.RemoteLease:
    [action] = leases.turn(a_scene(claims=(claim,)))
    assert isinstance(action, leases.Intend)
    return action.lease


def test_a_lease_is_renewed_while_its_node_is_ready_and_not_after() -> None:
    wanted = intended(a_claim())
    intent, held = an_intent(wanted, phase=kinds.Phase.ATTACHED), a_lease(wanted.spec.key)
    scene = a_scene(claims=(a_claim(),), intents=(intent,), leases={held.key: held})
    assert leases.renewable(scene) == (held,)
    down = dataclasses.replace(NODE, ready=False)
    assert leases.renewable(dataclasses.replace(scene, nodes={"node1": down})) == ()
    other = dataclasses.replace(NODE, uid="made anew")
    assert leases.renewable(dataclasses.replace(scene, nodes={"node1": other})) == ()


def test_nothing_is_attached_before_the_pool_was_listed_but_deadlines_count() -> None:
    intent = an_intent(intended(a_claim()))
    scene = a_scene(claims=(a_claim(),), intents=(intent,), leases=None)
    assert leases.turn(scene) == ()
    [move] = leases.turn(dataclasses.replace(scene, now=NOW + datetime.timedelta(seconds=541)))
    assert isinstance(move, leases.Move)
    assert move.status.phase is kinds.Phase.FAILED


def test_the_deadline_counts_from_the_allocation_by_the_clocks_of_the_cluster() -> None:
    """Row 32: our own clock may be an hour off, and the intent may have come late."""
    wanted = intended(a_claim())
    off = NOW + datetime.timedelta(hours=1)
    late = _with(wanted.status, {"since": resource.timestamp(off)})
    created = resource.timestamp(NOW + datetime.timedelta(seconds=500))
    intent = dataclasses.replace(an_intent(kinds.RemoteLease(spec=wanted.spec, status=late)), created=created)
    scene = a_scene(claims=(a_claim(),), intents=(intent,), now=off + datetime.timedelta(seconds=39))
    [attach] = leases.turn(scene)
    assert isinstance(attach, leases.Attach)
    assert attach.within_s == 1.0
    [move, *_] = leases.turn(dataclasses.replace(scene, now=off + datetime.timedelta(seconds=41)))
    assert isinstance(move, leases.Move)
    assert move.status.phase is kinds.Phase.FAILED


def test_nothing_is_attached_for_a_node_until_its_driver_is_ready_and_not_for_long_is_it_waited_for() -> None:
    intent = an_intent(intended(a_claim()))
    scene = a_scene(claims=(a_claim(),), intents=(intent,), unserved={"node1": NOW})
    assert leases.turn(scene) == ()
    [attach] = leases.turn(dataclasses.replace(scene, unserved={"node2": NOW}))
    assert isinstance(attach, leases.Attach)
    late = NOW + datetime.timedelta(seconds=leases.UNSERVED_S)
    [move] = leases.turn(dataclasses.replace(scene, now=late))
    assert isinstance(move, leases.Move)
    assert move.status.phase is kinds.Phase.FAILED
    assert "driver of remote cards is not ready on node node1" in move.status.reason
    held = {intent.spec.key: a_lease(intent.spec.key)}
    [told, _] = leases.turn(dataclasses.replace(scene, now=late, leases=held))  # what is attached is the claim's
    assert isinstance(told, leases.Move)
    assert told.status.phase is kinds.Phase.ATTACHED


def test_a_driver_that_is_away_for_a_moment_costs_no_claim_however_long_that_has_waited() -> None:
    """Nor does a controller that has just begun, and does not know yet what the pool has attached."""
    intent = an_intent(intended(a_claim()))
    now = NOW + datetime.timedelta(seconds=300)
    blip = {"node1": now - datetime.timedelta(seconds=leases.UNSERVED_S - 1)}
    scene = a_scene(claims=(a_claim(),), intents=(intent,), unserved=blip, now=now)
    assert leases.turn(scene) == ()
    assert leases.turn(dataclasses.replace(scene, unserved={"node1": NOW}, leases=None)) == ()
    [move, *_] = leases.turn(dataclasses.replace(scene, now=now + datetime.timedelta(seconds=1)))
    assert isinstance(move, leases.Move)


def test_a_card_that_was_not_attached_for_want_of_a_driver_is_not_tainted_and_one_that_the_pool_refused_is() -> None:
    intent = an_intent(intended(a_claim()))
    late = NOW + datetime.timedelta(seconds=leases.UNSERVED_S)
    scene = a_scene(claims=(a_claim(),), intents=(intent,), unserved={"node1": NOW}, now=late)
    [unserved] = leases.turn(scene)
    [refused] = leases.turn(dataclasses.replace(scene, refused={intent.spec.key: "no such device"}))
    for move, tainting in ((unserved, False), (refused, True)):
        assert isinstance(move, leases.Move)
        failed = dataclasses.replace(intent, status=move.status)
        for claims in ((a_claim(),), ()):  # after the claim went elsewhere too, and the driver came
            after = dataclasses.replace(scene, claims=claims, intents=(failed,), unserved={})
            assert leases.tainting(after) == ((failed,) if tainting else ())
        being = {
            intent.spec.key: a_lease(intent.spec.key, state=lease.State.ATTACHING)
        }  # asked for before, not ended yet
        assert leases.tainting(dataclasses.replace(after, leases=being)) == (failed,)


def test_what_was_attached_is_lost_only_when_the_pool_was_asked() -> None:
    """The API server may tell of a lease that is attached before the pool does."""
    intent = an_intent(intended(a_claim()), phase=kinds.Phase.ATTACHED)
    key = intent.spec.key
    for held in ({}, {key: a_lease(key, state=lease.State.ATTACHING)}):
        scene = a_scene(claims=(a_claim(),), intents=(intent,), leases=held)
        assert leases.turn(scene)[0] == leases.Ask(intent=intent)
        move = leases.turn(dataclasses.replace(scene, asked=frozenset({key})))[0]
        assert isinstance(move, leases.Move)
        assert move.status.phase is kinds.Phase.LOST
    [move, *_] = leases.turn(
        a_scene(intents=(intent,), claims=(a_claim(),), leases={key: a_lease(key, state=lease.State.LOST)})
    )
    assert isinstance(move, leases.Move)
    assert move.status.phase is kinds.Phase.LOST


def test_where_kube_scheduler_waits_for_less_time_than_a_driver_may_be_late_the_reason_is_the_driver_all_the_same() -> (
    None
):
    intent = an_intent(intended(a_claim()))
    late = NOW + datetime.timedelta(seconds=11)
    scene = a_scene(claims=(a_claim(),), intents=(intent,), unserved={"node1": NOW}, binding_s=20.0, now=late)
    [move] = leases.turn(scene)
    assert isinstance(move, leases.Move)
    assert "driver of remote cards" in move.status.reason


def test_what_a_node_has_written_of_a_card_taints_it_only_as_far_as_the_pool_or_a_pod_bears_it_out() -> None:
    wanted = intended(a_claim())
    fields = {name: getattr(wanted.spec, name) for name in wanted.spec.__struct_fields__}
    spec = kinds.LeaseSpec(**fields | {"attached_by": kinds.AttachedBy.NODE})
    made = kinds.RemoteLease(spec=spec, status=wanted.status)
    lost, back = an_intent(made, phase=kinds.Phase.LOST), an_intent(made, phase=kinds.Phase.RELEASING)
    mine = {spec.key: a_lease(spec.key)}
    anothers = {spec.key: a_lease(spec.key, device="gpu-2")}
    for held in (None, {}, mine):
        scene = a_scene(intents=(lost,), leases=held)
        assert leases.tainting(scene) == ()
        assert leases.tainting(dataclasses.replace(scene, borne={spec.key: "no pod there has it"})) == ()
        assert leases.tainting(dataclasses.replace(scene, borne={spec.key: ""})) == (lost,)
    assert leases.tainting(a_scene(intents=(back,), leases=mine)) == (back,)
    assert leases.tainting(a_scene(intents=(back,), leases=None)) == (back,)
    for held in ({}, anothers):
        assert leases.tainting(a_scene(intents=(back,), leases=held)) == ()


def test_a_claim_without_binding_conditions_is_the_nodes_to_attach() -> None:
    claim = a_claim()
    plain = dataclasses.replace(claim.claim.results[0], conditions=())
    bare = dataclasses.replace(claim, claim=dataclasses.replace(claim.claim, results=(plain,)))
    assert leases.turn(a_scene(claims=(bare,))) == ()


def test_a_lease_that_a_node_made_lives_with_its_claim() -> None:
    wanted = intended(a_claim())
    spec = kinds.LeaseSpec(
        **{name: getattr(wanted.spec, name) for name in wanted.spec.__struct_fields__}
        | {"attached_by": kinds.AttachedBy.NODE, "epoch": "made up"}
    )
    claim = a_claim()
    plain = dataclasses.replace(claim.claim.results[0], conditions=())
    bare = dataclasses.replace(claim, claim=dataclasses.replace(claim.claim, results=(plain,)))
    intent = an_intent(kinds.RemoteLease(spec=spec, status=wanted.status), phase=kinds.Phase.ATTACHED)
    held = {spec.key: a_lease(spec.key)}
    scene = a_scene(claims=(bare,), intents=(intent,), leases=held, borne={spec.key: ""})
    assert leases.turn(scene) == ()
    assert leases.renewable(scene) == (held[spec.key],)
    [move] = leases.turn(a_scene(intents=(intent,), leases=held))
    assert isinstance(move, leases.Move)
    assert move.status.phase is kinds.Phase.RELEASING
    lost = {spec.key: a_lease(spec.key, state=lease.State.LOST, reason="gone")}
    [move] = leases.turn(a_scene(claims=(bare,), intents=(intent,), leases=lost, borne={spec.key: ""}))
    assert isinstance(move, leases.Move)
    assert (move.status.phase, move.status.reason) == (kinds.Phase.LOST, "gone")


def test_what_a_node_has_written_counts_when_a_pod_on_it_was_seen_to_have_the_claim() -> None:
    wanted = intended(a_claim())
    fields = {name: getattr(wanted.spec, name) for name in wanted.spec.__struct_fields__}
    spec = kinds.LeaseSpec(**fields | {"attached_by": kinds.AttachedBy.NODE})
    claim = a_claim()
    plain = dataclasses.replace(claim.claim.results[0], conditions=())
    bare = dataclasses.replace(claim, claim=dataclasses.replace(claim.claim, results=(plain,)))
    for phase in (kinds.Phase.ATTACHING, kinds.Phase.ATTACHED):
        intent = an_intent(kinds.RemoteLease(spec=spec, status=wanted.status), phase=phase)
        for held in ({}, {spec.key: a_lease(spec.key)}):
            scene = a_scene(claims=(bare,), intents=(intent,), leases=held)
            assert leases.turn(scene) == (leases.Verify(intent=intent, claim=bare.claim),)
            assert leases.renewable(scene) == ()
            [move] = leases.turn(dataclasses.replace(scene, borne={spec.key: "no pod there has it"}))
            assert isinstance(move, leases.Move)
            assert (move.status.phase, move.status.reason) == (kinds.Phase.RELEASING, "no pod there has it")


def test_a_young_lease_that_nobody_means_is_left_until_its_intent_may_have_been_seen() -> None:
    young, old = a_lease("k" * 64), a_lease("o" * 64, age_s=31.0)
    [detach] = leases.turn(a_scene(leases={young.key: young, old.key: old}))
    assert isinstance(detach, leases.Detach)
    assert detach.key == old.key


def test_the_lease_of_another_remotepool_with_the_same_endpoint_is_no_stray() -> None:
    other = a_lease("o" * 64, age_s=600.0)
    seen = a_scene(claims=(a_claim(),), leases={other.key: other}, meant=frozenset({other.key}))
    assert not [action for action in leases.turn(seen) if isinstance(action, leases.Detach)]


@given(data=st.data())
def test_of_each_lease_the_newest_is_known_whichever_comes_first_its_listing_or_its_news(data: st.DataObject) -> None:
    """Some news of a pool has come by watch or as an answer, then a list that was made at any moment. A key that is over
    does not come again.
    """
    history, living = [], set[str]()
    for revision in range(1, data.draw(st.integers(1, 12)) + 1):
        key = data.draw(st.sampled_from([*sorted(living), f"key-{revision}"]))
        held = dataclasses.replace(a_lease(key, state=data.draw(st.sampled_from(lease.State))), revision=revision)
        history.append(held)
        living = living - {key} if held.state.ended else living | {key}
    heard = {one.key: one for one in history if data.draw(st.booleans())}
    at = data.draw(st.integers(0, len(history)))
    then = {one.key: one for one in history[:at]}
    found = remote.merged(heard, [one for one in then.values() if not one.state.ended], at)
    for key in {one.key for one in history}:
        newest = max(filter(None, (heard.get(key), then.get(key))), key=lambda one: one.revision, default=None)
        said = newest is not None and (not newest.state.ended or heard.get(key) == newest)
        assert found.get(key) == (newest if said else None)


class World(RuleBasedStateMachine):
    """A pool, an API server and a controller that may act on any of its wishes, lose answers, or forget everything."""

    DEVICES = ("gpu-1", "gpu-2")

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, remote.Claim] = {}
        self.intents: dict[str, remote.Intent] = {}
        self.pool: dict[str, remote.Lease] = {}
        self.ended: set[str] = set()
        self.over: set[str] = set()
        self.refused: dict[str, str] = {}
        self.asked: set[str] = set()
        self.untold: set[str] = set()
        """Keys of leases of which the pool's watch has not told yet."""
        self.unserved: dict[str, datetime.datetime] = {}
        self.now = NOW
        self.made = 0

    @initialize()
    def begin(self) -> None:
        self.now = NOW

    @property
    def scene(self) -> remote.Scene:
        return a_scene(
            claims=tuple(self.claims.values()),
            intents=tuple(self.intents.values()),
            leases={key: held for key, held in self.pool.items() if key not in self.untold},
            over=frozenset(self.over),
            refused=dict(self.refused),
            asked=frozenset(self.asked),
            unserved=dict(self.unserved),
            now=self.now,
        )

    @rule(device=st.sampled_from(DEVICES))
    def allocate(self, device: str) -> None:
        """The scheduler gives a device once."""
        if any(claim.claim.results[0].device == device for claim in self.claims.values()):
            return
        self.made += 1
        self.claims[f"c{self.made}"] = a_claim(f"c{self.made}", device, self.now)

    @rule(pick=st.integers(0, 10))
    def free(self, pick: int) -> None:
        if self.claims:
            del self.claims[sorted(self.claims)[pick % len(self.claims)]]

    @rule(seconds=st.sampled_from([1, 31, 61, 600]))
    def wait(self, seconds: int) -> None:
        self.now += datetime.timedelta(seconds=seconds)
        self.pool = {key: dataclasses.replace(held, age_s=held.age_s + seconds) for key, held in self.pool.items()}

    @rule()
    def crash(self) -> None:
        self.over.clear()
        self.refused.clear()
        self.asked.clear()

    @rule(served=st.booleans())
    def restart_driver(self, served: bool) -> None:
        self.unserved = {} if served else {"node1": self.unserved.get("node1", self.now)}

    @rule(pick=st.integers(0, 10))
    def lag(self, pick: int) -> None:
        """As where the watch is opened anew."""
        if self.pool:
            self.untold.add(sorted(self.pool)[pick % len(self.pool)])

    @rule(pick=st.integers(0, 10))
    def lose(self, pick: int) -> None:
        if self.pool:
            key = sorted(self.pool)[pick % len(self.pool)]
            self.pool[key] = dataclasses.replace(self.pool[key], state=lease.State.LOST)

    @rule(pick=st.integers(0, 10), heard=st.booleans())
    def act(self, pick: int, heard: bool) -> None:
        actions = leases.turn(self.scene)
        if actions:
            self._do(actions[pick % len(actions)], heard=heard)

    @rule()
    def settle(self) -> None:
        """With nothing in the way all ends: each claim has its one lease, or has been told that it has none."""
        self.unserved = {}
        for _ in range(60):
            for action in leases.turn(self.scene):
                self._do(action, heard=True)
        wanted = {claim.claim.uid for claim in self.claims.values()}
        holders = {intent.spec.claim.uid for key, intent in self.intents.items() if key in self.pool}
        assert holders <= wanted
        assert self.pool.keys() <= self.intents.keys() | {k for k, v in self.pool.items() if v.age_s < leases.GRACE_S}
        for claim in self.claims.values():
            [told] = claim.told.values()
            assert told.conditions.get(names.ATTACHED) is not told.conditions.get(names.ATTACH_FAILED, None)

    @invariant()
    def no_device_has_two_leases_and_none_is_without_an_intent(self) -> None:
        devices = [held.device for held in self.pool.values()]
        assert len(devices) == len(set(devices))
        assert self.pool.keys() <= self.intents.keys()

    def _do(self, action: leases.Action, *, heard: bool) -> None:
        match action:
            case leases.Intend(lease=wanted):
                self.intents[wanted.spec.key] = an_intent(wanted)
            case leases.Attach(intent=intent):
                assert not self.unserved
                self._attach(intent, heard=heard)
            case leases.Ask(intent=intent):
                self.untold.discard(intent.spec.key)
                held = self.pool.get(intent.spec.key)
                if heard and (held is None or held.state is not lease.State.ATTACHED):
                    self.asked.add(intent.spec.key)
            case leases.Move(intent=intent, status=status):
                held = self.pool.get(intent.spec.key)
                if status.phase is kinds.Phase.LOST:
                    assert held is None or held.state is lease.State.LOST
                self.intents[intent.spec.key] = dataclasses.replace(intent, status=status)
            case leases.Detach(key=key):
                self.ended.add(key)
                self.pool.pop(key, None)
                if heard:
                    self.over.add(key)
            case leases.Forget(intent=intent):
                assert intent.spec.key in self.ended
                assert intent.spec.key not in self.pool
                del self.intents[intent.spec.key]
            case leases.Tell(claim=claim, entries=[entry]):
                conditions = {one.type: one.status for one in entry.conditions}
                told = remote.Told(conditions=conditions, since={}, lease_id=(entry.data or {}).get("leaseID", ""))
                place = (entry.pool, entry.device, entry.share_id)
                if claim.claim.uid in self.claims:
                    self.claims[claim.claim.uid] = dataclasses.replace(claim, told={place: told})

    def _attach(self, intent: remote.Intent, *, heard: bool) -> None:
        key, device = intent.spec.key, intent.spec.device
        self.untold.discard(key)
        if key in self.ended:
            if heard:
                self.refused[key] = "used up"
        elif not any(held.device == device for held in self.pool.values()):
            self.pool[key] = a_lease(key, device=device, data={"leaseID": f"id-{key[:8]}"})


TestAnyOrderOfEvents = World.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
