"""The lease table, rule by rule, and as a machine that gets any calls in any order."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api import lease
from pool import calls, leases

CONTROLLER = lease.Caller(cluster="c1")
NODE = lease.Caller(cluster="c1", node_uid="n1-uid", node_name="n1")
OTHER_NODE = lease.Caller(cluster="c1", node_uid="n2-uid", node_name="n2")
OTHER_CLUSTER = lease.Caller(cluster="c2")
CARDS = {"gpu-a": "", "gpu-b": "", "gpu-drained": "it is being drained"}
TTL = 600_000


def a_consumer(**difference: str) -> lease.Consumer:
    return lease.Consumer(
        **{"claim_uid": "u1", "node_uid": "n1-uid", "node_name": "n1", "namespace": "ns", "claim_name": "c"}
        | difference
    )


def a_request(key: str = "k1", **difference: object) -> calls.Request:
    request = calls.Request(
        key=key,
        device="gpu-a",
        cluster="c1",
        epoch=1,
        consumer=a_consumer(),
        protocol="fake",
        ttl_ms=TTL,
        within_ms=30_000,
    )
    return replace(request, **difference)  # type: ignore[arg-type]


def attach(
    table: leases.Table, request: calls.Request | None = None, caller: lease.Caller = CONTROLLER, now: int = 0
) -> tuple[leases.Table, lease.Lease]:
    return calls.attach(table, caller, request or a_request(), CARDS, now)


def attached(now: int = 0) -> tuple[leases.Table, lease.Lease]:
    table, made = attach(leases.Table(), now=now)
    table = leases.attached(table, made.id)
    return table, table.leases[made.id]


def refused(kind: lease.Kind, match: str | None = None) -> object:
    def check(error: BaseException) -> bool:
        return isinstance(error, lease.Refused) and error.kind is kind

    return pytest.raises(lease.Refused, match=match, check=check)


def ref(made: lease.Lease) -> calls.Ref:
    return calls.Ref(id=made.id, token=made.token)


def released(table: leases.Table, made: lease.Lease, now: int = 0) -> leases.Table:
    table, _ = calls.detach(table, CONTROLLER, ref(made), "", now)
    return leases.released(table, made.id, now)


def test_the_same_attach_again_is_the_same_lease_and_no_change() -> None:
    table, first = attach(leases.Table())
    again, second = attach(table, now=1000)
    assert second == first
    assert again == table


def test_other_pods_of_the_same_consumer_do_not_make_another_request() -> None:
    table, first = attach(leases.Table())
    _, second = attach(table, a_request(consumer=replace(a_consumer(), pods=("p",))))
    assert second.id == first.id


@pytest.mark.parametrize(
    "difference", [{"device": "gpu-b"}, {"consumer": a_consumer(claim_uid="u2")}, {"protocol": "lupine"}]
)
def test_a_key_with_other_parameters_is_refused(difference: dict[str, object]) -> None:
    table, _ = attach(leases.Table())
    with refused(lease.Kind.REUSED, "gpu-a for claim ns/c on node n1"):
        attach(table, a_request(**difference))


def test_a_second_lease_on_a_device_is_refused_and_names_the_holder() -> None:
    table, first = attach(leases.Table())
    with refused(lease.Kind.HELD, f"claim ns/c on node n1, lease {first.id}") as told:
        attach(table, a_request("k2", consumer=a_consumer(claim_uid="u2")))
    assert told.value.holder == first


def test_the_same_claim_on_a_second_node_is_refused_and_names_the_first() -> None:
    """Row 24: where allocations are not bound to a node, a claim may be tried on two."""
    table, _ = attach(leases.Table(), caller=NODE)
    with refused(lease.Kind.HELD, "node n1"):
        attach(table, a_request("k2", consumer=a_consumer(node_uid="n2-uid", node_name="n2")), OTHER_NODE)


def test_a_foreign_clusters_holder_is_not_named() -> None:
    table, _ = attach(leases.Table())
    with refused(lease.Kind.HELD, "another cluster") as told:
        attach(table, a_request("k2", cluster="c2"), OTHER_CLUSTER)
    assert "ns/c" not in str(told.value)


def test_a_card_is_held_until_it_is_clean() -> None:
    table, made = attached()
    table, ending = calls.detach(table, CONTROLLER, ref(made), "claim gone", 5)
    assert ending is not None
    assert (ending.state, ending.reason) == (lease.State.RELEASING, "claim gone")
    with refused(lease.Kind.HELD):
        attach(table, a_request("k2"))
    table, second = attach(leases.released(table, made.id, 6), a_request("k2"))
    assert second.token == made.token + 1


def test_the_key_of_a_released_lease_begins_no_other() -> None:
    table, made = attached()
    table = released(table, made)
    with refused(lease.Kind.ENDED, "can begin no more"):
        attach(table, now=leases.TOMBSTONE_MS - 1)
    assert made.id in leases.expire(table, leases.TOMBSTONE_MS - 1).leases


def test_ended_leases_and_cancelled_keys_are_forgotten_after_a_day() -> None:
    table, made = attached()
    table = released(table, made, now=10)
    table, _ = calls.detach(table, CONTROLLER, calls.Ref(key="never"), "", 10)
    later = leases.expire(table, 10 + leases.TOMBSTONE_MS)
    assert (later.leases, later.cancelled) == ({}, {})
    assert later.tokens == {"gpu-a": 1}


def test_a_detach_that_overtakes_its_attach_wins() -> None:
    table, none = calls.detach(leases.Table(), CONTROLLER, calls.Ref(key="k1"), "", 0)
    assert none is None
    with refused(lease.Kind.ENDED):
        attach(table)


def test_a_node_cancels_keys_for_itself_alone() -> None:
    table, _ = calls.detach(leases.Table(), OTHER_NODE, calls.Ref(key="k1"), "", 0)
    table, made = attach(table, caller=NODE)
    assert made.state is lease.State.ATTACHING
    table, _ = calls.detach(table, NODE, calls.Ref(key="k2"), "", 0)
    with refused(lease.Kind.ENDED):
        attach(released(table, made), a_request("k2"), NODE)


def test_a_detach_of_what_is_unknown_is_fine() -> None:
    assert calls.detach(leases.Table(), CONTROLLER, calls.Ref(id="lease-x", token=3), "", 0) == (leases.Table(), None)


def test_a_detach_repeated_changes_nothing() -> None:
    table, made = attached()
    table, first = calls.detach(table, CONTROLLER, ref(made), "once", 0)
    assert calls.detach(table, CONTROLLER, ref(made), "twice", 9) == (table, first)


def test_a_detach_with_another_token_is_refused() -> None:
    table, made = attached()
    with refused(lease.Kind.STALE):
        calls.detach(table, CONTROLLER, calls.Ref(id=made.id, token=made.token + 1), "", 0)


@pytest.mark.parametrize("caller", [OTHER_NODE, OTHER_CLUSTER, replace(NODE, cluster="c2")])
def test_what_is_anothers_is_refused(caller: lease.Caller) -> None:
    table, made = attached()
    with refused(lease.Kind.FORBIDDEN):
        calls.detach(table, caller, ref(made), "", 0)
    with refused(lease.Kind.FORBIDDEN):
        calls.credential(table, caller, ref(made))
    _, (renewal,) = calls.renew(table, caller, (ref(made),), 5)
    assert (renewal.renewed, renewal.lease) == (False, None)


def test_a_node_attaches_for_itself_alone() -> None:
    with refused(lease.Kind.FORBIDDEN, "node n2 cannot attach for node 'n1'"):
        attach(leases.Table(), caller=OTHER_NODE)
    with refused(lease.Kind.FORBIDDEN):
        attach(leases.Table(), caller=OTHER_CLUSTER)


def test_a_deposed_controller_is_refused() -> None:
    """Row 8: two leaders for a moment; the pool listens to the newer one."""
    table, _ = attach(leases.Table(), a_request(epoch=2))
    with refused(lease.Kind.DEPOSED, "epoch 2 has spoken"):
        attach(table, a_request("k2", device="gpu-b", epoch=1))
    assert calls.admit(table, NODE, 0) == table


@pytest.mark.parametrize(
    ("difference", "kind"),
    [
        ({"device": "gpu-x"}, lease.Kind.UNKNOWN_DEVICE),
        ({"device": "gpu-drained"}, lease.Kind.WITHHELD),
        ({"key": ""}, lease.Kind.INVALID),
        ({"epoch": 0}, lease.Kind.INVALID),
        ({"consumer": a_consumer(node_uid="")}, lease.Kind.INVALID),
        ({"consumer": a_consumer(claim_name="x" * 300)}, lease.Kind.INVALID),
    ],
)
def test_an_attach_that_cannot_be_is_refused(difference: dict[str, object], kind: lease.Kind) -> None:
    with refused(kind):
        attach(leases.Table(), replace(a_request(), **difference))  # type: ignore[arg-type]


def test_a_lease_that_is_renewed_lives_and_one_that_is_not_ends() -> None:
    table, made = attached()
    table, (renewal,) = calls.renew(table, NODE, (ref(made),), TTL - 1)
    assert renewal.renewed
    assert leases.expire(table, TTL).leases[made.id].state is lease.State.ATTACHED
    ended = leases.expire(table, 2 * TTL - 1).leases[made.id]
    assert (ended.state, ended.reason) == (lease.State.RELEASING, "nobody renewed it for 600 s")


def test_a_renewal_that_comes_too_late_revives_nothing() -> None:
    table, made = attached()
    _, (renewal,) = calls.renew(table, NODE, (ref(made),), TTL)
    assert not renewal.renewed


def test_renewals_are_answered_one_by_one() -> None:
    table, made = attached()
    _, answers = calls.renew(table, NODE, (calls.Ref(id="lease-x", token=1), ref(made)), 1)
    assert [answer.renewed for answer in answers] == [False, True]


def test_an_attach_that_takes_too_long_fails_and_frees_the_card() -> None:
    table, made = attach(leases.Table())
    assert leases.due_ms(table) == 30_000
    table = leases.released(leases.expire(table, 30_000), made.id, 30_001)
    assert (table.leases[made.id].state, table.holders) == (lease.State.FAILED, {})
    assert attach(table)[1].state is lease.State.FAILED


def test_a_server_that_comes_up_after_its_detach_is_not_attached() -> None:
    table, made = attach(leases.Table())
    table, _ = calls.detach(table, CONTROLLER, ref(made), "", 0)
    assert leases.attached(table, made.id) == table


def test_a_lost_lease_is_not_renewed_and_holds_its_card_until_it_ends() -> None:
    """Row 12: a CUDA session cannot be replayed, so it is never given back in silence."""
    table, made = attached()
    table = leases.lost(table, made.id, "the server ended with 139")
    _, (renewal,) = calls.renew(table, NODE, (ref(made),), 1)
    assert (renewal.renewed, renewal.reason) == (False, "the server ended with 139")
    with refused(lease.Kind.HELD):
        attach(table, a_request("k2"))
    assert leases.expire(table, TTL).leases[made.id].state is lease.State.RELEASING


def test_a_restart_loses_what_was_attached_and_starts_again_what_was_not() -> None:
    """Row 13."""
    table, made = attached()
    table, waiting = attach(table, a_request("k2", device="gpu-b"))
    table = leases.restart(table, 50, 0)
    assert table.incarnation == 1
    assert table.leases[made.id].state is lease.State.LOST
    assert table.leases[waiting.id].state is lease.State.ATTACHING
    assert table.leases[made.id].created_ms == 0
    table = leases.attached(table, waiting.id)
    assert table.leases[waiting.id].server_incarnation == 1


def test_tokens_grow_also_where_the_state_was_lost() -> None:
    _, made = attach(leases.restart(leases.Table(), 0, 1_700_000_000))
    _, later = attach(leases.restart(leases.Table(), 0, 1_700_000_001))
    assert later.token > made.token


def test_a_late_fence_ends_no_newer_lease() -> None:
    """rook#14832: fencing the present holder of a device hits the new owner."""
    table, made = attached()
    table, second = attach(released(table, made), a_request("k2"))
    assert calls.fence_device(table, CONTROLLER, "gpu-a", made.token, "") == (table, ())
    table, ended = calls.fence_device(table, CONTROLLER, "gpu-a", second.token, "lost node")
    assert (ended, table.leases[second.id].state) == ((second.id,), lease.State.RELEASING)


