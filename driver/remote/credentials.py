"""Keys and certificates of leases: the key is made here and never leaves the node, the pool only sees its request.

    CSR -> pool -> certificate -> <directory>/<claim>/<request>/{tls.key, tls.crt, ca.crt}, in memory only (tmpfs)

The top directory lets only root pass, so that on the host nobody else reads what a container's own user may read. A
renewed credential replaces the files one by one, key and certificate in one: a client that opens `tls.pem` gets a pair.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from driver import disk
from driver.remote import relays


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A key, and what the pool is asked to sign."""

    key: bytes
    csr: bytes


class Credentials:
    """The one writer below `directory`."""

    def __init__(self, directory: Path, writer: disk.Disk) -> None:
        self._directory = directory
        self._disk = writer

    def place(self, uid: str) -> Path:
        """The directory of a claim, as the host names it."""
        return self._directory / uid

    async def request(self, name: str) -> Request:
        return await self._disk.run(self._directory, _made, name)

    async def write(
        self, uid: str, request: str, number: int, asked: Request, *, certificate: bytes, authorities: bytes
    ) -> None:
        """The first card's files have plain names, those of the others end in their number."""
        folder = self.place(uid) / request
        await self._disk.run(folder, _write, self._directory, folder, number, asked.key, certificate, authorities)

    async def write_relay(self, uid: str, request: str, relay: relays.Relay) -> None:
        """Tells the relays of a request that is certified already."""
        await self._disk.replace(self.place(uid) / request / relays.FILE, relays.encode(relay))

    async def complete(self, uid: str, request: str, count: int, *, relayed: bool) -> bool:
        """Whether all files are there: a reboot takes them away."""
        folder = self.place(uid) / request
        wanted = [_name("tls.pem", number) for number in range(count)] + ([relays.FILE] if relayed else [])
        return await self._disk.run(folder, lambda: all((folder / name).exists() for name in wanted))

    async def remove(self, uid: str) -> None:
        await self._disk.run(self.place(uid), lambda: shutil.rmtree(self.place(uid), ignore_errors=True))

    async def claims(self) -> frozenset[str]:
        """The claims that have a directory."""
        return await self._disk.run(self._directory, _listed, self._directory)


def _made(name: str) -> Request:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Request(key=text, csr=csr.public_bytes(pem))


def _write(top: Path, folder: Path, number: int, key: bytes, certificate: bytes, authorities: bytes) -> None:
    top.mkdir(parents=True, exist_ok=True)
    top.chmod(0o700)
    for made in (folder.parent, folder):
        made.mkdir(exist_ok=True)
        made.chmod(0o755)
    texts = {"ca.crt": authorities, "tls.key": key, "tls.crt": certificate, "tls.pem": certificate + key}
    for name, text in texts.items():
        path = folder / _name(name, number)
        fresh = path.with_name(f".{path.name}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
            file.write(text)
        fresh.replace(path)


def _name(name: str, number: int) -> str:
    return f"{name}.{number}" if number else name


def _listed(directory: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return frozenset()
