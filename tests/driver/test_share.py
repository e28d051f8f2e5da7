"""Shares keep the contract of backends, and choose their rungs as class and node allow."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from api import errors, v1alpha1
from api.v1alpha1 import Enforcement, Rung
from driver import backend, cdi, containers, inventory, records, rung
from driver.backends import share
from tests.contract import backend_suite

CARD = inventory.Card(uuid=inventory.CardUUID("GPU-0"), minor=0, product_name="NVIDIA L4", memory_bytes=23034 * 2**20)
HOST = cdi.HostEdits(cards={"GPU-0": cdi.Edits(device_nodes=({"path": "/dev/nvidia0"},))})
LAX = v1alpha1.Share(memory=Enforcement.BEST_EFFORT, cores=Enforcement.BEST_EFFORT)
CONSUMED = (("cores", "30"), ("memory", "8Gi"), ("shares", "1"))


@dataclass
class Bar:
    """A rung that writes down what it is asked to do."""

    kind: Rung
    limits: frozenset[rung.Limit] = frozenset({"memory"})
    missing: tuple[str, ...] = ()
    made: list[str] = field(default_factory=list)

    def lacking(self, card: inventory.Card, users: tuple[containers.User, ...] = ()) -> tuple[str, ...]:
        del card, users
        return self.missing

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        kind = f"{rung.word(self.kind)}/hold"
        return tuple(records.Step(kind=kind, device=held.device, backend="share") for held in holdings)

    def edits(self, holding: records.Holding) -> cdi.Edits:
        return cdi.Edits(env=(f"{self.kind.name}={holding.memory_mib}",))

    async def look(self) -> None:
        pass

    async def apply(self, record: records.Record, step: records.Step) -> None:
        del record
        self.made.append(step.kind)

    async def undo(self, record: records.Record, step: records.Step) -> None:
        del record
        self.made = [kind for kind in self.made if kind != step.kind]


def _subject(*rungs: rung.Rung, card: inventory.Card = CARD, **firm: Any) -> backend_suite.Subject:
    return backend_suite.Subject(
        backend=share.Share(rungs, 16),
        card=card,
        host=HOST,
        share=LAX if not firm else v1alpha1.Share(**firm),
        consumed=CONSUMED,
    )


class TestShareWithoutARung(backend_suite.BackendSuite):
    @pytest.fixture
    def subject(self) -> backend_suite.Subject:
        return _subject()


class TestShareWithRungs(backend_suite.BackendSuite):
    @pytest.fixture
    def subject(self) -> backend_suite.Subject:
        return _subject(Bar(Rung.DRIVER), Bar(Rung.MPS, limits=frozenset({"memory", "cores"})))


def _holding(subject: backend_suite.Subject, **more: Any) -> records.Holding:
    return subject.backend.holding(subject.ask(**more))


def test_a_share_is_what_was_consumed_and_named_as_accounting_only_where_nothing_holds_it() -> None:
    holding = _holding(_subject(), share_id="s")
    assert (holding.backend, holding.cores, holding.memory_mib, holding.share_id) == ("share", 30, 8192, "s")
    assert (holding.enforcement, holding.cores_enforcement) == ("none", "none")


def test_the_strongest_rung_that_the_node_has_and_the_class_accepts_is_taken_for_each_limit() -> None:
    mps, hami = Bar(Rung.MPS, limits=frozenset({"memory", "cores"})), Bar(Rung.HAMI, missing=("libvgpu.so",))
    subject = _subject(Bar(Rung.DRIVER), mps, hami)
    assert (_holding(subject).enforcement, _holding(subject).cores_enforcement) == ("driver", "mps")
    subject.share = replace_accept(Rung.MPS, Rung.HAMI)
    assert (_holding(subject).enforcement, _holding(subject).cores_enforcement) == ("mps", "mps")
    subject.share = replace_accept(Rung.HAMI)
    assert (_holding(subject).enforcement, _holding(subject).cores_enforcement) == ("none", "none")


def replace_accept(*accept: Rung) -> v1alpha1.Share:
    return v1alpha1.Share(memory=LAX.memory, cores=LAX.cores, accept=accept)


def test_a_required_limit_without_a_rung_is_refused_with_what_is_missing() -> None:
    """KAI#49, gpushare#76: never a limit on paper only."""
    driver = Bar(Rung.DRIVER, missing=("driver 580.95 is older than 615", "no cgroup v2"))
    with pytest.raises(errors.Invalid) as refused:
        _holding(_subject(driver, memory=Enforcement.REQUIRED))
    assert str(refused.value) == (
        "card gpu-0 cannot hold a share to its memory, which the class requires. What is missing: "
        "Driver: driver 580.95 is older than 615, no cgroup v2; MPS: the node is not set up for it; HAMi: the node is not set up for it. "
        "The node's admin can add it; a class with share.memory: BestEffort does without"
    )


def test_cores_that_burst_are_booked_and_held_by_nothing() -> None:
    """HAMi#352: what others leave idle may be used."""
    mps = Bar(Rung.MPS, limits=frozenset({"memory", "cores"}))
    holding = _holding(_subject(mps, memory=Enforcement.REQUIRED, cores=Enforcement.BURST))
    assert (holding.cores, holding.enforcement, holding.cores_enforcement) == (30, "mps", "none")


def test_a_rung_that_cannot_hold_cores_is_not_taken_for_them() -> None:
    subject = _subject(Bar(Rung.DRIVER), cores=Enforcement.REQUIRED, accept=(Rung.DRIVER,))
    with pytest.raises(errors.Invalid, match=r"to its cores, which the class requires.*Driver: it cannot hold cores"):
        _holding(subject)


