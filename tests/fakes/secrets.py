"""What must be written nowhere but in its own place, looked for the same way by all tests of the remote road.

none_in({"the log": text, ...})          what a test has in its hands
none_below(folder)                       every file that a test has made, but those that keys and tokens live in
"""

from collections.abc import Mapping
from pathlib import Path

WORDS = ("PRIVATE KEY", "eyJhbGciOi", ".signature", "own-token\n", "node|")
"""A key; the beginning of every ServiceAccount token; tokens of the fakes."""
_HOMES = ("*.key", "*.key.*", "tls.pem*", "front.pem", "client-*.pem", "own-token", "kubeconfig")


def none_in(texts: Mapping[str, str], *more: str) -> None:
    """`more`: secrets that are known one by one."""
    found = [
        f"{word.strip()!r} in {where}" for where, text in texts.items() for word in (*WORDS, *more) if word in text
    ]
    assert not found, "; ".join(found)


def none_below(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file() and not any(map(path.match, _HOMES))]
    none_in({str(path): path.read_bytes().decode(errors="replace") for path in files})
