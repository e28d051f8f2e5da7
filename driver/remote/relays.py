"""What a relay is told: a pod's claim -> where it listens inside that pod, and whose server is at the other end.

Written beside the credential, as one text a request; who runs relays reads it there. No secret is in it.
"""

import zlib

import msgspec

from api import errors

FILE = "relay.json"
_FIRST_PORT, _PORTS = 40_000, 20_000


class Link(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One card: the port on the pod's loopback, and the front of the pool with the key that it must have."""

    port: int
    host: str
    front: int
    spki: str
    credential: str


class Relay(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`pods`: the uids of the pods that may use it; in each of them it listens."""

    version: int = 1
    pods: tuple[str, ...]
    links: tuple[Link, ...]


def port(uid: str, request: str, number: int) -> int:
    """The same for the same card at each repeat; so far apart that claims of one pod do not meet but by rare chance."""
    return _FIRST_PORT + zlib.crc32(f"{uid}/{request}/{number}".encode()) % _PORTS


def encode(relay: Relay) -> bytes:
    return msgspec.json.encode(relay)


def decode(text: bytes) -> Relay:
    """Raises Corrupt for what is none."""
    try:
        return msgspec.json.decode(text, type=Relay)
    except msgspec.MsgspecError as error:
        raise errors.Corrupt(f"a relay's text cannot be read: {error}") from error
