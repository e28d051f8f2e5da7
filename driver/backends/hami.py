"""The rung HAMi: HAMi-core, a library that is preloaded into every program of a container and refuses what is too much.

    check    the library is there, and is the one that the admin named (or that was there at the start)
    step     one fresh directory a share, for the file that the library keeps its account in; where the layout of that file
             is known, it is begun there with the limits in it
    edits    the library, its preload file, that directory or file, and the limits as environment

The library is the admin's to provide. What it is told stands in the environment and what it counts lies in a file that the
container can write: it keeps honest programs apart, not hostile ones. A static program, or one of another C library, is not
limited at all; nor is one with an emptied environment, unless the account was begun by us, for then it finds that.

What must stay true: the library numbers the cards of a container, and keeps one account a container (its process ids
are those of one). So it holds a share only where one container uses it, and that one nothing else: then its card is
number 0. A directory is never used twice, for the first process that finds it takes its limits from it (core#191).
"""

import hashlib
import shutil
from pathlib import Path

import structlog

from api import errors, v1alpha1
from driver import booking, cdi, containers, disk, hamiregion, inventory, records, rung

_INSIDE = "/usr/local/vgpu"
_REGION = "/var/lib/elastic-gpu"
_DEFAULT = "/tmp/cudevshr.cache"  # noqa: S108 a path in the container, where a process without environment looks
_LOCK = "/tmp/vgpulock"  # noqa: S108 a path in the container, which older builds of the library have built in
_STEP = "hami/region"
_FILE = "region/share.cache"
_log = structlog.get_logger()


class HAMi:
    """`library` and `data_dir` have the same path here and on the host. `sha256`: the library's, as hex; empty: at start.

    `layout`: that of the library's file, where the admin knows it.
    """

    kind = v1alpha1.Rung.HAMI
    limits: frozenset[rung.Limit] = frozenset({"memory", "cores"})

    def __init__(
        self, library: Path, sha256: str, data_dir: Path, writer: disk.Disk, layout: hamiregion.Layout | None = None
    ) -> None:
        self._library = library
        self._sha256 = sha256.lower()
        self._dir = data_dir / "hami"
        self._disk = writer
        self._layout = layout
        self._problem = f"{library} has not been looked at yet"
        self._seen: tuple[int, ...] = ()

    async def look(self) -> None:
        """Reads the library again where its file has changed, or could not be read."""
        try:
            stamp = await self._disk.run(self._library, _stamp, self._library)
        except errors.Unavailable:
            stamp = ()
        if not stamp or stamp != self._seen:
            self._seen = stamp
            await self.check()

    async def check(self) -> str:
        """Reads the library; what is wrong with it, or nothing. The first that was read is what it has to stay."""
        try:
            found = await self._disk.run(self._library, _sum, self._library)
        except errors.Unavailable as error:
            problem = f"the library cannot be read: {error}"
        else:
            self._sha256 = self._sha256 or found
            problem = "" if found == self._sha256 else f"{self._library} is another one: its SHA-256 is {found}"
        if problem != self._problem:
            _log.info("HAMi-core looked at", library=str(self._library), problem=problem)
        self._problem = problem
        return problem

    def lacking(self, card: inventory.Card, users: tuple[containers.User, ...] = ()) -> tuple[str, ...]:
        del card
        return (*((self._problem,) if self._problem else ()), *containers.crowded(users))

    def steps(self, holdings: tuple[records.Holding, ...]) -> tuple[records.Step, ...]:
        return (records.Step(kind=_STEP, device=holdings[0].device, backend="share"),)

    def edits(self, holding: records.Holding) -> cdi.Edits:
        memory_mib, cores = _limits(holding)
        limits = [f"CUDA_DEVICE_MEMORY_LIMIT_0={memory_mib}m"] if memory_mib else []
        limits += [f"CUDA_DEVICE_SM_LIMIT_0={cores}"] if cores else []
        region = self._region(holding)
        account = [_mount(region / "region", _REGION, "rw")]
        if self._layout:
            account = [_mount(region / _FILE, inside, "rw") for inside in (f"{_REGION}/share.cache", _DEFAULT)]
        return cdi.Edits(
            env=(
                *limits,
                f"CUDA_DEVICE_MEMORY_SHARED_CACHE={_REGION}/share.cache",
                "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                "LIBCUDA_LOG_LEVEL=0",
            ),
            mounts=(
                _mount(self._library, f"{_INSIDE}/libvgpu.so", "ro"),
                _mount(self._dir / "ld.so.preload", "/etc/ld.so.preload", "ro"),
                *account,
                _mount(region / "lock", _LOCK, "rw"),
            ),
        )

    async def apply(self, record: records.Record, step: records.Step) -> None:
        """Refuses a library that was swapped: its containers would run with nobody knows what (HAMi#777, #1346)."""
        del step
        if problem := await self.check():
            raise errors.NotReady(f"{record}: a share cannot be held by HAMi-core: {problem}")
        for holding in self._held(record):
            memory_mib, cores = _limits(holding)
            text = None
            if self._layout:
                text = hamiregion.begun(self._layout, memory_bytes=memory_mib * booking.MIB, cores=cores)
            await self._disk.run(self._dir, _make, self._dir, self._region(holding), text)

    async def undo(self, record: records.Record, step: records.Step) -> None:
        del step
        for holding in self._held(record):
            await self._disk.run(self._dir, _remove, self._region(holding))

    @property
    def elastic(self) -> bool:
        """The library reads its limit of memory anew each time, so it is enough to write it where it lies."""
        return self._layout is not None

    async def resize(self, holding: records.Holding, pods: frozenset[str]) -> None:
        del pods
        limit = hamiregion.memory_limit(_limits(holding)[0] * booking.MIB)
        await self._disk.run(self._dir, _write, self._region(holding) / _FILE, limit)

    async def holds(self, holding: records.Holding, pods: frozenset[str]) -> bool:
        """What the account says, where its form is known: the container can write it, so this shows that honest programs are
        held.
        """
        del pods
        if self._layout is None or self._problem:
            return False
        file = self._region(holding) / _FILE
        found = hamiregion.limits(await self._disk.run(file, _head, file))
        memory_mib, cores = _limits(holding)
        return found == (memory_mib * booking.MIB, cores or 100)

    def _held(self, record: records.Record) -> tuple[records.Holding, ...]:
        word = rung.word(self.kind)
        return tuple(held for held in record.holdings if word in (held.enforcement, held.cores_enforcement))

    def _region(self, holding: records.Holding) -> Path:
        """Shares have an id that no other share ever gets."""
        return self._dir / holding.share_id


