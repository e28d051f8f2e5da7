"""Cards that a test can break: the fake NVML library of `driver/fakenvml` with a cards file of its own.

    cards = FakeCards(tmp_path, count=4)
    nvml = NVML(libraries=(cards.library,), ...)
    cards.lose(0)
    cards.xid(1, 79)

Every instance has its own copy of the library, so that each finds the cards file beside it. The file is replaced
atomically: a reader sees the cards before a change or after it.
"""

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "driver" / "fakenvml"
DRIVER = "580.95.05"


def build() -> Path:
    """The library, built if it is not fresh."""
    subprocess.run(["make", "-s", "-C", str(SOURCE)], check=True)
    return SOURCE / "build" / "libnvidia-ml.so.1"


FAKE_CUDA = SOURCE / "build" / "fake-cuda"
LIMITING = "615.43.02"
"""A driver that limits control groups."""


class FakeCards:
    """Cards by position; a card keeps its position also while it is away."""

    def __init__(self, directory: Path, *, count: int = 1, driver: str = DRIVER) -> None:
        self.library = directory / "libnvidia-ml.so.1"
        self.file = directory / "fake-nvml.cards"
        self._head = {"driver": driver, "cuda": "13.0"}
        self._cards = [_card(index) for index in range(count)]
        self._away: set[int] = set()
        self._processes: dict[int, tuple[str, ...]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build(), self.library)
        self._write()

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(card["uuid"] for card in self._cards)

    def change(self, index: int, **facts: str | int) -> None:
        """Sets facts of one card, in the words of the cards file."""
        self._cards[index] |= {key: str(value) for key, value in facts.items()}
        self._write()

    def add(self, **facts: str | int) -> int:
        """One more card; its position."""
        self._cards.append(_card(len(self._cards)) | {key: str(value) for key, value in facts.items()})
        self._write()
        return len(self._cards) - 1

    def group(self, path: Path) -> None:
        """A directory that stands for the kernel's control groups."""
        self._head["cgroups"] = str(path)
        self._write()

    def process(self, index: int, *processes: str) -> None:
        """What runs on the card, each as `PID:MiB` or `PID:MiB:PERCENT`; nothing, without any."""
        self._processes[index] = processes
        self._write()

    def lose(self, index: int) -> None:
        """The card stays listed and answers GPU_IS_LOST."""
        self.change(index, lost="true")

    def return_(self, index: int) -> None:
        """The card is back, wherever it was: lost, away or hanging."""
        self._away.discard(index)
        self.change(index, lost="false", hang="false")

    def remove(self, index: int) -> None:
        """The card is no longer listed, as while it is reset or drained."""
        self._away.add(index)
        self._write()

    def hang(self, index: int) -> None:
        """Calls on the card do not come back."""
        self.change(index, hang="true")

    def fail(self, index: int, function: str, code: str) -> None:
        """One call on the card fails; `*` means every one."""
        self.change(index, fail=f"{function}:{code}")

    def mend(self, index: int) -> None:
        self._cards[index].pop("fail", None)
        self._write()

    def set_driver(self, version: str) -> None:
        """The driver is another one: card calls fail until NVML is shut down and initialised again."""
        self._head["driver"] = version
        self._write()

    def unload(self) -> None:
        """The driver is gone: nothing answers."""
        self._head["init"] = "DRIVER_NOT_LOADED"
        self._write()

    def load(self) -> None:
        self._head.pop("init", None)
        self._write()

    def xid(self, index: int, number: int) -> None:
        self._tell(f"xid {self._cards[index]['uuid']} {number}")

    def wait_error(self, code: str) -> None:
        """The next wait for events fails with this error, once."""
        self._tell(f"wait-error {code}")

    def _tell(self, line: str) -> None:
        with self.file.with_name(self.file.name + ".events").open("a") as events:
            events.write(line + "\n")

    def _write(self) -> None:
        lines = [f"{key} {value}" for key, value in self._head.items()]
        lines += [
            "card "
            + " ".join(f'{key}="{value}"' for key, value in card.items())
            + "".join(f" process={one}" for one in self._processes.get(index, ()))
            for index, card in enumerate(self._cards)
            if index not in self._away
        ]
        fresh = self.file.with_name(self.file.name + ".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.file)


def _card(index: int) -> dict[str, str]:
    return {
        "uuid": f"GPU-00000000-0000-4000-8000-{index:012d}",
        "minor": str(index),
        "pci": f"0000:{0x0A + index:02x}:00.0",
        "numa": str(index // 4),
    }
