"""TLS of the REST API over real sockets: who is believed, and how a certificate is replaced."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cryptography import x509

from tests.support.authorities import DAY_MS, NOW_MS, authority, other_authority
from unistream.base.errors import ConfigError
from unistream.model.credentials import Credentials
from unistream.trust.authority import Authority, new_authority, rotated
from unistream.trust.contexts import client_context, renewed_context, server_context
from unistream.trust.pinning import pinned_roots


class StoppedClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class TlsServer:
    """Shows its certificate to each client, and answers HTTP with `answer`."""

    def __init__(self, context: ssl.SSLContext, answer: bytes = b"") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = context
        self._answer = answer
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with accepted, suppress(OSError):
                self._answer_one(accepted)

    def _answer_one(self, accepted: socket.socket) -> None:
        with self._context.wrap_socket(accepted, server_side=True) as connection:
            if self._answer:
                connection.recv(10_000)
                connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def rest(hosts: tuple[str, ...] = ("127.0.0.1", "localhost"), at_ms: int = NOW_MS) -> ssl.SSLContext:
    return server_context(authority().issue("", now_ms=at_ms, lasts_ms=DAY_MS, hosts=hosts))


def shown(port: int, context: ssl.SSLContext, name: str | None = "127.0.0.1") -> int:
    """The serial number of the certificate that a server shows."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        assert connection.version() == "TLSv1.3"
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
def server() -> Iterator[TlsServer]:
    made = TlsServer(rest())
    yield made
    made.close()


def test_a_client_believes_the_authority_that_it_knows(server: TlsServer) -> None:
    assert shown(server.port, client_context(authority().roots(NOW_MS)))
    assert shown(server.port, client_context(other_authority().roots(NOW_MS) + authority().roots(NOW_MS)))


def test_a_client_believes_no_other(server: TlsServer) -> None:
    for context in (client_context(other_authority().roots(NOW_MS)), ssl.create_default_context()):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed"):
            shown(server.port, context)


def test_a_server_is_believed_under_its_own_names_alone(server: TlsServer) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shown(server.port, client_context(authority().roots(NOW_MS)), "jobs.example.com")


def test_strict_verification_finds_nothing_wrong(server: TlsServer) -> None:
    """That of Python 3.13 by default, and of some proxies."""
    context = client_context(authority().roots(NOW_MS))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shown(server.port, context)


def test_older_versions_of_tls_are_refused(server: TlsServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().roots(NOW_MS))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, OSError)):
        shown(server.port, context)


def test_a_certificate_is_replaced_in_time() -> None:
    """The first handshake after that time has the new one: the former may have ended since."""
    clock = StoppedClock()

    def issue() -> Credentials:
        return authority().issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=["127.0.0.1"])

    server = TlsServer(renewed_context(issue, clock, DAY_MS // 2))
    try:
        context = client_context(authority().roots(NOW_MS))
        first = shown(server.port, context)
        assert shown(server.port, context) == first
        clock.now_ms += DAY_MS // 2
        second = shown(server.port, context)
        assert second != first
        assert shown(server.port, context) == second
    finally:
        server.close()


def test_a_certificate_is_replaced_at_once_when_another_authority_issues_it() -> None:
    former = Authority(new_authority("c", NOW_MS))
    issuers = [former]

    def issue() -> Credentials:
        return issuers[-1].issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=["127.0.0.1"])

    server = TlsServer(renewed_context(issue, StoppedClock(), DAY_MS, lambda: issuers[-1].fingerprint))
    try:
        before = client_context(former.roots(NOW_MS))
        first = shown(server.port, before)
        later = Authority(rotated(former, "c", now_ms=NOW_MS, keep_ms=DAY_MS))
        issuers.append(later)
        after = client_context(later.record.certificate)
        assert shown(server.port, before) != first
        assert shown(server.port, after)
    finally:
        server.close()


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no certificates in PEM"):
        client_context(text)


# --- pinned ---------------------------------------------------------------------------------------


def answered(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def test_the_authority_with_the_fingerprint_is_believed() -> None:
    server = TlsServer(rest(), answered(authority().roots(NOW_MS)))
    try:
        assert (
            pinned_roots("127.0.0.1", server.port, authority().fingerprint, 30).strip()
            == authority().roots(NOW_MS).strip()
        )
    finally:
        server.close()
    assert pinned_roots("127.0.0.1", server.port, authority().fingerprint, 30), "it is asked once"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answered(other_authority().roots(NOW_MS)), "is not the cluster of this token"),
        (answered("nothing"), "is not the cluster of this token"),
        (answered("{}", "404 Not Found"), "shows no authority of a cluster"),
    ],
)
def test_any_other_is_not(answer: bytes, why: str) -> None:
    server = TlsServer(rest(), answer)
    try:
        with pytest.raises(ConfigError, match=why):
            pinned_roots("127.0.0.1", server.port, authority().fingerprint, 30)
    finally:
        server.close()


def test_what_is_shown_with_it_is_not_believed() -> None:
    """Who sits between a client and its cluster has the cluster's authority, too: it is no secret."""
    own = server_context(other_authority().issue("", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=["127.0.0.1"]))
    for both in (
        other_authority().roots(NOW_MS) + authority().roots(NOW_MS),
        authority().roots(NOW_MS) + other_authority().roots(NOW_MS),
    ):
        between = TlsServer(own, answered(both))
        try:
            roots = pinned_roots("127.0.0.1", between.port, authority().fingerprint, 30)
            assert roots.strip() == authority().roots(NOW_MS).strip()
            with pytest.raises(ssl.SSLCertVerificationError):
                shown(between.port, client_context(roots))
        finally:
            between.close()


def test_what_speaks_something_else_is_an_error_of_the_connection() -> None:
    server = TlsServer(rest(), b"SSH-2.0-x\r\n")
    try:
        with pytest.raises(OSError, match="speaks no HTTP"):
            pinned_roots("127.0.0.1", server.port, authority().fingerprint, 30)
    finally:
        server.close()
