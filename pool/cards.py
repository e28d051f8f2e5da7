"""The cards of this host: from NVML, or from a file for hosts and tests without one.

`look` lists them, `clean` says what keeps a card from being given to the next: processes on it, or memory still in use.
A file's cards have no memory that could be looked at; their servers compute on the host's processor.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import yaml
from msgspec import Meta

from api import errors, schema
from driver import inventory, nvml
from pool import devices


class Cards(Protocol):
    async def look(self) -> tuple[devices.Device, ...]:
        """All that are listed now. Raises an error of ours where they cannot be listed."""

    async def unclean(self, uuid: str) -> str:
        """What is left on the card; empty where it is free. Raises an error of ours where it does not say."""


class _Card(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A card of a file.

    uuid: As NVML would tell it.
    product_name: What it is called.
    memory: In bytes.
    draining: Begins no new lease.
    """

    uuid: Annotated[str, Meta(pattern="^GPU-[-0-9a-z]{1,58}$")]
    product_name: str = ""
    memory: int = 0
    draining: bool = False


class _Cards(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A file of cards.

    cards: Those of this host.
    """

    cards: tuple[_Card, ...]


class FileCards:
    """Read anew at each look."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def look(self) -> tuple[devices.Device, ...]:
        try:
            text = await asyncio.to_thread(self._file.read_text)
            found = schema.decode(_Cards, yaml.safe_load(text), str(self._file)).cards
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise errors.Invalid(f"{self._file}: {error}") from error
        return tuple(
            devices.Device(
                id=inventory.device_name(inventory.CardUUID(card.uuid)),
                uuid=card.uuid,
                product_name=card.product_name,
                memory_bytes=card.memory,
                state=devices.State.DRAINING if card.draining else devices.State.OFFERED,
                reason="its admin takes it out" if card.draining else "",
            )
            for card in found
        )

    async def unclean(self, uuid: str) -> str:
        del uuid
        return ""


class DriverCards:
    """`drain`: a file with the uuids of cards that begin no new lease, one a line; there need be none."""

    def __init__(self, driver: nvml.NVML, drain: Path) -> None:
        self._driver = driver
        self._drain = drain

    async def look(self) -> tuple[devices.Device, ...]:
        found = await self._driver.inventory()
        try:
            drained = frozenset((await asyncio.to_thread(self._drain.read_text)).split())
        except FileNotFoundError:
            drained = frozenset()
        except (OSError, ValueError) as error:
            raise errors.Invalid(f"{self._drain}: {error}; it is a text with a uuid a line") from error
        return devices.seen(found, drained)

    async def unclean(self, uuid: str) -> str:
        left = await self._driver.left_on(inventory.CardUUID(uuid))
        return "" if left is None else left
