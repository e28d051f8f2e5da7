"""The state machine with steps, on a backend that only counts: each fault once, then the same call again."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from api import errors, resource
from driver import backend, cdi, cdidir, checkpoint, disk, inventory, preparer, records
from tests.contract import backend_suite
from tests.fakes.mortal import Death, MortalDisk

STEPS = tuple(records.Step(kind=kind, device="gpu-0", backend="ladder") for kind in ("one", "two", "three"))
UID = resource.ClaimUID("a")


@dataclass
class Ladder:
    """A backend of three steps. `made`: what is in the world; `fails`: what happens at a step, once."""

    made: list[str] = field(default_factory=list)
    fails: dict[str, BaseException] = field(default_factory=dict)

    def offer(self, card: inventory.Card) -> backend.Offer:
        del card
        told: tuple[tuple[str, resource.Attribute], ...] = tuple(
            (name, "none") for name in ("backend", "memoryEnforcement", "coresEnforcement", "allocatedBy")
        )
        return backend.Offer(attributes=told)

    def holding(self, ask: backend.Ask) -> records.Holding:
        result, card = ask.result, ask.card
        return records.Holding(
            request=result.request,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            card=card.uuid,
            minor=card.minor,
            enforcement="ladder",
        )

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        del holdings
        return STEPS

    def edits(self, holding: records.Holding, host: cdi.HostEdits) -> cdi.Edits:
        return host.of_card(holding.card)

    async def look(self) -> None:
        pass

    async def apply(self, record: records.Record, step: records.Step) -> None:
        del record
        if step.kind not in self.made:
            self.made.append(step.kind)
        self._fail(step.kind)

    async def undo(self, record: records.Record, step: records.Step) -> None:
        del record
        self._fail(f"undo {step.kind}")
        if step.kind in self.made:
            self.made.remove(step.kind)

    def _fail(self, place: str) -> None:
        error = self.fails.pop(place, None)
        if error is not None:
            raise error


class TestLadder(backend_suite.BackendSuite):
    @pytest.fixture
    def subject(self) -> backend_suite.Subject:
        card = inventory.Card(uuid=inventory.CardUUID("GPU-0"), minor=0)
        host = cdi.HostEdits(cards={"GPU-0": cdi.Edits(device_nodes=({"path": "/dev/nvidia0"},))})
        return backend_suite.Subject(backend=Ladder(), card=card, host=host)


class Rig:
    """A preparer on a disk that outlives it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ladder = Ladder()

    def preparer(self, writer: disk.Disk | None = None) -> preparer.Preparer:
        writer = writer or disk.Disk()
        self.checkpoint = checkpoint.Checkpoint(self.root, writer)
        return preparer.Preparer(self.checkpoint, cdidir.CDIDir(self.root / "cdi", writer), {"ladder": self.ladder})

    async def record(self) -> records.Record | None:
        return (await checkpoint.Checkpoint(self.root, disk.Disk()).look(UID, ())).own

    @property
    def spec(self) -> Path:
        return self.root / "cdi" / f"k8s.gpu.elasticgpu.io-claim_{UID}.json"


RECORD = records.Record(
    uid=UID, namespace="ns", name="a", phase=records.Phase.PREPARING, boot_id="b", holdings=(), cdi="{}", steps=STEPS
)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_each_step_is_recorded_and_undone_backwards(rig: Rig) -> None:
    done = await rig.preparer().prepare(RECORD, None)
    assert (rig.ladder.made, done.phase, done.done) == (["one", "two", "three"], records.Phase.PREPARED, 3)
    assert await rig.record() == done
    await rig.preparer().unprepare(done)
    assert (rig.ladder.made, await rig.record(), rig.spec.exists()) == ([], None, False)


@pytest.mark.parametrize("error", [errors.NotReady("later"), errors.Unavailable("no answer")])
async def test_a_step_that_may_do_later_is_resumed_there(rig: Rig, error: Exception) -> None:
    rig.ladder.fails = {"two": error}
    with pytest.raises(type(error)):
        await rig.preparer().prepare(RECORD, None)
    kept = await rig.record()
    assert kept is not None
    assert (kept.phase, kept.done, rig.spec.exists()) == (records.Phase.PREPARING, 1, False)
    assert (await rig.preparer().prepare(kept, kept)).phase is records.Phase.PREPARED