def _limits(holding: records.Holding) -> tuple[int, int]:
    """MiB and percent, 0 for what this rung does not hold."""
    word = rung.word(HAMi.kind)
    return (
        holding.memory_limit_mib if holding.enforcement == word else 0,
        holding.cores if holding.cores_enforcement == word else 0,
    )


def _mount(host: Path, inside: str, mode: str) -> cdi.JSON:
    return {"hostPath": str(host), "containerPath": inside, "options": [mode, "nosuid", "nodev", "bind"]}


def _stamp(library: Path) -> tuple[int, ...]:
    found = library.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _sum(library: Path) -> str:
    with library.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make(root: Path, region: Path, account: bytes | None) -> None:
    """What a container of any user may write; a directory that is there is of a Prepare that was cut off."""
    root.mkdir(parents=True, exist_ok=True)
    preload = root / "ld.so.preload"
    if not preload.exists():
        preload.write_text(f"{_INSIDE}/libvgpu.so\n")
    _remove(region)
    for name in ("region", "lock"):
        path = region / name
        path.mkdir(parents=True)
        path.chmod(0o777)
    if account is not None:
        (region / _FILE).write_bytes(account)
        (region / _FILE).chmod(0o666)


def _head(file: Path) -> bytes:
    with file.open("rb") as account:
        return account.read(hamiregion.HEAD)


def _write(file: Path, limit: bytes) -> None:
    """In place: programs have the file mapped."""
    with file.open("r+b", buffering=0) as account:
        account.seek(hamiregion.MEMORY_AT)
        account.write(limit)


def _remove(region: Path) -> None:
    if region.exists():
        shutil.rmtree(region)