def test_fencing_a_node_ends_what_it_had_when_that_was_decided() -> None:
    """Rows 17 and 19: the node may be back meanwhile, with leases of its own."""
    table, made = attached()
    seen = table.revision
    table, newer = attach(table, a_request("k2", device="gpu-b"))
    table, ended = calls.fence_node(table, CONTROLLER, "n1-uid", seen, "")
    assert ended == (made.id,)
    assert table.leases[newer.id].state is lease.State.ATTACHING


def test_nodes_and_strangers_fence_nothing() -> None:
    table, made = attached()
    with refused(lease.Kind.FORBIDDEN):
        calls.fence_device(table, NODE, "gpu-a", made.token, "")
    with refused(lease.Kind.FORBIDDEN):
        calls.fence_device(table, OTHER_CLUSTER, "gpu-a", made.token, "")
    assert calls.fence_node(table, OTHER_CLUSTER, "n1-uid", table.revision, "") == (table, ())


def test_a_certificate_is_for_the_node_of_an_attached_lease() -> None:
    table, made = attached()
    assert calls.credential(table, NODE, ref(made)) == made
    with refused(lease.Kind.FORBIDDEN):
        calls.credential(table, CONTROLLER, ref(made))
    with refused(lease.Kind.STALE):
        calls.credential(table, NODE, calls.Ref(id=made.id, token=9))
    with refused(lease.Kind.ENDED):
        calls.credential(leases.lost(table, made.id, ""), NODE, ref(made))
    with refused(lease.Kind.UNKNOWN_LEASE):
        calls.credential(table, NODE, calls.Ref(id="lease-x", token=1))


