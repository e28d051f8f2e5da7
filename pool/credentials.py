"""Certificates: the pool's own authority, its front, the leases, and the controllers.

    <state dir>/ca.pem, ca.key    made at the first start unless they are there: put your own there for an authority
                                  that several pools share
    CSR + live lease -> certificate for this lease, token and claim, shorter-lived than the lease

What must stay true: of a CSR only the public key counts, so that nobody names himself; a private key other than the
authority's and the front's is never here. Certificates of clients are judged by the clock of this host alone.
"""

import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, types
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from api import errors, lease

_LEASE_URI = "urn:elasticgpu:lease:"
_CLAIM_URI = "urn:elasticgpu:claim:"
_SKEW = datetime.timedelta(days=2)
"""How far the clock of who trusts the front may be behind."""
_YEAR = datetime.timedelta(days=365)

Clock = Callable[[], datetime.datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Whom a client's certificate is for: a lease with its token and claim, or the controller of a cluster."""

    lease: str = ""
    token: int = 0
    claim: str = ""
    cluster: str = ""


class Authority:
    """Signs. All methods are quick; `load` touches the disk before the loop has work."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, clock: Clock) -> None:
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def load(cls, folder: Path, clock: Clock, *, make: bool = True) -> "Authority":
        """From the folder, made there first if there is none and it may. Blocks. Raises Invalid for files that do not fit."""
        certificate_file, key_file = folder / "ca.pem", folder / "ca.key"
        if make and not key_file.exists() and not certificate_file.exists():
            _make(certificate_file, key_file, clock())
        try:
            certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise errors.Invalid(
                f"{certificate_file} and {key_file} must be a certificate and its key: {error}"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise errors.Invalid(f"{key_file} must be the elliptic-curve key of {certificate_file}")
        return cls(certificate, key, clock)

    def front(self, names: Iterable[str], folder: Path) -> tuple[ssl.SSLContext, str]:
        """The TLS of the door, with a key that is as old as this start, and the key's fingerprint. Blocks."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(key.public_key(), "front", _alternatives(names), ExtendedKeyUsageOID.SERVER_AUTH, 5 * _YEAR)
        chain = folder / "front.pem"
        _write(chain, made + _private(key))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(chain)
        context.load_verify_locations(cadata=self.pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL  # nodes ask for their certificate here
        context.set_alpn_protocols(["h2"])
        return context, fingerprint(key.public_key())

    def for_lease(self, csr: bytes, held: lease.Lease, lifetime_s: float) -> bytes:
        """Raises Invalid where the CSR is none, or not signed by its own key."""
        try:
            request = x509.load_pem_x509_csr(csr)
            public = request.public_key()
            if not request.is_signature_valid:
                raise InvalidSignature  # noqa: TRY301
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
            raise errors.Invalid("csr must be a PKCS #10 request in PEM, signed by its own key") from error
        uris = (f"{_LEASE_URI}{held.id}:token:{held.token}", f"{_CLAIM_URI}{held.consumer.claim_uid}")
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        lifetime = datetime.timedelta(seconds=lifetime_s)
        return self._signed(public, held.id, names, ExtendedKeyUsageOID.CLIENT_AUTH, lifetime)

    def for_controller(self, cluster_uid: str) -> tuple[bytes, bytes]:
        """Certificate and key for the controller of a cluster, good for a year."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.UniformResourceIdentifier(f"{lease.CLUSTER_URI}{cluster_uid}")]
        made = self._signed(key.public_key(), "controller", names, ExtendedKeyUsageOID.CLIENT_AUTH, _YEAR)
        return made, _private(key)

    def _signed(
        self,
        public: types.CertificatePublicKeyTypes,
        common_name: str,
        names: list[x509.UniformResourceIdentifier] | list[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        lifetime: datetime.timedelta,
    ) -> bytes:
        now = self._clock()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + lifetime)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def bearer(uris: Iterable[str]) -> Bearer:
    """Whom the names in a verified certificate stand for. Raises Invalid for names that are none of ours."""
    held: dict[str, str] = {}
    for uri in uris:
        for prefix in (_LEASE_URI, _CLAIM_URI, lease.CLUSTER_URI):
            if uri.startswith(prefix):
                held[prefix] = uri.removeprefix(prefix)
    if set(held) == {lease.CLUSTER_URI}:
        return Bearer(cluster=held[lease.CLUSTER_URI])
    id_, word, token = held.get(_LEASE_URI, "").rpartition(":token:")
    if set(held) != {_LEASE_URI, _CLAIM_URI} or not word or not token.isdecimal():
        raise errors.Invalid("the certificate is of this pool's authority, but for no lease and no controller")
    return Bearer(lease=id_, token=int(token), claim=held[_CLAIM_URI])


def fingerprint(public: ec.EllipticCurvePublicKey) -> str:
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _alternatives(names: Iterable[str]) -> list[x509.GeneralName]:
    made: list[x509.GeneralName] = []
    for name in names:
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            made.append(x509.DNSName(name))
    return made


def _make(certificate_file: Path, key_file: Path, now: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elastic-gpu pool")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + 20 * _YEAR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(key_file, _private(key))
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_bytes(text)
    fresh.replace(path)
