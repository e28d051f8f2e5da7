"""What is prepared of remote cards, per claim: one versioned text a claim.

    Attaching   written before the pool is first asked by us; the key in it is the only one that we ever ask with
    Prepared    every card is confirmed, its credential issued; a repeat asks nobody anything that may have changed

A record holds no secret: lease and token are worth nothing without the node's own identity.
"""

import enum

import msgspec

from api import errors, resource


class Phase(enum.Enum):
    ATTACHING = "Attaching"
    PREPARED = "Prepared"


class Holding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One card. `by_node`: we attach it ourselves, under an epoch of our own making."""

    request: str
    pool: str
    device: str
    share_id: str = ""
    key: str
    epoch: str
    by_node: bool = False
    protocol: str = ""
    lease_id: str = ""
    token: int = 0
    host: str = ""
    port: int = 0
    spki: str = ""
    profile: str = ""
    auth_modes: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, str, str]:
        return self.pool, self.device, self.share_id


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim and its cards, in the order of the claim's results. `allocated_at`: the allocation that it is of. `cdi`: the
    text of its CDI file, once it is prepared. `pods`: the uids of those that had the claim then; `relayed`: the requests
    before which a relay stands.
    """

    version: int = 1
    uid: str
    namespace: str
    name: str
    phase: Phase
    holdings: tuple[Holding, ...]
    allocated_at: str = ""
    cdi: str = ""
    pods: tuple[str, ...] = ()
    relayed: tuple[str, ...] = ()


def encode(record: Record) -> bytes:
    return msgspec.json.encode(record)


def decode(text: bytes, uid: resource.ClaimUID) -> Record:
    """Raises Corrupt for what is no record of this claim."""
    try:
        record = msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as error:
        raise errors.Corrupt(f"the record of claim {uid} cannot be read: {error}; it is set aside") from error
    if record.version != 1 or record.uid != uid:
        raise errors.Corrupt(f"the record of claim {uid} is of version {record.version} and of claim {record.uid}")
    return record