KEYS = st.sampled_from(["k1", "k2", "k3"])
CALLERS = st.sampled_from([CONTROLLER, NODE, OTHER_NODE, OTHER_CLUSTER])
DEVICES = st.sampled_from(sorted(CARDS))


class Machine(RuleBasedStateMachine):
    """Any calls, by anybody, in any order, with restarts; what must stay true is looked at after each."""

    @initialize()
    def start(self) -> None:
        self.table = leases.Table()
        self.now = 0
        self.tokens: dict[str, int] = {}
        self.begun: dict[str, int] = {}
        self.over: set[str] = set()

    @rule(caller=CALLERS, key=KEYS, device=DEVICES, node=st.sampled_from([NODE, OTHER_NODE]), epoch=st.integers(1, 3))
    def attach(self, caller: lease.Caller, key: str, device: str, node: lease.Caller, epoch: int) -> None:
        consumer = a_consumer(node_uid=node.node_uid, node_name=node.node_name)
        request = a_request(key, device=device, cluster=caller.cluster, consumer=consumer, epoch=epoch)
        try:
            table, made = calls.attach(self.table, caller, request, CARDS, self.now)
        except lease.Refused:
            return
        if made.id not in self.table.leases:
            assert made.id not in self.over, "a key began twice"
            assert made.token > self.tokens.get(device, 0)
            self.tokens[device] = made.token
            assert caller.is_node or epoch >= self.table.epochs.get(caller.cluster, 0)
        self.table = table

    @rule(caller=CALLERS, key=KEYS, by_id=st.booleans())
    def detach(self, caller: lease.Caller, key: str, by_id: bool) -> None:
        id_ = lease.lease_id(caller.cluster, key)
        known = self.table.leases.get(id_)
        ref = calls.Ref(id=id_, token=known.token if known else 1) if by_id else calls.Ref(key=key)
        try:
            self.table, ending = calls.detach(self.table, caller, ref, "", self.now)
        except lease.Refused:
            return
        assert ending is None or ending.state.ended or ending.state is lease.State.RELEASING

    @rule(
        what=st.sampled_from(
            [leases.attached, lambda t, i: leases.lost(t, i, "x"), lambda t, i: leases.failed(t, i, "x")]
        ),
        key=KEYS,
    )
    def happens(self, what: object, key: str) -> None:
        if (id_ := lease.lease_id("c1", key)) in self.table.leases:
            self.table = what(self.table, id_)  # type: ignore[operator]

    @rule(key=KEYS)
    def clean(self, key: str) -> None:
        if (id_ := lease.lease_id("c1", key)) in self.table.leases:
            self.table = leases.released(self.table, id_, self.now)

    @rule(caller=CALLERS, key=KEYS)
    def renew(self, caller: lease.Caller, key: str) -> None:
        known = self.table.leases.get(lease.lease_id(caller.cluster, key))
        if known is not None:
            before = known.expires_ms
            self.table, (answer,) = calls.renew(self.table, caller, (ref(known),), self.now)
            assert not answer.renewed or (calls.owns(caller, known) and self.now < before)

    @rule(ms=st.sampled_from([1, TTL - 1, TTL, leases.TOMBSTONE_MS]))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        gone = leases.expire(self.table, self.now)
        self.over -= self.table.leases.keys() - gone.leases.keys()
        self.table = gone

    @rule()
    def restart(self) -> None:
        self.table = leases.restart(leases.rebuilt(self.table), self.now, 0)

    @invariant()
    def one_holder_a_device(self) -> None:
        live: dict[str, str] = {}
        for found in self.table.leases.values():
            if found.state.ended:
                self.over.add(found.id)
                continue
            assert live.setdefault(found.device, found.id) == found.id
            assert found.token == self.table.tokens[found.device], "an older token holds the device"
        assert live == dict(self.table.holders)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
