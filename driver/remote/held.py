"""What this node holds of remote cards, in memory: the records by claim, and which of their leases are over.

What must stay true: a lease is known by its key, for the next one of the same card is another one; what changed here while the
records were read from the disk stays as it is here; a claim that is being given back gets no new files.
"""

from collections.abc import Iterable, Mapping

from driver.remote import records

Place = tuple[str, str]
"""Pool and device."""


class Held:
    def __init__(self) -> None:
        self.records: dict[str, records.Record] = {}
        self.ending: set[str] = set()
        """The claims whose files are being removed: whoever has written one meanwhile removes it again."""
        self._lost: dict[str, str] = {}

    def take(self, before: Mapping[str, records.Record], read: Iterable[records.Record]) -> None:
        """`before`: what was here when the disk began to be read."""
        found = {record.uid: record for record in read}
        for uid in before.keys() | found.keys():
            if self.records.get(uid) is not before.get(uid):
                continue
            if uid in found:
                self.records[uid] = found[uid]
            else:
                del self.records[uid]

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
