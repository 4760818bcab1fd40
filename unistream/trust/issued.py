"""What an authority has issued since its process was started: for people who ask what ends when."""

from __future__ import annotations

import threading
from typing import Final

from unistream.model.certificates import AuthorityShown, CertificateShown
from unistream.trust.authority import CLOCKS_DIFFER_MS, Authority, fingerprint_of

ISSUED_MAX: Final = 2_000
"""So many are kept: a cluster has some thousand workers at most, and one answer shows all of them."""


class IssuedCertificates:
    """The newest ones by the name of their process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, CertificateShown] = {}
        self._left_out = 0

    def note(self, one: CertificateShown) -> None:
        """It replaces what was issued for the same name."""
        with self._lock:
            self._by_name.pop(one.name, None)
            self._by_name[one.name] = one
            if len(self._by_name) > ISSUED_MAX:
                self._forget(one.issued_ms)

    def _forget(self, now_ms: int) -> None:
        """Drops those that have ended; if there is none, the oldest one, but that of the REST API."""
        ended = [name for name, one in self._by_name.items() if one.until_ms <= now_ms]
        for name in ended or [next(name for name in self._by_name if name)]:
            del self._by_name[name]
            self._left_out += 0 if ended else 1

    def of(self, name: str) -> CertificateShown | None:
        """The newest one of a process; None: it was issued none."""
        with self._lock:
            return self._by_name.get(name)

    def processes(self, now_ms: int) -> tuple[tuple[CertificateShown, ...], int]:
        """Certificates of processes that are valid, the newest first, and how many more were issued."""
        with self._lock:
            known = tuple(one for one in self._by_name.values() if one.name and one.until_ms > now_ms)
            return known[::-1], self._left_out


def authorities_shown(authority: Authority, now_ms: int) -> tuple[AuthorityShown, ...]:
    """The authority, then those before it whose certificates are still believed."""
    former = [one for one in authority.record.former if one.until_ms > now_ms]
    return (
        _shown(authority.record.certificate, None),
        *(_shown(one.certificate, one.until_ms) for one in former),
    )


def _shown(certificate: str, believed_until_ms: int | None) -> AuthorityShown:
    from cryptography import x509

    read = x509.load_pem_x509_certificate(certificate.encode())
    names = [str(one.value) for one in read.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return AuthorityShown(
        fingerprint=fingerprint_of(certificate),
        name=", ".join(names),
        made_ms=int(read.not_valid_before_utc.timestamp() * 1000) + CLOCKS_DIFFER_MS,
        until_ms=int(read.not_valid_after_utc.timestamp() * 1000),
        believed_until_ms=believed_until_ms,
    )
