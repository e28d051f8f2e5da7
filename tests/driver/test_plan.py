"""What Prepare decides, as tables: no disk, no card."""

from dataclasses import replace
from typing import Any

import pytest

from api import errors, resource
from driver import cdi, inventory, plan, records
from driver.backends import share, whole

NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def _card(index: int, **more: Any) -> inventory.Card:
    return inventory.Card(uuid=inventory.CardUUID(f"GPU-{index}"), minor=index, **more)


def _world(*cards: inventory.Card, **more: Any) -> plan.World:
    edits: dict[str, cdi.Edits] = {
        card.uuid: cdi.Edits(device_nodes=({"path": f"/dev/nvidia{card.minor}"},)) for card in cards
    }
    facts: dict[str, Any] = {
        "driver": "gpu.elasticgpu.io",
        "pool": "egpu/n",
        "boot_id": "boot",
        "cards": {card.name: card for card in cards},
        "troubles": {},
        "host": cdi.HostEdits(common=cdi.Edits(device_nodes=tuple({"path": path} for path in NODES)), cards=edits),
        "backends": {"whole": whole.Whole(), "share": share.Share((), 16)},
    }
    return plan.World(**{**facts, **more})


def _claim(*indexes: int, uid: str = "a", **more: Any) -> resource.Claim:
    facts: dict[str, Any] = {"driver": "gpu.elasticgpu.io", "pool": "egpu/n"}
    results = tuple(
        resource.Result(request=f"r{index}", device=f"gpu-{index}", **{**facts, **more}) for index in indexes
    )
    return resource.Claim(uid=resource.ClaimUID(uid), namespace="ns", name=uid, results=results)


def _prepared(claim: resource.Claim, world: plan.World, **more: Any) -> records.Record:
    return replace(plan.plan(claim, world, {}).record, phase=records.Phase.PREPARED, **more)


WORLD = _world(_card(0), _card(1))


def test_a_new_claim_begins_as_preparing_with_all_it_will_need() -> None:
    record = plan.plan(_claim(1, 0), WORLD, {}).record
    assert record.phase is records.Phase.PREPARING
    assert [(held.device, held.card, held.minor) for held in record.holdings] == [
        ("gpu-1", "GPU-1", 1),
        ("gpu-0", "GPU-0", 0),
    ]
    assert "/dev/nvidia1" in record.cdi


