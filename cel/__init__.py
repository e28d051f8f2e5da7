"""CEL as DRA selectors have it: `compile(text)` gives a Program, `program.matches(device)` its verdict."""

from cel.program import LONGEST, Attribute, Device, Program, compile, version  # noqa: A004
from cel.values import Failed, Semver

__all__ = ["LONGEST", "Attribute", "Device", "Failed", "Program", "Semver", "compile", "version"]
