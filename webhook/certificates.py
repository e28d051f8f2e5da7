"""Certificates: made, and read. The only importer of `cryptography` here.

Each serving certificate has a CA of its own, whose key is forgotten as soon as it has signed: nobody can sign a second
one, and nothing but the serving key has to be kept secret. It takes a millisecond, so it is done where it is called.
"""

import datetime
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from api import errors

_SKEW = datetime.timedelta(days=1)
"""Valid from so long ago, since clocks of API servers differ from ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A serving certificate and its key, as PEM. `authority`: who trusts this trusts the certificate."""

    certificate: str
    key: str
    authority: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when a certificate holds."""

    start: datetime.datetime
    end: datetime.datetime


def issue(hosts: Iterable[str], now: datetime.datetime, lifetime: datetime.timedelta) -> Pair:
    """A new pair for these DNS names, and the CA that signed it."""
    signer, serving = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = tuple(hosts)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elastic-gpu webhook CA")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    authority = (
        _builder(issuer, issuer, signer.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    certificate = (
        _builder(subject, issuer, serving.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    key = serving.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate=_pem(certificate), key=key.decode(), authority=_pem(authority))


def validity(certificate: str) -> Validity:
    """Raises Invalid where the text holds no certificate."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError as error:
        raise errors.Invalid(f"this is no certificate: {error}") from error
    return Validity(start=found.not_valid_before_utc, end=found.not_valid_after_utc)


def still_valid(authorities: str, now: datetime.datetime) -> tuple[str, ...]:
    """Those of a bundle that have not expired, in their order. What cannot be read is left out."""
    try:
        found = x509.load_pem_x509_certificates(authorities.encode())
    except ValueError:
        return ()
    return tuple(_pem(one) for one in found if one.not_valid_after_utc > now)


def load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Has new connections of `context` served by this pair. Blocks shortly. Raises Invalid where the two do not fit."""
    with tempfile.TemporaryDirectory() as folder:  # the ssl module takes paths alone
        path = Path(folder) / "pair"
        path.touch(mode=0o600)
        path.write_text(certificate + "\n" + key, encoding="ascii")
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, ValueError) as error:
            raise errors.Invalid(f"certificate and key cannot be served: {error}") from error


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _SKEW).not_valid_after(now + lifetime)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