REFUSALS = {
    "of pool other; this node's pool is egpu/n": (errors.Invalid, _claim(0, pool="other"), WORLD),
    "device gpu-7 is gone from this node; the cards here are gpu-0, gpu-1.": (errors.Invalid, _claim(7), WORLD),
    "the cards of this node are not known yet: no driver": (errors.NotReady, _claim(0), _world(unread="no driver")),
    "gpu-0 of claim ns/a cannot be used now: XID 79": (
        errors.NotReady,
        _claim(0),
        replace(WORLD, troubles={"gpu-0": "XID 79"}),
    ),
    "card gpu-0 is in MIG mode": (errors.Invalid, _claim(0), _world(_card(0, mig_enabled=True))),
    "card GPU-0 cannot be given to a container yet: the host has no /dev/nvidia0": (
        errors.NotReady,
        _claim(0),
        replace(WORLD, host=cdi.HostEdits(problems={"GPU-0": "the host has no /dev/nvidia0"})),
    ),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_says_why(text: str) -> None:
    kind, claim, world = REFUSALS[text]
    with pytest.raises(kind) as refused:
        plan.plan(claim, world, {})
    assert text in str(refused.value)


@pytest.mark.parametrize("phase", records.Phase)
def test_a_card_is_held_in_every_phase(phase: records.Phase) -> None:
    """NVIDIA's driver does not look at half-prepared claims."""
    held = replace(_prepared(_claim(0), WORLD), phase=phase)
    with pytest.raises(errors.Conflict, match=f"held by claim ns/a .uid a, {phase.value}"):
        plan.plan(_claim(0, uid="b"), WORLD, {held.uid: held})


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_admin_access_is_excepted_on_both_sides(first: bool, second: bool) -> None:
    held = _prepared(_claim(0, admin_access=first), WORLD)
    assert plan.plan(_claim(0, uid="b", admin_access=second), WORLD, {held.uid: held}).record.holdings


def test_admin_access_reaches_a_card_in_trouble() -> None:
    assert plan.plan(_claim(0, admin_access=True), replace(WORLD, troubles={"gpu-0": "XID 79"}), {}).record.holdings


def test_a_prepared_claim_answers_from_its_record_whatever_became_of_the_card() -> None:
    held = _prepared(_claim(0), WORLD)
    for world in (_world(), _world(unread="no driver"), replace(WORLD, troubles={"gpu-0": "lost"})):
        assert plan.plan(_claim(0), world, {held.uid: held}).record == held


def test_a_prepared_claim_follows_a_new_driver() -> None:
    held = _prepared(_claim(0), WORLD)
    new = replace(WORLD, host=replace(WORLD.host, common=cdi.Edits(env=("NEW=1",))))
    again = plan.plan(_claim(0), new, {held.uid: held}).record
    assert again.phase is records.Phase.PREPARED
    assert "NEW=1" in again.cdi


def test_after_a_boot_a_record_is_worth_nothing_until_the_card_is_seen() -> None:
    held = _prepared(_claim(0), WORLD, boot_id="earlier")
    with pytest.raises(errors.NotReady):
        plan.plan(_claim(0), _world(unread="no driver"), {held.uid: held})
    moved = _world(replace(_card(0), minor=5))
    record = plan.plan(_claim(0), moved, {held.uid: held}).record
    assert (record.phase, record.boot_id, record.holdings[0].minor) == (records.Phase.PREPARED, "boot", 5)


def test_an_unfinished_claim_goes_on_and_an_undone_one_begins_anew() -> None:
    held = _prepared(_claim(0), WORLD)
    going = plan.plan(_claim(0), WORLD, {held.uid: replace(held, phase=records.Phase.PREPARING)})
    assert going.stale is None
    for phase in (records.Phase.UNDOING, records.Phase.STUCK):
        undone = replace(held, phase=phase)
        assert plan.plan(_claim(0), WORLD, {held.uid: undone}).stale == undone


class Laddered(whole.Whole):
    """Whole cards that take two steps each."""

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        return tuple(records.Step(kind=kind, device=holding.device) for holding in holdings for kind in ("one", "two"))


def test_steps_that_were_made_count_until_a_boot_or_another_plan() -> None:
    world = replace(WORLD, backends={"whole": Laddered()})
    half = replace(_prepared(_claim(0), world), phase=records.Phase.PREPARING, done=1)
    assert plan.plan(_claim(0), world, {half.uid: half}).record.done == 1
    for other, stale in ((replace(half, boot_id="earlier"), False), (replace(half, steps=half.steps[::-1]), True)):
        chosen = plan.plan(_claim(0), world, {half.uid: other})
        assert (chosen.record.done, chosen.record.steps) == (0, half.steps)
        assert chosen.stale == (other if stale else None), "what was made is undone"


def test_after_a_boot_a_prepared_claim_makes_its_steps_again() -> None:
    world = replace(WORLD, backends={"whole": Laddered()})
    held = _prepared(_claim(0), world, boot_id="earlier", done=2)
    record = plan.plan(_claim(0), world, {held.uid: held}).record
    assert (record.phase, record.done, record.boot_id) == (records.Phase.PREPARING, 0, "boot")


def test_another_allocation_of_the_same_claim_undoes_the_old_one_first() -> None:
    held = _prepared(_claim(0), WORLD)
    chosen = plan.plan(_claim(1), WORLD, {held.uid: held})
    assert chosen.stale == held
    assert [holding.device for holding in chosen.record.holdings] == ["gpu-1"]


def test_many_cards_are_not_all_listed() -> None:
    world = _world(*(_card(index) for index in range(10)))
    with pytest.raises(errors.Invalid, match="gpu-7 and 2 more"):
        plan.plan(_claim(99), world, {})


def test_a_config_names_its_place() -> None:
    def config(*, from_class: bool) -> resource.Config:
        return resource.Config(
            driver="gpu.elasticgpu.io", requests=("r0",), from_class=from_class, parameters={"kind": "?"}
        )

    for from_class, text in ((True, "the device class, in claim ns/a"), (False, "claim ns/a")):
        with pytest.raises(errors.Invalid, match=f"^config of {text}, for request r0: "):
            plan.plan(replace(_claim(0), configs=(config(from_class=from_class),)), WORLD, {})
