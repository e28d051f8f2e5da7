"""CEL as DRA selectors have it: `compile(text)` gives a Program, `program.matches(device)` its verdict."""

from cel.devices import Attribute, Device, device
from cel.program import LONGEST, Program, compile, version  # noqa: A004
from cel.values import Failed, Semver

__all__ = ["LONGEST", "Attribute", "Device", "Failed", "Program", "Semver", "compile", "device", "version"]
