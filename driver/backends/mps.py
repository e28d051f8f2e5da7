"""The rung MPS: NVIDIA's own way of many programs on one card, each with a ceiling of cores and memory.

    the node   one control daemon, whose keeper says whether it serves clients
    the card   its compute mode is EXCLUSIVE_PROCESS while it has shares: who comes past the daemon gets no context at all
    a share    interface 3: a namespace of the card's own server, limited before its container starts, whose directory is
               all of the pipes that the container gets
               interface 2: all pipes, and the limits as environment, which the daemon takes from the client

What must stay true: the compute mode that a card had is on disk before it is changed, and comes back with the last
share, on every road. A card has shares by MPS or others, never both. Neither a dead daemon nor a lost card keeps a claim
from being given back: what cannot be put right then is owed, and put right by a later look. A limit is for each process
of a container, for so MPS counts.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import structlog

from api import errors, v1alpha1
from driver import cdi, containers, disk, mpscontrol, mpskeeper, records, rung
from driver import inventory as inv

EXCLUSIVE_PROCESS = 3
_NEEDS = (7, 0)
"""The first compute capability whose programs can be limited."""
_STEP = "mps/share"
_SERVER = "card_"
_LONGEST_SOCKET = 107
_TURNS = 50
_TURN_S = 0.1
_log = structlog.get_logger()


class Cards(Protocol):
    """What the driver's library tells of cards and does to them."""

    async def inventory(self) -> inv.Inventory: ...
    async def compute_mode(self, uuid: inv.CardUUID) -> int: ...
    async def set_compute_mode(self, uuid: inv.CardUUID, mode: int) -> None: ...


