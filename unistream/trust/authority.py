"""The authority of a cluster: a key that signs the certificates of its processes, and of nothing else.

ECDSA on P-256: the curve that every TLS library has, and whose signatures cost a server some 30 µs.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.secrets import Secret
from unistream.model.credentials import Credentials, certified_name

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_LASTS: Final = datetime.timedelta(days=3650)
CLOCKS_DIFFER: Final = datetime.timedelta(hours=1)
"""A certificate begins this long before it is made: the clocks of two hosts are never the same."""


class AuthorityRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An authority as it is kept. `certificate`, `key`: PEM."""

    certificate: str
    key: Secret


class Authority:
    """Issues certificates.

    Raises:
        CorruptSnapshot: the record is damaged, or its key is another's.
    """

    def __init__(self, record: AuthorityRecord) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

        try:
            self._certificate = x509.load_pem_x509_certificate(record.certificate.encode())
            key = serialization.load_pem_private_key(record.key.reveal().encode(), None)
        except (ValueError, TypeError) as error:
            raise CorruptSnapshot(f"this is no authority of a cluster: {error}") from error
        if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            raise CorruptSnapshot("the key of this authority is not that of its certificate")
        self._key = key
        self.roots = record.certificate

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of`."""
        return fingerprint_of(self.roots)

    def issue(
        self,
        name: str,
        *,
        now_ms: int,
        lasts_ms: int,
        hosts: Iterable[str] = (),
    ) -> Credentials:
        """A new key with its certificate.

        Args:
            name: Of the process; "": a server that clients reach by `hosts` alone.
            now_ms: The time, ms since 1970.
            lasts_ms: How long the certificate is accepted.
            hosts: Host names and addresses by which it is reached.
        """
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        names = [*([certified_name(name)] if name else []), *hosts]
        certificate = self._signed(key.public_key(), names, now_ms, lasts_ms)
        return self._credentials(name or names[0], certificate, pem_of(key))

    def sign(self, request: str, name: str, *, now_ms: int, lasts_ms: int) -> Credentials:
        """A certificate for a key that only its owner has. Nothing but the key is taken from the request.

        Args:
            request: PEM of a certificate signing request.
            name: Of the process.
            now_ms: The time, ms since 1970.
            lasts_ms: How long the certificate is accepted.

        Returns:
            Credentials without their key.

        Raises:
            ConfigError: it is no request, or not signed with its own key, or the key is of another kind.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

        try:
            parsed = x509.load_pem_x509_csr(request.encode())
            is_own = parsed.is_signature_valid
            key = parsed.public_key()
        except ValueError as error:
            raise ConfigError(f"this is no request for a certificate: {error}") from error
        if not is_own or not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
            raise ConfigError("a request for a certificate has a key on P-256, with which it is signed")
        return self._credentials(name, self._signed(key, [certified_name(name)], now_ms, lasts_ms), "")

    def _credentials(self, name: str, certificate: x509.Certificate, key: str) -> Credentials:
        from cryptography.hazmat.primitives.serialization import Encoding

        return Credentials(
            name=name,
            certificate=certificate.public_bytes(Encoding.PEM).decode(),
            key=Secret(key),
            roots=self.roots,
            until_ms=int(certificate.not_valid_after_utc.timestamp() * 1000),
        )

    def _signed(self, key: object, names: list[str], now_ms: int, lasts_ms: int) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        now = _moment(now_ms)
        until = min(now + datetime.timedelta(milliseconds=lasts_ms), self._certificate.not_valid_after_utc)
        builder = _begun(key, [], self._certificate.subject, now, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(one) for one in names]), critical=True
        )
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._certificate.public_key())  # type: ignore[arg-type]
        builder = builder.add_extension(own, critical=False)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def new_authority(cluster: str, now_ms: int) -> AuthorityRecord:
    """A new authority. `cluster`: for people who look at its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key, now = ec.generate_private_key(ec.SECP256R1()), _moment(now_ms)
    names = [f"unistream cluster {cluster}"[:64]]
    builder = _begun(key.public_key(), names, None, now, now + AUTHORITY_LASTS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(own, critical=False).add_extension(_signs_only(), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return AuthorityRecord(
        certificate=certificate.public_bytes(Encoding.PEM).decode(), key=Secret(pem_of(key))
    )


def fingerprint_of(certificate: str) -> str:
    """SHA-256 of a certificate, in hex: who has it from a safe place knows the certificate. `certificate`:
    PEM; of several, the first.

    Raises:
        ConfigError: it is none.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        first = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError as error:
        raise ConfigError(f"this is no certificate in PEM: {error}") from error
    return hashlib.sha256(first.public_bytes(Encoding.DER)).hexdigest()


def pem_of(key: EllipticCurvePrivateKey) -> str:
    """A private key as text, not encrypted."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _begun(
    key: object,
    common_name: list[str],
    issuer: x509.Name | None,
    now: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    """What all certificates have. `issuer`: None: it is its own."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_name])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer)
        .public_key(key)  # type: ignore[arg-type]  # one of an elliptic curve
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(until)
    )


def _signs_only() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _moment(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
