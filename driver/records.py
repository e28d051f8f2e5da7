"""What the node knows of a prepared claim, and its text on disk.

    claim + plan -> Record -> encode -> one file a claim -> decode -> Record

    (none) --intent written--> Preparing --last step done--> Prepared
       ^                           |                             |
       +------- all undone ---- Undoing <-----Unprepare----------+
                                   |  an undo failed
                                 Stuck     kept, its cards withheld, tried again by the next Unprepare

What must stay true: every phase holds its cards. A record names only results of this driver, and all that is needed to
answer the kubelet, to write the CDI file again and to undo, without the API server and without NVML. A text that cannot
be trusted may still tell whose cards it was about: they are held as those of a Stuck claim, for its containers may run.

The text is JSON that people can read, checked over its raw bytes: reading never depends on how today's code would write
it (NV PR#1326). A field may be added with a default; any other change is a new version, and golden files of the old ones
stay in the tests.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

import msgspec

from api import errors, resource

VERSION = "v1"
_TEXT = re.compile(rb'\{"version":"(v[0-9]{1,4})","sha256":"([0-9a-f]{64})","record":(.*)\}\n', re.DOTALL)
_OWNER = re.compile(rb'"namespace":"([-.a-z0-9]+)","name":"([-.a-z0-9]+)"')
_HOLDING = re.compile(rb'\{"request":"[^{}]*\}')
_STEP = re.compile(rb'\{"kind":"[^{}]*\}')

T = TypeVar("T")


class Phase(Enum):
    PREPARING = "Preparing"
    PREPARED = "Prepared"
    UNDOING = "Undoing"
    STUCK = "Stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of the world that `backend` makes for a claim; `kind` is that backend's word."""

    kind: str
    device: str
    backend: str = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One result of the claim and the card that answers it: uuid, minor number, product name where it has one.

    `cores` and `memory_mib` are what is booked on the card; a whole card's record may say 0 of a memory that nobody
    knew. `enforcement` is what holds the memory to that, `cores_enforcement` the cores. `group`: the uid of the pod that
    is held as a whole, where its containers have to share one limit; empty where each is held by itself. `limit_mib`: what
    the memory is held to, where that is less than what is booked; 0: just that.
    """

    request: str
    pool: str
    device: str
    card: str
    minor: int
    model: str = ""
    share_id: str = ""
    admin_access: bool = False
    enforcement: str = ""
    backend: str = "whole"
    cores: int = 100
    memory_mib: int = 0
    cores_enforcement: str = ""
    group: str = ""
    limit_mib: int = 0

    @property
    def memory_limit_mib(self) -> int:
        return self.limit_mib or self.memory_mib

    def answers(self, result: resource.Result) -> bool:
        return (self.request, self.pool, self.device, self.share_id, self.admin_access) == (
            result.request,
            result.pool,
            result.device,
            result.share_id,
            result.admin_access,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`steps` are all that the plan wants, `done` how many of them are; `cdi` is the text of the CDI file.

    `pods`: the uids of those that held the claim at Prepare; more may have come since.
    """

    uid: resource.ClaimUID
    namespace: str
    name: str
    phase: Phase
    boot_id: str
    holdings: tuple[Holding, ...]
    cdi: str
    steps: tuple[Step, ...] = field(default=())
    done: int = 0
    pods: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def moved(self, phase: Phase, *, done: int | None = None) -> "Record":
        return replace(self, phase=phase, done=self.done if done is None else done)


def encode(record: Record) -> bytes:
    body = msgspec.json.encode(record)
    digest = hashlib.sha256(body).hexdigest().encode()
    return b'{"version":"%b","sha256":"%b","record":%b}\n' % (VERSION.encode(), digest, body)


def decode(text: bytes, uid: str) -> Record:
    """The record of claim `uid` from its file's bytes.

    Raises Corrupt, which names what is wrong, for anything that `encode` of this version has not written whole.
    """
    if not text:
        raise errors.Corrupt("the record is empty")
    match = _TEXT.fullmatch(text)
    if match is None:
        cut = text.startswith(b'{"version":"') and not text.endswith(b"}\n")
        raise errors.Corrupt("the record is cut off" if cut else "the record is not in the form of one")
    version, digest, body = match[1].decode(), match[2].decode(), match[3]
    if version != VERSION:
        raise errors.Corrupt(f"the record is of version {version}; this driver reads {VERSION}: run the newer one")
    if hashlib.sha256(body).hexdigest() != digest:
        raise errors.Corrupt("the record does not match its checksum: some byte of it has changed")
    try:
        record = msgspec.json.decode(body, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.Corrupt(f"the record is whole but not understood: {error}") from error
    if record.uid != uid:
        raise errors.Corrupt(f"the record is that of claim {record.uid}, not of {uid}")
    return record


def salvaged(text: bytes, uid: str) -> Record | None:
    """What a text that `decode` refuses still tells of claim `uid`: a Stuck record with the cards and steps that can be read.

    None where it does not tell whose cards they are: nobody could find out that they are free again.
    """
    owner, holdings = _OWNER.search(text), tuple(_parts(_HOLDING, text, Holding))
    if owner is None or not holdings:
        return None
    steps = tuple(_parts(_STEP, text, Step))
    return Record(
        uid=resource.ClaimUID(uid),
        namespace=owner[1].decode(),
        name=owner[2].decode(),
        phase=Phase.STUCK,
        boot_id="",
        holdings=holdings,
        cdi="",
        steps=steps,
        done=len(steps),
    )


def _parts(form: re.Pattern[bytes], text: bytes, kind: type[T]) -> Iterator[T]:
    for part in form.findall(text):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield msgspec.json.decode(part, type=kind)
