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
CLOCKS_DIFFER_MS: Final = 3_600_000
"""A certificate begins this long before it is made: the clocks of two hosts are never the same."""


class FormerAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """An authority that signs nothing any more. `until_ms`: its certificates are believed until then."""

    certificate: str
    until_ms: int


class AuthorityRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An authority as it is kept.

    Attributes:
        certificate, key: PEM.
        by_former: The same key certified by the authority before it, for processes that know that one alone;
            "": it is the first.
        former: Those before it, the newest first.
    """

    certificate: str
    key: Secret
    by_former: str = ""
    former: tuple[FormerAuthority, ...] = ()


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
        self.record = record

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of`."""
        return fingerprint_of(self.record.certificate)

    def roots(self, now_ms: int) -> str:
        """What a process has to know to verify others, PEM: this authority, then former ones."""
        former = [one.certificate for one in self.record.former if one.until_ms > now_ms]
        return "".join([self.record.certificate, *former])

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
        return self._credentials(name or names[0], certificate, pem_of(key), now_ms)

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
        certificate = self._signed(key, [certified_name(name)], now_ms, lasts_ms)
        return self._credentials(name, certificate, "", now_ms)

    def certify(self, other: AuthorityRecord, now_ms: int) -> str:
        """A certificate of this authority for the key of its successor, PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding

        root = x509.load_pem_x509_certificate(other.certificate.encode())
        until = min(root.not_valid_after_utc, self._certificate.not_valid_after_utc)
        builder = _begun(root.public_key(), self._certificate.subject, _moment(now_ms), until)
        builder = builder.subject_name(root.subject)
        builder = _may_sign(builder, root.public_key(), path_length=0)
        builder = builder.add_extension(self._own_key_id(), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def _credentials(self, name: str, certificate: x509.Certificate, key: str, now_ms: int) -> Credentials:
        from cryptography.hazmat.primitives.serialization import Encoding

        return Credentials(
            name=name,
            certificate=certificate.public_bytes(Encoding.PEM).decode() + self.record.by_former,
            key=Secret(key),
            roots=self.roots(now_ms),
            until_ms=int(certificate.not_valid_after_utc.timestamp() * 1000),
        )

    def _signed(self, key: object, names: list[str], now_ms: int, lasts_ms: int) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        now = _moment(now_ms)
        until = min(now + datetime.timedelta(milliseconds=lasts_ms), self._certificate.not_valid_after_utc)
        builder = _begun(key, self._certificate.subject, now, until).subject_name(x509.Name([]))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(one) for one in names]), critical=True
        )
        builder = builder.add_extension(self._own_key_id(), critical=False)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _own_key_id(self) -> x509.AuthorityKeyIdentifier:
        from cryptography import x509

        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def rotated(authority: Authority, cluster: str, *, now_ms: int, keep_ms: int) -> AuthorityRecord:
    """The next authority of a cluster. Processes that know the former one alone believe what it issues, since
    that has certified its key.

    Args:
        authority: The former one.
        cluster: As for `new_authority`.
        now_ms: The time.
        keep_ms: For how long certificates of the former one are believed by processes that start from now on.
    """
    made, before = new_authority(cluster, now_ms), authority.record
    former = (
        FormerAuthority(certificate=before.certificate, until_ms=now_ms + keep_ms),
        *(one for one in before.former if one.until_ms > now_ms),
    )
    return msgspec.structs.replace(made, by_former=authority.certify(made, now_ms), former=former)


def new_authority(cluster: str, now_ms: int) -> AuthorityRecord:
    """A new authority. `cluster`: for people who look at its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), _moment(now_ms)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:8]
    name = f"unistream cluster {cluster[:30]} {own}"  # another one each time: verifiers look for it by name
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _begun(key.public_key(), subject, now, now + AUTHORITY_LASTS).subject_name(subject)
    certificate = _may_sign(builder, key.public_key(), path_length=1).sign(key, hashes.SHA256())
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
    key: object, issuer: x509.Name, now: datetime.datetime, until: datetime.datetime
) -> x509.CertificateBuilder:
    """What all certificates have but whom they are for."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .public_key(key)  # type: ignore[arg-type]  # one of an elliptic curve
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(milliseconds=CLOCKS_DIFFER_MS))
        .not_valid_after(until)
    )


def _may_sign(builder: x509.CertificateBuilder, key: object, *, path_length: int) -> x509.CertificateBuilder:
    """Makes it the certificate of an authority. `path_length`: how many authorities may be below it."""
    from cryptography import x509

    limits = x509.BasicConstraints(ca=True, path_length=path_length)
    own = x509.SubjectKeyIdentifier.from_public_key(key)  # type: ignore[arg-type]
    builder = builder.add_extension(limits, critical=True).add_extension(own, critical=False)
    return builder.add_extension(_signs_only(), critical=True)


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