def test_the_node_publishes_its_strongest_rungs() -> None:
    mps = Bar(Rung.MPS, limits=frozenset({"memory", "cores"}))
    told = dict(_subject(Bar(Rung.DRIVER), mps).backend.offer(CARD).attributes)
    assert (told["memoryEnforcement"], told["coresEnforcement"]) == ("driver", "mps")


def test_a_card_is_offered_in_cores_memory_and_shares() -> None:
    """What is not named is all of it: such a claim gets the whole card, and nothing else fits beside it."""
    amounts = share.Share((), 16).offer(CARD).amounts
    memory = 23034 * 2**20
    assert [(name, amount) for name, amount, _ in amounts] == [("cores", 100), ("memory", memory), ("shares", 16)]
    assert [policy.to_json() for _, _, policy in amounts] == [
        {"default": "100", "validRange": {"min": "0", "step": "1"}},
        {"default": "23034Mi", "validRange": {"min": "0", "step": "1Mi"}},
        {"default": "1", "validRange": {"min": "0", "step": "1", "max": "1"}},
    ]


@pytest.mark.parametrize(("card", "most"), [(replace(CARD, memory_bytes=None), 16), (CARD, 0)])
def test_a_card_whose_memory_nobody_knows_or_that_shall_not_be_shared_is_offered_whole(
    card: inventory.Card, most: int
) -> None:
    assert share.Share((), most).offer(card).amounts == ()


@pytest.mark.parametrize(
    ("consumed", "text"),
    [
        ((), "the API server keeps no amounts (no consumedCapacity). It takes Kubernetes 1.36"),
        (
            (("cores", "100"), ("memory", "23034Mi")),
            "takes all of card gpu-0: name a part of it in the claim's capacity.requests (cores, memory;",
        ),
    ],
)
def test_what_is_no_part_of_a_card_is_refused(consumed: tuple[tuple[str, str], ...], text: str) -> None:
    """7b: a 1.34 server stored a claim of a share without its amount, and it got the whole card."""
    with pytest.raises(errors.Invalid) as refused:
        _holding(_subject(), consumed_capacity=consumed)
    assert str(refused.value).startswith("request gpu/sub is of a class of shares, but ")
    assert text in str(refused.value)


@pytest.mark.parametrize("nothing", [{"memory": "0"}, {"memory": "1Mi", "shares": "0"}])
def test_a_share_of_nothing_is_for_who_only_watches(nothing: dict[str, str]) -> None:
    with pytest.raises(errors.Invalid, match="asks for nothing of card gpu-0"):
        _holding(_subject(), consumed_capacity=tuple({"cores": "1", **nothing}.items()))


@pytest.mark.parametrize("consumed", [(("cores", "0"), ("memory", "23034Mi")), (("cores", "100"), ("memory", "1Mi"))])
def test_all_of_one_thing_and_a_part_of_the_other_is_a_share(consumed: tuple[tuple[str, str], ...]) -> None:
    assert _holding(_subject(), consumed_capacity=consumed).backend == "share"


def test_a_card_in_mig_mode_gives_no_share() -> None:
    with pytest.raises(errors.Invalid, match="card gpu-0 is in MIG mode: no share of it"):
        _holding(_subject(card=replace(CARD, mig_enabled=True)))


def test_each_rung_gets_its_shares_and_gives_its_edits() -> None:
    subject = _subject(Bar(Rung.DRIVER), Bar(Rung.MPS, limits=frozenset({"memory", "cores"})))
    record = subject.record()
    assert [step.kind for step in record.steps] == ["driver/hold", "mps/hold"]
    edits = subject.backend.edits(record.holdings[0], HOST)
    assert edits.env == ("ELASTIC_GPU_MEMORY_0=8192Mi", "ELASTIC_GPU_CORES_0=30", "DRIVER=8192", "MPS=8192")


def test_the_hook_for_memory_limits_is_left_to_the_rung_that_sets_them() -> None:
    hook = {"path": "/hook", "args": ["nvidia-cdi-hook", "apply-cuda-memory-limits"]}
    host = cdi.HostEdits(cards={"GPU-0": replace(HOST.cards["GPU-0"], hooks=(hook,))})
    subject = _subject()
    assert subject.backend.edits(_holding(subject), host).hooks == ()


def test_a_share_held_by_a_rung_that_this_version_lacks_is_not_guessed_at() -> None:
    holding = _holding(_subject(Bar(Rung.DRIVER)))
    worker: backend.Backend = share.Share((), 16)
    with pytest.raises(errors.NotReady, match="cannot hold shares by driver"):
        worker.edits(holding, HOST)


@dataclass
class Bars(Bar):
    """A rung that can be asked."""

    well: bool = True

    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        del holding, pods
        return self.well


@pytest.mark.parametrize(
    ("memory", "cores", "held"),
    [
        (Bars(Rung.DRIVER), Bars(Rung.MPS, limits=frozenset({"cores"})), True),
        (Bars(Rung.DRIVER, well=False), Bars(Rung.MPS, limits=frozenset({"cores"})), False),
        (Bars(Rung.DRIVER), Bars(Rung.MPS, limits=frozenset({"cores"}), well=False), False),
        (Bars(Rung.DRIVER), Bar(Rung.MPS, limits=frozenset({"cores"})), False),
        (Bars(Rung.DRIVER), Bars(Rung.MPS, missing=("all",)), True),
        (Bars(Rung.DRIVER, missing=("all",)), Bars(Rung.MPS, missing=("all",)), False),
    ],
)
async def test_a_share_is_seen_to_be_held_where_all_that_holds_it_says_so(memory: Bar, cores: Bar, held: bool) -> None:
    subject = _subject(memory, cores)
    assert isinstance(subject.backend, share.Share)
    assert await subject.backend.holds(_holding(subject), frozenset()) is held
