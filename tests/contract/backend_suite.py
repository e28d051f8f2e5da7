"""What every backend must do (driver/backend.py).

class TestWhole(backend_suite.BackendSuite):
    @pytest.fixture
    def subject(self) -> backend_suite.Subject: ...
"""

from dataclasses import dataclass
from typing import Any

from api import resource, v1alpha1
from driver import backend, cdi, inventory, records


@dataclass(slots=True, kw_only=True)
class Subject:
    """One backend, a card that it can give, and what the host has for that card."""

    backend: backend.Backend
    card: inventory.Card
    host: cdi.HostEdits
    share: v1alpha1.Share | None = None
    consumed: tuple[tuple[str, str], ...] = ()

    def result(self, **more: Any) -> resource.Result:
        facts: dict[str, Any] = {"driver": "gpu.elasticgpu.io", "pool": "egpu/node1", "device": self.card.name}
        facts |= {"consumed_capacity": self.consumed, "share_id": "s1"}
        return resource.Result(request="gpu/sub", **{**facts, **more})

    def ask(self, **more: Any) -> backend.Ask:
        return backend.Ask(result=self.result(**more), card=self.card, share=self.share)

    def record(self) -> records.Record:
        holding = self.backend.holding(self.ask())
        return records.Record(
            uid=resource.ClaimUID("a"),
            namespace="default",
            name="a",
            phase=records.Phase.PREPARING,
            boot_id="boot",
            holdings=(holding,),
            cdi="",
            steps=self.backend.steps((holding,)),
        )


class BackendSuite:
    def test_a_holding_answers_its_result_and_names_the_card(self, subject: Subject) -> None:
        ask = subject.ask(share_id="5")
        holding = subject.backend.holding(ask)
        assert holding.answers(ask.result)
        assert (holding.card, holding.minor) == (subject.card.uuid, subject.card.minor)
        assert holding.enforcement

    def test_what_is_decided_is_decided_the_same_again(self, subject: Subject) -> None:
        assert subject.record() == subject.record()
        assert subject.backend.offer(subject.card) == subject.backend.offer(subject.card)

    def test_the_offer_says_what_is_enforced_and_who_allocates(self, subject: Subject) -> None:
        told = dict(subject.backend.offer(subject.card).attributes)
        assert {"backend", "memoryEnforcement", "coresEnforcement", "allocatedBy"} <= set(told)

    def test_a_container_gets_a_device_node(self, subject: Subject) -> None:
        (holding,) = subject.record().holdings
        assert subject.backend.edits(holding, subject.host).device_nodes

    async def test_a_look_changes_no_decision_while_nothing_changes(self, subject: Subject) -> None:
        before = subject.backend.offer(subject.card)
        await subject.backend.look()
        assert subject.backend.offer(subject.card) == before

    async def test_every_step_may_be_repeated_and_undone_twice(self, subject: Subject) -> None:
        record = subject.record()
        for step in (step for one in record.steps for step in (one, one)):
            await subject.backend.apply(record, step)
        for step in (step for one in reversed(record.steps) for step in (one, one)):
            await subject.backend.undo(record, step)

    async def test_a_step_that_was_never_made_may_be_undone(self, subject: Subject) -> None:
        record = subject.record()
        for step in reversed(record.steps):
            await subject.backend.undo(record, step)