@pytest.mark.parametrize("error", [errors.Invalid("no"), errors.Conflict("taken"), KeyError("a defect")])
@pytest.mark.parametrize("step", ["one", "two", "three"])
async def test_a_step_that_is_refused_leaves_nothing(rig: Rig, step: str, error: Exception) -> None:
    """NV#1255: the first devices of a failed claim stayed rebound."""
    rig.ladder.fails = {step: error}
    with pytest.raises(type(error)):
        await rig.preparer().prepare(RECORD, None)
    assert (rig.ladder.made, await rig.record()) == ([], None)


async def test_an_undo_that_fails_leaves_a_stuck_record_and_is_tried_again(rig: Rig) -> None:
    done = await rig.preparer().prepare(RECORD, None)
    rig.ladder.fails = {"undo two": errors.Unavailable("no answer")}
    with pytest.raises(errors.Unavailable):
        await rig.preparer().unprepare(done)
    stuck = await rig.record()
    assert stuck is not None
    assert (stuck.phase, stuck.done, rig.ladder.made) == (records.Phase.STUCK, 2, ["one", "two"])
    await rig.preparer().unprepare(stuck)
    assert (rig.ladder.made, await rig.record()) == ([], None)


async def test_the_first_error_is_told_also_where_undoing_fails_too(rig: Rig) -> None:
    rig.ladder.fails = {"three": errors.Invalid("no"), "undo one": errors.Unavailable("no answer")}
    with pytest.raises(errors.Invalid):
        await rig.preparer().prepare(RECORD, None)
    stuck = await rig.record()
    assert stuck is not None
    assert (stuck.phase, rig.ladder.made) == (records.Phase.STUCK, ["one"])


DEATHS: list[Any] = [(step, before) for step in range(1, 7) for before in (True, False)]


@pytest.mark.parametrize(("step", "before"), DEATHS)
async def test_a_prepare_that_died_at_any_step_can_go_on_or_back(rig: Rig, step: int, before: bool) -> None:
    """Changes of the disk: intent, one after each of three steps, CDI file, done."""
    for finish in ("go on", "go back"):
        with pytest.raises(Death):
            await rig.preparer(MortalDisk(dies_at=step, before=before)).prepare(RECORD, None)
        kept = await rig.record()
        assert kept is not None or not rig.ladder.made, "nothing is changed that no record tells of"
        if finish == "go on":
            done = await rig.preparer().prepare(kept or RECORD, kept)
            assert (done.phase, rig.ladder.made) == (records.Phase.PREPARED, ["one", "two", "three"])
            assert rig.spec.exists()
            await rig.preparer().unprepare(done)
        elif kept is not None:
            await rig.preparer().unprepare(kept)
        assert (rig.ladder.made, await rig.record(), rig.spec.exists()) == ([], None, False)


@pytest.mark.parametrize(("step", "before"), DEATHS)
async def test_an_unprepare_that_died_at_any_step_goes_on(rig: Rig, step: int, before: bool) -> None:
    """Changes of the disk: CDI file away, undoing, one after each of three steps, record away."""
    done = await rig.preparer().prepare(RECORD, None)
    with pytest.raises(Death):
        await rig.preparer(MortalDisk(dies_at=step, before=before)).unprepare(done)
    kept = await rig.record()
    assert kept is not None or not rig.ladder.made
    if kept is not None:
        await rig.preparer().unprepare(kept)
    assert (rig.ladder.made, await rig.record(), rig.spec.exists()) == ([], None, False)


async def test_a_step_of_a_backend_that_this_version_lacks_keeps_the_claim_stuck(rig: Rig) -> None:
    """A downgrade: what a newer driver did to the card is not ours to guess at."""
    strange = replace(RECORD, steps=(records.Step(kind="beam", device="gpu-0", backend="teleport"),), done=1)
    with pytest.raises(errors.Invalid, match="step beam of teleport is unknown to this version"):
        await rig.preparer().unprepare(strange)
    kept = await rig.record()
    assert kept is not None
    assert kept.phase is records.Phase.STUCK
