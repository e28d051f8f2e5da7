"""The lock file has all that pyproject.toml asks for, within its bounds, pinned by hash."""

import re
import tomllib

from packaging.requirements import Requirement

from hack import lock

LINE = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)")
NATIVE = {"aiohttp", "msgspec", "grpcio", "cryptography", "google-re2"}


def locked() -> dict[str, tuple[str, int]]:
    lines = [line for line in lock.LOCK.read_text().splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    assert None not in found
    return {match["name"]: (match["version"], match["hashes"].count("--hash")) for match in found if match}


def test_every_dependency_is_locked_within_its_bounds() -> None:
    found = locked()
    project = tomllib.loads((lock.ROOT / "pyproject.toml").read_text())["project"]
    for text in project["dependencies"]:
        wanted = Requirement(text)
        version, _ = found[wanted.name.lower().replace("_", "-")]
        assert wanted.specifier.contains(version), f"{wanted} but locked {version}; python -m hack.lock"


def test_what_is_built_for_a_machine_has_a_wheel_for_each_architecture() -> None:
    found = locked()
    assert {name: found[name][1] for name in NATIVE} == dict.fromkeys(NATIVE, len(lock.ARCHITECTURES))
    assert "pip" in found
