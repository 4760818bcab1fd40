"""Which authorities a client believes when a cluster's REST API shows its certificate.

one that `give_access` has named         that of its file, or the one that its token pins
a cluster of this user on this machine   its own, from its entry in `home`: nobody types anything
any other                                that of the file UNISTREAM_CA_FILE; or, without one, the one that
                                         the token of the environment pins; or those of this machine
"""

from __future__ import annotations

import os
import ssl
import threading

from unistream.base.errors import ConfigError
from unistream.client.machine.tokens import CA_FILE_VARIABLE, entry_at, given_access, token_in_environment
from unistream.core.access import parsed
from unistream.trust.contexts import client_context
from unistream.trust.pinning import pinned_roots


class Trusted:
    """Contexts of TLS for the servers that a client talks to. Thread-safe; each is made once. `token`: what
    it presents to all of them; None: what the environment has."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._made: dict[str, ssl.SSLContext] = {}  # by roots; "": those of this machine

    def context(self, host: str, port: int, within_s: float) -> ssl.SSLContext:
        """The context for that server.

        Raises:
            ConfigError: the file of the environment has no certificates, or the server shows another
                authority than the token pins.
            OSError: it does not answer.
        """
        roots = self._roots(host, port, within_s)
        with self._lock:
            found = self._made.get(roots)
            if found is None:
                found = client_context(roots) if roots else ssl.create_default_context()
                self._made[roots] = found
            return found

    def _roots(self, host: str, port: int, within_s: float) -> str:
        given = given_access(host, port)
        if given.ca_file:
            return _read(given.ca_file, "ca_file")
        entry = entry_at(host, port)
        if entry is not None and entry.roots:
            return entry.roots
        path = os.environ.get(CA_FILE_VARIABLE, "")
        if path:
            return _read(path, CA_FILE_VARIABLE)
        presented = parsed(self._token or given.token or token_in_environment() or "")
        pin = "" if presented is None else presented.fingerprint
        return pinned_roots(host, port, pin, within_s) if pin else ""


def _read(path: str, named: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{named}={path} cannot be read: {error}") from error