class MPS:
    """`held`: the records of this node. The former modes of cards are kept in `data_dir`."""

    kind = v1alpha1.Rung.MPS
    limits: frozenset[rung.Limit] = frozenset({"memory", "cores"})

    def __init__(
        self,
        *,
        control: mpscontrol.Control,
        keeper: mpskeeper.Keeper,
        cards: Cards,
        held: Callable[[], Iterable[records.Record]],
        data_dir: Path,
        writer: disk.Disk,
    ) -> None:
        longest = control.pipes / _server("0" * 36) / _namespace("") / "control"
        if len(str(longest)) > _LONGEST_SOCKET:
            raise errors.Invalid(
                f"{control.pipes} is too long a path: sockets below it would be {longest}; name another"
            )
        self._control = control
        self._keeper = keeper
        self._cards = cards
        self._held = held
        self._modes = data_dir / "mps"
        self._disk = writer
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._owed = "what a former process left"
        """Why something may be left of shares that are gone."""

    def lacking(self, card: inv.Card, users: tuple[containers.User, ...] = ()) -> tuple[str, ...]:
        missing = [self._keeper.problem] if self._keeper.problem else []
        if card.compute_capability and tuple(map(int, card.compute_capability.split("."))) < _NEEDS:
            missing.append(f"compute capability 7.0: this card has {card.compute_capability}")
        if beside := [str(record) for record, held in self._shares() if held.card == card.uuid and not is_held(held)]:
            missing.append(f"a card without shares that MPS does not hold: {', '.join(beside)}")
        return (*missing, *containers.crowded(users))

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        return (records.Step(kind=_STEP, device=holdings[0].device, backend="share"),)

    def edits(self, holding: records.Holding) -> cdi.Edits:
        match self._control.interface:
            case mpscontrol.Interface.NAMED:
                pipes = self._control.pipes / _server(holding.card) / _namespace(holding.share_id)
                return cdi.Edits(env=(f"CUDA_MPS_PIPE_DIRECTORY={pipes}",), mounts=(_mount(pipes, str(pipes)),))
            case mpscontrol.Interface.PIPES:
                pipes, limits = self._control.pipes, _limits(holding)
                env = [f"CUDA_MPS_PIPE_DIRECTORY={pipes}"]
                if limits.cores:
                    env.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={limits.cores}")
                if limits.memory_mib:  # the container has one card, which is number 0 there
                    env.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={limits.memory_mib}M")
                mounts = (_mount(pipes, str(pipes)), _mount(self._control.memory, "/dev/shm"))  # noqa: S108 in the container
                return cdi.Edits(env=tuple(env), mounts=mounts)
        raise errors.NotReady(f"the MPS daemon of this node is not known yet: {self._keeper.problem}")

    async def run(self) -> None:
        """Keeps the daemon, for ever."""
        await self._keeper.run(self._restore, self._try)

    async def look(self) -> None:
        """Puts right what is owed."""
        if self._owed:
            try:
                owed = await self._settle()
            except errors.ElasticGPUError as error:
                owed = str(error)
            if owed and owed != self._owed:
                _log.warning("something is left of shares by MPS; tried again", reason=owed)
            self._owed = owed

    async def apply(self, record: records.Record, step: records.Step) -> None:
        del step
        if self._keeper.problem:
            raise errors.NotReady(f"{record}: a share cannot be held by MPS now: {self._keeper.problem}")
        for holding in filter(is_held, record.holdings):
            async with self._locks[_server(holding.card)]:
                await self._exclude(inv.CardUUID(holding.card))
                if self._control.interface is mpscontrol.Interface.NAMED:
                    await self._hold(holding)

    async def undo(self, record: records.Record, step: records.Step) -> None:
        """Asks neither daemon nor card for leave. The containers are gone: what still is connected goes too."""
        del step
        for holding in filter(is_held, record.holdings):
            async with self._locks[_server(holding.card)]:
                last = not any(held.card == holding.card for held in self._mine(but=record))
                try:
                    if self._keeper.problem:
                        self._owed = self._keeper.problem
                    elif self._control.interface is mpscontrol.Interface.NAMED:
                        await self._let_go(holding, last=last)
                    if last:
                        await self._put_back(holding.card)
                except errors.ElasticGPUError as error:
                    self._owed = str(error)
                    _log.warning("share by MPS left half undone; tried again", claim=str(record), reason=str(error))

    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        """Only with namespaces the daemon knows a share's limits; else they are in the client's own environment."""
        del pods
        if self._keeper.problem or self._control.interface is not mpscontrol.Interface.NAMED:
            return False
        found = await self._control.namespaces(_server(holding.card))
        return found.get(_namespace(holding.share_id)) == _limits(holding)

    async def _exclude(self, card: inv.CardUUID) -> None:
        """Only the daemon's server gets onto the card. What it was before is on disk first."""
        kept = self._modes / f"{card}.mode"
        mode = await self._cards.compute_mode(card)
        if not await self._disk.run(kept, kept.exists):
            await self._disk.replace(kept, str(mode).encode(), follow_up=True)
        if mode != EXCLUSIVE_PROCESS:
            await self._cards.set_compute_mode(card, EXCLUSIVE_PROCESS)

    async def _put_back(self, card: str) -> None:
        kept = self._modes / f"{card}.mode"
        if not await self._disk.run(kept, kept.exists):
            return
        text = await self._disk.run(kept, kept.read_text)
        await self._cards.set_compute_mode(inv.CardUUID(card), int(text) if text.isdecimal() else 0)
        await self._disk.remove(kept, durable=True)

    async def _hold(self, holding: records.Holding) -> None:
        """A namespace with the share's limits: read again, for one without limits is the whole card."""
        server, name, wanted = _server(holding.card), _namespace(holding.share_id), _limits(holding)
        await self._serve(server, holding.card)
        found = await self._control.namespaces(server)
        if name not in found:
            await self._control.make_namespace(name, server)
        if found.get(name) != wanted:
            await self._control.limit(name, server, wanted)
            found = await self._control.namespaces(server)
        if found.get(name) != wanted:
            raise errors.NotReady(f"MPS namespace {name} of {server} has the limits {found.get(name)}, not {wanted}")

    async def _serve(self, server: str, card: str) -> bool:
        """Whether it had to be made. Raises NotReady where it does not come up."""
        if server in await self._control.servers():
            return False
        await self._control.make_server(server, card)
        for _ in range(_TURNS):
            if (await self._control.servers()).get(server, "").lower() == "ready":
                return True
            await asyncio.sleep(_TURN_S)
        raise errors.NotReady(
            f"the MPS server of card {card} does not come up; its log is {self._control.logs / server / 'server.log'}"
        )

    async def _let_go(self, holding: records.Holding, *, last: bool) -> None:
        server, name = _server(holding.card), _namespace(holding.share_id)
        if server not in await self._control.servers():
            return
        if last:
            await self._control.drop_server(server)
        elif name in await self._control.namespaces(server):
            await self._control.drop_namespace(name, server)

    async def _restore(self) -> None:
        """For a fresh daemon, whose clients are gone with the old one: their containers may start new ones."""
        for record, holding in self._shares():
            if is_held(holding) and record.phase is records.Phase.PREPARED:
                async with self._locks[_server(holding.card)]:
                    try:
                        await self._exclude(inv.CardUUID(holding.card))
                        if self._control.interface is mpscontrol.Interface.NAMED:
                            await self._hold(holding)
                    except (errors.NotReady, errors.Invalid) as error:  # a card that is lost costs itself
                        _log.warning("share not restored in the MPS daemon", claim=str(record), reason=str(error))
        self._owed = self._owed or "what the former daemon left"

    async def _try(self) -> bool:
        """A client's try, on a card that has shares by MPS, or else on one that nobody has. False where there is none."""
        taken = {held.card for record in self._held() for held in record.holdings if not held.admin_access}
        mine = {held.card for held in self._mine()}
        cards = [card for card in (await self._cards.inventory()).cards if not card.mig_enabled]
        chosen = next((card.uuid for card in cards if card.uuid in mine), None) or next(
            (card.uuid for card in cards if card.uuid not in taken), None
        )
        if chosen is None:
            return False
        async with self._locks[_server(chosen)]:
            if self._control.interface is mpscontrol.Interface.NAMED:
                server = _server(chosen)
                made = await self._serve(server, chosen)
                try:
                    await self._keeper.serve(self._control.pipes / server / mpscontrol.DEFAULT, chosen)
                finally:
                    if made and chosen not in {held.card for held in self._mine()}:
                        await self._control.drop_server(server)
            else:
                await self._keeper.serve(self._control.pipes, chosen)
        return True

    async def _settle(self) -> str:
        """Nothing is left of shares that are gone: no changed mode, no server, no namespace. What is still owed, if anything."""
        for kept in await self._disk.run(self._modes, lambda: sorted(self._modes.glob("*.mode"))):
            async with self._locks[_server(kept.stem)]:
                if kept.stem not in {held.card for held in self._mine()}:
                    await self._put_back(kept.stem)
        if self._control.interface is mpscontrol.Interface.PIPES:
            return ""
        if self._keeper.problem:
            return self._keeper.problem
        for server in await self._control.servers():
            if server.startswith(_SERVER):
                async with self._locks[server]:
                    await self._clear(server)
        return ""

    async def _clear(self, server: str) -> None:
        wanted = {_namespace(held.share_id) for held in self._mine() if _server(held.card) == server}
        if not wanted:
            await self._control.drop_server(server)
            return
        for name in await self._control.namespaces(server):
            if name not in wanted:
                await self._control.drop_namespace(name, server)

    def _shares(self) -> list[tuple[records.Record, records.Holding]]:
        return [(record, held) for record in self._held() for held in record.holdings if held.backend == "share"]

    def _mine(self, but: records.Record | None = None) -> list[records.Holding]:
        return [held for record, held in self._shares() if is_held(held) and (but is None or record.uid != but.uid)]


def is_held(holding: records.Holding) -> bool:
    """Whether MPS holds a limit of it."""
    return rung.word(v1alpha1.Rung.MPS) in (holding.enforcement, holding.cores_enforcement)


def _limits(holding: records.Holding) -> mpscontrol.Limits:
    """Only what MPS is to hold; all of the cores is no limit."""
    word = rung.word(v1alpha1.Rung.MPS)
    return mpscontrol.Limits(
        cores=holding.cores if holding.cores_enforcement == word and holding.cores < 100 else 0,  # noqa: PLR2004 percent
        memory_mib=holding.memory_mib if holding.enforcement == word else 0,
    )


def _server(card: str) -> str:
    """Lower case, digits and underscores are what a name may have."""
    return _SERVER + card.lower().removeprefix("gpu-").replace("-", "")


def _namespace(share_id: str) -> str:
    """Short, since the path of a socket has a limit."""
    return "share_" + hashlib.sha256(share_id.encode()).hexdigest()[:20]


def _mount(host: Path, inside: str) -> cdi.JSON:
    return {"hostPath": str(host), "containerPath": inside, "options": ["rw", "nosuid", "nodev", "bind"]}
