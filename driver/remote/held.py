"""What this node holds of remote cards, in memory: the records by claim, and which of their leases are over.

What must stay true: a lease is known by its key, for the next one of the same card is another one; what was put in or dropped here
while the records were read from the disk stays so; a claim that is being given back gets no new files.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from driver.remote import records

Place = tuple[str, str]
"""Pool and device."""


class Held:
    def __init__(self) -> None:
        self._records: dict[str, records.Record] = {}
        self.records: Mapping[str, records.Record] = MappingProxyType(self._records)
        self.ending: set[str] = set()
        """The claims whose files are being removed: whoever has written one meanwhile removes it again."""
        self._lost: dict[str, str] = {}
        self._readings: list[set[str]] = []

    def put(self, record: records.Record) -> None:
        self._records[record.uid] = record
        self._touch(record.uid)

    def drop(self, uid: str) -> None:
        """Also of one that was never here: a read that is under way may have found it on the disk before it went."""
        self._records.pop(uid, None)
        self._touch(uid)

    @contextlib.contextmanager
    def reading(self) -> Iterator[set[str]]:
        """While the disk is read: the claims that were put in or dropped since, for `take`."""
        touched: set[str] = set()
        self._readings.append(touched)
        try:
            yield touched
        finally:
            self._readings = [one for one in self._readings if one is not touched]

    def take(self, touched: set[str], read: Iterable[records.Record]) -> None:
        """What was read takes the place of all that was not touched meanwhile."""
        found = {record.uid: record for record in read}
        for uid in (self._records.keys() | found.keys()) - touched:
            if uid in found:
                self._records[uid] = found[uid]
            else:
                del self._records[uid]

    def _touch(self, uid: str) -> None:
        for touched in self._readings:
            touched.add(uid)

    def gone(self, uid: str) -> bool:
        return uid in self.ending or uid not in self.records

    def has(self, uid: str, holding: records.Holding) -> bool:
        record = self.records.get(uid)
        return record is not None and any(one.key == holding.key for one in record.holdings)

    def well(self, record: records.Record) -> bool:
        return record.phase is records.Phase.PREPARED and not any(one.key in self._lost for one in record.holdings)

    def why_lost(self, holding: records.Holding) -> str:
        return self._lost.get(holding.key, "")

    def lose(self, holding: records.Holding, why: str) -> None:
        self._lost[holding.key] = why

    def forget(self) -> None:
        """What was lost of claims that are not held any more."""
        held = {holding.key for record in self.records.values() for holding in record.holdings}
        self._lost = {key: why for key, why in self._lost.items() if key in held}

    def places(self) -> dict[Place, str]:
        """The cards that are held, and why one is lost. Of two claims with one card the former waits to be given back."""
        found: dict[Place, str] = {}
        for record in self.records.values():
            for holding in record.holdings:
                place, why = (holding.pool, holding.device), self.why_lost(holding)
                found[place] = why and found.get(place, why)
        return found
