"""Kinds of servers as data: how one is started for a lease. The agent knows no vendor.

    YAML -> decode -> Profile -> command, environment (card, port) -> servers

The kinds that come with the pool are in profiles.yaml beside this file; a file of the admin's may add some or replace
them. In a command and in values {port}, {uuid}, {memory_mib}, {lease} and {here} (this folder) are filled in.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api import errors, schema

_Name = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
_WORDS = ("port", "uuid", "memory_mib", "lease", "here")


class Profile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A kind of server.

    protocol: What clients ask for.
    command: The program and its arguments.
    environment: Its variables beside CUDA_VISIBLE_DEVICES and PATH; nothing of the agent's own is passed on.
    port: Where it listens, in a network of its own.
    ready_within_s: How long it may take to listen.
    client_profile: How clients are set up. Empty: the protocol's name.
    """

    protocol: _Name
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    environment: dict[str, str] = {}
    port: Annotated[int, Meta(ge=1, le=65535)]
    ready_within_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    client_profile: str = ""


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A file of profiles.

    profiles: Kinds of servers.
    """

    profiles: tuple[Profile, ...]


def decode(data: Any, where: str) -> dict[str, Profile]:
    """By protocol. Raises Invalid with the field's path."""
    return {profile.protocol: profile for profile in schema.decode(_File, data, where).profiles}


def chosen(known: dict[str, Profile], names: tuple[str, ...]) -> dict[str, Profile]:
    """Those that this host offers, the first one first. Raises Invalid for one that there is not."""
    if not names:
        raise errors.Invalid(f"EGPU_PROFILES is empty; known: {', '.join(sorted(known))}")
    if unknown := [name for name in names if name not in known]:
        raise errors.Invalid(f"EGPU_PROFILES: no profile {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return {name: known[name] for name in names}


def command(profile: Profile, facts: dict[str, str]) -> tuple[str, ...]:
    """Raises Invalid where the profile asks for a fact that there is not."""
    return tuple(_filled(text, profile, facts) for text in profile.command)


def environment(profile: Profile, facts: dict[str, str]) -> dict[str, str]:
    """The card by its uuid: numbers move when a card is lost."""
    own = {name: _filled(text, profile, facts) for name, text in profile.environment.items()}
    return own | {"CUDA_VISIBLE_DEVICES": facts["uuid"], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _filled(text: str, profile: Profile, facts: dict[str, str]) -> str:
    try:
        return text.format_map({**facts, "port": str(profile.port)})
    except (KeyError, ValueError, IndexError) as error:
        words = ", ".join(f"{{{word}}}" for word in _WORDS)
        raise errors.Invalid(
            f"profile {profile.protocol}: {text!r} cannot be filled in ({error}); known: {words}"
        ) from error
