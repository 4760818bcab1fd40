"""The certificates of a cluster as its REST API shows them. Times are ms since 1970."""

from __future__ import annotations

import msgspec


class AuthorityShown(msgspec.Struct, frozen=True, kw_only=True):
    """An authority of the cluster: who has its fingerprint from a safe place knows it.

    Attributes:
        fingerprint: SHA-256 of its certificate, in hex.
        name: That in its certificate.
        made_ms, until_ms: When it was made, and how long its certificate is valid.
        believed_until_ms: Of a former one: new processes believe what it has issued until then. None: it
            issues now.
    """

    fingerprint: str
    name: str
    made_ms: int
    until_ms: int
    believed_until_ms: int | None = None


class CertificateShown(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that this master has issued.

    Attributes:
        name: Of the process; "": the REST API.
        hosts: Names and addresses by which it is reached; empty: it is known by its name alone.
        authority: The fingerprint of who has issued it.
        issued_ms, until_ms: When, and how long it is valid.
    """

    name: str
    hosts: tuple[str, ...] = ()
    authority: str
    issued_ms: int
    until_ms: int


class CertificatesShown(msgspec.Struct, frozen=True, kw_only=True):
    """What GET /unistream/certificates answers.

    Attributes:
        authorities: The one that issues, then former ones that are still believed; empty: all servers of the
            cluster listen on loopback addresses, and show none.
        rest: What the REST API shows; None: it speaks plain HTTP.
        rest_renewed_ms: When that is replaced by itself, at the latest.
        encrypts_workers: Whether workers and the JobManager show certificates to each other.
        processes: Those of workers and of the JobManager that this master has issued since it was started and
            that are valid, the newest first. What a master before it has issued is not among them.
        left_out: How many more there are.
    """

    now_ms: int
    authorities: tuple[AuthorityShown, ...] = ()
    rest: CertificateShown | None = None
    rest_renewed_ms: int | None = None
    encrypts_workers: bool = False
    processes: tuple[CertificateShown, ...] = ()
    left_out: int = 0
