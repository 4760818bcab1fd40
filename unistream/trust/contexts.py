"""Python's TLS with a cluster's certificates, for servers and clients of the REST API. TLS 1.3 alone."""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.model.credentials import Credentials


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """A server that shows its certificate and asks clients for none. Raises ConfigError: they do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    show(context, credentials)
    return context


def renewed_context(
    issue: Callable[[], Credentials], clock: Clock, renew_ms: int, issuer: Callable[[], str] = str
) -> ssl.SSLContext:
    """A server whose certificate is replaced while it runs.

    Args:
        issue: Makes credentials that last now.
        clock: Says when they are replaced.
        renew_ms: For how long they are shown; a handshake after that shows new ones, as do all later ones.
        issuer: Says who issues them; if it says something else than before, they are replaced at once.
    """
    lock, outer = threading.Lock(), server_context(issue())
    current, until_ms, by = outer, clock.wall_ms() + renew_ms, issuer()

    def on_hello(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        nonlocal current, until_ms, by
        with lock:
            if clock.wall_ms() >= until_ms or issuer() != by:
                by = issuer()
                current, until_ms = server_context(issue()), clock.wall_ms() + renew_ms
            connection.context = current

    outer.sni_callback = on_hello  # called for each handshake, also without a name
    return outer


def client_context(roots: str) -> ssl.SSLContext:
    """A client that accepts servers of these authorities alone, under the host name that it asks for.

    Raises:
        ConfigError: there is no certificate in PEM in `roots`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=roots)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"these are no certificates in PEM: {error}") from error
    return context


def show(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Has handshakes from now on use this certificate; connections that exist keep theirs."""
    with tempfile.TemporaryDirectory(
        prefix="unistream-certificate-"
    ) as folder:  # 0700; ssl reads files alone
        path = os.path.join(folder, "chain.pem")
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(credentials.key.reveal() + "\n" + credentials.certificate)
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"the certificate of {credentials.name!r} cannot be used: {error}") from error
