"""Certificates for tests: one authority, and what it signs."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_START = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)


class Authority:
    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key(), 3600 * 24)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issued(
        self, name: str, *, hosts: tuple[str, ...] = (), uris: tuple[str, ...] = (), lives_s: float = 3600
    ) -> tuple[bytes, bytes]:
        """Key and certificate, PEM. Hosts may be addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return pem, self.signed(key.public_key(), name, hosts=hosts, uris=uris, lives_s=lives_s)

    def signed(
        self,
        public: ec.EllipticCurvePublicKey,
        name: str,
        *,
        hosts: tuple[str, ...] = (),
        uris: tuple[str, ...] = (),
        lives_s: float = 3600,
    ) -> bytes:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [_host(host) for host in hosts]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = self._builder(subject, public, lives_s)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def write(self, folder: Path, name: str, *, uris: tuple[str, ...] = ()) -> Path:
        """A client's certificate as a Secret of type kubernetes.io/tls is mounted."""
        key, certificate = self.issued(name, uris=uris)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tls.key").write_bytes(key)
        (folder / "tls.crt").write_bytes(certificate)
        return folder

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, lives_s: float
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_START)
            .not_valid_after(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=lives_s))
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
