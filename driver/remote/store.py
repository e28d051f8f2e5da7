"""The records of remote claims on disk: one file a claim, written whole; a bad one is set aside and costs one claim."""

from pathlib import Path

import structlog

from api import errors, resource
from driver import disk
from driver.remote import records

_SUFFIX = ".json"
_log = structlog.get_logger()


class Store:
    """The one reader and writer of the directory; two processes share it, one at a time per claim."""

    def __init__(self, data_dir: Path, writer: disk.Disk) -> None:
        self._directory = data_dir / "claims"
        self._disk = writer

    async def read(self, uid: resource.ClaimUID) -> records.Record | None:
        path = self._path(uid)
        text = await self._disk.run(path, _read, path)
        if text is None:
            return None
        try:
            return records.decode(text, uid)
        except errors.Corrupt as error:
            _log.error("record set aside", path=str(path), reason=str(error))
            await self._disk.run(path, lambda: path.rename(path.with_name(f"{path.name}.corrupt")))
            return None

    async def all(self) -> tuple[records.Record, ...]:
        names = await self._disk.run(self._directory, _listed, self._directory)
        found = [await self.read(resource.ClaimUID(name.removesuffix(_SUFFIX))) for name in names]
        return tuple(record for record in found if record is not None)

    async def write(self, record: records.Record) -> None:
        """Durable with its name: a step that outlives a power cut follows."""
        await self._disk.replace(self._path(record.uid), records.encode(record), follow_up=True)

    async def remove(self, uid: str) -> None:
        await self._disk.remove(self._path(uid), durable=True)

    def _path(self, uid: str) -> Path:
        return self._directory / f"{uid}{_SUFFIX}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _listed(directory: Path) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(_SUFFIX))
